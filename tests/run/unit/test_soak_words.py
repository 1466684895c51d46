"""A soak as viewers see it: while it goes on, when it is over, and in the folded journal."""

from __future__ import annotations

from console.benchmark.soak import SoakPlan
from console.benchmark.soak_figures import Tally
from console.journal.store import Event
from console.playbook.measuring import SoakStep
from console.run.executors.soak import live_words, plan_of
from console.run.view import fold


def tally(*, errors: int = 0, hang: bool = False) -> Tally:
    made = Tally()
    made.take({"t": 0.0, "event": "began", "at": 1000.0})
    for number in range(1, 121):
        bad = number <= errors
        made.take(
            {"t": number * 5.0, "ok": not bad, "error": "refused" if bad else "", "tok_s": 10.84}
        )
    made.take({"t": 600.0, "rss": 12.34 * 2**30, "anon": None, "vram": None})
    if hang:
        made.take({"t": 600.0, "event": "hang", "at": 1600.0, "what": "x"})
    return made


def test_while_it_goes_on() -> None:
    assert live_words(tally(), 600.0, 3600.0) == (
        f"{'█' * 24} 10.84 tok/s · 120 requests, 0 errors · RSS 12.3 GiB · "
        "10 min 00 s, 50 min 00 s left"
    )
    words = live_words(tally(errors=1, hang=True), 600.0, 3600.0)
    assert " · 120 requests, 1 error · 1 hang · " in words


def test_when_nothing_is_answered_any_more() -> None:
    assert "no answer in the last minute" in live_words(tally(), 700.0, 3600.0)
    assert "0.00 s left" in live_words(tally(), 3700.0, 3600.0)
    assert "0 requests, 0 errors · 0.00 s, 1 h 00 min left" in live_words(Tally(), 0.0, 3600.0)


def test_a_step_as_the_loop_takes_it() -> None:
    step = SoakStep.model_validate(
        {"service": "x", "duration": "1h", "every": "5s", "arrivals": "fixed", "prompts": ["a"],
         "max_errors": 0}
    )  # fmt: skip
    assert plan_of(step) == SoakPlan(3600.0, 5.0, "fixed", ("a",), 0)
    assert len(plan_of(SoakStep.model_validate({"service": "x", "duration": "1h"})).prompts) == 3


def test_the_view_keeps_the_newest_attempt_s_account() -> None:
    def event(seq: int, **data: object) -> Event:
        return Event(seq, 1.0, "metrics", "night", seq, {"scope": "night", **data})

    view = fold(
        [
            event(1, metrics={"hangs": {"value": 1}}, soak={"gaps": [], "hangs": [{"t": 3}]}),
            event(2, metrics={"hangs": {"value": 0}}, soak={"gaps": [[1, 2]], "hangs": []}),
            event(3, metrics={}),
        ]
    )
    assert view.soaks == {"night": {"gaps": [[1, 2]], "hangs": []}}
    assert view.metrics["night"]["hangs"]["value"] == 0
