"""A place with a site of stand-in servers, and the console opened in a terminal there."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from console.recovery.rollback.progress import PROGRESS_FILE, read_lines
from tests.runner.e2e.sites import UP, book, host_site
from tests.runner.e2e.world import COMMAND, World
from tests.ui.terminal import Terminal
from tests.waiting import ran_out, until

STANDIN = Path(__file__).parents[1] / "rollback" / "standin.py"
LONG = "id: long, run: [sleep, '600']"
NOTES = ("id: one, note: first", "id: two, note: second", "id: three, note: third")
QUIET = ("NO_COLOR", "TEXTUAL", "LC_", "LANG", "COLORTERM", "TERM", "TMUX", "SSH_")
LEFT = b"\x1b[?1049l\x1b[?25h"
"""What a terminal is sent at the end: its own screen again, and a cursor."""
ESC = "\x1b[27u"
"""Escape as terminals with a richer keyboard protocol send it: nothing that follows joins it."""


class Place(World):
    """A world whose engines are stand-ins: everything else in it is the real program."""

    @classmethod
    def begin(cls, root: Path) -> Place:
        """A place at `root`, its site file written; nothing runs yet."""
        root.mkdir(parents=True, exist_ok=True)
        made = cls(root, root / "no-model.gguf")
        for name in [name for name in made.env if name.startswith(QUIET)]:
            del made.env[name]
        made.env |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
        made.site.write_text(host_site(made))
        return made

    def engine(self, model: Path, port: int) -> list[str]:
        return [sys.executable, "-S", str(STANDIN), str(port)]

    # -- runs --------------------------------------------------------------------------------

    def stepping(self, *steps: str, name: str = "trial") -> None:
        self.detach(self.write(f"{name}.yaml", book(*(steps or NOTES), name=name)), "--step")
        self.state("paused:operator")

    def outage(self) -> None:
        text = book(UP, LONG, name="outage", inputs="n: {type: int, default: 1}")
        self.detach(self.write("outage.yaml", text))
        until(lambda: self.at("long").state == "running" and self.pids("step"), "the outage")
        assert self.baseline() is None
        assert self.listens(self.cand_url)

    def stages(self) -> list[dict[str, Any]]:
        return read_lines(self.run.rollback / PROGRESS_FILE)[0]

    def fenced(self) -> bool:
        return any(line["rung"] == "fence" for line in self.stages())

    def runner(self) -> tuple[int, int]:
        """(pid, start) of the newest run's runner, which is alive."""
        (found,) = self.pids("runner")
        return found

    # -- the console -------------------------------------------------------------------------

    def open(
        self, *args: str, argv: list[str] | None = None, see: str = "Help", **more: Any
    ) -> Terminal:
        """The console in a terminal; waits for its first frame. `see`: what that shows."""
        env = {**self.env, **more.pop("env", {})}
        terminal = Terminal(argv or [COMMAND, *args], env, cwd=str(self.root), **more)
        try:
            terminal.until(see)
        except BaseException:
            terminal.close()
            raise
        return terminal


@contextlib.contextmanager
def placed(root: Path) -> Iterator[Place]:
    """A place whose baseline serves; every process of it is ended."""
    made = Place.begin(root)
    try:
        made.bring_up()
        yield made
    finally:
        made.close()


def ended(terminal: Terminal, limit_s: float = 60.0) -> int:
    """Wait until the command in the terminal has ended and all it said is read; its exit code."""
    until(lambda: terminal.child.poll() is not None, "it ends", limit_s)
    terminal._reader.join(30)
    assert not terminal._reader.is_alive(), "the terminal is read to its end"
    code: int = terminal.child.returncode
    return code


def seen(terminal: Terminal, *words: str) -> None:
    terminal.until(lambda: all(word in terminal.text for word in words))


def press_until(
    terminal: Terminal, key: str, true: Callable[[], object], each_s: float = 1.0
) -> None:
    """Press a key again and again, a look at the screen between, until a condition holds.

    `each_s` is long where a press that is only late does harm when it comes: it is one too many.
    """
    for _ in range(40):
        if true():
            return
        assert terminal.child.poll() is None, terminal.text
        terminal.press(key)
        terminal.comes(true, each_s)
    raise AssertionError(ran_out(f"what {key!r} leads to", 40 * each_s, lambda: terminal.text))


def answers(terminal: Terminal) -> None:
    """The console is alive: help opens and closes, whatever screen it was on."""
    assert terminal.child.poll() is None, terminal.text
    words = "Emergency: stops the candidates"

    def helped() -> bool:  # to the last row: a frame may be read in two pieces
        return words in terminal.text and not at_home(terminal)

    press_until(terminal, ESC * 3 + "1?", helped, 10.0)
    press_until(terminal, "1", lambda: at_home(terminal), 10.0)  # no Esc that could come late


def pick(terminal: Terminal, title: str) -> None:
    """On the playbooks' screen, with the cursor on the one of this title."""
    terminal.press("2")
    terminal.until("baseline-verify")
    press_until(terminal, "down", lambda: title in terminal.text)


def lead(terminal: Terminal, way: list[tuple[str, str]]) -> None:
    """Press key after key, each once what the one before leads to is there."""
    for key, words in way:
        if key == "2":
            pick(terminal, words)
        else:
            terminal.press(key)
            terminal.until(words)


def at_home(terminal: Terminal) -> bool:
    """The run on show, nothing over it: what is next stands above the keys, or the words there."""
    state = any(line.startswith(" NEXT ") for line in terminal.lines[-6:-1])
    return state and not any(x in terminal.text for x in ("┏", "Search for"))


def back_home(terminal: Terminal) -> None:
    terminal.press(ESC * 3 + "1")
    press_until(terminal, ESC + "1", lambda: at_home(terminal), 5.0)


def fresh_modes() -> list[Any]:
    """The modes of a terminal that nothing was done to; speeds and control characters too."""
    master, slave = pty.openpty()
    try:
        return termios.tcgetattr(slave)
    finally:
        os.close(master)
        os.close(slave)


def restored(terminal: Terminal) -> None:
    sent = bytes(terminal.raw)
    assert sent.rindex(LEFT) > sent.rindex(b"\x1b[?1049h")
    after = sent[sent.rindex(LEFT) + len(LEFT + b"\x1b[?1004l") :]
    assert b"\x1b" not in after, sent[-600:]
    for mode in (b"2004", b"7", b"25", b"1004", b"1049"):
        last = re.findall(rb"\x1b\[\?" + mode + rb"([hl])", sent)[-1]
        assert last == (b"h" if mode in (b"7", b"25") else b"l"), mode
    assert sent.count(b"\x1b[>") == sent.count(b"\x1b[<u")
    assert termios.tcgetattr(terminal.master) == fresh_modes()
