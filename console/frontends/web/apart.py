"""Work that a disk may hold up for ever, in threads that nobody waits for.

The event loop's own threads are few: pages that ask again each second would soon have them all
wait for a dead disk, and the one that rolls back would find none.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Hangs(Exception):
    """So many answers are outstanding that no further one is waited for."""


class Apart:
    """Does one kind of work, so much of it at once; for one event loop."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._free = name, most

    async def do(self, work: Callable[..., T], *args: object) -> T:
        """The result of the work. Raises what it raises, and Hangs."""
        if self._free <= 0:
            raise Hangs
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()

        def tell(value: T | None, error: Exception | None) -> None:
            self._free += 1
            if result.done():  # whoever asked has gone
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(value)  # type: ignore[arg-type]

        def run() -> None:
            value, error = None, None
            try:
                value = work(*args)
            except Exception as failure:
                error = failure
            with contextlib.suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(tell, value, error)

        self._free -= 1
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError:  # no thread left
            self._free += 1
            raise Hangs from None
        return await result
