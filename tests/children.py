"""Processes and things that a test starts and that end with it."""

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")
SLEEP = ("sleep", f"600.{os.getpid()}")
"""A program that does nothing, with words that no other process of the machine has: a server is
recognised by its command line."""


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()


@contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end of the block."""
    child = subprocess.Popen(argv, **options)
    try:
        yield child
    finally:
        end(child)


@contextmanager
def making(make: Callable[..., T], end: Callable[[T], object]) -> Iterator[Callable[..., T]]:
    """`make`, and at the end of the block the end of all that it has made."""
    made: list[T] = []

    def one(*args: Any, **more: Any) -> T:
        made.append(make(*args, **more))
        return made[-1]

    try:
        yield one
    finally:
        for each in made:
            end(each)
