"""The driver's parts, and the command that opens it: keys and pastes out of bytes, and frames to a
terminal that takes nothing."""

import os
import select
import threading

import pytest
from textual.events import Key, Paste
from textual.message import Message

from console.common.text import LINE_LIMIT, clean_lines
from console.frontends.cli.console import _environment, _screens
from console.frontends.tui.terminal.driver import ConsoleDriver
from console.frontends.tui.terminal.input import MAX_PASTE, TerminalInput
from console.frontends.tui.terminal.output import LIMIT, TerminalWriter
from tests.ui.terminal import CLOSE, F12, OPEN
from tests.waiting import until


class Heard:
    """What a TerminalInput says at a time that stands in for the clock."""

    def __init__(self) -> None:
        self.at = 100.0
        self.said: list[str] = []
        self.input = TerminalInput(self._say, lambda: self.at)

    def _say(self, message: Message) -> None:
        self.said.append(
            message.key if isinstance(message, Key)
            else f"paste {message.text}" if isinstance(message, Paste) else repr(message)
        )  # fmt: skip

    def hear(self, *what: str | float) -> list[str]:
        """Text is read, a number is a time that passes; what was said since."""
        self.said.clear()
        for one in what:
            if isinstance(one, str):
                self.input.feed(one.encode())
                self.input.tick()
            else:
                for _ in range(round(one / 0.05)):
                    self.at += 0.05
                    self.input.tick()
        return list(self.said)


def test_a_paste_arrives_whole_however_it_is_cut() -> None:
    text = f"one{F12}\x1c\n{OPEN}two\x1b[201"
    sent = f"a{OPEN}{text}{CLOSE}b"
    said = "\n".join(clean_lines(text))
    assert "\x1b" not in said
    for step in range(1, 12):
        cut = [sent[at : at + step] for at in range(0, len(sent), step)]
        assert Heard().hear(*cut) == ["a", f"paste {said}", "b"], step


def test_a_key_alone_in_a_paste_that_ends_is_part_of_it() -> None:
    assert Heard().hear(OPEN, "x", 0.3, F12, 0.3, f"y{CLOSE}k") == ["paste xy", "k"]
    slow = [part for char in "x\x1cy" for part in (char, 0.05)] * 20
    assert Heard().hear(OPEN, *slow, CLOSE) == ["paste " + "x\ufffdy" * 20]


def test_presses_that_never_let_it_be_silent_act_all_the_same() -> None:
    heard = Heard()
    said = heard.hear(OPEN, "abc", *[0.3, F12] * 5)
    assert said[0] == "f12"
    assert "paste abc" in said
    assert said.count("f12") == 5
    held = Heard().hear(OPEN, "abc", 0.3, "\x1c", 0.3, *["\x1c", 0.05] * 40, 0.2)
    assert held[0] == "ctrl+backslash"
    assert held[-1] == "paste abc"


def test_what_comes_late_of_a_paste_is_no_key() -> None:
    assert Heard().hear(f"{OPEN}abc", 1.2, f"def{CLOSE}g") == ["paste abc", "paste def", "g"]
    assert Heard().hear(f"{OPEN}abc", 1.2, "d", f"{OPEN}e{CLOSE}") == ["paste abc", "d", "paste e"]


def test_a_key_pulled_apart_acts() -> None:
    assert "f12" in Heard().hear("\x1b[2", 0.5, "4", 0.5, "~")
    assert Heard().hear("\x1b[2", "4", "~") == ["f12"]


def test_a_paste_without_an_end_does_not_grow_for_ever() -> None:
    (said,) = Heard().hear(OPEN, *["x" * 65536] * (2 * MAX_PASTE // 65536), 1.2)
    assert len(said) == LINE_LIMIT + len("paste ")
    (said,) = Heard().hear(OPEN, *["x\n" * 32768] * (2 * MAX_PASTE // 65536), 1.2)
    assert len(said) <= MAX_PASTE + len("paste ")


class Pipe:
    """A terminal's place is taken by a pipe, which takes 64 KiB and then nothing."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        self.repaints = threading.Event()
        self.writer = TerminalWriter(self.write, "utf-8", self.repaints.set)
        self.writer.start()

    def full(self) -> bool:
        """The writer is in the middle of a frame and cannot go on."""
        item = self.writer._sending
        room = select.select([], [self.write], [], 0)[1]
        return item is not None and len(item.data) > 4000 and not room

    def idle(self) -> bool:
        """Everything was sent and read, what was dropped is made good."""
        with self.writer._ready:
            busy = self.writer._queue or self.writer._sending or self.writer._dropped
        return not busy and not select.select([self.read], [], [], 0)[0]

    def close(self) -> bytes:
        os.close(self.write)
        got = b""
        while data := os.read(self.read, 65536):
            got += data
        os.close(self.read)
        return got


def test_frames_are_dropped_whole_and_modes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "console.frontends.tui.terminal.output.STALE_S", 3600.0
    )  # dropped for their bytes alone
    pipe = Pipe()
    frames = [f"<{n:04d}{'x' * 4000}>" for n in range(400)]
    pipe.writer.write("\x1b[?1049h")
    for at, frame in enumerate(frames):
        if at == 40:
            until(pipe.full, "the terminal takes nothing more")
        for data in ("\x1b[?2026h", frame, "\x1b[?2026l", "\x1b[?25h", "\x1b[?25l"):
            pipe.writer.write(data)
        assert pipe.writer._waiting <= LIMIT
        assert len(pipe.writer._queue) < 5 * LIMIT / 4000
    got = bytearray()
    while not pipe.repaints.is_set() or not pipe.idle():
        if select.select([pipe.read], [], [], 0.01)[0]:
            got += os.read(pipe.read, 65536)
    pipe.writer.write("repainted")
    until(lambda: pipe.writer._sending is None and not pipe.writer._queue)
    pipe.writer.stop()
    got += pipe.close()
    text = got.decode()
    assert text.endswith("\x1b[?2026lrepainted")
    shown = text.replace("\x1b[?1049h", "").replace("\x1b[?2026h", "").replace("\x1b[?2026l", "")
    assert shown.rindex("\x1b[?25l") > shown.rindex("\x1b[?25h"), "the last word counts"
    shown = shown.replace("\x1b[?25h", "").replace("\x1b[?25l", "").removesuffix("repainted")
    kept = [part + ">" for part in shown.split(">")[:-1]]
    assert set(kept) < set(frames)
    assert frames[:10] == kept[:10]
    assert len(kept) < 200


def test_a_terminal_that_is_gone_ends_no_thread_and_keeps_nothing() -> None:
    pipe = Pipe()
    os.close(pipe.read)
    for _ in range(3):
        for _ in range(10):
            pipe.writer.write("x" * 1000)
        until(lambda: pipe.writer._failed and not pipe.writer._queue)
    assert pipe.writer._thread.is_alive()
    assert not pipe.writer._waiting
    assert not pipe.repaints.is_set()
    pipe.writer.stop()
    assert not pipe.writer._thread.is_alive()
    os.close(pipe.write)


# -- the command that opens it -----------------------------------------------------------------


def test_the_environment_of_textual_is_ours_for_its_import_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("TEXTUAL")]:
        monkeypatch.delenv(name)
    for name in ("ALLOW_SIGNALS", "DEVTOOLS_PORT", "PRESS", "DEBUG", "SCREENSHOT", "DRIVER"):
        monkeypatch.setenv(f"TEXTUAL_{name}", "1")
    monkeypatch.setenv("TEXTUAL_FPS", "30")
    with _environment():
        found = {name: value for name, value in os.environ.items() if name.startswith("TEXTUAL")}
    assert found == {
        "TEXTUAL_FPS": "30", "TEXTUAL_ANIMATIONS": "none", "TEXTUAL_SMOOTH_SCROLL": "0",
    }  # fmt: skip
    assert [name for name in os.environ if name.startswith("TEXTUAL")] == ["TEXTUAL_FPS"]


@pytest.mark.parametrize(
    ("code", "result", "error", "expected"),
    [
        (0, None, None, 0), (0, 0, None, 0), (143, 143, None, 143), (None, None, None, 1),
        (1, None, ValueError(), 1), (0, 0, ValueError(), 1),
    ],
)  # fmt: skip
def test_an_app_that_an_error_ended_ends_with_1(
    monkeypatch: pytest.MonkeyPatch,
    code: int | None, result: int | None, error: Exception | None, expected: int,
) -> None:  # fmt: skip
    class Ran:
        return_code = code
        _exception = error

        def __init__(self, watchers: object) -> None:
            pass

        def run(self, mouse: bool) -> int | None:
            return result

    monkeypatch.setattr("console.frontends.tui.app.ConsoleApp", Ran)
    monkeypatch.setattr("console.render.cells.use_ascii", lambda on: None)
    monkeypatch.setattr("console.frontends.tui.terminal.driver.ConsoleDriver.ascii_only", False)
    assert _screens(None) == expected  # type: ignore[arg-type]


def test_a_dropped_frame_ends_before_the_terminal_is_given_back() -> None:
    """What comes after the modes would reach the shell."""
    pipe = Pipe()
    for _ in range(40):
        for data in ("\x1b[?2026h", "x" * 4006, "\x1b[?2026l"):
            pipe.writer.write(data)
    until(pipe.full, "the terminal takes nothing more", 10.0)
    pipe.writer.write("\x1b[?1049l")
    stopping = threading.Thread(target=pipe.writer.stop, args=(60.0,))
    stopping.start()
    got = bytearray()
    while stopping.is_alive():
        if select.select([pipe.read], [], [], 0.01)[0]:
            got += os.read(pipe.read, 65536)
    got += pipe.close()
    assert got.endswith(b"\x1b[?2026l\x1b[?1049l")


def test_nothing_enters_a_terminal_that_the_backstop_has_given_back() -> None:
    """A visit that ends after the time to end was over would leave the other screen behind."""
    made = ConsoleDriver.__new__(ConsoleDriver)
    made.attrs_before = None
    made._give_back()
    made.start_application_mode()
    assert made._out is None
    assert not made._started
