"""What must not happen, each found by trying it."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.command import CommandList
from textual.events import Event, Paste
from textual.widgets import Input

from console.frontends.tui.terminal import input as terminal_input
from console.frontends.tui.terminal.input import KeyTurns
from console.frontends.tui.watch import history
from console.journal.run_dir import RunDir
from console.recovery.rollback.progress import Result
from screens.actions import Outbox
from screens.dialogs import AskScreen, FormField, FormScreen, Palette
from screens.emergency import RollbackScreen
from screens.operations import OperationsScreen
from tests.ui import scene
from tests.ui.opened import Asked, console, said, settled
from widgets.log_bars import LogPrompt
from widgets.log_pane import LogPane
from widgets.rows import PickList

HOSTILE = "A\x9d52;c;QUFB\x07\x1b[2JB\u202eC[/]"


def slow_search(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the key of the log's search come to its end only when the event is set."""
    goes_on = asyncio.Event()
    search = LogPane.action_search

    async def slow(pane: LogPane) -> None:
        await goes_on.wait()
        search(pane)

    monkeypatch.setattr(LogPane, "action_search", slow)
    monkeypatch.setattr(terminal_input, "LOOK_S", 0.001)
    return goes_on


async def looks(count: int) -> None:
    """Let the console look for a lost widget so many times."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        passed = asyncio.Event()
        loop.call_later(terminal_input.LOOK_S, passed.set)
        await passed.wait()


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


async def test_a_rollback_names_its_site_and_run_and_that_the_consoles_own_site_is_down(
    run: RunDir,
) -> None:
    climb = scene.Climb()
    climb.site, climb.site_path, climb.run_id = "zb", "/sites/zb.yaml", "r-1a2b"
    async with console(scene.failed(), run) as (app, pilot, watchers):
        watchers.site = "/sites/za.yaml"
        watchers.emergency.press = lambda: SimpleNamespace(how="warm", progress=climb)
        app.baseline = replace(scene.baseline("down"), source="/sites/zb.yaml")
        await pilot.press("f12")
        page = app.screen
        assert isinstance(page, RollbackScreen)
        await settled(pilot, lambda: "SERVES" in page.query_one("#head").text)
        assert "THE BASELINE SERVES  site zb, run r-1a2b" in page.query_one("#head").text
        assert page.NEXT.startswith("the baseline of site zb is back")
        assert "another site" not in page.query_one("#foot").text
        app.baseline = replace(scene.baseline("down"), source="/sites/za.yaml")
        await settled(pilot, lambda: "/sites/za.yaml" in page.query_one("#foot").text)
        assert "F12 again brings that one back" in " ".join(page.query_one("#foot").text.split())


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
        return history.RunRow(id=name, path=Path(f"/{name}"), playbook="p", state="succeeded")

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


async def test_keys_wait_behind_one_that_is_slow(
    run: RunDir, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = slow_search(monkeypatch)
    monkeypatch.setattr(terminal_input, "MAX_LOOKS", 10**9)
    async with console(scene.failed(), run) as (app, pilot, _):
        for key in ("l", "slash", "a", "x", "enter"):
            app.simulate_key(key)
        await looks(50)
        assert len(app.screen_stack) == 1
        goes_on.set()
        await settled(pilot, lambda: not app.turns._busy)
        searched = app.screen.query_one(LogPane).buffer.searched
        assert searched is not None
        assert searched.pattern.words == "ax"
        assert (len(app.screen_stack), asked) == (1, [])


async def test_keys_wait_for_what_a_key_leads_to(
    run: RunDir, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[object] = []
    start, submitted = KeyTurns._start, LogPrompt.on_input_submitted

    async def noted(turns: KeyTurns, event: Event) -> None:
        places.append(turns._app.focused)
        await start(turns, event)

    def later(prompt: LogPrompt, event: Input.Submitted) -> None:
        prompt.call_later(submitted, prompt, event)

    monkeypatch.setattr(KeyTurns, "_start", noted)
    monkeypatch.setattr(LogPrompt, "on_input_submitted", later)
    async with console(scene.failed(), run) as (app, pilot, _):
        for key in ("l", "slash", "a", "enter", "slash", "b", "x", "enter"):
            app.simulate_key(key)
        log = app.screen.query_one(LogPane)
        await settled(
            pilot, lambda: log.buffer.searched and log.buffer.searched.pattern.words == "bx"
        )
        assert places[1] is places[4] is log, "the answered search has given the focus back"
        assert (len(app.screen_stack), asked) == (1, [])


async def test_a_search_that_is_opened_again_at_once_stays_open(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("l", "slash", "a")
        log, words = app.screen.query_one(LogPane), app.screen.query_one(Input)
        log.prompt._close("a")
        app.screen.set_focus(log)
        log.action_search()  # before the input has told that it lost the focus
        await pilot.press("x")
        assert words.value == "x"
        assert log.prompt.asking
        assert (len(app.screen_stack), asked) == (1, [])


async def test_the_emergency_key_voids_what_was_typed_before_it(
    run: RunDir, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = slow_search(monkeypatch)
    monkeypatch.setattr(terminal_input, "MAX_LOOKS", 10**9)
    async with console(scene.failed(), run) as (app, pilot, watchers):
        for key in ("l", "slash", "a", "enter", "f12"):
            app.simulate_key(key)
        await settled(pilot, lambda: watchers.presses == 1)
        goes_on.set()
        await settled(pilot, lambda: not app.turns._busy)
        assert isinstance(app.screen, RollbackScreen), "Enter, which came first, has not closed it"
        assert app.screen_stack[0].query(Input).first().value == ""


async def test_keys_behind_one_that_is_stuck_are_dropped(
    run: RunDir, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on = slow_search(monkeypatch)
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("l")
        monkeypatch.setattr(terminal_input, "MAX_LOOKS", 5)
        for key in ("slash", "a", "x", "enter"):
            app.simulate_key(key)
        await looks(50)
        goes_on.set()
        log = app.screen.query_one(LogPane)
        await settled(pilot, lambda: log.prompt.asking and not app.turns._busy)
        assert app.screen.query(Input).first().value == ""
        assert (len(app.screen_stack), asked) == (1, [])


async def test_no_cursor_blinks(run: RunDir, asked: Asked) -> None:
    async with console(scene.failed(), run) as (app, pilot, _):
        await pilot.press("s")
        await settled(pilot, lambda: app.screen.query(Input))
        found = [*app.screen.query(Input), *app.screen_stack[0].query(Input)]
        assert len(found) == 2
        assert not any(one.cursor_blink for one in found)
