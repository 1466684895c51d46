"""Journals of runs that have something to tell."""

from __future__ import annotations

from typing import Any

from console.journal.state import ENDS
from console.journal.store import Event, event_of
from console.notify.event import Event as News
from console.notify.event import missed

BEGUN = 1_700_000_000.0
STEPS = [
    {"id": "load", "title": "Load", "phase": "p", "kind": "service"},
    {"id": "go", "title": "Gate", "phase": "p", "kind": "gate"},
]


class Journal:
    """Events a minute apart, as a runner writes them."""

    def __init__(self, *, book: str = "trial", **more: Any) -> None:
        self.events: list[Event] = []
        self.add("run.created", run_id="20260101-trial-abcd", playbook=book, site="ws",
                 owner="op", steps=STEPS, **more)  # fmt: skip

    def add(self, kind: str, step: str = "", /, **data: Any) -> Journal:
        seq = len(self.events) + 1
        at = BEGUN + 60.0 * seq
        self.events.append(event_of(seq, at, kind, step, 1, data))
        assert not self.events[-1].odd, (kind, data)
        return self

    def state(self, state: str, **data: Any) -> Journal:
        """A state of the run; its end with the last event of a journal."""
        self.add("run.state", state=state, **data)
        return self.add("run.finished") if state in ENDS else self

    def step(self, step: str, state: str, **data: Any) -> Journal:
        return self.add("step.state", step, state=state, **data)

    @property
    def news(self) -> list[News]:
        return list(missed(self.events, BEGUN + 3600.0))


def verdict(journal: Journal, word: str, outcome: str = "", overridden: str = "") -> Journal:
    journal.step("go", "running")
    journal.add("verdict", "go", verdict=word, outcome=outcome, overridden=overridden)
    return journal.step("go", "succeeded")
