"""A soak as viewers see it: while it goes on, when it is over, and in the folded journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from console.benchmark.soak import SoakPlan
from console.benchmark.soak_figures import Tally
from console.journal.store import Event
from console.playbook.measuring import SoakStep
from console.run.executors.soak import patience_for, plan_of
from console.run.soak_words import live_words, summary
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
    assert live_words(tally(), 3700.0, 3600.0).endswith("1 h 01 min, 0.00 s left")
    assert live_words(Tally(), 0.0, 3600.0).endswith(
        "no answer yet · 0 requests, 0 errors · 0.00 s, 1 h 00 min left"
    )


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


def test_a_silence_stands_where_the_rate_was() -> None:
    words = live_words(tally(), 615.0, 3600.0, 15.0)
    assert "no token for 15.0 s · 120 requests" in words
    assert "tok/s" not in words
    assert words.endswith("10 min 15 s, 49 min 45 s left")
    assert live_words(tally(), 3650.0, 3600.0, 15.0).endswith("1 h 00 min, over, one is still out")
    assert "tok/s" not in live_words(tally(hang=True), 601.0, 3600.0), "it is of before the hang"


def test_a_crash_is_no_restart() -> None:
    found = tally()
    found.take({"t": 600.0, "event": "restart", "at": 1600.0, "what": "anew"})
    found.take({"t": 601.0, "event": "gone", "at": 1601.0, "what": "ended by SIGKILL"})
    for words in (live_words(found, 601.0, 3600.0), summary(found)):
        assert "1 restart" in words
        assert "1 crash" in words
        assert "2 restarts" not in words


def test_what_was_missed_and_sent_twice_is_said() -> None:
    found = tally()
    assert "0 restarts, 0 hangs" in summary(found)
    found.take({"t": 605.0, "ok": True, "error": "", "missed": 13, "retries": 1})
    live, last = live_words(found, 605.0, 3600.0), summary(found)
    assert "13 moments missed" in live
    assert "13 moments missed" in last
    assert "1 sent twice" in live
    assert "; 1 of 121 requests was sent twice: the server answered 400 with nothing" in last
    assert "broken" not in last, "less than one in a hundred"


@pytest.mark.parametrize(
    ("measured", "bound"),
    [
        ({}, 60.0),
        ({"other": (9.0, 9.0)}, 60.0),  # another service's
        ({"bench": (2.0, 1.0)}, 20.0),
        ({"bench": (1.0, 3.0)}, 30.0),  # the first request paged the model in
        ({"bench": (None, None)}, 60.0),
    ],
)
def test_the_first_silence_is_bounded_by_what_a_benchmark_saw(
    measured: dict[str, tuple[float | None, float | None]], bound: float
) -> None:
    steps = [
        ("", SimpleNamespace(id=name, benchmark=SimpleNamespace(service=service)))
        for name, service in (("bench", "cand"), ("other", "baseline"))
    ]
    context: Any = SimpleNamespace(
        plan=SimpleNamespace(
            playbook=SimpleNamespace(
                steps=lambda: [*steps, ("", SimpleNamespace(id="x", benchmark=None))]
            )
        ),
        view=SimpleNamespace(
            metrics={name: {"ttft_s": {"max": warm}} for name, (warm, _) in measured.items()},
            benchmarks={name: {"cold": {"ttft_s": cold}} for name, (_, cold) in measured.items()},
        ),
    )
    assert patience_for(context, "cand").cold_s == bound
