"""Calls that may hang: each in a daemon thread, waited for as long as anybody cares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

T = TypeVar("T")
Key = TypeVar("Key")


def begun(name: str, call: Callable[[], T]) -> Future[T]:
    """Start `call` in a daemon thread; what it returns or raises arrives in the future."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # handed over whole to whoever waits
            future.set_exception(error)

    try:
        threading.Thread(target=work, name=f"doctor: {name}"[:60], daemon=True).start()
    except RuntimeError as error:  # the machine has no thread left, and the page says so
        future.set_exception(error)
    return future


def each(
    name: str, items: Iterable[Key], call: Callable[[Key], T], seconds: float
) -> list[tuple[Key, T | None]]:
    """`call` for every item at the same time; None for those silent after `seconds` in all.

    For paths: one dead mount must not hide what is known about the others. Raises what the first
    failing call raised.
    """
    futures = [(item, begun(name, partial(call, item))) for item in items]
    done, _ = wait([future for _, future in futures], seconds)
    return [(item, future.result() if future in done else None) for item, future in futures]
