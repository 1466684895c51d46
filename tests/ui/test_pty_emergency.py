"""The emergency key in a real terminal: in every place, and with the screens blocked."""

from __future__ import annotations

import sys

import pytest

from tests.ui.conftest import full
from tests.ui.place import ESC, Place, answers, lead, seen
from tests.waiting import until

pytestmark = pytest.mark.alone
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
        seen(terminal, "RUNNING long", "BASELINE DOWN")
        lead(terminal, WHERE[where])
        terminal.press(KEYS[key])
        seen(terminal, "THE BASELINE SERVES", "fence", "1 candidate stopped", "back in")
        assert place.serves()
        assert not place.listens(place.cand_url)
        assert not place.pids("step")
        assert str(place.over().state) == "rolled_back"
        assert place.view().verbs[-1]["who"].endswith(", with the emergency key")
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
