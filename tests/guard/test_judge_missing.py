"""Unknown readings are reported, and after a grace count as a breach if the limit says so."""

from __future__ import annotations

import pytest

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB, Limit, defaults
from console.recovery.guard.decide.policy import NEAR_POLL_S, Policy
from console.recovery.guard.metrics import FAR_GRACE_S
from console.recovery.guard.observe.snapshot import GpuMemory, LogHit, Memory, Snapshot
from tests.guard.judging import MACHINE, PLENTY, SWAP, TOTAL, Bench

A, B = "GPU-aaaa", "GPU-bbbb"


def cards(at: float, a: int | None, b: int | None, why: str = "") -> tuple[GpuMemory, ...]:
    return (GpuMemory(A, at, a, 96 * GIB, why if a is None else ""),
            GpuMemory(B, at, b, 32 * GIB, why if b is None else ""))  # fmt: skip


def test_the_sum_needs_every_card_of_the_sheet() -> None:
    bench = Bench(Limit("gpu.memory_used", above=100 * GIB, of="sum"), gpus=(A, B))
    assert bench.go(0.3, cards=cards(bench.at, 90 * GIB, 5 * GIB)).level == "ok"
    found = bench.go(0.3, cards=cards(bench.at, 90 * GIB, None, "lost"))
    assert len(found.unknown) == 1
    assert B in found.unknown[0]
    assert (found.level, found.breach) == ("warn", None)
    only = bench.go(0.3, cards=(GpuMemory(A, bench.at, 96 * GIB, 96 * GIB),))
    assert (len(only.unknown), only.breach) == (1, None)
    assert bench.go(0.3, cards=cards(bench.at, 90 * GIB, 11 * GIB)).breach is not None


def test_a_sum_that_is_too_much_without_the_lost_card() -> None:
    bench = Bench(
        Limit("gpu.memory_used", above=90 * GIB, of="sum"),
        Limit("gpu.memory_free", below=100 * GIB, of="sum"),
        gpus=(A, B),
    )
    found = bench.go(0.3, cards=cards(bench.at, 95 * GIB, None, "lost"))
    assert found.breach is not None
    assert (found.breach.limit.of, found.breach.value) == ("sum", 95 * GIB)
    assert len(found.unknown) == 1, "the other may have any amount"


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
    found = bench.go(0.3, cards=cards(bench.at, GIB, None, "lost"))
    assert found.breach is None
    assert len(found.unknown) == 2
    breach = bench.breached(0.3, cards=cards(bench.at, 96 * GIB, None, "lost"))
    assert (breach.limit.of, breach.value, len(breach.reasons)) == (A[:6], 0, 2)


def test_a_card_that_hangs_is_known_for_ten_seconds() -> None:
    bench = Bench(
        Limit("gpu.memory_used", above=GIB, of="sum", missing="breach", source="site"), gpus=(A, B)
    )
    seen = cards(bench.at, 0, 0)
    assert bench.go(9.5, cards=seen).level == "ok"
    breach = bench.breached(1.0, cards=seen, gpu_trouble="no answer")
    assert (breach.limit.of, breach.limit.source) == ("sum", "site")


@pytest.mark.parametrize("missing", ["say", "breach"])
def test_memory_that_is_not_known(missing: str) -> None:
    bench = Bench(Limit("host.ram_available", below=GIB, missing=missing, source="site"))
    gone = {"memory": None, "why": "/proc/meminfo: Permission denied"}
    found = bench.go(0.9, **gone)
    assert found.breach is None
    found = bench.go(0.4, **gone)
    assert any("/proc/meminfo" in one for one in found.reasons)
    assert any("/proc/meminfo" in one for one in found.unknown)
    assert found.level == ("act" if missing == "breach" else "warn")
    assert found.wait_s == NEAR_POLL_S or missing == "say"


def test_memory_that_stands_still() -> None:
    bench = Bench(Limit("host.ram_available", below=GIB, missing="breach"))
    frozen = bench.see().memory
    assert bench.go(0.9, memory=frozen).breach is None
    breach = bench.breached(0.3, memory=frozen)
    assert breach.limit.metric == "host.ram_available"


def test_memory_never_known_is_a_breach_after_the_grace_only() -> None:
    policy = Policy((Limit("host.ram_available", below=GIB, missing="breach"),), MACHINE)
    policy.arm(Snapshot(10.0, None, why="no /proc"))
    assert policy.decide(Snapshot(10.0, None, why="no /proc", beat_at=10.0)).breach is None
    assert policy.decide(Snapshot(10.9, None, why="no /proc", beat_at=10.0)).breach is None
    assert policy.decide(Snapshot(11.2, None, why="no /proc", beat_at=10.0)).breach is not None


def test_armed_before_memory_was_known() -> None:
    policy = Policy((), MACHINE, Envelope((Point("loaded", None, GIB),)))
    policy.arm(Snapshot(10.0, None))
    memory = Memory(10.1, TOTAL, PLENTY, SWAP, 9 * GIB, 0, 0)
    policy.decide(Snapshot(10.1, memory, beat_at=10.0))
    assert policy.forecast.base is not None
    memory = Memory(10.2, TOTAL, 100 * GIB, SWAP, 19 * GIB, 0, 0)
    assert policy.decide(Snapshot(10.2, memory, beat_at=10.0)).breach is None


def test_a_kernel_without_pressure_is_no_alarm() -> None:
    bench = Bench()
    found = bench.go(12, full_us=None, some_us=None)
    assert found.level == "ok"
    assert len(found.unknown) == 2


def test_no_swap_is_no_swap_full() -> None:
    small = defaults(24 * GIB, 0)
    policy = Policy((Limit("host.swap_free", below=GIB),), small)
    for tick in range(100):
        at = 10 + tick * 0.05
        snapshot = Snapshot(at, Memory(at, 24 * GIB, 20 * GIB, 0, 0, 0, 0), beat_at=at)
        if tick == 0:
            policy.arm(snapshot)
        found = policy.decide(snapshot)
    assert found.breach is None
    assert len(found.unknown) == 1


TOO_LONG = "the pattern takes too long"


@pytest.mark.parametrize("missing", ["say", "breach"])
def test_fatal_lines_that_are_not_looked_for(missing: str) -> None:
    bench = Bench(Limit(log="cand", matches="x", count=3, missing=missing, source="playbook"))
    assert bench.go(1, hits=(LogHit(0, 1, at=bench.at + 1),)).level == "ok"
    found = bench.go(4.8, hits=(LogHit(0, 1, why=TOO_LONG),))
    assert (found.level, found.breach) == ("warn", None)
    assert len(found.unknown) == 1
    found = bench.go(0.5, hits=(LogHit(0, 1, why=TOO_LONG),))
    assert (found.level, found.breach is None) == (
        ("warn", True) if missing == "say" else ("act", False)
    )


def test_fatal_lines_that_were_enough_before_the_pattern_was_given_up() -> None:
    bench = Bench(Limit(log="cand", matches="x", count=3))
    assert bench.go(0.05, hits=(LogHit(0, 3, "line", TOO_LONG),)).breach is not None


def test_fatal_lines_that_nobody_has_counted_for_long() -> None:
    bench = Bench(Limit(log="cand", matches="x", missing="breach"))
    seen = LogHit(0, 0, at=bench.at)
    assert bench.go(4.9, hits=(seen,)).breach is None
    assert bench.go(0.3, hits=(seen,)).breach is not None
