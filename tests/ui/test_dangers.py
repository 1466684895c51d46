"""What must not happen, each found by trying it."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from textual.command import CommandList
from textual.events import Paste
from textual.widgets import Input

from console.frontends.tui.watch import history
from console.journal.run_dir import RunDir
from console.recovery.rollback.progress import Result
from screens.actions import Outbox
from screens.dialogs import AskScreen, FormField, FormScreen, Palette
from screens.emergency import RollbackScreen
from screens.operations import OperationsScreen
from tests.ui import scene
from tests.ui.opened import Asked, console, said, settled
from widgets.rows import PickList

HOSTILE = "A\x9d52;c;QUFB\x07\x1b[2JB\u202eC[/]"


def first_found(palette: Palette) -> str:
    options = palette.query_one(CommandList)
    return str(options.get_option_at_index(0).prompt).lower() if options.option_count else "–"


async def test_enter_in_the_palette_changes_nothing(run: RunDir, asked: Asked) -> None:
    async with console(scene.approval(), run) as (app, pilot, watchers):
        found = {"": "F12", "roll": "F12", "appr": "y", "abort": "x", "skip": "s", "next": "n"}
        for words, key in found.items():
            await pilot.press("ctrl+p", *words)
            palette = app.screen
            assert isinstance(palette, Palette)
            await settled(pilot, lambda: words in first_found(palette))  # noqa: B023
            while app.screen is palette:  # the list may be on its way, or nothing yet chosen
                await pilot.press("enter")
            assert said(app).startswith(f"press {key}"), words
            assert watchers.presses == 0
            assert asked == []
            assert not isinstance(app.screen, RollbackScreen | AskScreen)
            await pilot.press("escape", "1")


async def test_a_second_press_shows_the_second_rollback(run: RunDir) -> None:
    failed, serving = scene.Climb(), scene.Climb()
    failed.result = Result(False, detail="no answer", manual=("docker start x",))
    presses = iter([failed, serving])

    async with console(scene.failed(), run) as (app, pilot, watchers):
        count = watchers.emergency.press
        watchers.emergency.press = lambda: SimpleNamespace(how=count().how, progress=next(presses))
        await pilot.press("f12")
        await settled(pilot, lambda: "FAILED" in app.screen.query_one("#head").text)
        await pilot.press("f12")
        await settled(pilot, lambda: "SERVES" in app.screen.query_one("#head").text)
        assert watchers.presses == 2


async def test_an_untouched_form_sends_nothing_and_a_long_value_stays_whole(run: RunDir) -> None:
    long = "x" * 5000
    fields = [FormField("long", long), FormField("odd", HOSTILE), FormField("short", "1")]
    answers: list[Any] = []
    async with console(scene.failed(), run) as (app, pilot, _):
        form = FormScreen("Inputs", fields, "Go")
        app.push_screen(form, answers.append)
        await pilot.pause()
        assert [entry.value for entry in form.query(Input)] == ["1"]
        await pilot.press("enter", "enter")
        await settled(pilot, lambda: answers)
        assert answers == [{}]


async def test_what_is_pasted_is_clean(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        for key in ("s", "r"):
            await pilot.press(key)
            entry = app.screen.query(Input).first()
            entry.post_message(Paste(HOSTILE))
            await settled(pilot, lambda: "B" in entry.value)  # noqa: B023
            assert not set(entry.value) & {"\x9d", "\x07", "\x1b", "\u202e"}
            await pilot.press("escape", "escape")


async def test_a_hostile_word_to_confirm_is_drawn_clean(run: RunDir, asked: Asked) -> None:
    made = scene.approval()
    control = {**scene.control_of(made), "confirm": HOSTILE}
    async with console(made, run, control=control) as (app, pilot, _):
        await pilot.press("y", "x", "enter")
        assert isinstance(app.screen, AskScreen)
        drawn = app.export_screenshot()
        assert "\x1b" not in drawn
        assert "\x9d" not in drawn
        assert asked == []


async def test_what_breaks_beside_the_screen_is_said(run: RunDir) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        assert isinstance(app.screen, OperationsScreen)
        app.screen.in_thread(lambda: setattr(app, "broken", 1 / 0))
        await settled(pilot, lambda: "ZeroDivisionError" in said(app))


def test_verbs_go_out_in_the_order_of_the_keys() -> None:
    done: list[int] = []
    over = threading.Event()
    outbox = Outbox(lambda words: done.append(-1))
    for number in range(200):
        outbox.put(lambda number=number: done.append(number))  # type: ignore[misc]
    outbox.put(lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    outbox.put(over.set)
    assert over.wait(60)
    assert done == [*range(200), -1]


async def test_a_key_that_repeats_asks_the_baseline_once(run: RunDir) -> None:
    begun, end = [], threading.Event()

    def verify() -> str:
        begun.append(1)
        end.wait(60)
        return "serving: 8 tokens"

    async with console(scene.failed(), run) as (app, pilot, watchers):
        watchers.baseline = SimpleNamespace(verify=verify)
        await pilot.press(*"vvvvv")
        end.set()
        await settled(pilot, lambda: "serving: 8 tokens" in said(app))
        assert begun == [1]


async def test_a_run_whose_name_moves_in_the_list_stays_under_the_cursor(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(name: str) -> history.RunRow:
        return history.RunRow(id=name, playbook="p", state="succeeded")

    found = [row("run-b"), row("run-a")]
    monkeypatch.setattr(history, "rows", lambda: list(found))
    async with console(scene.ended(), run) as (app, pilot, watchers):
        shown: list[RunDir] = []
        watchers.watch = SimpleNamespace(show=shown.append, look=lambda: None)
        await pilot.press("3")
        picker = app.screen.query_one(PickList)
        await settled(pilot, lambda: len(picker.text.splitlines()) == 2)
        await pilot.press("j")
        found.insert(0, row("run-c"))
        await settled(pilot, lambda: len(picker.text.splitlines()) == 3)
        await pilot.press("enter")
        await settled(pilot, lambda: shown)
        assert shown[0].id == "run-a"


async def test_a_fast_typist_searches_the_log_and_does_not_drive_the_run(
    run: RunDir, asked: Asked
) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        for key in ("l", "slash", "a", "x", "s", "r", "y"):
            app.simulate_key(key)
        await settled(pilot, lambda: app.screen.query(Input).first().value == "axsry")
        assert len(app.screen_stack) == 1
        assert asked == []


async def test_no_cursor_blinks(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("s")
        await settled(pilot, lambda: app.screen.query(Input))
        found = [*app.screen.query(Input), *app.screen_stack[0].query(Input)]
        assert len(found) == 2
        assert not any(one.cursor_blink for one in found)
