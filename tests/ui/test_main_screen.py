"""What the main screen says of machine, events and what is next; how it calls a person."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from console.frontends.tui import attention, themes
from console.host.sample import History
from console.journal.run_dir import RunDir
from console.journal.run_view import GuardEvent, RunView, VerbGiven
from console.journal.state import RunState
from console.render.cells import ASCII, UNICODE, plain
from console.render.feed import feed
from console.render.panels import beside, machine_panels
from console.render.upcoming import upcoming
from tests.ui import scene
from tests.ui.opened import console, screen, settled
from widgets.bars import StatusLine
from widgets.steps import list_rows, outage_steps


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def past() -> History:
    history = History()
    history.load(scene.recorded())
    return history


def test_the_panels(snapshot: SnapshotAssertion) -> None:
    said, one = [], scene.sample()
    marks = scene.guard(None).marks
    blind = replace(one, gpu=None, memory=None, memory_why="/proc/meminfo cannot be read")
    for sample, width, inside, signs, now in (
        (one, 140, 3, UNICODE, 100.0), (one, 200, 4, UNICODE, 100.0), (one, 80, 3, ASCII, 100.0),
        (one, 140, 3, UNICODE, 130.0), (blind, 100, 3, UNICODE, 100.0),
    ):  # fmt: skip
        panels = machine_panels(
            sample, past(), now, signs, marks, lambda width: (("guard ok", "good"),)
        )
        rows = [plain(row) for row in beside(panels, width, inside, 20)]
        assert {cell_len(row) for row in rows} == {width}
        said += [*rows, ""]
    assert "\n".join(said) == snapshot


@pytest.mark.parametrize("width", [34, 60, 99, 120, 133, 250])
def test_panels_are_as_wide_as_the_window_or_not_there(width: int) -> None:
    panels = machine_panels(scene.sample(), past(), 100.0, UNICODE, scene.guard(None).marks,
                            lambda room: (("x" * (room + 9), ""),))  # fmt: skip
    rows = beside(panels, width, 3, 40)
    assert rows
    assert {cell_len("".join(text for text, _ in row)) for row in rows} == {width}
    assert beside(panels, width, 3, 4) == []
    assert beside(panels, 33, 3, 40) == []


def test_what_is_next(snapshot: SnapshotAssertion) -> None:
    held = scene.view(8, state=RunState.PAUSED, reason="hold")
    scenes: list[tuple[RunView, str, str, str]] = [
        (scene.running(), "running", "", mode) for mode in ("all", "gate", "step", "pausing")
    ]
    asked = scene.approval()
    asked.until = scene.NOW + 600
    scenes += [
        (asked, "waiting_approval", "", "all"), (scene.failed(), "paused", "up", "all"),
        (held, "paused", "", "gate"), (scene.view(6, state=RunState.PAUSED), "paused", "bench", ""),
        (scene.running(), "interrupted", "", ""), (scene.ended(), "rolled_back", "", ""),
        (scene.view(9, state=RunState.FAILED, outage=True), "failed", "", ""),
        (scene.view(9, state=RunState.ROLLING_BACK), "rolling_back", "", ""),
        (RunView(), "none", "", ""), (RunView(), "unreadable", "", ""),
    ]  # fmt: skip
    rows = [plain(upcoming(*one, scene.NOW)) for one in scenes]
    assert "\n".join(rows) == snapshot


def test_the_events(snapshot: SnapshotAssertion) -> None:
    made = scene.ended()
    made.guards = (GuardEvent(scene.NOW - 300, "warn", "RAM full in 18 s\x1b[2J"),)
    made.verbs = [VerbGiven(at=scene.NOW - 100, verb="approve", who="ann", why="looks good")]
    rows = [*feed(made, 60, 30, UNICODE), *feed(scene.running(), 40, 3, ASCII)]
    assert all(cell_len(plain(row)) <= 60 for row in rows)
    assert "\n".join(map(plain, rows)) == snapshot
    assert feed(RunView(), 60, 30, UNICODE) == []


def test_finished_phases_close_where_there_is_no_room_for_them() -> None:
    made = scene.running()
    everything, _ = list_rows(made, 40, scene.NOW)
    few, index = list_rows(made, 40, scene.NOW, "", len(everything) - 1)
    assert plain(few[0]).split() == ["Host", "3", "of", "3", UNICODE.succeeded]
    assert len(few) == len(everything) - 3 == len(index)
    looked, _ = list_rows(made, 40, scene.NOW, "", 5, "archs")
    assert looked == everything, "the phase that is looked at stays open"


def test_steps_of_the_outage_are_marked() -> None:
    marked = outage_steps(scene.running())
    assert marked == {"baseline:stop", "up", "bench", "go", "look", "restore"}
    rows, index = list_rows(scene.running(), 60, scene.NOW)
    for row, number in zip(rows, index, strict=True):
        if number >= 0:
            assert (UNICODE.down in plain(row)) == (scene.STEPS[number][0] in marked)


def test_a_person_is_called_when_one_is_needed(run: RunDir) -> None:
    running = scene.snapshot(run, scene.running())
    asked = scene.snapshot(run, scene.approval())
    assert attention.news(running, asked) == "ik-llama-phase2 asks you: look"
    failed = attention.news(running, scene.snapshot(run, scene.failed()))
    assert failed == "ik-llama-phase2: Step up failed: you decide"
    paused = scene.snapshot(run, scene.view(6, state=RunState.PAUSED, reason="operator"))
    assert attention.news(running, paused) == "", "who pauses a run knows it"
    over = scene.snapshot(run, scene.ended())
    assert (
        attention.news(running, over)
        == "ik-llama-phase2 has ended: ROLLED BACK after NO-GO (retain)"
    )
    assert attention.news(None, asked) == attention.news(over, over) == ""
    assert attention.news(scene.nothing(), over) == "", "it ended before somebody looked"
    gone = scene.snapshot(run, scene.running(), word="interrupted", alive=False)
    assert attention.news(running, gone) == "ik-llama-phase2: the runner is gone"


@pytest.mark.parametrize(
    ("environment", "bytes_"),
    [
        ({"TERM": "xterm-256color"}, "\a\x1b]9;omni-console: a, b\a"),
        ({"TERM": "rxvt-unicode"}, "\a\x1b]777;notify;omni-console;a, b\a"),
        ({"TERM": "xterm", "VTE_VERSION": "7600"}, "\a\x1b]777;notify;omni-console;a, b\a"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/x"},
         "\a\x1bPtmux;\x1b\x1b]9;omni-console: a, b\a\x1b\\"),
        ({"TERM": "linux"}, "\a"), ({}, "\a"),
        ({"TERM": "xterm", "OMNI_ALERT": "bell"}, "\a"),
        ({"TERM": "xterm", "OMNI_ALERT": "off"}, ""),
    ],
)  # fmt: skip
def test_the_bytes_of_a_call(environment: dict[str, str], bytes_: str) -> None:
    assert attention.alert("a; b\n", environment) == bytes_
    hostile = attention.alert("x\x1b]0;y\a\x9c", environment)
    assert not {"\x1b]0", "\x9c"} & {hostile[at : at + n] for at in range(99) for n in (1, 3)}


def test_the_title_says_what_the_run_does(run: RunDir) -> None:
    shots = [scene.nothing(), scene.snapshot(run, scene.running()),
             scene.snapshot(run, scene.approval()), scene.snapshot(run, scene.ended())]  # fmt: skip
    assert [attention.title(shot) for shot in shots] == [
        "omni-console", "running bench: ik-llama-phase2 - omni-console",
        "asks you look: ik-llama-phase2 - omni-console",
        "rolled back: ik-llama-phase2 - omni-console",
    ]  # fmt: skip
    assert attention.title_sequence("a\x1b[1mb", {"TERM": "xterm"}) == "\x1b]2;ab\a"
    assert attention.title_sequence("a", {"TERM": "linux"}) == ""


async def test_the_run_stands_on_every_screen(run: RunDir) -> None:
    async with console(scene.approval(), run) as (app, pilot, _):
        for key in "3456":
            await pilot.press(key)
            await settled(
                pilot, lambda: len(app.screen_stack) == 2 and app.screen.query(StatusLine)
            )
            await settled(pilot, lambda: "Waiting for you: look" in screen(pilot))
            await pilot.press("1")


async def test_over_ssh_the_first_row_names_the_machine(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.node", lambda: "boxa.lab")
    for connection in ("", "10.0.0.1 50022 10.0.0.2 22"):
        monkeypatch.delenv("SSH_CONNECTION", raising=False)
        if connection:
            monkeypatch.setenv("SSH_CONNECTION", connection)
        async with console(scene.running(), run) as (_, pilot, _):
            await settled(pilot, lambda: "F12" in screen(pilot))
            assert screen(pilot).startswith("boxa ") == bool(connection)


async def test_a_terminal_that_grows_gets_the_earlier_runs(run: RunDir) -> None:
    async with console(scene.running(), run, size=(80, 24)) as (app, pilot, _):
        assert not app.screen.has_class("boxed")
        await pilot.resize_terminal(120, 40)
        await settled(pilot, lambda: app.screen.has_class("boxed"))
        await settled(pilot, lambda: app.screen.earlier, "they are read")


async def test_a_theme_is_chosen_and_remembered(
    run: RunDir, standing_clock: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("console.common.paths.state_dir", lambda: tmp_path)
    async with console(scene.running(), run, size=(120, 40)) as (app, pilot, _):
        await settled(pilot, lambda: app.screen.earlier)
        seen = {app.theme}
        for _ in themes.THEMES:
            before: Any = screen(pilot)
            await pilot.press("T")
            await settled(pilot, lambda: themes.chosen() == app.theme)
            seen.add(app.theme)
            assert before.splitlines()[:20] == screen(pilot).splitlines()[:20], (
                "no fact is a colour"
            )
        assert seen == set(themes.THEMES)
        assert app.theme == "dark", "after the last comes the first"
    (tmp_path / "theme").write_text("no such theme\n")
    assert themes.chosen() == "dark"
