"""What is a breach and what is not: levels, durations, hysteresis, the breach that stays; unknown
readings, which are reported and after a grace count as a breach if the limit says so; and a missing
operator: the countdown of the lease runs while the baseline is down."""

import dataclasses

import pytest

from console.host.gpu.figures import GpuSample
from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB, Limit
from console.recovery.guard.decide.policy import (
    NEAR_POLL_S,
    POLL_S,
    Curves,
    Decision,
    Lease,
    Policy,
)
from console.recovery.guard.metrics import FAR_GRACE_S
from console.recovery.guard.observe.snapshot import (
    Disk,
    GpuReading,
    Load,
    LogHit,
    Memory,
    Snapshot,
)
from tests.guard.judging import MACHINE, PLENTY, SWAP, TOTAL, Bench, card_of
from tests.waiting import some


def test_a_quiet_machine_is_ok() -> None:
    found = Bench().go(5)
    assert found == Decision("ok", (), found.tte_s)
    assert found.tte_s is not None


def test_one_breach_an_arming() -> None:
    bench = Bench()
    first = bench.go(0.05, available=5 * GIB).breach
    again = bench.go(1, available=4 * GIB)
    assert (again.level, again.fresh, again.breach) == ("act", False, first)
    back = bench.go(60)
    assert (back.level, back.breach) == ("act", first)
    bench.policy.arm(bench.see())
    assert bench.go(1).level == "ok"
    second = bench.go(0.05, available=5 * GIB)
    assert second.fresh
    assert second.breach != first


def test_who_is_armed_no_more_is_not_killed() -> None:
    bench = Bench(armed=False)
    assert bench.go(1, available=5 * GIB).breach is None
    bench.policy.arm(bench.see(available=5 * GIB))
    assert bench.go(0.05, available=5 * GIB).fresh
    bench.policy.disarm()
    assert bench.go(0.05, available=5 * GIB).breach is None


def test_after_a_rollback_only_what_comes_then_kills() -> None:
    bench = Bench()
    bench.policy.advisory(True)
    assert bench.go(1, available=5 * GIB).breach is None
    bench.go(1)
    bench.policy.advisory(False)
    # still shown, because it has not been clear for long enough, but no reason to kill now
    assert bench.go(0.05).level == "warn"
    assert bench.go(0.05, available=5 * GIB).fresh


def test_for_means_without_a_break() -> None:
    bench = Bench(Limit("host.swap_used", above=GIB, for_s=2.0, source="site"))
    for _ in range(5):
        assert bench.go(1.9, swap=1.5 * GIB).breach is None
        bench.go(0.05, swap=0.9 * GIB)
    breach = bench.breached(2.1, swap=1.5 * GIB)
    assert (breach.limit.source, breach.value) == ("site", 1.5 * GIB)


def test_a_late_look_is_no_break() -> None:
    bench = Bench(Limit("host.swap_used", above=GIB, for_s=2.0))
    bench.go(0.05, swap=2 * GIB)
    bench.at += 5
    assert bench.go(0.05, swap=2 * GIB).fresh


def test_a_passing_limit_that_kills_is_a_warning() -> None:
    bench = Bench(Limit("host.swap_used", above=GIB, for_s=60.0))
    found = bench.go(1, swap=2 * GIB)
    assert (found.level, found.wait_s) == ("warn", NEAR_POLL_S)


def test_clear_only_after_ten_seconds_well_above() -> None:
    bench = Bench(
        Limit("host.ram_available", below=100 * GIB, act="warn", source="playbook"), rest=126 * GIB
    )
    assert bench.go(0.05, available=99 * GIB).level == "warn"
    near = bench.go(30, available=120 * GIB)
    assert (near.level, len(near.reasons)) == ("warn", 1)
    assert bench.go(9.9, available=126 * GIB).level == "warn"
    bench.go(0.05, available=124 * GIB)
    assert bench.go(9.9, available=126 * GIB).level == "warn"
    assert bench.go(0.3, available=126 * GIB).level == "ok"


def test_filling_up_is_told_with_time_and_speed() -> None:
    found = some(Bench(rest=120e9).fill(4.93e9, 120e9).breach)
    assert found.limit.metric == "host.time_to_full"
    assert found.tte_s == pytest.approx(5.45, abs=0.05)
    assert found.rate == pytest.approx(4.93e9)


def test_on_its_course_a_predicted_load_is_let_end() -> None:
    predicted = Bench(envelope=Envelope((Point("loaded", None, PLENTY - 8 * GIB),)))
    predicted.fill(6e9, float(PLENTY), 8.3 * GIB)
    assert predicted.go(2, available=8.2 * GIB).on_course
    assert predicted.last.breach is None
    assert Bench().fill(6e9, float(PLENTY), 8.3 * GIB).breach is not None


def test_a_later_arming_keeps_what_was_taken() -> None:
    envelope = Envelope((Point("loaded", None, 180 * GIB),))
    bench = Bench(envelope=envelope)
    bench.go(1, available=22 * GIB)
    bench.policy.arm(bench.see(available=22 * GIB))
    assert bench.go(1, available=21 * GIB).on_course
    bench.policy.disarm()
    bench.policy.arm(bench.see(available=22 * GIB))
    assert not bench.go(1, available=21 * GIB).on_course


def test_cold_pages_that_make_room_for_what_was_predicted_are_no_breach() -> None:
    bench = Bench(envelope=Envelope((Point("loaded", None, 150 * GIB),)))
    bench.go(20, available=100 * GIB, swap=15 * GIB)
    assert bench.last.on_course
    assert bench.last.breach is None


def test_swap_that_grows_is_a_breach() -> None:
    bench = Bench()
    bench.go(1, swap=3 * GIB)
    bench.policy.disarm()
    bench.policy.arm(bench.see(swap=3 * GIB))
    assert bench.go(1, swap=20 * GIB).breach is None, "plenty is free"
    bench.go(20, swap=3 * GIB)
    breach = bench.breached(1, available=100 * GIB, swap=15 * GIB)
    assert any("12.0 GiB" in one for one in breach.reasons)


def test_what_begins_beside_a_load_gives_it_no_more_time_and_no_more_swap() -> None:
    bench = Bench(Limit("host.swap_used", above=GIB, for_s=5.0))
    for begun in range(4):
        bench.policy.arm(bench.see(swap=2 * GIB))
        assert bench.go(1.2, swap=2 * GIB).breach is None, begun
    bench.policy.arm(bench.see(swap=2 * GIB))
    assert bench.go(0.5, swap=2 * GIB).fresh is False
    assert bench.last.breach is not None
    bench.policy.arm(bench.see(swap=2 * GIB))
    assert bench.go(4, swap=2 * GIB).breach is None, "after a kill it counts anew"
    grown = Bench(Limit("host.swap_growth", above=4 * GIB))
    for n in range(4):
        assert grown.last.breach is None
        grown.go(1, swap=2 * n * GIB)
        grown.policy.arm(grown.see(swap=2 * n * GIB))
    grown.policy.disarm()
    grown.policy.arm(grown.see(swap=6 * GIB))
    assert grown.go(1, swap=6 * GIB).breach is None


def test_pressure_by_how_scarce_memory_is() -> None:
    for available, share, kills in (
        (PLENTY, 0.5, False), (100 * GIB, 0.5, True), (100 * GIB, 0.2, False),
        (40 * GIB, 0.2, True), (PLENTY, 0.8, True),
    ):  # fmt: skip
        found = Bench(rest=available).pressed(share, 5)
        assert (found.breach is not None) == kills, (available, share)


def test_a_silent_runner_kills_only_where_ram_is_scarce() -> None:
    bench = Bench()
    beat = bench.at
    assert bench.go(9, beat_at=beat).level == "ok"
    assert bench.go(3, beat_at=beat).breach is None
    assert bench.go(1, beat_at=beat, available=50 * GIB).breach is not None


def test_an_oom_kill_in_what_is_armed() -> None:
    bench = Bench()
    quiet = Load("candidate", "container", bench.at, oom=0)
    assert bench.go(1, loads=(quiet,)).breach is None
    breach = bench.breached(0.05, loads=(quiet, dataclasses.replace(quiet, at=bench.at, oom=1)))
    assert (breach.limit.metric, breach.value, breach.of) == ("service.oom_kills", 1, "candidate")


def test_an_oom_kill_that_a_step_looks_for_breaks_only_a_limit_of_the_operators() -> None:
    own = Limit("service.oom_kills", above=0, source="site.yaml")
    for limits, kills in ((), False), ((own,), True):
        bench = Bench(*limits)
        quiet = Load("candidate", "container", bench.at, oom=0, expendable=True)
        assert bench.go(1, loads=(quiet,)).breach is None
        after = bench.go(1, loads=(dataclasses.replace(quiet, at=bench.at, oom=1),))
        assert (after.breach is not None) == kills


def test_a_named_service_and_any() -> None:
    limits = Limit("service.ram_used", above=10 * GIB, of="a"), Limit("service.restarts", above=2)
    bench = Bench(*limits)
    big = Load("b", "container", bench.at, ram=20 * GIB, restarts=2, oom=0)
    assert bench.go(1, loads=(big,)).breach is None
    breach = bench.breached(0.3, loads=(dataclasses.replace(big, name="a", at=bench.at), big))
    assert (breach.limit.of, breach.value) == ("a", 20 * GIB)


def test_fatal_lines_of_another_limit_do_not_count() -> None:
    bench = Bench(
        Limit("host.swap_used", above=GIB, act="warn"), Limit(log="candidate", matches="x", count=2)
    )
    assert bench.go(1, hits=(LogHit(0, 9, "another limit"), LogHit(1, 1, "one"))).breach is None
    assert bench.breached(0.05, hits=(LogHit(1, 2, "two"),)).index == 1


def test_a_disk_that_is_full_again_is_not_the_one_before() -> None:
    bench = Bench(Limit("disk.free", below=GIB, of="/a"))
    full = Disk("/b", bench.at, 1)
    assert bench.go(0.3, disks=(Disk("/a", bench.at, 2 * GIB), full)).breach is None
    assert bench.go(0.3, disks=(Disk("/a", bench.at, GIB // 2), full)).breach is not None
    bench.policy.arm(bench.see())
    assert bench.go(0.3, disks=(Disk("/a", bench.at, 2 * GIB),)).breach is None


def test_the_next_look_comes_sooner_near_a_limit() -> None:
    bench = Bench(Limit("host.ram_available", below=50 * GIB), rest=110 * GIB)
    assert bench.go(1, available=110 * GIB).wait_s == POLL_S
    assert bench.go(5, available=99 * GIB).wait_s == NEAR_POLL_S


@pytest.mark.parametrize(
    "limit", [Limit("host.nothing", above=1), Limit("host.swap_used"), Limit("gpu.memory_used")]
)
def test_a_limit_that_is_none_is_refused(limit: Limit) -> None:
    with pytest.raises(ValueError, match=r"unknown metric|below or above"):
        Policy((limit,), MACHINE)


def test_a_breach_is_counted_from_the_sample_that_passed_the_limit() -> None:
    bench = Bench(Limit("host.ram_available", below=100 * GIB))
    bench.at += 0.05
    before = bench.at
    bench.policy.decide(bench.see())
    bench.at += 0.02
    found = some(bench.policy.decide(bench.see(90 * GIB)).breach)
    assert (found.at, found.crossed_at) == (bench.at, bench.at)
    assert found.gap_s == pytest.approx(bench.at - before)


def test_what_has_to_last_is_counted_from_when_it_has() -> None:
    bench = Bench(Limit("host.ram_available", below=100 * GIB, for_s=0.12))
    begun = bench.at + 0.05
    found = bench.breached(1, available=90 * GIB)
    assert found.crossed_at == pytest.approx(begun + 0.12)
    assert found.at == pytest.approx(begun + 0.15)
    assert found.gap_s == pytest.approx(0.05)


def test_a_figure_that_came_late_is_counted_from_when_it_was_read() -> None:
    bench = Bench(Limit("service.ram_used", above=10 * GIB, of="a"))
    small = Load("a", "process", bench.at, ram=GIB)
    bench.go(0.5, loads=(small,))
    read = bench.at - 0.4
    found = bench.breached(0.05, loads=(dataclasses.replace(small, at=read, ram=20 * GIB),))
    assert found.crossed_at == read
    assert found.at == bench.at
    assert found.gap_s == pytest.approx(read - small.at)


# -- what is missing ---------------------------------------------------------------------------


A, B = "GPU-aaaa", "GPU-bbbb"


def cards(at: float, a: int, b: int | None) -> tuple[GpuReading, ...]:
    why = "lost" if b is None else ""
    return card_of(A, at, a, 96 * GIB), card_of(B, at, b, 32 * GIB, why)


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


def test_a_card_that_is_too_hot_for_long_enough() -> None:
    hot, cool = (
        GpuReading(GpuSample(uuid, 0, "x", temperature_c=degrees), 0.0)
        for uuid, degrees in ((A, 91.0), (B, None))
    )
    bench = Bench(Limit("gpu.temperature", above=87.0, for_s=5.0, of="max"), gpus=(A, B))

    def read(*cards: GpuReading) -> tuple[GpuReading, ...]:
        return tuple(dataclasses.replace(card, at=bench.at) for card in cards)

    assert bench.go(4.5, cards=read(hot, cool)).breach is None
    breach = bench.breached(1.0, cards=read(hot, cool))
    assert breach.reasons == (
        f"GPU temperature ({A}) 91 °C, above 87 °C for 5.00 s (default)",
    )  # fmt: skip
    curve = Curves().of(breach, bench.policy.metrics, (), 7.0)
    assert [value for _, value in curve["points"]] == [91.0], "also before a second has recorded it"


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
