"""Which ticks are skipped: only those whose decision would have been the same."""

from __future__ import annotations

import dataclasses
import random

import pytest

from console.recovery.guard.config import GIB, Limit, defaults
from console.recovery.guard.decide.policy import POLL_S, Policy
from console.recovery.guard.observe.collect import FASTEST, REST_POLL_S, IdleSkip
from console.recovery.guard.observe.snapshot import Disk, Memory, Snapshot

TOTAL, SWAP = 377 * 10**9, 207 * 10**9
PLENTY = 200 * GIB


class Pair:
    """Gives the same snapshots to a policy that sees all and to one that skips the idle ones."""

    def __init__(self, *limits: Limit, **parts: object) -> None:
        self.every, self.some = (Policy(limits, defaults(TOTAL, SWAP)) for _ in range(2))
        self.idle = IdleSkip()
        self.parts, self.at, self.spared, self.snapshots = parts, 100.0, 0, 0
        self.armed = False

    def see(self, available: float, swap: int = 0, some_us: int = 0, full_us: int = 0) -> None:
        """Give one snapshot to both; the policy that skips must not miss anything."""
        memory = Memory(self.at, TOTAL, int(available), SWAP, swap, some_us, full_us)
        snapshot = dataclasses.replace(Snapshot(self.at, memory, beat_at=self.at), **self.parts)  # type: ignore[arg-type]
        if not self.armed:
            self.armed = True
            self.every.arm(snapshot)
            self.some.arm(snapshot)
        full = self.every.decide(snapshot)
        self.snapshots += 1
        if self.idle.holds(memory):
            self.spared += 1
            assert (full.level, full.breach, full.unknown) == ("ok", None, ())
        else:
            found = self.some.decide(snapshot)
            self.idle.decided(self.some, memory, found)
            assert (found.level, found.fresh) == (full.level, full.fresh)
            assert found.tte_s == full.tte_s
        self.at += POLL_S


def test_a_machine_that_breathes_is_hardly_judged() -> None:
    pair, rng = Pair(), random.Random(4)
    for _ in range(2000):
        pair.see(PLENTY + rng.uniform(-1, 1) * 2**26)
    assert pair.spared / pair.snapshots > 0.9


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_found_later_than_by_looking_at_all(seed: int) -> None:
    rng = random.Random(seed)
    pair = Pair(
        Limit("host.ram_available", below=60 * GIB, for_s=rng.choice([0, 0.4])),
        Limit("host.swap_used", above=8 * GIB), Limit("host.pressure", above=25),
    )  # fmt: skip
    available, swap, waited = float(PLENTY), 0, 0
    for _ in range(3000):
        kind = rng.random()
        if kind < 0.02:
            available -= rng.uniform(0, 12) * GIB
        elif kind < 0.03:
            available = PLENTY
        elif kind < 0.035:
            swap += int(rng.uniform(0, 3) * GIB)
        elif kind < 0.06:
            waited += int(rng.uniform(0, 60_000))
        available = max(GIB, available + rng.uniform(-1, 1) * 2**25)
        pair.see(available, swap, waited, waited // 2)
        if pair.every.breach is not None:
            break
    assert pair.spared > 20
    assert pair.every.breach is not None
    assert pair.some.breach is not None
    assert pair.some.breach.at == pair.every.breach.at


def test_a_figure_that_grows_old_is_judged_in_time() -> None:
    pair = Pair(
        Limit("disk.free", below=1, missing="breach"), disks=(Disk("/", 100.0, free=5),),
    )  # fmt: skip
    while pair.at < 112 and pair.every.breach is None:
        pair.see(PLENTY)
    assert pair.every.breach is not None
    assert pair.some.breach is not None
    assert pair.some.breach.at == pair.every.breach.at
    assert pair.spared > 150


def decided(pair: Pair, available: float) -> IdleSkip:
    for _ in range(80):
        pair.see(available)
    return pair.idle


def test_how_far_apart_looks_are_at_rest() -> None:
    assert decided(Pair(), PLENTY).wait_s == REST_POLL_S
    near = Pair()
    left = 0.1 * FASTEST
    assert decided(near, near.some.highest + left).wait_s == pytest.approx(POLL_S, abs=0.06)
    assert decided(Pair(), 10 * GIB).wait_s < POLL_S  # below twice the floor


def test_what_fills_is_looked_at_as_before() -> None:
    pair = Pair()
    for tick in range(200):
        pair.see(PLENTY - tick * POLL_S * 4e9)
    assert pair.idle.wait_s == POLL_S


def test_pressure_is_looked_at_as_before() -> None:
    pair = Pair()
    for tick in range(200):
        pair.see(PLENTY, some_us=tick * 1000)  # 2 % of the time
    assert pair.idle.wait_s == POLL_S


def test_a_word_from_outside_is_judged() -> None:
    pair = Pair()
    idle = decided(pair, PLENTY)
    memory = Memory(pair.at, TOTAL, PLENTY, SWAP, 0, 0, 0)
    assert idle.holds(memory)
    idle.forget()
    assert not idle.holds(memory._replace(at=pair.at + 0.01))


@pytest.mark.parametrize(
    "changes",
    [{"swap_used": 4096}, {"total": TOTAL - 1}, {"available": GIB}, {"full_us": None},
     {"at": 1000.0}],
)  # fmt: skip
def test_what_is_not_calm(changes: dict[str, float]) -> None:
    pair = Pair()
    idle = decided(pair, PLENTY)
    memory = Memory(pair.at, TOTAL, PLENTY, SWAP, 0, 0, 0)
    assert not idle.holds(memory._replace(**changes))  # type: ignore[arg-type]
    assert not idle.holds(None)
