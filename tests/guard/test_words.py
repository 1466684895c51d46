"""What the guard says: limits, breaches, what it cannot see and whom it refuses to kill."""

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import GIB, GuardConfig, Limit, defaults
from console.recovery.guard.decide.forecast import Forecast
from console.recovery.guard.decide.policy import Decision, Policy
from console.recovery.guard.kill.root_helper import Helper, Refused
from console.recovery.guard.kill.targets import Deny, Target, sort_out
from console.recovery.guard.metrics import METRICS, figure
from console.recovery.guard.observe import log_patterns
from console.recovery.guard.observe.log_patterns import Logs, Tail
from console.recovery.guard.observe.slow_io import GpuCollector, SlowIo
from console.recovery.guard.observe.snapshot import (
    Disk,
    Load,
    LogHit,
    Memory,
    Snapshot,
    Swap,
)
from console.recovery.rollback.live import Live
from console.render.guard import limit_words
from console.runtime.root_helper import helper_refusal
from tests.clock import FakeClock
from tests.guard.conftest import ID, made_up
from tests.guard.judging import MACHINE, PLENTY, SWAP, TOTAL, Bench, card_of
from tests.guard.made_site import LOW, Make

A, B = "GPU-aaaa", "GPU-bbbb"


def lines(found: Decision) -> list[str]:
    breach = found.breach
    return [
        f"level: {found.level}",
        *([f"breach: {breach.reason}"] if breach else []),
        *(f"of it: {one}" for one in (breach.reasons if breach else ())),
        *(f"reason: {one}" for one in found.reasons),
        *(f"unknown: {one}" for one in found.unknown),
    ]


def test_every_limit_and_figure(snapshot: SnapshotAssertion) -> None:
    machines = {
        f"{total >> 30} GiB, {swap >> 30} GiB of swap, {bound >> 30} GiB bound": [
            limit_words(limit) for limit in defaults(total, swap, bound).limits
        ]
        for total, swap, bound in (
            (377 * 10**9, 207 * 10**9, 0), (24 * GIB, 0, 0), (64 * GIB, GIB, 16 * GIB),
        )
    }  # fmt: skip
    figures = {
        metric: " | ".join(figure(metric, value) for value in (0.0, 31.46, 5e5, 5e8, 4.93e9))
        for metric in METRICS
    }
    assert {"machines": machines, "figures": figures} == snapshot


def test_why_it_warns_and_why_it_kills(snapshot: SnapshotAssertion) -> None:
    swap = Limit("host.swap_used", above=GIB, for_s=2.0, source="site")
    service = Limit("service.ram_used", above=10 * GIB, of="a")
    fatal = Limit(log="candidate", matches="x", count=2, source="playbook x")
    warned = Bench(
        Limit("host.ram_available", below=100 * GIB, act="warn", source="playbook"), rest=126 * GIB
    )
    warned.go(0.05, available=99 * GIB)
    advised, silent = Bench(), Bench()
    advised.policy.advisory(True)
    beat = silent.at
    silent.go(9, beat_at=beat)
    swapping = Bench(Limit("host.swap_out_rate", above=1e9))
    found = {
        "the floor": Bench().go(0.05, available=5 * GIB),
        "nothing armed": Bench(armed=False).go(1, available=5 * GIB),
        "a rollback climbs": advised.go(1, available=5 * GIB),
        "for a while": Bench(swap).go(2.1, swap=1.5 * GIB),
        "not clear yet": warned.go(30, available=120 * GIB),
        "it fills": Bench(rest=120e9).fill(4.93e9, 120e9),
        "not as predicted": Bench(
            envelope=Envelope((Point("loaded", None, 10 * GIB),))
        ).go(2, available=PLENTY - 20 * GIB),
        "swap grew": Bench().go(1, available=100 * GIB, swap=15 * GIB),
        "the runner is silent": silent.go(2, beat_at=beat),
        "out of memory": Bench().go(0.05, loads=(Load("cand", "container", 1001.05, oom=1),)),
        "a service": Bench(service).go(
            0.05, loads=(Load("a", "container", 1001.05, ram=20 * GIB),)
        ),
        "fatal lines": Bench(fatal).go(0.05, hits=(LogHit(0, 2, "CUDA \x1b[31merror"),)),
        "a disk": Bench(Limit("disk.free", below=GIB, of="/a")).go(
            0.3, disks=(Disk("/a", 1001, GIB // 2),)
        ),
        "swapped out": swapping.policy.decide(
            replace(swapping.see(), swap=Swap(swapping.at, 0.0, 2e9))
        ),
        "pressure": Bench(rest=40 * GIB).pressed(0.5, 60),
    }  # fmt: skip
    assert {name: lines(one) for name, one in found.items()} == snapshot


def test_what_is_not_known(snapshot: SnapshotAssertion) -> None:
    whole = Bench(Limit("gpu.memory_used", above=100 * GIB, of="sum"), gpus=(A, B))
    one = card_of(A, whole.at, 90 * GIB, 96 * GIB)
    other = card_of(B, whole.at, 5 * GIB, 32 * GIB)
    lost = (one, card_of(B, whole.at, None, 32 * GIB, "lost"))
    more = (card_of(A, whole.at, 95 * GIB, 96 * GIB), lost[1])
    sums = Bench(
        Limit("gpu.memory_used", above=90 * GIB, of="sum"),
        Limit("gpu.memory_free", below=100 * GIB, of="sum"),
        Limit("gpu.memory_free", below=2 * GIB, of=A[:6]),
        Limit("gpu.memory_free", below=GIB, of="min"), gpus=(A, B),
    )  # fmt: skip
    hung = Bench(Limit("gpu.memory_used", above=GIB, of="max", missing="breach"), gpus=(A, B))
    seen = (card_of(A, hung.at, 0, 96 * GIB), card_of(B, hung.at, 0, 32 * GIB))
    blind = Bench(Limit("host.ram_available", below=GIB, missing="breach", source="site"))
    frozen = Bench(Limit("host.ram_available", below=GIB, missing="breach"))
    stands = frozen.see().memory
    log = Bench(Limit(log="cand", matches="x", count=3, missing="breach", source="playbook"))
    swapless = Policy((Limit("host.swap_free", below=GIB),), defaults(24 * GIB, 0))
    swapless.arm(Snapshot(9, None))
    for tick in range(100):
        memory = Memory(10 + tick, 24 * GIB, 20 * GIB, 0, 0, 0, 0)
        none = swapless.decide(Snapshot(10 + tick, memory, beat_at=10 + tick))
    found = {
        "no card yet": whole.go(0.3),
        "both cards": whole.go(0.3, cards=(one, other)),
        "a lost card": whole.go(0.3, cards=lost),
        "a card of none": whole.go(0.3, cards=(card_of(A, whole.at, 96 * GIB, 96 * GIB),)),
        "both cards are full": whole.go(0.3, cards=(one, card_of(B, whole.at, 11 * GIB, 32 * GIB))),
        "too much without the lost one": sums.go(0.3, cards=more),
        "a card that hangs": hung.go(11, cards=seen, gpu_trouble="no answer"),
        "no memory": blind.go(1.3, memory=None, why="/proc/meminfo: Permission denied"),
        "memory that stands still": frozen.go(1.3, memory=stands),
        "no pressure": Bench().go(12, full_us=None, some_us=None),
        "no swap": none,
        "a pattern given up": log.go(6, hits=(LogHit(0, 1, why=log_patterns.TOO_LONG),)),
    }
    assert {name: lines(one) for name, one in found.items()} == snapshot


def test_a_load_that_is_not_as_predicted(snapshot: SnapshotAssertion) -> None:
    envelope = Envelope((Point("loaded", None, 100 * GIB, vram=((A, 20 * GIB),)),))
    forecast = Forecast(MACHINE, envelope)
    before = Memory(99, TOTAL, 300 * GIB, SWAP, 0, 0, 0)
    assert forecast.outside(before, ()) is None
    forecast.start(before, (card_of(A, 99, 4 * GIB, 96 * GIB), card_of(B, 99, GIB, 32 * GIB)))
    assert forecast.outside(before._replace(available=201 * GIB), ()) is None
    more = (card_of(A, 100, 30 * GIB, 96 * GIB), card_of(B, 100, 30 * GIB, 32 * GIB))
    memory = before._replace(at=100, available=150 * GIB, swap_used=3 * GIB)
    assert forecast.outside(memory, more) == snapshot
    forecast.stop()
    assert forecast.outside(memory, more) is None


def test_what_the_root_helper_refuses(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    protected = tmp_path / "protected"
    helper = Helper(0, str(protected), trees=made_up(tmp_path / "tree"))
    found = []
    for text in (f"# the baseline\n{ID[:12]}  # short\n", "baseline\n", b"\xff", ""):
        protected.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(Refused) as refused:
            helper.kill(ID if text else "0" * 64)
        found.append(str(refused.value).replace(str(tmp_path), "…"))
    answers = (b'{"ok": true}', b"", b'{"ok": false, "error": "no"}', b"{}", b"[]", b"\xff\xfe",
               b'{"error": "\\u001b]52;c;x\\u0007evil\\n"}')  # fmt: skip
    assert {"refused": found, "answers": [helper_refusal(one) for one in answers]} == snapshot


def test_whom_it_does_not_kill(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    container = Live("container", "ca\x1b[31mnd", container=ID)
    _, refused = sort_out([container], Deny((ID[:12],)), made_up(tmp_path))
    titles = [Target("container", "cand", ID).title, Target("process", "cand", pid=7).title]
    assert [*refused, *titles] == snapshot


def test_what_cannot_be_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    clock.sleep(6)
    client = SlowIo(clock, ["/bin/false"])
    limit = Limit(log="big", matches="OOM")
    client.tell(GuardConfig("r", str(tmp_path), "ring", (limit,)), tmp_path / "ring", [])
    clock.sleep(7)
    logs = Logs()
    logs.set({"big": str(tmp_path / "none")}, [(0, "big", "x"), (1, "other", "x"), (2, "big", "(")])
    logs.arm({"big": 1, "other": 1})
    logs.read()
    monkeypatch.setattr(log_patterns, "LOST_S", 0.0)
    monkeypatch.setattr(log_patterns, "AT_ONCE", 1 << 20)
    monkeypatch.setattr(log_patterns, "BEHIND", 3 << 20)
    (tmp_path / "log").write_text("")
    tail = Tail(str(tmp_path / "log"))
    (tmp_path / "log").write_bytes(b"x" * (4 << 20))
    for _ in range(3):
        list(tail.lines())
    found = [cards.trouble, *client.troubles, *(one["why"] for one in logs.hits()), tail.trouble]
    logs.close()
    tail.close()
    assert [one.replace(str(tmp_path), "…") for one in found] == snapshot


def test_the_events_of_a_breach(make: Make, snapshot: SnapshotAssertion) -> None:
    one = make(LOW, lease_s=10)
    child = one.load()
    one.room = False
    one.available(7)
    one.pass_time(2)
    one.room = True
    one.pass_time(2)
    one.tell(do="quit")
    one.pass_time(0.1)
    kinds = ("armed", "breach", "ladder", "disarmed", "end")
    found = {kind: "; ".join(one.events(kind)) for kind in kinds}
    assert {kind: text.replace(str(child.pid), "PID") for kind, text in found.items()} == snapshot
