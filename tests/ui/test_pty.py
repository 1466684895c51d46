"""The console in a real terminal: any size, any kind of terminal, any way of leaving it."""

from __future__ import annotations

import os
import re
import signal
import termios
from collections.abc import Iterator

import psutil
import pytest

from tests.runner.e2e.world import COMMAND
from tests.ui.conftest import full
from tests.ui.place import Place, answers, back_home, ended, fresh_modes, placed, restored, seen
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
        seen(terminal, "PAUSED operator", "0/3 steps", "n Next")
        lines = terminal.lines
        assert len(lines) == 24
        assert lines[0].startswith("● SERVING local")
        assert lines[22].startswith("PAUSED operator")
        assert lines[22].rstrip().split(" · ")[-2].endswith("0/3 steps")
        assert lines[23].split("  ")[0] == " F12 ROLL BACK"
        assert "n Next" in lines[23]
        assert termios.tcgetattr(terminal.master) != fresh_modes()
        terminal.press("q")
        assert ended(terminal) == 0
        restored(terminal)
    untouched(standing)


def test_it_follows_a_terminal_that_changes_its_size(standing: Place) -> None:
    with standing.open() as terminal:
        seen(terminal, "SERVING local", "PAUSED operator", "F12 ROLL BACK", "one", "two")
        for columns, rows in ((120, 40), (60, 20), (200, 60), (80, 24)):
            terminal.resize(columns, rows)
            # the first row is lost where it shrinks, the last is new where it grows
            seen(terminal, "SERVING local", "PAUSED operator", "0/3 steps")
            terminal.until(lambda: terminal.lines[-1].startswith(" F12"))
            assert len(terminal.lines) == rows
        seen(terminal, "SERVING local", "one", "PAUSED operator", "0/3 steps")
        answers(terminal)


@pytest.mark.parametrize("term", ["xterm-256color", full("screen"), full("xterm-ghostty")])
def test_without_colours_the_words_are_there(standing: Place, term: str) -> None:
    with standing.open(env={"NO_COLOR": "1", "TERM": term}) as terminal:
        seen(terminal, "SERVING local", "PAUSED operator", "pending", "F12 ROLL BACK")
        for index, *mixed in COLOURS.findall(bytes(terminal.raw)):
            grey = int(index) in (0, 7, 8, 15, 16, 231) or int(index) > 231 if index else None
            assert grey or (index == b"" and len(set(mixed)) == 1), (index, mixed)
        terminal.press("q")
        assert ended(terminal) == 0
        restored(terminal)


def test_in_the_c_locale_every_byte_is_ascii(standing: Place) -> None:
    with standing.open(env={"LANG": "C", "LC_ALL": "C", "TERM": "linux"}) as terminal:
        seen(terminal, "* SERVING local", ". step by step")
        for keys, words in (
            (["2"], "baseline-verify"), (["3"], "1 run "), (["4"], "kernel"), (["?"], "Everywhere"),
            (["1", "ctrl+p"], "Search for commands"), (["s"], "Skip this step"),
            (["x"], "Abort the run"), (["o"], "There is no report yet"),
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
        terminal.until("PAUSED")
        terminal.press(*keys)
        terminal.until(words.get(place_of, "PAUSED"))
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
        assert (terminal.child.returncode == -signal.SIGKILL) is killed, "it ends by itself"
    untouched(standing)
    with standing.open() as again:
        seen(again, "SERVING local", "PAUSED operator", "one", "0/3 steps")


def test_a_shell_can_stop_it_and_bring_it_back(standing: Place) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with standing.open(argv=shell, see="$", env={"PS1": "prompt$ "}) as terminal:
        terminal.press(f"{COMMAND}\r")
        seen(terminal, "PAUSED operator", "SERVING local")
        terminal.press("\x1a")
        answers(terminal)
        (console,) = psutil.Process(terminal.child.pid).children()
        console.send_signal(signal.SIGTSTP)
        seen(terminal, "Stopped", "prompt$")
        terminal.press("stty -a\r")
        seen(terminal, "isig icanon iexten echo echoe", "icrnl ixon")
        terminal.press("clear; fg\r")
        seen(terminal, "PAUSED operator", "SERVING local")
        answers(terminal)
        terminal.press("q")
        terminal.until(lambda: terminal.raw.endswith(b"prompt$ "))
        terminal.press("echo code $?; exit\r")
        terminal.until("code 0")
        assert ended(terminal) == 0
    untouched(standing)
