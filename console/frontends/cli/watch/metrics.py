"""`metrics`: the figures of this machine's console, for Prometheus.

It is asked every minute, so it loads little: no parser where the watch has a plan of today's site
file, and no journal where every run that is over has been read before.
"""

from __future__ import annotations

import contextlib
import sys
import time
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console import VERSION
from console.common import paths, record, redact
from console.common.errors import Exit, UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import one_line
from console.frontends.cli.watch.commands import sealed_of
from console.host.sampler import look_once
from console.journal import watch_record
from console.journal.run_dir import RunDir, all_runs
from console.journal.watch_record import NOT_SERVING, UP, WatchState
from console.recovery.rollback import evidence, restores
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import SILENT, Looker
from console.recovery.rollback.sealed_plan import SealedPlan
from console.render.watch.metrics import BaselineFacts, RunFacts, text

FILE = "omni_console.prom"
LOOK_S = 3.0
FRESH = 2.0
"""In intervals: how old the watch's word may be."""
CACHE = "metrics.json"
MAX_CACHE = 64 << 20


@dataclass(frozen=True, slots=True)
class _Row:
    """The facts of a run that is over, and the stamp that its journal had then."""

    stamp: list[Any]
    facts: RunFacts


def metrics(args: Namespace) -> int:
    """Print the page, or replace a file for node_exporter's textfile collector."""
    plan = sealed_of(args.site)
    watch = watch_record.read(plan.site_name)
    sample = look_once(args.path or ["/"], LOOK_S)
    page = text(VERSION, _baseline(plan, watch), watch, _runs(), sample)
    if not args.textfile:
        sys.stdout.write(page)
        return int(Exit.OK)
    directory = Path(args.textfile)
    if not directory.is_dir():
        hint = "the directory that node_exporter has as --collector.textfile.directory"
        raise UsageError(f"{one_line(args.textfile)} is no directory", "", hint)
    # For everybody: node_exporter is another user.
    write_atomically(directory / FILE, page, 0o644, durable=False)
    return int(Exit.OK)


def _baseline(plan: SealedPlan, watch: WatchState | None) -> BaselineFacts:
    base = plan.baseline
    seen = Looker().look(plan)
    # what the watch has just seen counts: it knows a server that is silent because it computes
    fresh = watch is not None and watch.alive and time.time() - watch.at < FRESH * watch.interval_s
    judged = fresh and watch is not None and watch.word in (*UP, *NOT_SERVING)
    silent = seen.word is Word.UNKNOWN and seen.detail == SILENT
    state = evidence.state(plan) if judged and silent else evidence.state(plan, seen)
    return BaselineFacts(
        site=plan.site_name, state=state, reference=base.reference_tok_s,
        ttft_s=watch.ttft_s if watch is not None else None,
        restore_s=restores.expected_restore(paths.restore_file(plan.site_name), base.name),
    )  # fmt: skip


def _runs() -> list[RunFacts]:
    """Every run; one whose journal has not changed since the last time is not read again."""
    path = paths.cache_dir() / CACHE
    known: Any = None
    with contextlib.suppress(OSError, RecordError):
        known = record.load(path, MAX_CACHE)
    kept, run_facts = {}, []
    for run in all_runs():
        now = _stamp(run.journal)
        facts = _facts(known.get(run.id), now) if isinstance(known, dict) else None
        over = facts is not None
        if facts is None:
            facts, over = _read(run)
        if over:
            kept[run.id] = record.plain(_Row(now, facts))
        run_facts.append(facts)
    if kept != known:
        try:
            paths.make(path.parent)
            write_atomically(path, redact.dumped(kept), 0o600, durable=False)
        except OSError:
            pass  # the next time reads them again
    return run_facts


def _facts(row: Any, stamp: list[Any]) -> RunFacts | None:
    """A run's facts as they were kept with this stamp; None for those of an earlier release, which
    had no mark."""
    with contextlib.suppress(RecordError):
        kept = record.of(_Row, row)
        return kept.facts if kept.stamp == stamp and "mark" in row["facts"] else None
    return None


def _stamp(path: Path) -> list[Any]:
    try:
        info = path.stat()
    except OSError:
        return []
    return [info.st_mtime_ns, info.st_size, info.st_ino]


def _read(run: RunDir) -> tuple[RunFacts, bool]:
    """A run's facts, and whether they stay as they are."""
    from console.frontends.tui.watch.history import UNREAD, UNREADABLE
    from console.journal.lock import runner_alive
    from console.journal.run_files import read_view, word_of

    try:
        view = read_view(run)
    except UNREAD:
        return RunFacts(UNREADABLE, ""), False
    gates: dict[str, int] = {}
    for verdict in view.verdicts:
        word = one_line(verdict.verdict, 20)
        gates[word] = gates.get(word, 0) + 1
    state = str(view.state) if view.over else word_of(run, view, runner_alive(run))
    kills = sum(event.kind == "breach" for event in view.guards)
    facts = RunFacts(
        state, str(view.decision), gates, kills, view.created, view.restored_s, view.mark
    )
    return facts, view.over
