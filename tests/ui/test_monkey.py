"""A monkey at the keyboard: nothing it presses breaks the console or hides the emergency key."""

import contextlib
import itertools
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.events import Key
from textual.keys import _character_to_key
from textual.pilot import Pilot

from console.frontends.tui.app import ConsoleApp
from screens.emergency import RollbackScreen
from tests.runner.e2e.sites import book
from tests.ui import scene
from tests.ui.conftest import full
from tests.ui.opened import console
from tests.ui.place import ESC, Place, answers, ended, placed, press_until
from tests.ui.terminal import KEYS, Terminal
from tests.waiting import until

SEED = 8
BATCH, BATCHES = 500, 6
"""Keys in a row that did not find the way out, and how many such rows make the test."""
CHECK = 125
"""Keys against a scene between two looks whether the emergency key acts."""
LETTERS = [c for c in map(chr, range(33, 127)) if c != "q"]
NAMED = [
    "up", "down", "enter", "tab", "shift+tab", "escape", "pageup", "pagedown", "home", "end",
    "space", "backspace", "ctrl+p", "ctrl+d", "ctrl+u", "f1", "left", "right", "f2", "delete",
]  # fmt: skip
BYTES = {
    **KEYS, "left": "\x1b[D", "right": "\x1b[C", "f2": "\x1bOQ", "delete": "\x1b[3~",
    "escape": "\x1b[27u",
}  # fmt: skip
TOKENS = (f"Z{''.join(letters)}Z" for letters in itertools.product("QY", repeat=8))
"""Each once, of letters that are no keys: where no field takes them nothing happens."""
NAMES = {c: _character_to_key(c) for c in LETTERS}
INPUTS = "a: {type: string, default: x}, b: {type: choice, choices: [c, d], default: c}"


def keys(source: random.Random, count: int) -> list[str]:
    """Letters, signs and named keys, half and half; neither q nor the emergency key."""
    return [
        source.choice(LETTERS) if source.random() < 0.5 else source.choice(NAMED)
        for _ in range(count)
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all: each test goes on with the live run there is, or with a new one."""
    with placed(tmp_path_factory.mktemp("monkey") / "place") as made:
        made.write("z.yaml", book("id: a, note: n", name="z", inputs=INPUTS))
        yield made


def fresh(place: Place) -> None:
    """A live run at a pause, where the monkey has ended the one before, or is about to."""

    def stands() -> str:
        if not place.runs or not place.pids("runner"):
            return "over"
        return "paused" if place.view().state == "paused" else ""

    if place.until(stands, "it stands at a pause, or is over") == "over":
        steps = [f"id: s{number}, run: [echo, '{number}']" for number in range(200)]
        place.stepping(*steps, name="long")


def rolled_back(place: Place) -> None:
    """The emergency key was heard, and its ladder came to its end."""
    place.until(place.fenced, "the fence")
    place.until(lambda: "done" in {line["rung"] for line in place.stages()}, "the ladder's end")
    place.over()


def caught_up(terminal: Terminal) -> None:
    """Nothing that was pressed is still on its way: a word of its own stands in the palette, or
    in whatever field had the focus."""
    for _ in range(30):
        token = next(TOKENS)
        terminal.press(ESC * 3 + "1", "ctrl+p", token)
        if terminal.comes(token, 2.0):
            return
        assert terminal.child.poll() is None, terminal.text
    raise AssertionError(f"no word appears\n{terminal.text}")


def settled(terminal: Terminal) -> bool:
    """Whatever was pressed has been taken, and the screens still answer; False: it has ended."""
    with contextlib.suppress(OSError, AssertionError):
        caught_up(terminal)
        answers(terminal)
        return True
    until(lambda: terminal.child.poll() is not None, f"it is stuck\n{terminal.text}")
    return False


def left_in_order(terminal: Terminal, batch: int) -> None:
    """The monkey found a way out: that is allowed, a crash is not."""
    words = f"seed {SEED}, batch {batch}\n{terminal.text}"
    assert ended(terminal) == 0, words
    terminal.close()


@pytest.mark.alone
@pytest.mark.full
def test_thousands_of_keys_against_a_real_run(place: Place) -> None:
    source = random.Random(SEED)
    fresh(place)
    terminal, done, left = place.open(), 0, 0
    try:
        while done < BATCHES:
            fresh(place)
            pressed = keys(source, BATCH)
            with contextlib.suppress(OSError):  # it has left: what follows is not taken
                for at in range(0, BATCH, 10):  # a few in one write, as a slow line delivers them
                    some = "".join(BYTES.get(key, key) for key in pressed[at : at + 10])
                    os.write(terminal.master, some.encode())
            if settled(terminal):
                done += 1
            else:
                left_in_order(terminal, done)
                terminal, left = place.open(), left + 1
            at = terminal.raw.find(b"Traceback")
            assert at < 0, (
                f"seed {SEED}, batch {done}: {terminal.raw[max(at - 200, 0) : at + 4000]!r}"
            )
            assert left < 5 * BATCHES, "it stays open long enough to be pressed"
        # again where an Esc of before comes late and closes the view, or an Enter that quits
        if not settled(terminal):
            left_in_order(terminal, done)
            terminal = place.open()
        fresh(place)
        press_until(terminal, "f12", lambda: "Esc closes" in terminal.text)
        rolled_back(place)
        assert place.serves()
    finally:
        terminal.close()


TWICE = {
    "a reason": ("s", "Skip this step", "why", "\r\r\r"),
    "a reason, then away": ("s", "Skip this step", "why", f"\r{ESC}{ESC}"),
    "the palette": ("ctrl+p", "Search for", "Playbooks", "\r\r\r"),
    "the palette, paged": ("ctrl+p", "Search for", "Play", "zz\x1b[6~\x7f\x1b[6~\x7f\x1b[5~"),
}  # fmt: skip


@pytest.mark.alone
@pytest.mark.parametrize("where", ["a reason", *(full(one) for one in [*TWICE][1:])])
def test_keys_that_come_in_one_handful(place: Place, where: str) -> None:
    """A slow line delivers them together: the second meets a dialog that is on its way out."""
    fresh(place)
    key, words, typed, handful = TWICE[where]
    with place.open() as terminal:
        terminal.until("Paused")
        for pressed, shown in ((key, words), (typed, typed)):
            terminal.press(pressed)
            terminal.until(shown)
        os.write(terminal.master, handful.encode())
        answers(terminal)
        assert b"Traceback" not in terminal.raw


async def press_all(app: ConsoleApp, pilot: Pilot[int], pressed: list[str]) -> None:
    """In handfuls, so that keys meet screens that are still on their way."""
    for at in range(0, len(pressed), 5):
        for key in pressed[at : at + 5]:
            app.post_message(Key(NAMES.get(key, key), key if len(key) == 1 else None))
        if app.is_running:
            await pilot.pause()


@pytest.mark.usefixtures("few_playbooks")
@pytest.mark.parametrize(("seed", "checks"), [(SEED, 2), full(SEED + 1, 8)])
async def test_keys_against_a_scene_never_hide_the_emergency_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, checks: int
) -> None:
    monkeypatch.setattr("screens.actions.ask", lambda *_, **__: "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    source, run, checked = random.Random(seed), scene.run_dir(tmp_path / "run"), 0
    while checked < checks:
        async with console(scene.failed(), run) as (app, pilot, watchers):
            while checked < checks and app.is_running:
                await press_all(app, pilot, keys(source, CHECK))
                if not app.is_running:
                    break
                before = watchers.presses
                await pilot.press("f12")
                assert watchers.presses == before + 1
                assert isinstance(app.screen, RollbackScreen)
                await pilot.press("escape")
                checked += 1
