"""The gauge strip: its signs, its height, what it repaints, and what that costs a terminal."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Region

from console.host.sample import DiskSample, GpuReport, GpuSample, MemorySample, Sample
from tests.ui.opened import settled
from widgets.bars import GaugeStrip

GIB = 1024**3
MEMORY = MemorySample(377 * GIB, 354 * GIB, 207 * GIB, 0, 0.0, 0.0, 0.0, 0.0)
GPUS = (
    GpuSample("GPU-a", 0, "NVIDIA RTX PRO 6000", 80 * GIB, 96 * GIB, 0.87, 64, 412, 600),
    GpuSample("GPU-b", 1, "NVIDIA GeForce RTX 5090", 3 * GIB, 32 * GIB, 0.05, 40, 33, 575),
)


def sample(at: float = 1.0, *gpus: GpuSample) -> Sample:
    disks = (DiskSample("/", 1000 * GIB, 812 * GIB),)
    return Sample(at, MEMORY, disks, GpuReport(at, gpus or GPUS))


class Bench(App[None]):
    """Only the strip."""

    def __init__(self) -> None:
        super().__init__()
        self.strip = GaugeStrip()

    def compose(self) -> ComposeResult:
        yield self.strip


@pytest.mark.parametrize(("size", "height"), [((60, 20), 4), ((80, 24), 4), ((120, 40), 2)])
async def test_height_follows_the_width_and_the_cards(size: tuple[int, int], height: int) -> None:
    bench = Bench()
    async with bench.run_test(size=size) as pilot:
        bench.strip.draw(sample(), 1.0)
        await pilot.pause()
        assert bench.strip.size.height == height == len(bench.strip.rows(size[0]))
        assert bench.strip.text.count("GPU") == 2
        bench.strip.draw(sample(2.0, GPUS[0]), 2.0)
        await pilot.pause()
        assert bench.strip.size.height == len(bench.strip.rows(size[0]))
        assert bench.strip.text.count("GPU") == 1


async def test_what_it_shows_follows_the_samples_the_size_and_the_rows_it_may_have() -> None:
    bench = Bench()
    strip = bench.strip
    async with bench.run_test(size=(120, 24)) as pilot:

        async def show(told: Sample, now: float) -> str:
            strip.draw(told, now)
            await pilot.pause()
            return strip.text

        assert strip.text == "sampling …"
        assert (await show(sample(1.0), 13.0)).count("stale 12 s") == 3
        assert "stale" not in await show(sample(14.0), 14.0)
        foreign = "[/red] [@click=app.quit]x[/]"
        assert foreign in await show(sample(15.0, replace(GPUS[0], name=foreign)), 15.0)
        await show(sample(16.0), 16.0)
        await pilot.resize_terminal(60, 20)
        await settled(pilot, lambda: strip.size.width == 60)
        assert len(strip.text.splitlines()) == strip.size.height == 4
        assert strip.text.splitlines()[1].startswith("GPU1 ")
        for most, height in ((3, 3), (1, 1), (0, 4)):
            strip.max_rows = most
            await pilot.pause()
            assert strip.size.height == height


async def test_the_trend_takes_one_value_a_report() -> None:
    bench = Bench()
    async with bench.run_test(size=(80, 24)) as pilot:
        for at in (1.0, 2.0, 2.0, 2.0):
            bench.strip.draw(sample(at, replace(GPUS[0], utilisation=1.0)), at)
        await pilot.pause()
        assert bench.strip._trends["GPU-a"].values == (1.0, 1.0)
        assert bench.strip.text.splitlines()[0].endswith("█")


async def test_only_what_changed_is_repainted(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    async with bench.run_test(size=(80, 24)) as pilot:
        bench.strip.draw(sample(), 1.0)
        await pilot.pause()
        asked: list[tuple[Region, ...]] = []
        layouts: list[Any] = []

        def refresh(*regions: Region, layout: bool = False, **_: Any) -> GaugeStrip:
            asked.append(regions)
            layouts.append(layout)
            return bench.strip

        monkeypatch.setattr(bench.strip, "refresh", refresh)
        bench.strip.draw(sample(), 1.0)
        assert asked == []
        hotter = replace(GPUS[1], temperature_c=41)
        bench.strip.draw(sample(1.0, GPUS[0], hotter), 1.0)
        ((region,),) = asked
        assert layouts == [False]
        line = bench.strip.text.splitlines()[1]
        assert (region.y, region.height) == (1, 1)
        assert line[region.x : region.right] == "1"
        assert line[region.x - 1 : region.right + 3] == "41 °C"


class Counting(HeadlessDriver):
    """A terminal that counts the bytes it is sent."""

    sent = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.sent += len(data.encode())


async def test_a_tick_of_two_working_cards_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that moves while a model serves moves at each tick."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    dice, bench = random.Random(1), Bench()
    bench.driver_class = Counting
    begun = 0
    async with bench.run_test(headless=False, size=(80, 24)) as pilot:
        for tick in range(45):
            cards = [
                replace(
                    card, used_bytes=80 * GIB, utilisation=dice.uniform(0.8, 0.9),
                    temperature_c=dice.randint(60, 62), power_w=dice.uniform(300, 400),
                )
                for card in GPUS
            ]  # fmt: skip
            memory = replace(MEMORY, available=int(dice.uniform(200, 201) * GIB))
            bench.strip.draw(replace(sample(tick, *cards), memory=memory), tick)
            await pilot.pause()
            driver = pilot.app._driver
            assert isinstance(driver, Counting)
            begun = begun or driver.sent * (tick == 5)
        assert 100 < (driver.sent - begun) / 39 < 500
