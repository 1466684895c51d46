"""Guards held against the machine before anything starts: cards, and what the baseline holds."""

from __future__ import annotations

import os
from dataclasses import replace

from console.clock import FakeClock
from console.guard.limits import Limit
from console.preflight.cards import Cards
from console.run import guard_now
from tests.run.unit.conftest import Look

GIB = 1 << 30


def card(of: str, **more: object) -> Limit:
    return Limit("gpu.memory_used", of=of, source="playbook, line 7", **more)  # type: ignore[arg-type]


def test_a_card_that_is_not_there_starts_nothing(held: Look) -> None:
    (found,) = held(card("GPU-cccc", above=GIB))
    assert found.stops
    assert "there is GPU-aaaa, GPU-bbbb (playbook, line 7)" in found.words
    (found,) = held(card("GPU-cccc", above=GIB, act="warn"))
    assert not found.stops, "a warning less is no outage for nothing"


def test_without_a_driver_only_what_wants_a_figure_starts_nothing(held: Look) -> None:
    none = Cards(words="no NVIDIA driver")
    (found,) = held(card("sum", above=GIB), none)
    assert not found.stops
    (found,) = held(card("sum", above=GIB, missing="breach"), none)
    assert found.stops
    assert "`missing: breach`" in found.words


def test_vram_that_the_baseline_gives_back_is_a_warning(held: Look) -> None:
    (found,) = held(card("max", above=80 * GIB))
    assert not found.stops
    assert "90.0 GiB, above 80.0 GiB" in found.words
    (found,) = held(card("max", above=80 * GIB), outage=False)
    assert found.stops
    assert held(card("GPU-bbbb", above=80 * GIB)) == []


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


def test_a_figure_that_the_machine_has_not_costs_no_outage(held: Look) -> None:
    swap = Limit("host.swap_free", below=GIB, missing="breach", source="playbook, line 5")
    (found,) = held(swap)
    assert found.stops
    assert "(playbook, line 5)" in found.words
    (found,) = held(replace(swap, missing="say"))
    assert not found.stops


def test_a_pace_is_looked_at_for_a_while(held: Look, clock: FakeClock) -> None:
    before = clock.monotonic()
    assert held(Limit("host.time_to_full", below=20.0)) == []
    assert clock.monotonic() - before >= guard_now.LOOK_S


def test_what_a_process_holds() -> None:
    assert (guard_now.held_by(os.getpid()) or 0) > 1 << 20
    assert guard_now.held_by(2**22 + 1) is None
