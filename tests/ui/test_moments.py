"""What comes at an odd moment: while somebody types, while a dialog has the keys, while another
program has the terminal."""

import threading
import time
from pathlib import Path

import pytest
from textual.widgets import Input

from console.frontends.tui.watch.baseline import BaselineView
from console.journal.run_dir import RunDir
from screens.dialogs import AskScreen
from screens.emergency import BreachScreen, RollbackScreen
from screens.hosts import HostsScreen
from screens.operations import OperationsScreen
from screens.playbooks import PlanScreen
from tests.ui import scene
from tests.ui.opened import console, said, settled, shown
from tests.ui.opened import screen as drawn
from tests.waiting import LIMIT_S
from tests.watch import guard_ring
from widgets.bars import KeyLine
from widgets.log_bars import Words
from widgets.steps import StepList


async def test_a_breach_opens_its_page_when_nobody_types(run: RunDir) -> None:
    guard_ring.record(run)
    fresh = guard_ring.breach(run).changed(at=time.time() + 3600.0)
    async with console(scene.running(), run, guard=scene.guard(run)) as (app, pilot, watchers):
        screen = app.screen
        assert isinstance(screen, OperationsScreen)
        await pilot.press("l", "slash", "r", "e")
        watchers.guard.latest = scene.guard(run, word="acted", breach=fresh)
        screen.draw_guard()
        await pilot.press("q")
        assert app.return_value is None, "it was a letter, and no key of that page"
        assert screen.query_one(Words).value == "req"
        await pilot.press("escape")
        screen.draw_guard()
        await settled(pilot, lambda: isinstance(app.screen, BreachScreen))


async def test_a_press_is_meant_for_the_run_that_was_being_started_also_during_a_visit(
    run: RunDir,
) -> None:
    async with console(scene.ended(), run) as (app, pilot, watchers):
        plan = PlanScreen(Path("/x/trial.yaml"))
        plan._home = app
        await pilot.press("f12", "escape", "7")
        await settled(pilot, lambda: isinstance(app.screen, HostsScreen))
        app.turns.away = True
        plan._begun(run, began=app.pressed_at - 1.0)
        assert watchers.presses == 2
        assert isinstance(app.screen, RollbackScreen)


async def test_a_form_that_is_shown_again_takes_no_keys_from_a_dialog(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Event()

    def ask(*_: object, **__: object) -> str:
        refused.wait(LIMIT_S)
        return "not that"

    monkeypatch.setattr("screens.actions.ask", ask)
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("r", "9", "enter", "enter", "enter", "x", "a", "b", "o")
        dialog = app.screen
        assert isinstance(dialog, AskScreen)
        refused.set()
        await settled(pilot, lambda: "retry: not that" in said(app))
        await pilot.press("r", "t")
        assert app.screen is dialog
        assert dialog.query_one(Input).value == "abort"


async def test_the_footer_offers_a_rollback_where_there_is_something_to_restore() -> None:
    async with console(None, None) as (app, pilot, watchers):

        async def footers(view: BaselineView) -> list[bool]:
            app._baseline_seen(view)
            found = []
            for keys in (("1",), ("3",), ("ctrl+p",), ("escape", "7")):
                await pilot.press(*keys)
                lines = [line.text for one in app.screen_stack for line in one.query(KeyLine)]
                found += ["ROLL BACK" in line for line in lines]
            return found

        assert not any(await footers(BaselineView()))
        assert all(await footers(watchers.base))


async def test_without_a_run_no_key_leads_to_a_log_that_is_not_there() -> None:
    async with console(None, None) as (app, pilot, _):
        screen, before = app.screen, drawn(pilot)
        for key in ("l", "z"):
            await pilot.press(key)
            assert said(app) == "there is no log yet"
            screen.query_one(KeyLine).untell()
            await pilot.pause()
            assert drawn(pilot) == before
            assert screen.focused is screen.query_one(StepList)


@pytest.mark.parametrize("name", ["console.checks.doctor.run.run", "screens.machine.look"])
async def test_a_look_that_fails_is_not_said_to_go_on(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(name, fails)
    async with console(None, None) as (app, pilot, _):
        keys = ("4",) if "doctor" in name else ("5", "enter", "a", *["enter"] * 8)
        await pilot.press(*keys)
        await settled(pilot, lambda: "OSError: [Errno 5] Input/output error" in said(app))
        app._sample_seen(scene.sample())
        await settled(pilot, lambda: "OSError: [Errno 5]" in shown(app))
        assert "seconds at most" not in shown(app)
        assert "reading listings" not in shown(app)
