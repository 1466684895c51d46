"""The console in a real terminal: any size, any kind of terminal, any way of leaving it; and the
emergency key there, in every place and with the screens blocked."""

import os
import re
import signal
import sys
import termios
from collections.abc import Iterator

import psutil
import pytest

from tests.runner.e2e.world import COMMAND
from tests.ui.conftest import full
from tests.ui.place import (
    ESC,
    Place,
    answers,
    back_home,
    ended,
    fresh_modes,
    lead,
    placed,
    press_until,
    restored,
    seen,
)
from tests.waiting import until

pytestmark = pytest.mark.alone
ESCAPE = b"\x1b"
MOUSE = re.compile(rb"\x1b\[\?10(?:0[0-356]|1[56])[hl]")
COLOURS = re.compile(rb"[34]8;(?:5;(\d+)|2;(\d+);(\d+);(\d+))")


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place with a live run that is paused before its first step; no test moves it."""
    with placed(tmp_path_factory.mktemp("standing") / "place") as place:
        place.stepping()
        place.before = place.runner()  # type: ignore[attr-defined]
        yield place


def where(place: Place) -> str:
    """State and step, as the runner says them; "" where it did not answer in time."""
    said = place.status()
    return f"{said['state']} {said['step']}" if said else ""


def untouched(place: Place) -> None:
    """The run goes on as if nobody had looked."""
    assert place.runner() == place.before  # type: ignore[attr-defined]
    assert until(lambda: where(place), "the runner answers").split()[0] == "paused"
    assert not place.stages()


# -- opening -----------------------------------------------------------------------------------


def test_it_opens_and_q_leaves_the_terminal_as_it_was_and_the_run_alone(standing: Place) -> None:
    with standing.open() as terminal:
        seen(terminal, "SERVING local", "50 tok/s", "one", "two", "three", "RAM ")
        seen(terminal, "Paused before one", "0/3 steps", "n Next")
        lines = terminal.lines
        assert len(lines) == 24
        assert lines[0].startswith("● SERVING local")
        assert lines[1].startswith("Paused before one")
        assert lines[1].rstrip().split(" · ")[-2].endswith("0/3 steps")
        assert lines[22].startswith(" NEXT  paused before 'one'")
        assert lines[23].split("  ")[0] == " F12 ROLL BACK"
        assert "n Next" in lines[23]
        assert termios.tcgetattr(terminal.master) != fresh_modes()
        terminal.press("q")
        assert ended(terminal) == 0
        restored(terminal)
    untouched(standing)


def test_it_follows_a_terminal_that_changes_its_size(standing: Place) -> None:
    with standing.open() as terminal:
        seen(terminal, "SERVING local", "Paused before one", "F12 ROLL BACK", "one", "two")
        for columns, rows in ((120, 40), (60, 20), (200, 60), (80, 24)):
            terminal.resize(columns, rows)
            # the first row is lost where it shrinks, the last is new where it grows
            seen(terminal, "SERVING local", "Paused before one", "0/3 steps")
            terminal.until(lambda: terminal.lines[-1].startswith(" F12"))
            assert len(terminal.lines) == rows
        seen(terminal, "SERVING local", "one", "Paused before one", "0/3 steps")
        answers(terminal)


@pytest.mark.parametrize("term", ["xterm-256color", full("screen"), full("xterm-ghostty")])
def test_without_colours_the_words_are_there(standing: Place, term: str) -> None:
    with standing.open(env={"NO_COLOR": "1", "TERM": term}) as terminal:
        seen(terminal, "SERVING local", "Paused before one", "pending", "F12 ROLL BACK")
        for index, *mixed in COLOURS.findall(bytes(terminal.raw)):
            grey = int(index) in (0, 7, 8, 15, 16, 231) or int(index) > 231 if index else None
            assert grey or (index == b"" and len(set(mixed)) == 1), (index, mixed)
        terminal.press("q")
        assert ended(terminal) == 0
        restored(terminal)


def test_in_the_c_locale_every_byte_is_ascii(standing: Place) -> None:
    with standing.open(env={"LANG": "C", "LC_ALL": "C", "TERM": "linux"}) as terminal:
        seen(terminal, "* SERVING local", "Paused before one")
        for keys, words in (
            (["2"], "baseline-verify"), (["3"], "1 run "), (["4"], "kernel"), (["?"], "Everywhere"),
            (["7"], "no fleet file"),
            (["1", "ctrl+p"], "Search for commands"), (["s"], "Skip this step"),
            (["x"], "Abort the run"), (["o"], "Provisional report"),
            (["y"], "possible"), (["l", "/"], "/"),
        ):  # fmt: skip
            if len(keys[0]) == 1 and keys[0].isalpha():
                back_home(terminal)  # a key right behind Esc is Alt and that key
            terminal.press(*keys)
            terminal.until(words)
        assert bytes(terminal.raw).isascii()
        assert "?" * 3 not in terminal.text, "a sign without an ASCII one"


@pytest.mark.parametrize("term", ["dumb", full("unknown"), full("")])
def test_a_terminal_that_cannot_draw_gets_plain_text(standing: Place, term: str) -> None:
    with standing.open(env={"TERM": term}, see="--help") as terminal:
        assert ended(terminal) == 0
        assert ESCAPE not in terminal.raw
        assert "baseline local: serving" in terminal.text
        assert "paused (operator)" in terminal.text


def test_a_pipe_gets_plain_text(standing: Place) -> None:
    done = standing.console()
    assert done.code == 0, done
    assert "baseline local: serving" in done.out
    assert "\x1b" not in done.out + done.err
    untouched(standing)


def test_the_mouse_stays_off_until_it_is_asked_for(standing: Place) -> None:
    with standing.open() as terminal:
        answers(terminal)
        assert not MOUSE.findall(bytes(terminal.raw))
        terminal.press("M")
        terminal.until("mouse on")
        assert b"\x1b[?1000h" in terminal.raw
        os.write(terminal.master, b"\x1b[<0;5;8M\x1b[<0;5;8m\x1b[<65;5;20M")
        answers(terminal)
        terminal.press("q")
        assert ended(terminal) == 0
        for mode in (b"1000", b"1003", b"1006", b"1015"):
            assert re.findall(rb"\x1b\[\?" + mode + rb"([hl])", bytes(terminal.raw))[-1] == b"l"


# -- leaving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place_of", ["dialog", full("run"), full("prompt"), full("palette")])
@pytest.mark.parametrize("number", [signal.SIGTERM, full(signal.SIGHUP)])
def test_a_signal_ends_it_and_nothing_else(standing: Place, number: int, place_of: str) -> None:
    keys = {"run": [], "dialog": ["x"], "prompt": ["l", "/", "a"], "palette": ["ctrl+p"]}[place_of]
    words = {"dialog": "Abort the run", "prompt": " / a", "palette": "Search for commands"}
    with standing.open() as terminal:
        terminal.until("Paused")
        terminal.press(*keys)
        terminal.until(words.get(place_of, "Paused"))
        terminal.child.send_signal(number)
        assert ended(terminal) == 128 + number
        restored(terminal)
    untouched(standing)


@pytest.mark.parametrize("killed", [False, full(True)])
def test_a_terminal_that_goes_away_ends_it_and_the_next_one_goes_on(
    standing: Place, killed: bool
) -> None:
    with standing.open() as terminal:
        seen(terminal, "SERVING local")
        if killed:
            terminal.child.kill()
        terminal.close()
        ended_by = -signal.SIGKILL if killed else 128 + signal.SIGHUP
        assert terminal.child.returncode == ended_by
    untouched(standing)
    with standing.open() as again:
        seen(again, "SERVING local", "Paused before one", "one", "0/3 steps")


def test_a_shell_can_stop_it_and_bring_it_back(standing: Place) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with standing.open(argv=shell, see="$", env={"PS1": "prompt$ "}) as terminal:
        terminal.press(f"{COMMAND}\r")
        seen(terminal, "Paused before one", "SERVING local")
        terminal.press("\x1a")
        answers(terminal)
        (console,) = psutil.Process(terminal.child.pid).children()
        console.send_signal(signal.SIGTSTP)
        seen(terminal, "Stopped", "prompt$")
        terminal.press("stty -a\r")
        seen(terminal, "isig icanon iexten echo echoe", "icrnl ixon")
        terminal.press("clear; bg\r")
        terminal.until(" &")
        # there a program that wants the terminal is stopped, as the shell says before a prompt
        press_until(terminal, "\r", lambda: "Stopped" in terminal.text)
        terminal.press("clear; fg\r")
        seen(terminal, "Paused before one", "SERVING local")
        answers(terminal)
        terminal.press("q")
        terminal.until(lambda: terminal.raw.endswith(b"prompt$ "))
        terminal.press("echo code $?; exit\r")
        terminal.until("code 0")
        assert ended(terminal) == 0
    untouched(standing)


# -- the emergency key -------------------------------------------------------------------------


WHERE = {
    "the run": [("", "RUNNING long")],
    "a dialog": [("x", "Abort the run"), ("abo", " abo")],
    "the search": [("l", "Follow"), ("/", " /"), ("x", " / x")],
    "the palette": [("ctrl+p", "Search for commands"), ("q", "Quit")],
    "a form": [("2", "The outage"), ("enter", "Inputs of")],
}
KEYS = {"F12": "f12", "ctrl+backslash": "ctrl+backslash", "kitty's": "\x1b[92;5u"}
PRESSES = [
    ("a dialog", "F12"), *[full("the run", key) for key in KEYS],
    full("the search", "ctrl+backslash"), full("the palette", "F12"),
    full("a form", "ctrl+backslash"),
]  # fmt: skip
"""The driver takes either key in any place, and the app in each: both are tested by themselves."""


@pytest.mark.parametrize(("where", "key"), PRESSES)
def test_the_emergency_key_brings_the_baseline_back(place: Place, where: str, key: str) -> None:
    place.outage()
    with place.open() as terminal:
        seen(terminal, "RUNNING long", "DOWN for this run")
        lead(terminal, WHERE[where])
        terminal.press(KEYS[key])
        seen(terminal, "THE BASELINE SERVES", "1 candidate stopped", "back in")
        assert place.serves()
        assert not place.listens(place.cand_url)
        assert not place.pids("step")
        assert str(place.over().state) == "rolled_back"
        assert place.view().verbs[-1].who.endswith(", with the emergency key")
        terminal.press(ESC, ESC, ESC, "1")
        seen(terminal, "ROLLED BACK")
        answers(terminal)
    triggers = {line["trigger"] for line in place.stages()}
    assert len(triggers) == 1, "one press, one climb"


BLOCKED = """
import sys, time
from pathlib import Path
from console import cli
from console.frontends.tui import app

begin, release, how = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

class Blocked(app.ConsoleApp):
    def on_mount(self):
        self.set_interval(0.05, self.block)

    def block(self):
        if not begin.exists() or release.exists():
            return
        begin.with_name("blocked").touch()
        while not release.exists():
            if how == "sleeps":
                time.sleep(0.05)

app.ConsoleApp = Blocked
sys.exit(cli.main([]))
"""


@pytest.mark.parametrize("how", ["sleeps", full("spins")])
def test_a_blocked_screen_does_not_hold_the_emergency_key_up(place: Place, how: str) -> None:
    place.outage()
    program = place.write("blocked.py", BLOCKED)
    begin, release = place.root / "begin", place.root / "release"
    argv = [sys.executable, str(program), str(begin), str(release), how]
    with place.open(argv=argv) as terminal:
        seen(terminal, "RUNNING long")
        begin.touch()
        until((place.root / "blocked").exists, "the loop is blocked")
        terminal.press("f12")
        until(place.fenced, "the fence, while the loop is blocked")
        until(place.serves, "the baseline serves, while the loop is blocked")
        assert "ROLLING BACK" not in terminal.text
        release.touch()
        terminal.until("THE BASELINE SERVES")
    assert len({line["trigger"] for line in place.stages()}) == 1
    assert not place.pids("step")


@pytest.mark.full
def test_leaving_right_after_the_key_does_not_stop_the_rollback(place: Place) -> None:
    place.outage()
    with place.open() as terminal:
        seen(terminal, "RUNNING long")
        terminal.press("f12")
        until(place.stages, "the key is heard")
        terminal.child.kill()
    until(place.fenced, "the fence")
    assert str(place.over().state) == "rolled_back"
    assert place.serves()
