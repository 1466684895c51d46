"""Unknown readings are reported, and after a grace count as a breach if the limit says so; and what
a missing operator is: the countdown of the lease runs while the baseline is down."""

from __future__ import annotations

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB, Limit
from console.recovery.guard.decide.policy import NEAR_POLL_S, Lease, Policy
from console.recovery.guard.metrics import FAR_GRACE_S
from console.recovery.guard.observe.snapshot import GpuMemory, LogHit, Memory, Snapshot
from tests.guard.judging import MACHINE, PLENTY, SWAP, TOTAL, Bench

A, B = "GPU-aaaa", "GPU-bbbb"


def cards(at: float, a: int, b: int | None) -> tuple[GpuMemory, ...]:
    why = "lost" if b is None else ""
    return GpuMemory(A, at, a, 96 * GIB), GpuMemory(B, at, b, 32 * GIB, why)


def test_what_was_not_looked_at_yet_is_no_warning() -> None:
    bench = Bench(Limit("gpu.memory_used", above=100 * GIB, of="sum"), gpus=(A, B))
    first = bench.go(0.3)
    assert first.unknown, "it is said"
    assert first.level == "ok"
    assert bench.go(FAR_GRACE_S + 1).level == "warn", "not for ever"


def test_the_limits_of_the_other_card_stay_live() -> None:
    bench = Bench(
        Limit("gpu.memory_free", below=GIB, of=A[:6]),
        Limit("gpu.memory_free", below=GIB, of=B),
        Limit("gpu.memory_free", below=GIB, of="min"),
        gpus=(A, B),
    )
    found = bench.go(0.3, cards=cards(bench.at, GIB, None))
    assert found.breach is None
    assert len(found.unknown) == 2
    breach = bench.breached(0.3, cards=cards(bench.at, 96 * GIB, None))
    assert (breach.limit.of, breach.value, len(breach.reasons)) == (A[:6], 0, 2)


def test_a_card_that_hangs_is_known_for_ten_seconds() -> None:
    bench = Bench(
        Limit("gpu.memory_used", above=GIB, of="sum", missing="breach", source="site"), gpus=(A, B)
    )
    seen = cards(bench.at, 0, 0)
    assert bench.go(9.5, cards=seen).level == "ok"
    breach = bench.breached(1.0, cards=seen, gpu_trouble="no answer")
    assert (breach.limit.of, breach.limit.source) == ("sum", "site")


@pytest.mark.parametrize("gone", [{"memory": None, "why": "/proc/meminfo: Permission denied"}, {}])
@pytest.mark.parametrize("missing", ["say", "breach"])
def test_memory_that_is_not_known_or_stands_still(gone: dict[str, object], missing: str) -> None:
    bench = Bench(Limit("host.ram_available", below=GIB, missing=missing))
    gone = gone or {"memory": bench.see().memory}
    assert bench.go(0.9, **gone).breach is None
    found = bench.go(0.4, **gone)
    assert found.level == ("act" if missing == "breach" else "warn")
    assert found.wait_s == NEAR_POLL_S or missing == "say"


def test_memory_never_known_is_a_breach_after_the_grace_only() -> None:
    policy = Policy((Limit("host.ram_available", below=GIB, missing="breach"),), MACHINE)
    policy.arm(Snapshot(10.0, None, why="no /proc"))
    for at, breached in ((10.0, False), (10.9, False), (11.2, True)):
        found = policy.decide(Snapshot(at, None, why="no /proc", beat_at=10.0))
        assert (found.breach is not None) == breached, at


def test_armed_before_memory_was_known() -> None:
    policy = Policy((), MACHINE, Envelope((Point("loaded", None, GIB),)))
    policy.arm(Snapshot(10.0, None))
    memory = Memory(10.1, TOTAL, PLENTY, SWAP, 9 * GIB, 0, 0)
    policy.decide(Snapshot(10.1, memory, beat_at=10.0))
    assert policy.forecast.base is not None
    memory = Memory(10.2, TOTAL, 100 * GIB, SWAP, 19 * GIB, 0, 0)
    assert policy.decide(Snapshot(10.2, memory, beat_at=10.0)).breach is None


@pytest.mark.parametrize("missing", ["say", "breach"])
def test_fatal_lines_that_are_not_looked_for(missing: str) -> None:
    bench = Bench(Limit(log="cand", matches="x", count=3, missing=missing))
    assert bench.go(1, hits=(LogHit(0, 1, at=bench.at + 1),)).level == "ok"
    found = bench.go(4.8, hits=(LogHit(0, 1, why="too long"),))
    assert (found.level, found.breach, len(found.unknown)) == ("warn", None, 1)
    found = bench.go(0.5, hits=(LogHit(0, 1, why="too long"),))
    assert found.level == ("warn" if missing == "say" else "act")


def test_fatal_lines_that_were_enough_before_the_pattern_was_given_up() -> None:
    bench = Bench(Limit(log="cand", matches="x", count=3))
    assert bench.go(0.05, hits=(LogHit(0, 3, "line", "too long"),)).breach is not None


def test_fatal_lines_that_nobody_has_counted_for_long() -> None:
    bench = Bench(Limit(log="cand", matches="x", missing="breach"))
    seen = LogHit(0, 0, at=bench.at)
    assert bench.go(4.9, hits=(seen,)).breach is None
    assert bench.go(0.3, hits=(seen,)).breach is not None


def test_a_lease_counts_only_while_the_baseline_is_down() -> None:
    lease = Lease(60)
    assert lease.left(0) is None
    lease.attended(10)
    assert lease.left(1000) is None
    assert not lease.expired(1000)
    lease.outage(True, 1000)
    assert lease.left(1000) == 60
    assert lease.left(1059) == pytest.approx(1)
    assert not lease.expired(1059.9)
    assert lease.expired(1060)
    lease.outage(False, 1061)
    assert lease.left(2000) is None
    assert not lease.expired(2000)


def test_who_is_attached_renews_a_lease() -> None:
    lease = Lease(60)
    lease.outage(True, 0)
    for at in (10, 50, 100):
        lease.attended(at)
    assert lease.left(100) == 60
    lease.attended(20)  # this message came late
    assert lease.left(100) == 60
    assert lease.expired(160)


def test_said_again_an_outage_does_not_begin_anew() -> None:
    lease = Lease(60)
    lease.attended(-10)  # before the outage, so it adds no time
    for on, at, left in ((True, 0, 60), (True, 50, 10), (False, 55, None), (True, 70, 60)):
        lease.outage(on, at)
        assert lease.left(at) == left


def test_without_a_length_a_lease_never_runs_out_and_nothing_left_is_never_negative() -> None:
    for length, left in ((0, None), (-1, None), (5, 0.0)):
        lease = Lease(length)
        lease.outage(True, 0)
        assert lease.left(1e9) == left
        assert lease.expired(1e9) == (length > 0)
