"""The same work on many files, by as many processes as there are CPUs; results in their order."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

MANY = 64
"""Files from which on starting processes costs less than it saves."""
_MOST, _CHUNK = 8, 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def each(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """`work` on every item. It and its results are pickled where processes are used; for a process
    with threads this is not, which must not be forked."""
    count = min(len(os.sched_getaffinity(0)), _MOST)
    if len(items) < MANY or count < 2:
        yield from map(work, items)
        return
    import multiprocessing  # three times as slow as a small file is
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor

    yield work(items[0])  # imports what is needed, once for all
    done = 1
    try:
        forked = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(count, forked, _quiet) as workers:
            for one in workers.map(work, items[1:], chunksize=_CHUNK):
                yield one
                done += 1
    except (BrokenExecutor, OSError):  # no room for processes, or one was killed
        yield from map(work, items[done:])


def _quiet() -> None:
    """Ctrl-C is for the process that waits, which ends these."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
