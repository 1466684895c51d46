"""Guards held against the machine before anything starts: cards, and what the baseline holds."""

from __future__ import annotations

import os

from console.recovery.guard.config import Limit
from console.runner.guard import limits
from tests.clock import FakeClock
from tests.run.unit.conftest import Look

GIB = 1 << 30


def test_what_the_baseline_gives_back_is_counted(held: Look) -> None:
    limit = Limit("host.ram_available", below=60 * GIB, source="site, line 3")
    (found,) = held(limit, given_back=10 * GIB)
    assert found.stops
    assert "50.0 GiB, below 60.0 GiB (site, line 3)" in found.words
    assert held(limit, given_back=30 * GIB) == []
    (found,) = held(limit)
    assert not found.stops, "how much it gives back is not known"
    (found,) = held(limit, outage=False)
    assert found.stops


def test_what_is_about_a_load_waits_for_it(held: Look) -> None:
    assert held(Limit("service.ram_used", above=1.0)) == []
    assert held(Limit("host.swap_growth", above=1.0)) == []
    assert held(Limit(log="cand", matches="x")) == []


def test_a_pace_is_looked_at_for_a_while(held: Look, clock: FakeClock) -> None:
    before = clock.monotonic()
    assert held(Limit("host.time_to_full", below=20.0)) == []
    assert clock.monotonic() - before >= limits.SAMPLE_S


def test_what_a_process_holds() -> None:
    assert (limits.held_by(os.getpid()) or 0) > 1 << 20
    assert limits.held_by(2**22 + 1) is None
