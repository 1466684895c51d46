"""VRAM from the real reader on two scripted GPUs of 96 and 32 GB: lost, hanging, silent."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.recovery.guard.observe.slow_io import GpuCollector
from console.recovery.guard.observe.snapshot import GpuMemory
from tests.clock import FakeClock
from tests.testbed.nvml import MIB, RTX_5090, RTX_PRO_6000, Nvml
from tests.waiting import until

BIG, SMALL = RTX_PRO_6000, RTX_5090
READER = [sys.executable, "-m", "console.host.gpu.child", "--every", "0.1"]
HANGS = {"nvmlDeviceGetMemoryInfo_v2": 600}
"""Longer than `until` waits, so that the result of a hanging call is never seen."""


class Bench:
    """Run the reader on a script that the test rewrites."""

    def __init__(self, nvml: Nvml, script: Path) -> None:
        self.nvml, self.script = nvml, script
        self.nvml.write(script, (BIG, SMALL))
        self.cards = GpuCollector(SystemClock(), READER)

    def see(self, fits: Callable[[dict[str, GpuMemory]], bool]) -> dict[str, GpuMemory]:
        """Wait until the GPUs match, and return them by UUID."""

        def matching() -> dict[str, GpuMemory]:
            self.cards.tend()
            found = {card.uuid: card for card in self.cards.cards}
            return found if len(found) == 2 and fits(found) else {}

        found: dict[str, GpuMemory] = until(matching)
        return found


@pytest.fixture
def bench(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    script = tmp_path / "script"
    for name, value in nvml.env(script).items():
        monkeypatch.setenv(name, value)
    one = Bench(nvml, script)
    yield one
    one.cards.child.close()


def used(cards: dict[str, GpuMemory]) -> list[int | None]:
    return [None if (u := cards[c.uuid].used) is None else u // MIB for c in (BIG, SMALL)]


def test_both_cards(bench: Bench) -> None:
    found = bench.see(lambda cards: True)
    assert used(found) == [612, 15]
    assert [found[card.uuid].total for card in (BIG, SMALL)] == [BIG.mem_total, SMALL.mem_total]
    assert all(time.monotonic() - card.at < 60 and not card.why for card in found.values())
    assert bench.cards.trouble == ""


@pytest.mark.parametrize(("bad", "good"), [(BIG, SMALL), (SMALL, BIG)], ids=["big", "small"])
def test_a_lost_card_leaves_the_other_live(bench: Bench, bad: object, good: object) -> None:
    bench.see(lambda cards: True)
    script = [c.but(lost=True) if c is bad else c.but(mem_used=777 * MIB) for c in (BIG, SMALL)]
    bench.nvml.write(bench.script, script)
    found = bench.see(lambda cards: 777 in used(cards) and any(c.why for c in cards.values()))
    lost = next(card for card in found.values() if card.why)
    assert (lost.uuid, lost.used) == (BIG.uuid if bad is BIG else SMALL.uuid, None)
    assert lost.why.startswith("lost")


@pytest.mark.parametrize("bad", [BIG, SMALL], ids=["big", "small"])
@pytest.mark.full
def test_a_call_that_hangs_leaves_the_other_live(bench: Bench, bad: object) -> None:
    bench.see(lambda cards: True)
    for figure in (700, 701, 702):
        script = [
            c.but(hang=HANGS) if c is bad else c.but(mem_used=figure * MIB) for c in (BIG, SMALL)
        ]
        bench.nvml.write(bench.script, script)
        found = bench.see(lambda cards, figure=figure: figure in used(cards))  # type: ignore[misc]
    # what was read before the reader hung stays, with the time of that reading
    found = bench.see(lambda cards: any(card.why for card in cards.values()))
    hung = found[BIG.uuid if bad is BIG else SMALL.uuid]
    live = found[SMALL.uuid if bad is BIG else BIG.uuid]
    assert hung.used == (612 if bad is BIG else 15) * MIB
    assert "no answer" in hung.why
    assert live.used == 702 * MIB
    assert live.at - hung.at > 1


def line(**fields: object) -> bytes:
    return json.dumps({"gpus": [], "trouble": "", **fields}).encode()


GPU = {"uuid": "GPU-1", "index": 0, "name": "x", "used_bytes": 5, "total_bytes": 9, "why": ""}


def test_ages_are_counted_from_when_a_card_answered() -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    cards.take(line(gpus=[GPU], ages={"GPU-1": 2.5}), clock.time)
    assert cards.cards == (GpuMemory("GPU-1", clock.time - 2.5, 5, 9),)


def test_a_card_that_has_gone_silent_keeps_its_last_figure() -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    read_at = clock.time
    cards.take(line(gpus=[GPU]), read_at)
    clock.sleep(9)
    silent = {**GPU, "used_bytes": None, "why": "no answer for 9 s"}
    cards.take(line(gpus=[silent], ages={"GPU-1": 9}), clock.time)
    assert cards.cards == (GpuMemory("GPU-1", read_at, 5, 9, "no answer for 9 s"),)
    cards.take(line(gpus=[{**silent, "why": "lost: gone"}]), clock.time)
    assert cards.cards == (GpuMemory("GPU-1", clock.time, None, 9, "lost: gone"),)


def test_a_reader_that_says_nothing_is_said() -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    assert cards.trouble == ""
    cards.take(line(trouble="no NVIDIA driver"), clock.time)
    assert (cards.cards, cards.trouble) == ((), "no NVIDIA driver")
    clock.sleep(6)
    assert "6 s" in cards.trouble


@pytest.mark.parametrize(
    "garbage",
    [b"", b"null", b"{}", b'{"gpus": [{}], "trouble": ""}', b'{"gpus": 5, "trouble": ""}', b"\xff"],
)
def test_a_line_that_is_not_whole_changes_nothing(garbage: bytes) -> None:
    clock = FakeClock()
    cards = GpuCollector(clock, ["/bin/false"])
    cards.take(line(gpus=[GPU]), clock.time)
    cards.take(garbage, clock.time)
    assert [card.used for card in cards.cards] == [5]


@pytest.mark.parametrize("value", [-1, "5", 1.5, None, [5]])
def test_a_figure_that_is_none_is_not_known(value: object) -> None:
    cards = GpuCollector(FakeClock(), ["/bin/false"])
    cards.take(line(gpus=[{**GPU, "used_bytes": value}]), 1)
    assert cards.cards[0].used is None
