"""What people are told: one event, and which event of a journal becomes one, in which words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from console.common.text import clean, cleaned, one_line
from console.common.units import format_duration
from console.config.site.notify import KINDS
from console.journal import events
from console.journal.fold import fold
from console.journal.run_view import RunView
from console.journal.state import ENDS, Pause, RunState, possible_verbs
from console.journal.store import Event as JournalEvent
from console.recovery.guard.config import ALLOCATION
from console.render.facts.gate import doubts
from console.render.facts.run import IS_DOWN, baseline_after, decision, news

__all__ = ["KINDS", "LEASE", "TEST", "URGENCY", "Event", "happened", "missed"]

TEST = "test"
"""The kind of what `notify --test` sends; every channel gets it."""
LEASE = "lease"
"""The kind of a guard's event that says that the lease runs out soon."""
URGENCY = {"baseline-down": 5, "guard-kill": 5, "approval": 4, "waiting": 4, "lease": 4,
           "slower": 4, "lessons-due": 2}  # fmt: skip
"""How urgent a kind is, as ntfy counts: 5 is the most, and 3 what is not named here."""
TOLD_WITHIN_S = 24 * 3600.0
"""What happened longer ago is no news any more: it is not posted later, and given up."""
MAX_TITLE, MAX_TEXT = 160, 1500


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. `key` is unique for ever, so that what is posted twice is told once; `at` is
    in Unix seconds; `data` has the figures for a program that reads the event. Clean text only."""

    kind: str
    key: str
    title: str
    text: str
    at: float
    site: str
    run: str = ""
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def urgency(self) -> int:
        failed = self.data.get("state") == RunState.ROLLBACK_FAILED  # the baseline may be down
        return 5 if failed else URGENCY.get(self.kind, 3)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def happened(event: JournalEvent, view: RunView) -> Event | None:
    """What people are told of an event of a journal; None for most. `view`: the run with this event
    as its newest."""
    what = _news(event, view)
    if what is None:
        return None
    kind, title, text, data = what
    book = clean(view.playbook, 60)
    mark = f"{view.mark}: " if view.mark else ""
    return Event(
        kind, f"{view.run_id}:{event.seq}", one_line(f"{mark}{book}{title}", MAX_TITLE),
        one_line(text, MAX_TEXT), event.at, clean(view.site, 60), view.run_id,
        cleaned({"playbook": book, "state": str(view.state), "mark": view.mark, **data}),
    )  # fmt: skip


def missed(journal_events: Iterable[JournalEvent], now: float) -> Iterator[Event]:
    """All that a journal has to tell of the last day, oldest first: a runner that died between the
    event and its message has posted nothing."""
    view = RunView()
    for event in journal_events:
        fold([event], view)
        message = None if event.odd else happened(event, view)
        if message is not None and now - event.at < TOLD_WITHIN_S:
            yield message


News = tuple[str, str, str, dict[str, Any]]
"""Kind, title after the playbook's name, text, data."""


def _news(event: JournalEvent, view: RunView) -> News | None:
    match event.body:
        case events.Guard() as guard:
            return _guard(guard, view)
        # steps of `finally` and the last look may still turn an end
        case events.RunStateChange() | events.RunFinished() if view.state in ENDS:
            return _end(view) if view.finished else None
        case events.RunStateChange():
            return _waiting(event, view)
    return None


def _waiting(event: JournalEvent, view: RunView) -> News | None:
    """That the run waits for a person; None where it does not, or the person knows."""
    step = clean(view.current.id, 60) if view.current is not None else ""
    if view.state is RunState.WAITING_APPROVAL:
        left = format_duration(max(0.0, view.until - event.at))
        until = datetime.fromtimestamp(view.until).astimezone().strftime("%H:%M %Z")
        text = f"{view.detail} Answer within {left}, until {until}: {_how(view)}"
        return "approval", news(view), text, {"step": step, "until": view.until}
    if view.state is RunState.PAUSED and view.reason != Pause.OPERATOR:
        verbs = ", ".join(possible_verbs(view.state, view.reason))
        why = f"{view.detail}. " if view.detail else ""
        text = f"{why}It waits until you decide ({verbs}): {_how(view)}"
        return "waiting", news(view), text, {"step": step, "reason": view.reason}
    return None


def _end(view: RunView) -> News:
    took = view.ended - view.created if view.created else 0.0
    known = decision(view)
    serves, words = _baseline(view)
    answers = {
        clean(str(contract.get("of") or scope), 60): clean(str(contract["words"]), 300)
        for scope, part in view.measured.items() if (contract := part.contract).get("words")
    }  # fmt: skip
    text = f"It {_ended(view)} after {format_duration(took)}{_why(view)}. {words}"
    text += "".join(f" Answers of {name}: {answer}." for name, answer in answers.items())
    text += "".join(f" {doubt.line}." for doubt in doubts(view, moved=True))
    data = {
        "decision": known.brief, "outcome": known.detail, "took_s": took,
        "baseline_serves": serves, **({"contracts": answers} if answers else {}),
    }  # fmt: skip
    return "run-end", news(view), text, data


def _ended(view: RunView) -> str:
    return {
        RunState.SUCCEEDED: "ran to its end", RunState.CANCELLED: "was cancelled",
        RunState.ROLLED_BACK: "was rolled back", RunState.ROLLBACK_FAILED: "could not be rolled "
        "back",
    }.get(view.state, "failed")  # fmt: skip


def _why(view: RunView) -> str:
    why = "; ".join(filter(None, (view.reason, view.detail)))
    if not why and view.state is RunState.FAILED and view.current is not None:
        why = f"{view.current.id}: {view.current.detail or view.current.cause}"
    return f": {one_line(why, 400)}" if why else ""


def _baseline(view: RunView) -> tuple[bool, str]:
    """Whether the baseline serves at the end of a run, and that in a sentence."""
    if view.state is RunState.ROLLBACK_FAILED:
        return False, "THE BASELINE IS NOT PROVEN TO SERVE: omni-console rollback tries again."
    if view.cutover:
        service = clean(view.cutover.service, 60)
        return False, f"Clients stay at {service}: omni-console promote, or omni-console rollback."
    after = baseline_after(view)
    if after.key == "down":
        return False, f"{IS_DOWN.upper()}: omni-console rollback brings it back."
    if after.key == "garbled":
        why = clean(after.detail, 200)
        return False, f"{after.brief.upper()}: {why}. omni-console rollback restarts it."
    rate, back = view.serving.tok_s, view.restored_s
    by, at = clean(view.serving.by or "its proof", 40), view.serving.at
    measured = f" (by {by}{datetime.fromtimestamp(at).strftime(', %H:%M') if at else ''})"
    speed = f" at {rate:.2f} tok/s{measured}" if isinstance(rate, int | float) else ""
    slow = ", slower than its reference" if view.serving.degraded else ""
    took = f"; its restore took {format_duration(back)}" if back is not None else ""
    return True, f"The baseline serves{speed}{slow}{took}."


def _guard(guard: events.Guard, view: RunView) -> News | None:
    words = clean(guard.words, 400)
    if guard.sign == LEASE:
        text = f"{words}. Attach to renew it: omni-console attach {view.run_id[-4:]}"
        return "lease", ": its lease runs out soon", text, {"left_s": guard.left_s}
    if guard.sign != "breach":
        return None
    if guard.cause == LEASE:
        return "lease", ": its lease ran out", f"{words}. The baseline is brought back.", {}
    if guard.cause == ALLOCATION:
        return "lease", ": its cards were taken", f"{words}. The baseline is brought back.", {}
    killed = [clean(str(target.get("name") or "?"), 60) for target in guard.killed]
    whom = f"Killed: {', '.join(killed)}. " if killed else ""
    text = f"{words}. {whom}The baseline is brought back; omni-console show {view.run_id[-4:]}"
    return "guard-kill", ": the guard stopped the load", text, {"killed": killed}


def _how(view: RunView) -> str:
    return f"omni-console attach {view.run_id[-4:]}"
