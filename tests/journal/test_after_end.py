"""A rollback that fails after a run's end is no outage of that run."""

from __future__ import annotations

from console.journal.fold import fold
from console.journal.run_view import RunView
from console.journal.store import Event, event_of
from console.render.facts.run import outage_words


def event(seq: int, kind: str, **data: object) -> Event:
    return event_of(seq, 1000.0 + seq, kind, "", 0, data)


ENDED = [
    event(1, "run.state", state="running"),
    event(2, "outage", down=True, proof=990.0),
    event(5, "outage", down=False, restore_s=3.0),
    event(6, "run.state", state="succeeded"),
    event(7, "run.finished"),
]


def view(*more: Event) -> RunView:
    return fold([*ENDED, *more])


def test_the_outage_of_a_run_is_its_own() -> None:
    assert outage_words(view()) == "3.00 s"
    later = view(event(60, "outage", down=True))
    assert later.fell_after_end
    assert outage_words(later).startswith("3.00 s; a rollback after the run's end failed, ")


def test_a_run_that_ended_with_its_baseline_down_is_still_said_to_have() -> None:
    down = fold([*ENDED[:2], event(3, "run.state", state="rollback_failed")])
    assert not down.fell_after_end
    assert outage_words(down).endswith("and still")
