"""Who answers at a candidate's address although nothing shows that this run started it.

A candidate that leaves its session, parents and environment (a double fork) is on record as long as
its runner lives to notice it. Where none did, its address is all that is known. That is no licence:
it is left alone, but named until the end, and nobody says that the candidates are gone.

What an exclusive run has left beside its baseline is kept on file: a rollback after the end of that
run knows no candidates, and names it all the same until it is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from console.common import paths, record
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import one_line
from console.host import licence, memory, ports, process
from console.recovery.rollback import evidence
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.live import Live
from console.recovery.rollback.sealed_plan import SealedPlan

FILE = "left-over.json"
SIZE_LIMIT = 65536
MAX_KEPT = 20


Words = Annotated[str, lambda text: one_line(text, 300)]
Identity = Annotated[str, lambda text: one_line(text, 80)]


@dataclass(frozen=True, slots=True)
class Survivor:
    """What should be gone and still runs, in clean words: a process, or a container by its id."""

    words: Words
    pid: int = 0
    start: int = 0
    container: Identity = ""

    @property
    def runs(self) -> bool:
        if self.container:
            return bool(memory.pids_of_container(self.container))
        return process.alive(self.pid, self.start)


def at_candidates(context: RollbackContext) -> list[Survivor]:
    """Each process that answers at the address of a candidate that was to stop."""
    gone = [
        candidate
        for candidate in context.plan.candidates
        if not context.may_stay(candidate.service)
    ]
    plan = replace(context.plan, candidates=tuple(gone))
    return [
        Survivor(words, pid, process.start_time(pid) or 0)
        for pid, words in answering(plan, context.live, context.spared).items()
    ]


def keep(plan: SealedPlan, survivors: Iterable[Survivor]) -> None:
    """Keep what was left beside the plan's baseline, until it is gone. Never raises."""
    if not plan.site_name:
        return
    file = _file(plan)
    rows = [record.plain(survivor) for survivor in dict.fromkeys(survivors)][:MAX_KEPT]
    with contextlib.suppress(OSError):
        if rows:
            paths.make(file.parent)
            write_atomically(file, json.dumps(rows) + "\n", durable=False)
        else:
            file.unlink(missing_ok=True)


def kept(plan: SealedPlan) -> list[Survivor]:
    """What an earlier rollback left beside the plan's baseline and still runs; nothing of it that
    has become a baseline since."""
    try:
        known = record.those(Survivor, record.load(_file(plan), SIZE_LIMIT))
    except (OSError, RecordError):
        return []
    baselines = list(licence.baselines(plan.records_dir))
    return [
        survivor for survivor in known if survivor.runs and not _is_baseline(survivor, baselines)
    ]


def _is_baseline(survivor: Survivor, baselines: list[licence.Recorded]) -> bool:
    stat = process.stat(survivor.pid) if survivor.pid else None
    return stat is not None and any(baseline.has(stat) for baseline in baselines)


def _file(plan: SealedPlan) -> Path:
    return evidence.directory(plan.site_name, plan.baseline.url) / FILE


def answering(plan: SealedPlan, live: list[Live], spared: Callable[[], set[int]]) -> dict[int, str]:
    """Each process that was started since a run began and answers at the address of one of its
    candidates, in words, by its pid. `spared` are others that may be there."""
    began = min((e.start for e in live if e.kind == "runner"), default=None)
    if began is None:
        return {}  # without a run, nothing at the address can have come from it
    mine, words_by_pid = memory.container_of(os.getpid()), dict[int, str]()
    for candidate in plan.candidates:
        if not candidate.url or is_at(candidate.url, plan.baseline.url):
            continue
        for listener in ports.listeners(candidate.url):
            stat = process.stat(listener.pid)
            if stat is None or stat.start < began or listener.pid in spared():
                continue
            if listener.is_engine_proxy or memory.container_of(listener.pid) != mine:
                continue  # a container, which its id identifies
            if any(baseline.has(stat) for baseline in licence.baselines(plan.records_dir)):
                continue
            words = (
                f"pid {listener.pid}, {listener.words}, at {candidate.service}'s {candidate.url}"
            )
            words_by_pid[listener.pid] = words
    return words_by_pid


def is_at(url: str, other: str) -> bool:
    """Whether two URLs are of one host and port."""
    return _place(url) == _place(other)


def _place(url: str) -> tuple[str, int]:
    host = urlsplit(url).hostname or ""
    return "127.0.0.1" if host == "localhost" else host, ports.port_of(url)
