"""Who answers at a candidate's address although nothing shows that this run started it.

A candidate that leaves its session, parents and environment (a double fork) is on record as long as
its runner lives to notice it. Where none did, its address is all that is known. That is no licence:
it is left alone, but named until the end, and nobody says that the candidates are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from console.host import licence, memory, ports, process
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.live import Live
from console.recovery.rollback.sealed_plan import SealedPlan


def at_candidates(context: RollbackContext) -> list[str]:
    """Each process that answers at the address of a candidate that was to stop, in words."""
    gone = [one for one in context.plan.candidates if not context.may_stay(one.service)]
    plan = replace(context.plan, candidates=tuple(gone))
    return list(answering(plan, context.live, context.spared).values())


def answering(plan: SealedPlan, live: list[Live], spared: Callable[[], set[int]]) -> dict[int, str]:
    """Each process that was started since a run began and answers at the address of one of its
    candidates, in words, by its pid. `spared` are others that may be there."""
    began = min((e.start for e in live if e.kind == "runner"), default=None)
    if began is None:
        return {}  # without a run, nothing at the address can have come from it
    mine, found = memory.container_of(os.getpid()), dict[int, str]()
    for one in plan.candidates:
        if not one.url or is_at(one.url, plan.baseline.url):
            continue
        for listener in ports.listeners(one.url):
            stat = process.stat(listener.pid)
            if stat is None or stat.start < began or listener.pid in spared():
                continue
            if listener.is_engine_proxy or memory.container_of(listener.pid) != mine:
                continue  # a container, which its id identifies
            if any(baseline.has(stat) for baseline in licence.baselines(plan.records_dir)):
                continue
            words = f"pid {listener.pid}, {listener.words}, at {one.service}'s {one.url}"
            found[listener.pid] = words
    return found


def is_at(url: str, other: str) -> bool:
    """Whether two URLs are of one host and port."""
    return _place(url) == _place(other)


def _place(url: str) -> tuple[str, int]:
    host = urlsplit(url).hostname or ""
    return "127.0.0.1" if host == "localhost" else host, ports.port_of(url)
