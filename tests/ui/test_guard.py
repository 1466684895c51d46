"""The guard on the screens: its line, marks, lease, the page of a breach, and what a tick costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.geometry import Region
from textual.pilot import Pilot

from console.frontends.tui.app import ConsoleApp
from console.journal.guard_status import NOBODY, GuardView, Lease
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.render import cells
from screens.emergency import BreachScreen
from screens.machine import HostScreen
from screens.operations import OperationsScreen
from tests.ui import scene
from tests.ui.opened import console as opened
from tests.ui.opened import settled, shown
from tests.viewer import guard_ring
from widgets.bars import GaugeStrip, StatusLine
from widgets.rows import Rows, TextView

LATER = scene.NOW + 86400
"""When these tests look, Unix seconds: what the ring of `guard_ring` tells is a day old."""


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screens' clocks stand at the scene's time: nothing ages while a test takes its time."""
    clock = SimpleNamespace(time=lambda: LATER, monotonic=lambda: 100.0)
    for name in ("emergency", "operations", "machine"):
        monkeypatch.setattr(f"screens.{name}.time", clock)


@asynccontextmanager
async def console(
    run: RunDir | None, guard: GuardView, size: tuple[int, int] = (80, 24),
    made: RunView | None = None,
) -> AsyncIterator[tuple[ConsoleApp, Pilot[int], scene.StandInWatchers]]:  # fmt: skip
    """The app on a run, or on none, that is guarded like this."""
    made = None if run is None else made or scene.running()
    async with opened(made, run, size=size, guard=guard) as found:
        yield found


def guard_line(app: ConsoleApp) -> str:
    return app.screen_stack[0].query_one("#guard", Rows).text


async def test_the_line_and_the_marks(run: RunDir) -> None:
    async with console(run, scene.guard(run)) as (app, pilot, _):
        assert guard_line(app).startswith("guard ok  RAM full in 61 s")
        assert cells.UNICODE.mark in app.screen.query_one(GaugeStrip).text
        assert app.screen.query_one("#guard", Rows).size.height == 1
        assert "Breach (b)" in [one.title for one in app.get_system_commands(app.screen)]
        await pilot.press("b")
        await settled(pilot, lambda: "No breach" in shown(app))
        assert "RAM available below 5.9 GiB: kill" in shown(app)


async def test_without_a_run_nothing_is_guarded() -> None:
    async with console(None, NOBODY) as (app, pilot, _):
        assert guard_line(app) == "no run, nothing guarded"
        assert cells.UNICODE.mark not in app.screen.query_one(GaugeStrip).text
        await pilot.press("b")
        await settled(pilot, lambda: "No breach" in shown(app))
        await pilot.press("escape")
        assert isinstance(app.screen, OperationsScreen)


async def test_the_guard_of_another_run_says_nothing(run: RunDir, tmp_path: Path) -> None:
    other = RunDir(tmp_path / "another")
    async with console(run, scene.guard(other)) as (app, _, _):
        assert guard_line(app) == "guard: looking"


async def test_only_what_changed_is_repainted(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    async with console(run, scene.guard(run, tte_s=48.0)) as (app, pilot, watchers):
        assert isinstance(app.screen, OperationsScreen)
        rows = app.screen.query_one("#guard", Rows)
        asked: list[tuple[Region, ...]] = []
        monkeypatch.setattr(rows, "refresh", lambda *regions, **_: asked.append(regions))
        watchers.guard.latest = scene.guard(run, tte_s=47.0)
        app.screen.draw_guard()
        ((region,),) = asked
        assert rows.text[region.x : region.right] == "7"
        await pilot.pause()


@pytest.mark.parametrize(
    ("size", "lease", "said"),
    [
        ((80, 24), Lease(252.0), "back in 4:12 unless attached"),
        ((120, 40), Lease(252.0), "baseline returns in 4:12 unless somebody attaches"),
        ((120, 40), Lease(600.0, True), "lease 10:00, renewed: somebody is attached"),
        ((80, 24), Lease(600.0, True), "lease 10:00, renewed"),
    ],
)
async def test_the_lease_stands_in_the_header(
    run: RunDir, size: tuple[int, int], lease: Lease, said: str
) -> None:
    made = scene.running()
    made.created = LATER - 600
    async with console(run, scene.guard(run, lease=lease), size, made) as (app, _, _):
        assert said in app.screen.query_one(StatusLine).text


async def test_a_breach_of_this_moment_opens_its_page_once(run: RunDir) -> None:
    guard_ring.record(run)
    found = guard_ring.breach(run)
    async with console(run, scene.guard(run)) as (app, pilot, watchers):
        screen = app.screen
        assert isinstance(screen, OperationsScreen)
        fresh = {**found, "at": LATER, "wall": LATER}
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
    async with console(run, acted, (120, 40), scene.ended()) as (app, pilot, _):
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
    async with console(run, scene.guard(run), (100, 30)) as (app, pilot, _):
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
    async with console(run, GuardView(run, "acted", breach=found), (120, 40)) as (
        app,
        pilot,
        watchers,
    ):
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
