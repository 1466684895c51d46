"""Hostile text on every screen of the real console: nothing of it acts, nothing crashes."""

import importlib
import pkgutil
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from textual.screen import Screen

import screens
from console.config.locate import shipped
from screens import base
from tests.testbed.nvml import Nvml
from tests.ui.hostile import (
    ACTING,
    FLOOD,
    PAYLOADS,
    PLAIN,
    SURE,
    Standing,
    Words,
    acts,
    hostile_place,
    modes,
    unsafe,
)
from tests.ui.place import Place, back_home, ended, pick, press_until, seen
from tests.ui.terminal import Terminal
from tests.waiting import until

PASTED = "\x1b[200~{}\x1b[201~"
SHOWN = {
    "HTTP answer", "argv", "by hand", "cause", "choice", "confirm", "ctx", "detail", "end",
    "file of a broken playbook", "form pasted", "home", "host's model", "host's playbook",
    "host's said", "input name", "input title", "kind of one",
    "last line", "lesson", "log file", "next line", "note", "objective", "old run", "phase",
    "phase of one", "playbook title", "prompt", "question", "reason",
    "run's playbook", "rung", "rung's state", "service log",
    "step output", "step title", "title of a broken one", "title of one", "unknown service",
}  # fmt: skip
"""Places whose text has to have been on a screen, or the walk proves nothing."""
SCREENS = {
    "OperationsScreen": "failed: you decide", "ReportScreen": "is written when the run ends",
    "BreachScreen": "guard ACTED", "RollbackScreen": "by hand:", "HostsScreen": "unknown since",
    "CompareScreen": "attempts   omni-console report", "RunsScreen": "Enter shows one",
    "PreflightScreen": "Check before you download", "HostScreen": " failed, ",
    "PlaybooksScreen": "Enter: inputs", "PlanScreen": "S starts, paused",
    "AskScreen": "Skip this step", "FormScreen": "Inputs of", "RetryForm": "Retry two",
    "HelpScreen": "Emergency: stops the candidates", "Palette": "Search for commands",
    "LessonsScreen": "Enter reads one", "LessonScreen": "yours:",
}  # fmt: skip
"""Words that only this screen draws."""
BOOKS = {
    "file of a broken playbook", "lesson", "objective", "playbook title", "title of a broken one",
    "unknown service",
}  # fmt: skip
"""Those that the list of playbooks shows."""
ENTRIES = len(list(shipped().glob("*.yaml"))) + 8
"""At least as many as that list has: what ships, and the six that the place has."""
OWN = {"CSI <u", "CSI >u", "CSI ?$p", "CSI ?h", "CSI ?l", "CSI H", "CSI m", "OSC 22"}
"""What the screens themselves send."""
CALLS = re.compile(
    rb"\x1b\[2[23];2t|\x1b\]2;[^\x07\x1b]*omni-console\x07"
    rb"|\x07?\x1b\](?:9;|777;notify;)omni-console[:;][^\x07\x1b]*\x07"
)
"""The window's title, kept and set, and calls to the person at the terminal."""


@dataclass
class Walk:
    words: Words
    sent: bytes = b""
    shown: str = ""
    code: int = -1


def keep(walk: Walk, terminal: Terminal) -> None:
    walk.shown += terminal.text + "\n"


def scroll(walk: Walk, terminal: Terminal, most: int = 8) -> None:
    """Down to the end of what has the focus, looking all the way; the pages overlap, because a
    name that is wrapped over the end of one stands on none as a whole."""
    terminal.settle(0.3)
    keep(walk, terminal)
    for _ in range(most):
        before = terminal.text
        terminal.press("pagedown")
        terminal.comes(lambda: terminal.text != before, 0.5)  # noqa: B023
        keep(walk, terminal)
        terminal.press("up", "up", "up")
        terminal.settle(0.1)
        keep(walk, terminal)
        if terminal.text == before:
            return


def paste(walk: Walk, terminal: Terminal, place: str) -> None:
    before = len(terminal.raw)
    terminal.press(PASTED.format(walk.words(place)))
    terminal.until(lambda: len(terminal.raw) > before)
    keep(walk, terminal)


def turn_to(terminal: Terminal, tag: str) -> None:
    """Through the logs, round and round and ever slower, to the one with this text."""
    for tries in range(40):
        if tag in terminal.text:
            return
        terminal.press("]")
        terminal.comes(tag, 0.25 * 2 ** (tries // 8))
    raise AssertionError(f"no log with {tag}\n{terminal.text}")


def look_at_playbooks(walk: Walk, terminal: Terminal) -> None:
    """Each under the cursor; again, and slower, where something was not yet drawn."""
    for quiet_s in (0.08, 0.3, 1.0):
        terminal.press("home")
        for _ in range(ENTRIES):
            terminal.settle(quiet_s)
            keep(walk, terminal)
            terminal.press("down")
        if not BOOKS - shown(walk):
            return


def look_at_the_run(walk: Walk, terminal: Terminal) -> None:
    seen(terminal, "failed: you decide", "GPU0")
    keep(walk, terminal)
    terminal.press("home")
    terminal.until("evaluated")
    keep(walk, terminal)
    terminal.press("tab")
    scroll(walk, terminal)
    back_home(terminal)
    terminal.press("l")
    terminal.until("Search")
    for place in ("service log", "log file", "runner log", "step output"):
        turn_to(terminal, walk.words.tags[place])
        keep(walk, terminal)
        terminal.press("w")
        keep(walk, terminal)
        terminal.press("w")
    for sign in ("/", "&"):
        terminal.press(sign)
        terminal.until(
            lambda sign=sign: any(x.lstrip("│").startswith(f" {sign}") for x in terminal.lines)
        )
        paste(walk, terminal, f"pattern after {sign}")
        terminal.press("\r")
        terminal.press(sign, "[(x|", "\r", "n", "N", "e", "E")
        keep(walk, terminal)
    back_home(terminal)
    terminal.press("z")
    keep(walk, terminal)
    back_home(terminal)


def ask(walk: Walk, terminal: Terminal, key: str, word: str, typed: str = "") -> None:
    terminal.press(key)
    terminal.until(word)
    keep(walk, terminal)
    if typed:
        paste(walk, terminal, typed)
        terminal.press("\r")
        keep(walk, terminal)
    back_home(terminal)


def look_around(walk: Walk, terminal: Terminal) -> None:
    ask(walk, terminal, "s", "Skip this step", "reason pasted")
    ask(walk, terminal, "x", "Abort the run")
    ask(walk, terminal, "r", "Retry two", "input pasted")
    ask(walk, terminal, "ctrl+p", "Search for commands", "palette pasted")
    read(walk, terminal, "o", "Provisional report")
    pick(terminal, walk.words.tags["playbook title"])
    look_at_playbooks(walk, terminal)
    terminal.press("home")
    terminal.until("Enter: inputs")
    keep(walk, terminal)
    terminal.press("\r")
    terminal.until("Inputs of")
    terminal.press("down", "down", "\t")
    paste(walk, terminal, "form pasted")
    terminal.press("\t", "\r")
    terminal.until("S starts, paused")
    scroll(walk, terminal)
    back_home(terminal)
    terminal.press("7")
    terminal.until("unknown since")
    # the row of the list may be painted before what is said of the host below it
    hosts = {"host's model", "host's playbook", "host's said"}
    terminal.until(lambda: hosts <= found(walk.words, terminal.text))
    keep(walk, terminal)
    back_home(terminal)
    terminal.press("3")
    terminal.until("Enter shows one")
    keep(walk, terminal)
    terminal.press("down", "\r")
    terminal.until(lambda: unreadable(terminal))
    keep(walk, terminal)
    terminal.press("3")
    terminal.until("Enter shows one")
    terminal.press("\r")
    terminal.until(lambda: not unreadable(terminal))
    terminal.press("4")
    terminal.until(" failed, ")
    scroll(walk, terminal)
    terminal.press("v")
    terminal.until("baseline")
    keep(walk, terminal)
    back_home(terminal)


def look_at_the_rest(walk: Walk, terminal: Terminal) -> None:
    """The screens that are seldom opened: each is read to its end."""
    read(walk, terminal, "?", "Emergency: stops the candidates")
    read(walk, terminal, "b", "guard ACTED")
    terminal.press("6")
    terminal.until("Enter reads one")
    keep(walk, terminal)
    terminal.press("/", "Zq", "\r")  # only the lessons of this place have such a word
    terminal.until("Esc shows all")
    keep(walk, terminal)
    terminal.press("\r")
    terminal.until("yours:")
    scroll(walk, terminal)
    back_home(terminal)
    terminal.press("3")
    terminal.until("Enter shows one")
    terminal.press("home", "space", "space")  # the second cannot be read
    terminal.until("this run cannot be read")
    keep(walk, terminal)
    terminal.press("down", "space", "c")
    terminal.until("omni-console report")
    scroll(walk, terminal)
    back_home(terminal)
    terminal.press("5")
    terminal.until("Check before you download")
    terminal.press("\r")
    terminal.until("Can it work here?")
    paste(walk, terminal, "what to check pasted")
    terminal.press(*["\r"] * 8)  # through seven fields, and the button
    terminal.until(lambda: "Can it work here?" not in terminal.text)
    terminal.until(lambda: "looking …" not in terminal.text)
    scroll(walk, terminal)
    back_home(terminal)


def read(walk: Walk, terminal: Terminal, key: str, words: str) -> None:
    terminal.press(key)
    terminal.until(words)
    scroll(walk, terminal, 20)
    back_home(terminal)


def unreadable(terminal: Terminal) -> bool:
    """Whether the header says so of the run on show; how many lines are above depends on words."""
    return any(row.startswith("UNREADABLE") for row in terminal.lines[:8])


def answer_and_fall(walk: Walk, terminal: Terminal, standing: Standing) -> None:
    standing.ask()
    terminal.until("Waiting for you")
    keep(walk, terminal)
    press_until(terminal, "y", lambda: "Approve" in terminal.lines[2:] or "type " in terminal.text)
    keep(walk, terminal)
    back_home(terminal)
    standing.held()
    terminal.until(lambda: any(row.startswith("PAUSED") for row in terminal.lines[:8]))
    keep(walk, terminal)
    terminal.press("f12")
    until(standing.pressed, "the byte")
    standing.roll_back()
    terminal.until("by hand:")
    keep(walk, terminal)
    back_home(terminal)


def walked(root: Path, words: Words, nvml: Nvml) -> Walk:
    walk = Walk(words)
    with hostile_place(root, words, nvml) as (place, standing):
        with place.open(columns=120, rows=40) as terminal:
            look_at_the_run(walk, terminal)
            look_around(walk, terminal)
            look_at_the_rest(walk, terminal)
            answer_and_fall(walk, terminal, standing)
            terminal.resize(80, 24)
            back_home(terminal)
            keep(walk, terminal)
            terminal.press("q")
            walk.code = ended(terminal)
            walk.sent += bytes(terminal.raw)
        walk.sent += broken_site(walk, place)
    return walk


def broken_site(walk: Walk, place: Place) -> bytes:
    name = f"site-{walk.words('site file', 60).replace('/', '-')}.yaml"
    words = walk.words.quoted("site name")
    place.write(name, f"schema: omni.site/v1\nname: {words}\n{words}: 1\n")
    with place.open("--site", str(place.root / name)) as terminal:
        terminal.press("4")
        terminal.until(" failed, ")
        scroll(walk, terminal)
        terminal.press("2")
        terminal.until("a-good-one")
        keep(walk, terminal)
        terminal.press("q")
        assert ended(terminal) == 0
        return bytes(terminal.raw)


def shown(walk: Walk) -> set[str]:
    return found(walk.words, walk.shown)


def unvisited(walk: Walk) -> set[str]:
    """The screens that were not seen."""
    return {name for name, words in SCREENS.items() if words not in walk.shown}


def found(words: Words, text: str) -> set[str]:
    """The places that a text has come from."""
    # a tag at the end of a long path may be wrapped in its middle
    joined = re.sub(r"[\s▁▂▃▄▅▆▇█]", "", text)
    return {place for place, tag in words.tags.items() if tag in joined}


def screens_of_the_console() -> set[type]:
    """Every class of a screen that is no part of the base of all."""
    found: set[type] = set()
    for module in pkgutil.iter_modules(screens.__path__):
        members = vars(importlib.import_module(f"screens.{module.name}")).values()
        found |= {
            one for one in members
            if isinstance(one, type) and issubclass(one, Screen)
            and one.__module__.startswith("screens.") and one.__module__ != base.__name__
        }  # fmt: skip
    return found


def test_the_walk_knows_every_screen() -> None:
    there = screens_of_the_console()
    parts = {part.__name__ for one in there for part in one.__mro__[1:]} - set(SCREENS)
    names = {one.__name__ for one in there} - parts
    assert set(SCREENS) == names, "a new screen: the walk has to visit it"


@pytest.mark.alone
@pytest.mark.full
def test_a_walk_through_all_screens_sends_what_a_harmless_one_sends(
    tmp_path: Path, nvml: Nvml
) -> None:
    harmless = walked(tmp_path / "plain", Words(False), nvml)
    hostile = walked(tmp_path / "hostile", Words(True), nvml)
    for walk in (harmless, hostile):
        assert SHOWN - shown(walk) == set()
        assert unvisited(walk) == set()
        assert walk.code == 0
        assert "Traceback" not in walk.shown
        assert unsafe(walk.sent) == []
    assert {"CSI m", "CSI H", "CSI ?h"} <= acts(harmless.sent)
    assert acts(hostile.sent) - acts(harmless.sent) == set()
    assert modes(hostile.sent) - modes(harmless.sent) == set()
    for payload in ("\x1b[913;937H", "\x1b[5;58;5;77m", *PAYLOADS):
        if payload.startswith("\x1b["):
            assert payload.encode() not in hostile.sent, payload
    assert not FLOOD.search(hostile.sent.decode("utf-8"))
    for markup in ("[@click=app.quit]x[/]", "[red]r", "[link=http://evil]y"):
        assert markup in hostile.shown


def wrong(sent: bytes) -> list[object]:
    """What was sent that only hostile text sends."""
    sent = CALLS.sub(b"", sent)
    flood = FLOOD.search(sent.decode("utf-8", "replace"))
    return [*(acts(sent) - OWN), *unsafe(sent), *([flood] if flood else [])]


def test_the_measure_measures_and_lets_plain_text_pass() -> None:
    """What would act is seen by these tests, wherever it stands."""
    for payload in (*ACTING, SURE, "\x9b2J", "\u202e"):
        sent = f"\x1b[1;1H\x1b[1mharmless {payload} text\x1b[0m".encode()
        assert wrong(sent) or modes(sent), payload
    plain = f"\x1b[1;1H{' '.join(PLAIN)}\r\n".encode()
    assert (wrong(plain), modes(plain)) == ([], set())


@pytest.mark.alone
def test_nothing_of_a_hostile_run_acts_where_the_console_opens(tmp_path: Path, nvml: Nvml) -> None:
    with (
        hostile_place(tmp_path / "place", Words(True), nvml) as (place, standing),
        place.open(columns=120, rows=40) as terminal,
    ):
        seen(terminal, "failed: you decide", "GPU0", standing.words.tags["detail"])
        assert "[red]r" in terminal.text
        terminal.press("q")
        assert ended(terminal) == 0
        assert wrong(bytes(terminal.raw)) == []
