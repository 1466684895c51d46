"""The FIFO: messages come in order, garbage is counted, and nothing waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.recovery.guard.config import Inbox


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    one = Inbox(tmp_path / "inbox")
    yield one
    one.close()


def write(tmp_path: Path, data: bytes) -> None:
    descriptor = os.open(tmp_path / "inbox", os.O_WRONLY | os.O_NONBLOCK)
    os.write(descriptor, data)
    os.close(descriptor)


def words(inbox: Inbox) -> list[str]:
    return [message["do"] for message in inbox.read()]


def test_messages_in_order_whoever_comes_and_goes(inbox: Inbox, tmp_path: Path) -> None:
    assert inbox.read() == []
    write(tmp_path, b'{"do": "beat"}\n{"do": "outage", "on": true}\n')
    write(tmp_path, b'{"do": "arm"}\n{"do": ')
    found = inbox.read()
    assert [one["do"] for one in found] == ["beat", "outage", "arm"]
    assert found[1]["on"] is True
    assert inbox.read() == []
    write(tmp_path, b'"quit"}\n')
    assert words(inbox) == ["quit"]


@pytest.mark.parametrize(
    "line",
    [b"garbage", b"[]", b"null", b'{"do": 5}', b'{"do": "unknown"}', b'{"do": ["quit"]}',
     b"\xff\xfe", b"[" * 3000, b'{"do": "quit", "x": "' + b"x" * 5000 + b'"}'],
)  # fmt: skip
def test_what_is_no_message_is_left_out(inbox: Inbox, tmp_path: Path, line: bytes) -> None:
    write(tmp_path, line + b'\n{"do": "beat"}\n')
    assert words(inbox) == ["beat"]


def test_a_line_without_an_end_is_dropped(inbox: Inbox, tmp_path: Path) -> None:
    for _ in range(3):
        write(tmp_path, b"x" * 3000)
        inbox.read()
    write(tmp_path, b'\n{"do": "beat"}\n')
    assert words(inbox) == ["beat"]


def test_something_else_in_its_place_is_refused(inbox: Inbox, tmp_path: Path) -> None:
    assert (tmp_path / "inbox").stat().st_mode & 0o777 == 0o600, "only this user may write"
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    before = os.listdir("/proc/self/fd")
    for name in ("file", "link"):
        with pytest.raises(OSError, match=r"FIFO|symbolic"):
            Inbox(tmp_path / name)
    assert os.listdir("/proc/self/fd") == before
