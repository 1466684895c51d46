"""How far apart readings are: far on a machine at rest, close near a limit or under a load."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from console.recovery.guard.config import GIB, defaults
from console.recovery.guard.decide.policy import POLL_S, Policy
from console.recovery.guard.observe.collect import FASTEST, REST_POLL_S, rest_s
from console.recovery.guard.observe.snapshot import Memory, Snapshot

TOTAL, SWAP = 377 * 10**9, 207 * 10**9
PLENTY = 200 * GIB


def after(available: Callable[[int], float], some_us: int = 0) -> float:
    """Seconds to the next reading after 200 ticks; `some_us` of waiting is added at each."""
    policy = Policy((), defaults(TOTAL, SWAP))
    for tick in range(200):
        at = 100 + tick * POLL_S
        memory = Memory(at, TOTAL, int(available(tick)), SWAP, 0, tick * some_us, 0)
        found = policy.decide(Snapshot(at, memory, beat_at=at))
    return rest_s(policy, memory, found)


def test_at_rest_it_is_read_four_times_a_second() -> None:
    assert after(lambda tick: PLENTY) == REST_POLL_S


def test_near_a_level_that_kills_it_is_read_before_the_fastest_load_could_be_there() -> None:
    highest = Policy((), defaults(TOTAL, SWAP)).highest
    assert after(lambda tick: highest + 0.1 * FASTEST) == pytest.approx(POLL_S, abs=0.06)
    assert after(lambda tick: 10 * GIB) < POLL_S  # below twice the floor


def test_what_fills_or_waits_is_read_as_often_as_a_load() -> None:
    assert after(lambda tick: PLENTY - tick * POLL_S * 4e9) == POLL_S
    assert after(lambda tick: PLENTY, some_us=1000) == POLL_S  # 2 % of the time


def test_without_a_reading_the_policy_says_how_long() -> None:
    policy = Policy((), defaults(TOTAL, SWAP))
    found = policy.decide(Snapshot(100.0, None, why="no /proc"))
    assert rest_s(policy, None, found) == found.wait_s
