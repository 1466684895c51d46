"""The driver in a real terminal: one that stops reading, hangs up, or sends what nobody meant."""

import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from console.common.text import clean_lines
from tests.children import making
from tests.ui.conftest import full
from tests.ui.place import ended, fresh_modes, restored
from tests.ui.terminal import CLOSE, CTRL_BACKSLASH, F12, OPEN, Terminal
from tests.waiting import until

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.alone
APP = """
import asyncio, select, signal, sys, time
from pathlib import Path
from textual.app import App
from textual.strip import Strip
from textual.widget import Widget
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from console.frontends.tui.terminal import driver, output

place, hows = Path(sys.argv[1]), sys.argv[2:]
output.LEAVE_S = 0.5 if "soon" in hows else 60.0  # a busy machine may take long to end an app

def note(name, text):
    with open(place / name, "a") as file:
        file.write(text + "\\n")

class Wall(Widget):
    DEFAULT_CSS = "Wall { width: 100%; height: 100%; }"
    can_focus = True
    tick = 0

    def render_line(self, y):
        # a style for every cell: frames are big, a terminal that stalls is full soon
        text = f"row {y:02d} tick {self.tick:06d} ".ljust(self.size.width, "ab"[self.tick % 2])
        return Strip([
            Segment(c, Style(color=f"rgb({x % 256},{y},{self.tick % 256})"))
            for x, c in enumerate(text)
        ])

class StandIn(App):
    def __init__(self):
        super().__init__(driver_class=driver.ConsoleDriver)
        self.wall = Wall()

    def compose(self):
        yield self.wall

    def on_mount(self):
        if "ignores" in hows:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        elif "plain" not in hows:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.leave, number)
        self.wall.focus()
        self.set_interval(0.02, self.turn)

    def leave(self, number):
        self.exit(128 + number, return_code=128 + number)

    def turn(self):
        if not (place / "halt").exists():
            self.wall.tick += 1
            self.wall.refresh()
        note("ticks", str(self.wall.tick))
        out = self._driver._out
        if out._dropped and not select.select([], [out._fd], [], 0)[1]:
            note("stuck", "x")
        while (place / "block").exists():
            (place / "blocked").touch()
            time.sleep(0.05)

    def press_emergency(self):
        note("pressed", "x")
        if "raises" in hows:
            raise RuntimeError("no")

    def on_key(self, event):
        note("keys", event.key)
        if event.key == "e":
            self.exit(1, message=Text("x" * 300000))

    def on_paste(self, event):
        note("pastes", ascii(event.text))

app = StandIn()
result = app.run(mouse=False)
sys.exit(app.return_code)
"""


class StandIn:
    def __init__(self, place: Path, *hows: str, **env: str) -> None:
        self.place = place
        path = place / "app.py"
        path.write_text(APP)
        keep = {name: value for name, value in os.environ.items() if not name.startswith("TEXTUAL")}
        self.terminal = Terminal(
            [sys.executable, str(path), str(place), *hows],
            {**keep, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), **env},
            cwd=str(place),
        )
        self.terminal.until("row 23 tick", 60)

    def noted(self, name: str) -> list[str]:
        path = self.place / name
        return path.read_text().splitlines() if path.exists() else []

    def send(self, data: bytes | str) -> None:
        os.write(self.terminal.master, data.encode() if isinstance(data, str) else data)

    def stall(self) -> None:
        """Nobody reads any more, until frames have filled everything on the way."""
        self.terminal.reads.clear()
        before = len(self.noted("stuck"))
        until(lambda: len(self.noted("stuck")) > before + 2, "frames are dropped, none goes out")

    def ticks(self, more: int) -> None:
        """Wait until the UI loop has turned so often again."""
        so_far = len(self.noted("ticks"))
        until(lambda: len(self.noted("ticks")) > so_far + more, "the loop turns")

    def presses(self, key: str, times: int = 1) -> None:
        before = len(self.noted("pressed"))
        self.send(key)
        until(lambda: len(self.noted("pressed")) == before + times, "the emergency key acts")

    def close(self) -> None:
        (self.place / "block").unlink(missing_ok=True)
        self.terminal.reads.set()
        self.terminal.child.kill()
        self.terminal.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., StandIn]]:
    with making(partial(StandIn, tmp_path), StandIn.close) as make:
        yield make


# -- a terminal that takes nothing -----------------------------------------------------------


def test_a_terminal_nobody_reads_holds_nothing_up_and_is_whole_when_it_is_read_again(
    start: Callable[..., StandIn],
) -> None:
    one = start()
    one.stall()
    one.presses(F12)
    one.presses(CTRL_BACKSLASH)
    until(lambda: one.noted("keys") == ["f12", "ctrl+backslash"])
    stalled = int(one.noted("ticks")[-1])
    one.ticks(5)
    (one.place / "halt").touch()
    one.terminal.reads.set()

    def whole() -> bool:
        lines = one.terminal.lines
        ticks = {line[7:18] for line in lines}
        fills = {line[19:] for line in lines}
        rows = [line[:6] for line in lines] == [f"row {y:02d}" for y in range(24)]
        return rows and len(ticks) == len(fills) == 1 and int(lines[0][12:18]) > stalled

    one.terminal.until(whole)
    assert "[38;" not in one.terminal.text, "a sequence was cut"
    one.presses(F12)


@pytest.mark.parametrize("number", [signal.SIGTERM, full(signal.SIGHUP)])
def test_a_signal_ends_it_while_nobody_reads(start: Callable[..., StandIn], number: int) -> None:
    one = start()
    one.stall()
    one.terminal.child.send_signal(number)
    until(lambda: one.terminal.child.poll() is not None, "it ends")
    assert one.terminal.child.returncode == 128 + number
    assert termios.tcgetattr(one.terminal.master) == fresh_modes()
    one.terminal.reads.set()
    assert ended(one.terminal) == 128 + number
    restored(one.terminal)


@pytest.mark.full
def test_a_signal_ends_it_while_nobody_reads_its_last_words(start: Callable[..., StandIn]) -> None:
    one = start("soon")
    one.stall()
    one.send("e")
    until(lambda: termios.tcgetattr(one.terminal.master) == fresh_modes(), "it is at its end")
    one.terminal.child.send_signal(signal.SIGTERM)
    until(lambda: one.terminal.child.poll() is not None, "it ends")
    assert one.terminal.child.returncode == 143


HANGS = [(how, state) for state in ("draws", "stalled", "stands")
         for how in ("handles", "plain", "ignores")]  # fmt: skip
FIRST = [("handles", "draws"), ("ignores", "stalled"), ("plain", "stands")]


@pytest.mark.parametrize(
    ("how", "state"), [*FIRST, *(full(*case) for case in HANGS if case not in FIRST)]
)
def test_a_terminal_that_hangs_up_ends_it(
    start: Callable[..., StandIn], how: str, state: str
) -> None:
    one = start(how, *(["soon"] if state == "stands" else []))
    if state == "stalled":
        one.stall()
    elif state == "stands":
        (one.place / "block").touch()
        until((one.place / "blocked").exists)
    os.close(one.terminal.master)
    until(lambda: one.terminal.child.poll() is not None, "it ends")
    assert one.terminal.child.returncode == 129
    one.terminal.reads.set()
    one.terminal.master = os.open(os.devnull, os.O_RDONLY)


@pytest.mark.parametrize(
    ("how", "number"),
    [
        ("plain", signal.SIGTERM), full("handles", signal.SIGTERM), full("handles", signal.SIGHUP),
        full("plain", signal.SIGHUP),
    ],
)  # fmt: skip
def test_a_signal_ends_it_though_the_loop_stands(
    start: Callable[..., StandIn], number: int, how: str
) -> None:
    one = start(how, "soon")
    (one.place / "block").touch()
    until((one.place / "blocked").exists)
    one.presses(F12)
    one.terminal.child.send_signal(number)
    assert ended(one.terminal) == 128 + number
    restored(one.terminal)


def test_stopped_and_continued_it_paints_the_screen_again(start: Callable[..., StandIn]) -> None:
    one = start()
    (one.place / "halt").touch()
    one.ticks(5)
    pid = one.terminal.child.pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    with one.terminal._lock:
        one.terminal.screen.reset()
    os.kill(pid, signal.SIGCONT)
    one.terminal.until("row 23 tick")
    one.terminal.until("row 00 tick")
    one.presses(F12)
    one.terminal.child.send_signal(signal.SIGTERM)
    assert ended(one.terminal) == 143
    restored(one.terminal)


# -- what a terminal sends -------------------------------------------------------------------

BAD = [
    b"\xf1x", b"\xff\xfe\xc3", b"\x1b[1114112u", b"\x1b[99999999999999999999u", b"\xe2\x82",
    b"\xe9\x80\x9b\xf0\x9f\x92\xed\xa0\x80", b"\x1b[<0;5;5M\x1b[M !!\x1b[1;1R",
    b"\x1b[?2026;2$y\x1b[I\x1b[O\x00", b"\x1b[1;2;3;4;5~\x1b[201~",
]  # fmt: skip
"""What is no UTF-8, no key, or a report of the terminal's: a bad line, a wrong locale."""


def test_no_byte_ends_the_reading(start: Callable[..., StandIn]) -> None:
    one = start("raises")
    for number, bad in enumerate(BAD, 1):
        one.send(bad)
        one.presses(F12)
        one.send(bad)
        one.presses(CTRL_BACKSLASH)
        one.send(bad)
        one.send("\x1b[97u")
        until(lambda n=number: one.noted("keys").count("a") == n)
    assert one.noted("keys").count("f12") == len(BAD)
    one.terminal.child.send_signal(signal.SIGTERM)
    assert ended(one.terminal) == 143
    restored(one.terminal)


def test_a_whole_paste_with_the_key_in_it_presses_nothing(start: Callable[..., StandIn]) -> None:
    one = start()
    text = f"a{F12}{CTRL_BACKSLASH}\x1b[92;5u" + CTRL_BACKSLASH * 40 + "b\x1bxyz"
    one.send(OPEN + text + CLOSE + "k")
    until(lambda: one.noted("keys") == ["k"])
    assert one.noted("pastes") == [ascii("\n".join(clean_lines(text)))]
    assert not one.noted("pressed")


def test_every_form_of_the_key_acts_once_and_no_environment_makes_a_signal_of_it(
    start: Callable[..., StandIn],
) -> None:
    one = start(TEXTUAL_ALLOW_SIGNALS="1")
    for key in ("\x1b[24~", "\x1c", "\x1b[24;1~", "\x1b[92;5u"):
        one.presses(key)
    one.send("\x1b[24;2~\x03")
    until(lambda: one.noted("keys")[4:] == ["shift+f12", "ctrl+c"])
    assert len(one.noted("pressed")) == 4
