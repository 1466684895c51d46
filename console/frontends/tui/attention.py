"""Calls the person at the terminal when a run needs one: bell, notification and window title.

A terminal that knows the sequence shows a notification (OSC 9, or OSC 777 for those that have it
from rxvt), which reaches a desktop over SSH too; every terminal knows the bell. `OMNI_ALERT` is
`off` for silence, or `bell` for the bell alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from console.common.text import clean, one_line
from console.frontends.tui.watch.run import Snapshot
from console.render.facts.run import news as run_news
from console.render.facts.words import state_words

if TYPE_CHECKING:
    from console.frontends.tui.terminal.driver import ConsoleDriver

ENVIRONMENT = "OMNI_ALERT"
NO_SEQUENCES = ("linux", "dumb", "vt", "cons")
"""Beginnings of TERM of terminals that print what they do not know."""
OSC_777 = ("rxvt", "foot", "vte")
MAX_WORDS = 120


class Attention:
    """Tells the terminal of what happens to the run on show."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._title = ""

    def tell(self, driver: ConsoleDriver, before: Snapshot | None, now: Snapshot) -> None:
        """Set the window's title if it changed, and call the person if one is needed."""
        words = title(now)
        sequence = title_sequence(words, self._environment) if words != self._title else ""
        if sequence:
            self._title = words
            driver.set_title(sequence)
        if message := news(before, now):
            driver.write(alert(message, self._environment))


def news(before: Snapshot | None, now: Snapshot) -> str:
    """What a person should hear of now, in one clean sentence; "" if nothing happened that needs
    one. A run that ended or stood still before this console looked is no news."""
    if before is None or before.run is None or now.run is None or before.run.path != now.run.path:
        return ""
    view, name = now.view, clean(now.view.playbook, 60)
    mark = f"{view.mark}: " if view.mark else ""
    if view.over and not before.view.over:
        return f"{mark}{name}{run_news(view)}"
    if now.word == "interrupted" and before.word != "interrupted":
        return f"{name}: the runner is gone"
    if now.is_rolling_back and not before.is_rolling_back and now.rollback == "rolling back":
        return f"{name} is rolling back"
    if (view.state, view.reason) == (before.view.state, before.view.reason):
        return ""
    words = "" if view.over else run_news(view)
    return f"{mark}{name}{words}" if words else ""


def title(now: Snapshot) -> str:
    """The window's title: what the run does, then the program."""
    if now.word == "none":
        return "omni-console"
    step = clean(now.view.current.id, 40) if now.view.current is not None else ""
    state = "asks you" if now.word == "waiting_approval" else state_words(now.word)
    at = f" {step}" if step and not now.view.over else ""
    return f"{state}{at}: {clean(now.view.playbook, 40)} - omni-console"


def alert(words: str, environment: Mapping[str, str]) -> str:
    """The bytes for a terminal that call a person: bell, and a notification where it may work."""
    wanted = environment.get(ENVIRONMENT, "").lower()
    if wanted == "off":
        return ""
    bell = "\a"
    if wanted == "bell" or not _knows_sequences(environment):
        return bell
    text = one_line(words, MAX_WORDS).replace(";", ",")
    if environment.get("TERM", "").startswith(OSC_777) or "VTE_VERSION" in environment:
        return bell + _passed_on(f"\x1b]777;notify;omni-console;{text}\a", environment)
    return bell + _passed_on(f"\x1b]9;omni-console: {text}\a", environment)


def title_sequence(words: str, environment: Mapping[str, str]) -> str:
    """The bytes that set the title of the window, or of the pane in tmux."""
    if not _knows_sequences(environment):
        return ""
    return f"\x1b]2;{one_line(words, MAX_WORDS)}\a"


def _knows_sequences(environment: Mapping[str, str]) -> bool:
    return not environment.get("TERM", "dumb").startswith(NO_SEQUENCES)


def _passed_on(sequence: str, environment: Mapping[str, str]) -> str:
    """A sequence for the terminal around tmux, which drops what it does not know (it passes this on
    where `allow-passthrough` is on)."""
    if not environment.get("TMUX"):
        return sequence
    return "\x1bPtmux;" + sequence.replace("\x1b", "\x1b\x1b") + "\x1b\\"
