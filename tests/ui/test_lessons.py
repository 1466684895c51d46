"""The lessons in the console: the list, a search, one lesson, and what bears on a step."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from textual.pilot import Pilot

from console.config.lessons.registry import load_registry
from console.frontends.tui.app import ConsoleApp
from console.journal.run_dir import RunDir
from screens import lessons as module
from screens.lessons import LessonScreen, LessonsScreen, lesson_row
from tests.ui import scene
from tests.ui.opened import console, settled
from widgets.log_bars import LogPrompt
from widgets.rows import Rows, TextView, width_of

REGISTRY = cache(load_registry)
"""What ships, read once: nobody has lessons of their own here."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("console.config.lessons.registry.load_registry", REGISTRY)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: scene.NOW))


async def opened(app: ConsoleApp, pilot: Pilot[None]) -> LessonsScreen:
    """The list of lessons, filled."""
    await pilot.press("6")
    await settled(pilot, lambda: isinstance(app.screen, LessonsScreen))
    page = app.screen
    assert isinstance(page, LessonsScreen)
    await settled(pilot, lambda: len(page.found) == 53)
    return page


async def test_the_list_is_searched_and_one_is_read(run: RunDir) -> None:
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot)
        await pilot.press("slash")
        assert page.query_one(LogPrompt).asking
        await pilot.press(*"shallow", "enter")
        await settled(pilot, lambda: page.found[0].id == "F-013")
        assert len(page.found) < 53
        await pilot.press("enter")
        await settled(pilot, lambda: isinstance(app.screen, LessonScreen))
        view = app.screen.query_one(TextView)
        await settled(pilot, lambda: "F-013  A shallow clone breaks" in view.text)
        await pilot.press("escape")
        assert app.screen is page
        await pilot.press("escape")
        await settled(pilot, lambda: len(page.found) == 53)
        await pilot.press("d")
        await settled(pilot, lambda: len(page.found) == 20, "what is due only")
        await pilot.press("d")
        await settled(pilot, lambda: len(page.found) == 53)
        await pilot.press("slash", *"zebra", "enter")
        await settled(pilot, lambda: page.found == [])
        assert "0 of 53" in page.query_one("#head", Rows).text
        await pilot.press("enter")
        assert app.screen is page, "nothing to open"
        await pilot.press("escape", "escape")
        await settled(pilot, lambda: len(app.screen_stack) == 1)


async def test_what_bears_on_the_step_stands_first(run: RunDir) -> None:
    made = scene.failed()
    made.steps[5].lessons = ["F-024 ik_llama.cpp's graph split – no MoE"]
    made.header = {"lessons": ["F-002", 7]}
    async with console(made, run) as (app, pilot, _):
        assert "lesson F-024" in app.screen.query_one("#detail", TextView).text
        page = await opened(app, pilot)
        assert [one.id for one in page.found[:3]] == ["F-002", "F-024", "F-001"]


def test_rows_keep_to_the_width() -> None:
    for lesson in REGISTRY().lessons:
        for width in (39, 59, 119):
            assert width_of(lesson_row(lesson, width, here=width == 59)) <= width
