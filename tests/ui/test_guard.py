"""The guard on the screens: its line, marks, lease, the page of a breach, and what a tick costs."""

import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Region

from console.frontends.tui.app import ConsoleApp
from console.host.gpu.figures import GpuReport, GpuSample
from console.host.sample import DiskSample, History, MemorySample, Sample
from console.journal.guard_status import NOBODY, GuardView, Lease
from console.journal.run_dir import RunDir
from console.render import cells
from screens.emergency import BreachScreen
from screens.machine import HostScreen
from screens.operations import OperationsScreen
from tests.ui import scene
from tests.ui.opened import console, settled, shown
from tests.watch import guard_ring
from widgets.bars import StatusLine
from widgets.machine import MachinePanels
from widgets.rows import Rows, TextView

LATER = scene.NOW + 86400
"""When these tests look, Unix seconds: what the ring of `guard_ring` tells is a day old."""


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screens' clocks stand at the scene's time: nothing ages while a test takes its time."""
    clock = SimpleNamespace(time=lambda: LATER, monotonic=lambda: 100.0)
    for name in ("emergency", "run_panels", "machine"):
        monkeypatch.setattr(f"screens.{name}.time", clock)


def guard_line(app: ConsoleApp) -> str:
    return app.screen_stack[0].query_one("#guard", Rows).text


async def test_the_line_and_the_marks(run: RunDir) -> None:
    async with console(scene.running(), run, guard=scene.guard(run)) as (app, pilot, _):
        assert guard_line(app).startswith("guard ok  RAM +922 MiB/s  kills candidate")
        assert cells.UNICODE.mark in app.screen.query_one(MachinePanels).text
        assert app.screen.query_one("#guard", Rows).size.height == 1
        assert "Breach (b)" in [one.title for one in app.get_system_commands(app.screen)]
        await pilot.press("b")
        await settled(pilot, lambda: "No breach" in shown(app))
        assert "RAM available below 5.9 GiB: kill" in shown(app)


async def test_without_a_run_nothing_is_guarded() -> None:
    async with console(None, None, guard=NOBODY) as (app, pilot, _):
        assert guard_line(app) == "no run, nothing guarded"
        assert cells.UNICODE.mark not in app.screen.query_one(MachinePanels).text
        await pilot.press("b")
        await settled(pilot, lambda: "No breach" in shown(app))
        await pilot.press("escape")
        assert isinstance(app.screen, OperationsScreen)


async def test_the_guard_of_another_run_says_nothing(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "another")
    async with console(scene.running(), run, guard=scene.guard(other)) as (app, _, _):
        assert guard_line(app) == "guard: looking"


async def test_only_what_changed_is_repainted(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = scene.guard(run, word="warn", tte_s=48.0)
    async with console(scene.running(), run, guard=guard) as (app, pilot, watchers):
        assert isinstance(app.screen, OperationsScreen)
        rows = app.screen.query_one("#guard", Rows)
        asked: list[tuple[Region, ...]] = []
        monkeypatch.setattr(rows, "refresh", lambda *regions, **_: asked.append(regions))
        watchers.guard.latest = scene.guard(run, word="warn", tte_s=47.0)
        app.screen.draw_guard()
        ((region,),) = asked
        assert rows.text[region.x : region.right] == "7"
        await pilot.pause()


@pytest.mark.parametrize(
    ("size", "lease", "said"),
    [
        ((80, 24), Lease(252.0), "back in 4:12 unless attached"),
        ((120, 40), Lease(600.0, True), "lease 10:00, renewed: somebody is attached"),
    ],
)
async def test_the_lease_stands_in_the_header(
    run: RunDir, size: tuple[int, int], lease: Lease, said: str
) -> None:
    made = scene.running()
    made.created = LATER - 600
    guard = scene.guard(run, lease=lease)
    async with console(made, run, size=size, guard=guard) as (app, _, _):
        assert said in app.screen.query_one(StatusLine).text


async def test_a_breach_of_this_moment_opens_its_page_once(run: RunDir) -> None:
    guard_ring.record(run)
    found = guard_ring.breach(run)
    async with console(scene.running(), run, guard=scene.guard(run)) as (app, pilot, watchers):
        screen = app.screen
        assert isinstance(screen, OperationsScreen)
        fresh = found.changed(at=LATER, wall=LATER)
        watchers.guard.latest = scene.guard(run, word="acted", breach=fresh)
        screen.draw_guard()
        await settled(pilot, lambda: isinstance(app.screen, BreachScreen))
        await settled(pilot, lambda: "killed candidate" in shown(app))
        await pilot.press("escape")
        screen.draw_guard()
        await pilot.pause()
        assert app.screen is screen
        assert "guard ACTED" in guard_line(app)


async def test_an_old_breach_waits_for_its_key(run: RunDir) -> None:
    guard_ring.record(run)
    found = guard_ring.breach(run)
    guard_ring.climbed(run, ("memory", 2.1), ("serving", 74.0))
    acted = GuardView(run, "acted", breach=found)
    async with console(scene.ended(), run, size=(120, 40), guard=acted) as (app, pilot, _):
        assert guard_line(app).startswith("guard ACTED 14:14:55 UTC")
        assert isinstance(app.screen, OperationsScreen)
        await pilot.press("b")
        await settled(pilot, lambda: "killed candidate" in shown(app))
        text = app.screen.query_one(TextView).text
        assert text.index("RAM available 28.0 GiB") < text.index("▲ killed")
        assert "14:14:" in text.splitlines()[-1] or "swap used" in text
        assert all(len(row) <= 120 for row in text.splitlines())


async def test_the_host_page_has_every_gauge_with_its_mark(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.checks.doctor.run.run", lambda site: [])
    guard = scene.guard(run)
    async with console(scene.running(), run, size=(100, 30), guard=guard) as (app, pilot, _):
        await pilot.press("4")
        await settled(pilot, lambda: isinstance(app.screen, HostScreen))
        await settled(pilot, lambda: "disk /" in shown(app))
        rows = app.screen.query_one(TextView).text.splitlines()
        assert rows[0].startswith("guard ok")
        (ram,) = [row for row in rows if row.startswith("RAM")]
        assert "319.0/377 GiB" in ram
        assert "acts at 371 GiB, 52 GiB left" in ram
        assert cells.UNICODE.mark in ram
        assert any("12 GiB" in row for row in rows)


async def test_a_breach_that_is_left_open_tells_of_the_run_on_show(
    run: RunDir, tmp_path: Path
) -> None:
    guard_ring.record(run)
    found = guard_ring.breach(run)
    other = scene.run_dir(tmp_path / "other")
    acted, size = GuardView(run, "acted", breach=found), (120, 40)
    async with console(scene.running(), run, size=size, guard=acted) as (app, pilot, watchers):
        await pilot.press("b")
        await settled(pilot, lambda: "killed candidate" in shown(app))
        page = app.screen
        assert isinstance(page, BreachScreen)
        head = page.query_one("#head", Rows)
        assert len(head.text.splitlines()) == 1
        app.snapshot = scene.snapshot(other, scene.running())
        watchers.guard.latest = scene.guard(other)
        page._look()
        page.draw_head()
        first, second = head.text.splitlines()
        assert first.startswith(f"on show now is {other.id[-4:]}: guard ok")
        assert first.rstrip().endswith("Esc, then b")
        assert run.id in second
        assert page.run_dir is run
        guard_ring.record(other)
        later = guard_ring.breach(other, reason="the later one")
        watchers.guard.latest = GuardView(other, "acted", breach=later)
        page._look()
        await settled(pilot, lambda: "the later one" in shown(app))
        assert len(head.text.splitlines()) == 1


# -- the gauge strip: its height, and what it costs a terminal -------------------------------------

GIB = 1024**3
MEMORY = MemorySample(377 * GIB, 354 * GIB, 207 * GIB, 0, 0.0, 0.0, 0.0, 0.0)
GPUS = (
    GpuSample("GPU-a", 0, "NVIDIA RTX PRO 6000", 80 * GIB, 96 * GIB, 0.87, 64, 412, 600),
    GpuSample("GPU-b", 1, "NVIDIA GeForce RTX 5090", 3 * GIB, 32 * GIB, 0.05, 40, 33, 575),
)


def sample(at: float = 1.0, *gpus: GpuSample) -> Sample:
    disks = (DiskSample("/", 1000 * GIB, 812 * GIB),)
    return Sample(at, MEMORY, disks, GpuReport(at, gpus or GPUS))


class StripBench(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.strip = MachinePanels()
        self.history = History()

    def show(self, told: Sample, now: float) -> None:
        self.history.take(told, 1e6 + now)
        self.strip.draw(told, now, self.history)

    def compose(self) -> ComposeResult:
        yield self.strip


async def test_what_it_shows_follows_the_samples_the_size_and_the_rows_it_may_have() -> None:
    bench = StripBench()
    strip = bench.strip
    async with bench.run_test(size=(120, 24)) as pilot:

        async def show(told: Sample, now: float) -> str:
            bench.show(told, now)
            await pilot.pause()
            return strip.text

        assert strip.text == "sampling …"
        assert (await show(sample(1.0), 13.0)).count("stale 12 s") == 3
        assert "stale" not in await show(sample(14.0), 14.0)
        foreign = "[/red] [@click=app.quit]x[/]"
        assert foreign in await show(sample(15.0, replace(GPUS[0], name=foreign)), 15.0)
        assert (await show(sample(16.0), 16.0)).count("GPU") == 2
        assert strip.size.height == len(strip.rows(120)) == 2
        await pilot.resize_terminal(60, 20)
        await settled(pilot, lambda: strip.size.width == 60)
        assert len(strip.text.splitlines()) == strip.size.height == 4
        assert strip.text.splitlines()[1].startswith("GPU1 ")
        for window, height in ((24, 4), (20, 2)):
            strip.window = window
            await pilot.pause()
            assert strip.size.height == height
        assert (await show(sample(17.0, GPUS[0]), 17.0)).count("GPU") == 1
        assert strip.size.height == len(strip.rows(60)) == 2


async def test_a_high_window_has_framed_panels_with_curves() -> None:
    bench = StripBench()
    strip = bench.strip
    async with bench.run_test(size=(140, 42)) as pilot:
        strip.window = 42
        bench.show(sample(1.0), 1.0)
        await pilot.pause()
        assert strip.size.height == 6
        assert strip.says_guard
        assert {cell_len(line) for line in strip.text.splitlines()} == {140}
        words = ("VRAM", "util", "watt", "used", "PSI", "last 2 min")
        assert [strip.text.count(word) for word in words] == [2, 2, 2, 2, 2, 4]
        await pilot.resize_terminal(100, 42)
        strip.window = 42
        await settled(pilot, lambda: strip.size.width == 100)
        assert strip.size.height == 4, "two rows of panels find no room: plain rows"


async def test_a_card_has_a_curve_at_its_end() -> None:
    bench = StripBench()
    async with bench.run_test(size=(80, 24)) as pilot:
        for at in (1.0, 2.0, 2.0, 2.0):
            bench.show(sample(at, replace(GPUS[0], utilisation=1.0)), at)
        await pilot.pause()
        assert bench.strip.text.splitlines()[0].endswith("▇")


class Counting(HeadlessDriver):
    """A terminal that counts the bytes it is sent."""

    sent = 0

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.sent += len(data.encode())


@pytest.mark.parametrize(
    ("size", "most"), [((80, 24), 500), ((140, 42), 1_200), ((200, 60), 1_600)]
)
async def test_a_tick_of_two_working_cards_is_cheap(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], most: int
) -> None:
    """Every figure that moves while a model serves moves at each tick."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLORTERM", raising=False)
    dice, bench = random.Random(1), StripBench()
    bench.driver_class = Counting
    begun = 0
    async with bench.run_test(headless=False, size=size) as pilot:
        bench.strip.window = size[1]
        for tick in range(45):
            cards = [
                replace(
                    card, used_bytes=80 * GIB, utilisation=dice.uniform(0.8, 0.9),
                    temperature_c=dice.randint(60, 62), power_w=dice.uniform(300, 400),
                )
                for card in GPUS
            ]  # fmt: skip
            memory = replace(MEMORY, available=int(dice.uniform(200, 201) * GIB))
            bench.show(replace(sample(tick, *cards), memory=memory), tick)
            await pilot.pause()
            driver = pilot.app._driver
            assert isinstance(driver, Counting)
            begun = begun or driver.sent * (tick == 5)
        assert 100 < (driver.sent - begun) / 39 < most
