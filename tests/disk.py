"""A disk that has room for so many bytes more: it takes a part of a write, and then no other."""

import errno
import os

import pytest


def nearly_full(monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Let `os.write` take `room` bytes more, and then raise what a full disk does."""
    write, left = os.write, room

    def take(descriptor: int, data: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = write(descriptor, data[:left])
        left -= done
        return done

    monkeypatch.setattr(os, "write", take)
