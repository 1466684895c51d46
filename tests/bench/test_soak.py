"""An hour of soak on an injected clock: what is counted, when it ends, what it calls a hang."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.soak import BLIND_S, HANG, MIN_GARBLED, End, Look, SoakPlan
from console.bench.soak_stats import GARBLED, Patience, Tally
from console.render.report.soak import summary
from tests.bench.soaking import HOUR, Server, Turn, values
from tests.clock import FakeClock
from tests.waiting import some

GIB = 2**30


def test_an_hour_without_a_fault() -> None:
    server = Server(look=lambda t: Look(3 * GIB, GIB, 20 * GIB, {"process": "1 1"}, log=True))
    tally, end = server.soak(HOUR)
    assert end is End.DONE
    assert values(tally) == {
        "requests": 600, "errors": 0, "garbled": 0, "error_rate": 0.0, "stability": 1.0,
        "tok_s": 100.0, "tok_s_drift": 0.0, "ttft_s": 0.2, "observed_s": 3600.0, "restarts": 0,
        "hangs": 0,
        "critical_lines": 0, "rss_growth": 0.0, "rss_peak": 3 * GIB, "vram_growth": 0.0,
        "vram_peak": 20 * GIB, "context_peak": None,
    }  # fmt: skip
    figures = tally.figures()
    assert (figures["requests"]["n"], figures["restarts"]["n"]) == (600, 721)
    assert figures["tok_s_drift"]["n"] == 200
    assert server.prompts[:4] == ["one", "two", "three", "one"]
    assert not tally.gaps


@pytest.mark.parametrize(
    ("arrivals", "took", "requests", "late", "missed"),
    [
        ("fixed", 1.0, 720, 0, 0),  # 3600 / 5, whatever a reply takes
        ("fixed", 4.9, 720, 0, 0),
        ("fixed", 7.0, 515, 514, 205),  # from here on the server is behind its moments
        ("fixed", 10.0, 360, 359, 360),  # the very last moment passes beside the last reply
        ("after_reply", 0.001, 720, 0, 0),
        ("after_reply", 1.0, 600, 0, 0),  # 3600 / (5 + 1): the loop with `sleep 5`
        ("after_reply", 10.0, 240, 0, 0),
    ],
)
def test_every_5_s_is_two_different_things(
    arrivals: Any, took: float, requests: int, late: int, missed: int
) -> None:
    server = Server(lambda number, t: Turn(took, ttft=took / 5))
    tally, _ = server.soak(replace(HOUR, arrivals=arrivals))
    assert (len(tally.requests), tally.late, tally.missed) == (requests, late, missed)
    found = values(tally)
    assert found["stability"] == requests / (requests + missed), "a missed moment was not served"
    assert found["error_rate"] == 0


def test_a_server_that_stood_still_did_not_serve_its_moments() -> None:
    """16 s of silence in four minutes of a request a second: one fails, the others are missed."""
    server = Server(lambda number, t: Turn(0.2, 0.1, mute=0 if 100 <= t < 101 else None))
    tally, end = server.soak(
        SoakPlan(240.0, 1.0, "fixed"), patience=Patience(floor_s=16.0, cold_s=60.0)
    )
    assert end is End.DONE
    assert tally.errors == {HANG: 1}
    assert len(tally.requests) + tally.missed == 240
    assert 14 <= tally.missed <= 16
    assert values(tally)["stability"] == (239 - tally.missed) / 240


def test_one_slow_reply_is_made_good_for_without_a_burst() -> None:
    sent: list[float] = []

    def turn(number: int, t: float) -> Turn:
        sent.append(round(t, 2))
        return Turn(12.0) if number == 2 else Turn()

    tally, _ = Server(turn).soak(SoakPlan(40.0, 5.0, "fixed"))
    assert sent == [0, 5, 17, 20, 25, 30, 35], "10 was missed, 15 was late"
    assert (tally.late, tally.missed) == (1, 1)


def test_no_pause_at_all_still_leaves_a_refusing_port_alone() -> None:
    server = Server(lambda number, t: Turn(0.0, error="transport"))
    for arrivals in ("fixed", "after_reply"):
        tally, end = server.soak(SoakPlan(10.0, 0.0, arrivals))  # type: ignore[arg-type]
        assert end is End.DONE
        assert 190 <= len(tally.requests) <= 201


def test_errors_by_class() -> None:
    kinds = {3: "transport", 4: "server error", 5: "transport", 9: "truncated"}
    server = Server(lambda number, t: Turn(error=kinds.get(number, ""), words=f"no {number}"))
    tally, end = server.soak(HOUR)
    found = values(tally)
    assert end is End.DONE
    assert tally.errors == {"transport": 2, "server error": 1, "truncated": 1}
    assert (found["errors"], found["error_rate"], found["stability"]) == (4, 4 / 600, 596 / 600)
    assert tally.last_error == "no 9"
    assert (tally.figures()["tok_s"]["n"], tally.figures()["tok_s"]["void"]) == (596, 4)


@pytest.mark.parametrize("words", ["HTTP 401 Invalid API Key", "HTTP 429 Too many requests"])
def test_a_server_that_refuses_every_request_gives_no_figure_of_answers(words: str) -> None:
    server = Server(
        lambda number, t: Turn(error="refused", words=words),
        look=lambda t: Look(3 * GIB, GIB, 20 * GIB, {"process": "1 1"}, log=True),
    )
    tally, end = server.soak(HOUR)
    figures = tally.figures()
    assert end is End.DONE
    assert figures["error_rate"]["value"] == 1
    for name in ("garbled", "rss_growth", "vram_growth", "tok_s", "context_peak"):
        assert (figures[name]["value"], figures[name]["n"] * (name == "garbled")) == (None, 0), name
    for name in ("garbled", "rss_growth"):
        assert words in figures[name]["why"]


def test_garbled_answers_are_errors_with_a_figure_of_their_own() -> None:
    server = Server(
        lambda number, t: Turn(error=GARBLED if number in (2, 7) else "", words="no letters: !!!!")
    )
    tally, end = server.soak(HOUR)
    assert end is End.DONE
    found = values(tally)
    assert (found["garbled"], found["errors"], found["stability"]) == (2, 2, 598 / 600)
    assert str(tally.garbage) == "2 of 600 answers are garbled: no letters: !!!!"
    assert "2 errors (2 garbled)" in summary(tally)


def test_a_server_that_only_answers_garbage_is_not_asked_for_hours() -> None:
    server = Server(lambda number, t: Turn(error=GARBLED, words="nothing but white space"))
    tally, end = server.soak(HOUR)
    assert end is End.GARBLED
    assert len(tally.requests) == MIN_GARBLED
    assert some(tally.garbage).mostly


@pytest.mark.parametrize("most", [0, 1, 4])
def test_more_errors_than_are_allowed_end_it(most: int) -> None:
    server = Server(lambda number, t: Turn(error="refused" if number % 10 == 0 else ""))
    tally, end = server.soak(replace(HOUR, max_errors=most))
    assert end is End.ERRORS
    assert sum(tally.errors.values()) == most + 1
    assert len(tally.requests) == (most + 1) * 10


def test_a_cached_prompt_is_an_answer_and_no_rate() -> None:
    server = Server(lambda number, t: Turn(void="9 tokens came from a cache" if number % 2 else ""))
    tally, _ = server.soak(HOUR)
    assert (values(tally)["stability"], tally.figures()["tok_s"]["n"]) == (1.0, 300)


@pytest.mark.parametrize(("slower", "drift"), [(1.25, 0.2), (1.0, 0.0), (0.8, -0.25)])
def test_drift_compares_the_last_ten_minutes_with_the_first(slower: float, drift: float) -> None:
    server = Server(lambda number, t: Turn(2.0 * (slower if t > 2000 else 1)))
    tally, _ = server.soak(HOUR)
    assert values(tally)["tok_s_drift"] == pytest.approx(drift)


def test_a_leak_is_told_in_full() -> None:
    server = Server(look=lambda t: Look(int(GIB + t * 2**20), int(t * 2**20), None, {"p": "1"}))
    tally, _ = server.soak(HOUR)
    assert values(tally)["rss_growth"] == pytest.approx(3600 * 2**20, rel=0.01)
    assert values(tally)["rss_peak"] == GIB + 3600 * 2**20
    assert tally.anon_growth == pytest.approx(3600 * 2**20, rel=0.01)


# -- the server --------------------------------------------------------------------------------


def test_a_restart_is_counted_once_whoever_tells_of_it() -> None:
    def look(t: float) -> Look:
        start = {"container": "a" if t < 1000 else "b"}
        if t < 1000 or t > 1100:  # it loads for a hundred seconds, and /metrics says nothing
            start["metrics"] = "1" if t < 1000 else "2"
        return Look(GIB, GIB, GIB, start)

    tally, end = Server(look=look).soak(HOUR)
    assert end is End.DONE
    [restart] = tally.restarts
    assert restart["t"] == pytest.approx(1000, abs=6)
    assert restart["what"].endswith(" container")
    found = tally.figures()
    assert (found["restarts"]["value"], found["rss_peak"]["value"]) == (1, GIB)
    assert found["rss_growth"]["value"] is None
    assert found["vram_growth"]["n"] == 0


def test_after_a_restart_nothing_is_normal_yet() -> None:
    """The model is read in again: minutes without a token are no hang."""
    server = Server(
        lambda number, t: Turn(120.0, ttft=110.0) if 1000 < t < 1010 else Turn(),
        look=lambda t: Look(start={"metrics": "1" if t < 1000 else "2"}),
    )
    tally, _ = server.soak(HOUR)
    assert tally.hangs == []


def test_a_crash_ends_it_at_once_with_its_time() -> None:
    server = Server(
        lambda number, t: Turn(0.01, error="transport" if t > 1200 else ""),
        dead=lambda t: "ended by SIGKILL" if t > 1200 else "",
    )
    tally, end = server.soak(HOUR)
    assert end is End.GONE
    assert tally.errors == {"transport": 1}
    [crash] = tally.restarts
    assert (crash["what"], tally.gone) == ("ended by SIGKILL", "ended by SIGKILL")
    assert crash["t"] == pytest.approx(1203, abs=6)
    assert values(tally)["restarts"] == 1
    assert tally.restarted == 0, "it did not come back"


def test_a_crash_between_two_requests_is_seen_by_the_watch() -> None:
    plan = SoakPlan(3600.0, 600.0)
    tally, end = Server(look=lambda t: Look(gone="gone" if t > 100 else "")).soak(plan)
    assert (end, len(tally.requests)) == (End.GONE, 1)
    assert tally.observed == pytest.approx(105, abs=1.1)


def test_critical_lines_are_counted_and_the_first_are_kept_clean() -> None:
    lines = tuple(f"CUDA error \x1b[31m{number}" for number in range(15))
    server = Server(look=lambda t: Look(log=True, critical=lines if t in (50, 100) else ()))
    tally, _ = server.soak(HOUR)
    assert values(tally)["critical_lines"] == 30
    assert len(tally.critical) == 20
    assert tally.critical[0] == "CUDA error 0"


# -- time that nobody saw ----------------------------------------------------------------------


class Stopped(Exception):
    """The runner is killed."""


def killed(at: float) -> Any:
    def beat(t: float, silent_s: float) -> None:
        if t >= at:
            raise Stopped

    return beat


def test_a_soak_goes_on_from_its_lines() -> None:
    first = Server(lambda number, t: Turn(error="truncated" if number == 7 else ""))
    with pytest.raises(Stopped):
        first.soak(replace(HOUR, arrivals="fixed"), beat=killed(1003.5))
    tally = Tally()
    for line in first.lines:
        tally.take(line)
    assert tally.observed == pytest.approx(1001, abs=1.1)
    asked = len(tally.requests)
    tally.take({"t": tally.t + 500, "event": "gap", "from": tally.t, "to": tally.t + 500})
    second = Server()
    tally, end = second.soak(replace(HOUR, arrivals="fixed"), tally)
    assert end is End.DONE
    assert asked + len(second.prompts) == len(tally.requests) == 720
    assert tally.errors == {"truncated": 1}
    assert tally.observed == pytest.approx(3600, abs=0.01)
    assert tally.t == pytest.approx(4100, abs=0.01)
    assert values(tally)["observed_s"] == pytest.approx(3600, abs=0.01)
    assert [line["event"] for line in second.lines if "event" in line] == []


def test_the_same_lines_give_the_same_figures() -> None:
    server = Server(
        lambda number, t: Turn(1 + number % 7, mute=3 if number == 80 else None,
                               error="refused" if number % 40 == 0 else ""),
        look=lambda t: Look(int(GIB + t), None, None, {"m": str(t // 3000)}, log=True,
                            critical=("boom",) if t == 700 else ()),
    )  # fmt: skip
    tally, _ = server.soak(HOUR)
    again = Tally()
    for line in server.lines:
        again.take(line)
    again.t = tally.t
    assert again.figures() == tally.figures()
    assert (again.hangs, again.restarts, again.critical) == (
        tally.hangs, tally.restarts, tally.critical,
    )  # fmt: skip


class Sleepy(FakeClock):
    """Its machine is suspended once, at 600 s, for half an hour."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if 600 < self.time - 1_000_000 < 602:
            self.time += 1800


def test_a_machine_that_slept_was_not_observed_and_did_not_hang() -> None:
    server = Server(lambda number, t: Turn(2.0))
    server.clock.__class__ = type("Both", (type(server.clock), Sleepy), {})
    tally, _ = server.soak(HOUR)
    [[start, end]] = tally.gaps
    assert start == pytest.approx(600, abs=3)
    assert end - start == pytest.approx(1800, abs=BLIND_S)
    assert tally.hangs == []
    assert tally.observed == pytest.approx(3600, abs=0.1)
    assert tally.t == pytest.approx(5400, abs=3)


def test_what_ends_it_cuts_the_request_that_is_out() -> None:
    server = Server(lambda number, t: Turn(100.0, ttft=1.0))
    with pytest.raises(Stopped):
        server.soak(HOUR, beat=killed(150.0))
    assert server.out[-1].was_cut
    assert sum(1 for line in server.lines if "ok" in line) == 1, "it is not counted"


@given(
    st.lists(
        st.tuples(
            st.floats(0.001, 60), st.floats(0, 1), st.sampled_from(["", "", "transport"]),
            st.booleans(),
        ),
        min_size=1, max_size=12,
    ),
    st.floats(1, 400), st.floats(0, 20), st.sampled_from(["fixed", "after_reply"]),
)  # fmt: skip
def test_no_figure_is_ever_nan(
    turns: list[tuple[float, float, str, bool]], duration: float, every: float, arrivals: Any
) -> None:
    def turn(number: int, t: float) -> Turn:
        took, share, error, mute = turns[number % len(turns)]
        return Turn(took, took * share, error=error, mute=2 if mute else None)

    server = Server(turn, look=lambda t: Look(int(t), None, 0, {"p": str(t // 300)}))
    tally, _ = server.soak(SoakPlan(duration, every, arrivals), patience=Patience(5.0, 1.0, 30.0))
    for figures in (tally.figures(), tally.void_figures("why")):
        for name, figure in figures.items():
            numbers = [v for v in figure.values() if isinstance(v, float)]
            assert all(map(math.isfinite, numbers)), name
            assert figure["n"] >= 0
    assert tally.observed >= duration - 0.01
