"""What a soak calls a hang, what it only tells of, and how long its end is waited for."""

from typing import Any

import pytest

from console.bench.soak import HANG, UNFINISHED, End, SoakPlan
from console.bench.soak_stats import Patience, Tally, patience
from tests.bench.soaking import HOUR, Server, Turn, values


def test_a_hang_is_a_multiple_of_what_is_normal() -> None:
    server = Server(lambda number, t: Turn(mute=40 if number == 50 else None))
    tally, end = server.soak(HOUR)
    [hang] = tally.hangs
    assert end is End.DONE
    assert server.out[49].was_cut
    assert (tally.errors, hang["requests"]) == ({HANG: 1}, 1)
    begun = 49 * 6.0 + 0.2 + 0.8 * 39 / 99  # its fortieth token
    assert hang["t"] == pytest.approx(begun + Patience().floor_s, abs=0.6)
    assert hang["until"] == pytest.approx(hang["t"] + 5 + 0.1 + 1, abs=0.6)
    assert "50 (two), after 40 " in hang["what"]
    assert "8.08 ms" in hang["what"]
    assert server.state() in hang["what"]


@pytest.mark.parametrize(("ttft", "silent_s"), [(0.1, 10.0), (1.0, 20.0), (3.0, 60.0)])
def test_before_the_first_token_its_own_median_counts(ttft: float, silent_s: float) -> None:
    server = Server(lambda number, t: Turn(ttft + 2, ttft, mute=0 if number == 20 else None))
    tally, _ = server.soak(HOUR)
    [hang] = tally.hangs
    begun = 19 * (ttft + 2 + 5)
    assert hang["t"] - begun == pytest.approx(silent_s, abs=0.6)


def test_a_slow_server_is_no_hang() -> None:
    """A request may take what it likes while tokens come, and a first one may page a model in."""
    turns = {1: Turn(500.0, ttft=55.0), 30: Turn(900.0, ttft=0.3)}
    tally, _ = Server(lambda number, t: turns.get(number, Turn())).soak(HOUR)
    assert (tally.hangs, tally.errors) == ([], {})


@pytest.mark.parametrize(
    ("slowest", "bound"), [(None, 60.0), (0.2, 10.0), (4.0, 40.0), (30.0, 300.0)]
)
def test_what_a_benchmark_saw_bounds_the_first_silence(slowest: float | None, bound: float) -> None:
    server = Server(lambda number, t: Turn(mute=0 if number == 2 else None))
    tally, _ = server.soak(HOUR, patience=patience(slowest))
    assert tally.hangs[0]["t"] == pytest.approx(6 + bound, abs=0.6)
    assert patience(slowest).anew_s >= patience(slowest).cold_s
    first = Server(lambda number, t: Turn(mute=0 if number == 1 else None))
    tally, _ = first.soak(HOUR, patience=patience(slowest))
    assert tally.hangs[0]["t"] == pytest.approx(patience(slowest).cold_s, abs=0.6)


@pytest.mark.parametrize("arrivals", ["fixed", "after_reply"])
def test_a_hang_at_the_end_is_waited_for_no_longer_than_a_hang(arrivals: Any) -> None:
    """15 s of soak, silence from the second request on: it is named, and the soak is over."""
    server = Server(lambda number, t: Turn(0.1, 0.05, mute=0 if number >= 2 else None))
    told: list[float] = []
    tally, end = server.soak(
        SoakPlan(15.0, 1.0, arrivals), beat=lambda t, silent_s: told.append(silent_s)
    )
    assert end is End.DONE
    assert tally.observed == pytest.approx(61.0, abs=1.5)
    assert (tally.errors, len(tally.hangs), len(server.prompts)) == ({HANG: 1}, 1, 2)
    assert tally.missed == (13 if arrivals == "fixed" else 0)
    silent = [one for one in told if one]
    assert silent[0] == pytest.approx(5.0, abs=0.6), "it is told long before it is a hang"
    assert silent == sorted(silent)
    assert silent[-1] >= 60


def test_a_silence_that_is_normal_is_not_told() -> None:
    told: list[float] = []
    server = Server(lambda number, t: Turn(9.0, ttft=4.0))
    server.soak(HOUR, beat=lambda t, silent_s: told.append(silent_s))
    assert len(told) > 3600
    assert not any(told)


def test_an_answer_that_drips_on_after_the_end_is_cut_and_is_no_hang() -> None:
    server = Server(lambda number, t: Turn(500.0, 0.1, 5000) if number == 5 else Turn(20.0))
    tally, end = server.soak(SoakPlan(120.0))
    assert end is End.DONE
    assert (tally.errors, tally.hangs) == ({UNFINISHED: 1}, [])
    assert tally.observed == pytest.approx(120 + 2 * 20, abs=1.0), "twice the longest answer"


def test_a_request_that_is_out_at_the_end_may_finish() -> None:
    server = Server(lambda number, t: Turn(90.0, 5.0))
    tally, _ = server.soak(SoakPlan(300.0))
    assert (tally.errors, len(tally.requests)) == ({}, 4)


def test_requests_that_were_sent_twice_are_counted() -> None:
    server = Server(lambda number, t: Turn(retries=int(number % 2)))
    tally, _ = server.soak(SoakPlan(60.0))
    assert (len(tally.requests), tally.transport_retries) == (10, 5)
    assert [line.get("retries") for line in server.lines if "ok" in line][:2] == [1, None]
    again = Tally()
    for line in server.lines:
        again.take(line)
    assert again.transport_retries == 5


def test_a_long_silence_is_one_hang_and_each_request_it_cost() -> None:
    server = Server(lambda number, t: Turn(mute=0 if 600 < t < 660 else None))
    tally, _ = server.soak(HOUR)
    [hang] = tally.hangs
    assert hang["requests"] == tally.errors[HANG] == 4
    assert 660 < hang["until"] < 685
    assert values(tally)["hangs"] == 1
    assert values(tally)["errors"] == 4


def test_a_server_that_never_answers_again_hangs_to_the_end() -> None:
    tally, end = Server(lambda number, t: Turn(mute=0 if t > 1800 else None)).soak(HOUR)
    assert end is End.DONE
    [hang] = tally.hangs
    assert "until" not in hang
    assert hang["requests"] == tally.errors[HANG] > 100
