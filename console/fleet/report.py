"""Who decided what on which host: runs of several hosts in one table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from console.common.text import clean
from console.common.units import format_duration
from console.fleet.protocol import Asks
from console.journal.fold import fold
from console.journal.run_view import RunView
from console.journal.store import Event, event_of
from console.render.facts.gate import gates
from console.render.facts.run import decision
from console.render.facts.words import state_words
from console.render.report.markdown import code, prose, table

HEAD = ("host", "run", "playbook", "started", "by", "decision", "state", "took", "who decided")


@dataclass(frozen=True, slots=True)
class Decided:
    """A run on a host; all text is clean. `who`: gates, verbs and overrides with their people, a
    line each; `trouble`: why the host did not answer."""

    host: str
    run: str
    playbook: str = ""
    created: float = 0.0
    owner: str = ""
    decision: str = ""
    state: str = ""
    took_s: float | None = None
    who: tuple[str, ...] = ()
    trouble: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def events_of(page: dict[str, Any]) -> list[Event]:
    """The events of a page of a foreign journal, safe to fold and to draw."""
    rows = page.get("events")
    return [
        event_of(*row, harmless=True) for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and len(row) == 6 and type(row[0]) is int
    ]  # fmt: skip


def decided(host: str, line: Asks, name: str) -> Decided:
    """What a run's journal says of its decision. Raises BridgeError, LineLost."""
    view, more, run = RunView(), True, name
    while more:
        since = view.seq
        page = line.ask("journal", run=run, since=since)
        events, run = events_of(page), str(page.get("run") or run)
        fold(events, view)
        more = page.get("more") is True and view.seq > since
    word = f"{decision(view).value or 'no decision'} {view.mark}".rstrip()
    return Decided(
        host, clean(run, 120), clean(view.playbook, 60), view.created, clean(view.owner, 60),
        clean(word, 100), str(view.state),
        view.ended - view.created if view.ended and view.created else None, tuple(_who(view)),
    )  # fmt: skip


def _who(view: RunView) -> list[str]:
    lines = [
        ", ".join([f"gate {gate.step}: {gate.verdict}", *(mark.line for mark in gate.marks)])
        for gate in gates(view)
    ]
    for verb in view.verbs:
        who, why = verb.who, verb.why
        # who pressed the emergency key has said the reason with it
        reason = f": {why}" if why and not who.endswith(f"{why} key") else ""
        lines.append(f"{verb.verb} by {who}{reason}")
    return [clean(line, 300) for line in lines]


def markdown(run_reports: Sequence[Decided]) -> list[str]:
    rows = [
        [
            prose(run_report.host),
            code(run_report.run),
            prose(run_report.playbook),
            _day(run_report.created),
            prose(run_report.owner),
            prose(run_report.decision or run_report.trouble),
            prose(state_words(run_report.state)),
            format_duration(run_report.took_s) if run_report.took_s is not None else "–",
            "; ".join(map(prose, run_report.who)) or "–",
        ]
        for run_report in run_reports
    ]
    return table(HEAD, rows)


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "–"
