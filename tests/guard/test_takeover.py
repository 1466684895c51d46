"""A sentinel that takes over in the middle of a load counts from where the last one did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB
from console.recovery.guard.decide.policy import Policy
from console.recovery.guard.observe.snapshot import GpuMemory
from tests.guard.judging import MACHINE, Bench
from tests.guard.made_site import Site

START, END, RATE = 40.0, 7.0, 2.0
"""GiB of RAM available before and after the load, and the GiB a second that the load takes."""
PREDICTED = Envelope((Point("loaded", ram=int(START - END) * GIB),))


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path, envelope=PREDICTED)
    site.pass_time(1)
    yield site
    site.close()


def fill(one: Site, available: float, to: float) -> None:
    while available > to:
        available -= RATE * 0.05
        one.available(available)
        one.pass_time(0.05)


def test_a_load_that_was_predicted_ends_although_another_took_over(one: Site) -> None:
    child = one.load()
    one.pass_time(1)
    fill(one, START, 20)
    before = one.page()["base"]
    one.take_over()
    assert one.page()["base"] == before
    assert before["available"] == START * GIB
    fill(one, 20, END)
    one.pass_time(1)
    assert child.poll() is None
    fill(one, END, 1.9)
    assert child.wait(60) == -9


def test_what_has_ended_meanwhile_is_counted_no_more(one: Site) -> None:
    child = one.load()
    one.pass_time(1)
    child.kill()
    child.wait(60)
    one.take_over()
    assert one.page()["base"] is None
    one.available(30)
    one.load("next")
    one.pass_time(1)
    assert one.page()["base"]["available"] == 30 * GIB


def test_swap_and_cards_are_counted_from_the_same_moment() -> None:
    bench = Bench(armed=False)
    cards = (GpuMemory("GPU-a", bench.at, 2 * GIB, 96 * GIB), GpuMemory("GPU-b", bench.at, None))
    bench.policy.arm(bench.see(swap=1 * GIB, cards=cards))
    base = json.loads(json.dumps(bench.policy.base))
    assert base["cards"] == {"GPU-a": 2 * GIB}
    after = Policy((), MACHINE)
    after.resume(base)
    after.arm(bench.see(available=20 * GIB, swap=8 * GIB))
    assert after.base == base
    after.disarm()
    assert after.base is None


@pytest.mark.parametrize("base", [None, 7, {}, {"available": 5}, {"available": "x", "cards": []}])
def test_what_is_no_base_is_left(base: object) -> None:
    bench = Bench(armed=False)
    bench.policy.resume(base)
    assert bench.policy.base is None
