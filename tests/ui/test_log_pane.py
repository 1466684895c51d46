"""The log pane under keys: it follows, stays put, moves, wraps, and nothing breaks it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from textual import timer
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Footer

from console.common.logs.line import LogLine, log_line
from console.common.logs.tail import Tail
from console.render.cells import use_ascii
from tests.common.harmful import harmful
from tests.logs.test_tail import HOSTILE
from tests.ui.opened import settled
from widgets.log_bars import Words
from widgets.log_pane import LogPane


class Bench(App[None]):
    """A pane and nothing else, with keys of its own that the pane must keep to itself."""

    BINDINGS = [Binding("n,N,e,f,g,G,w", "spoilt", "Spoilt"), Binding("escape", "back", "Back")]

    def __init__(self) -> None:
        super().__init__()
        self.pane = LogPane()
        self.spoilt = self.backs = 0

    def compose(self) -> ComposeResult:
        yield self.pane
        yield Footer()

    def on_mount(self) -> None:
        self.pane.attach("api", "no output yet")
        self.pane.focus()

    def action_spoilt(self) -> None:
        self.spoilt += 1

    def action_back(self) -> None:
        self.backs += 1


class Hand:
    def __init__(self, app: Bench, pilot: Pilot[None]) -> None:
        self.app = app
        self.pane = app.pane
        self.pilot = pilot

    async def press(self, *keys: str) -> None:
        """Keys, and what they set going is done: a search goes on in slices of time."""
        await self.pilot.press(*keys)
        if self.busy:
            await self.until(lambda: not self.busy)

    @property
    def busy(self) -> bool:
        return self.pane._timer is not None or self.pane._planned

    async def type(self, key: str, words: str) -> None:
        await self.pilot.press(key)
        self.app.query_one(Words).value = words
        await self.press("enter")

    async def until(self, true: Callable[[], object]) -> None:
        await settled(self.pilot, true)

    async def resize(self, width: int, height: int) -> None:
        await self.pilot.resize_terminal(width, height)
        await self.until(lambda: self.widths == {width})

    @property
    def widths(self) -> set[int]:
        return {strip.cell_length for strip in self.app.screen._compositor.render_strips()}

    async def take(self, *texts: str) -> None:
        self.pane.take([log_line(text) for text in texts])
        await self.until(lambda: not self.busy)

    def rows(self, first: int, last: int) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return [strip.text for strip in strips][first:last]

    @property
    def title(self) -> str:
        return self.rows(0, 1)[0].rstrip()

    @property
    def body(self) -> list[str]:
        return [row.rstrip() for row in self.rows(1, 1 + self.pane.view.size.height)]

    @property
    def shown(self) -> list[str]:
        """The body without gutter and blank rows."""
        return [row[2:] for row in self.body if row]


@asynccontextmanager
async def bench(
    width: int = 60, height: int = 12, *, paint_s: float = 0.0, notice_s: float = 3600.0
) -> AsyncIterator[Hand]:
    """A pane that paints at once and whose words in the title stay until they are read."""
    app = Bench()
    with (
        patch("widgets.log_pane.PAINT_S", paint_s), patch("widgets.log_pane._NOTICE_S", notice_s)
    ):  # fmt: skip
        async with app.run_test(size=(width, height)) as pilot:
            await pilot.pause()
            yield Hand(app, pilot)


def numbered(first: int, last: int) -> list[str]:
    return [f"line {number}" for number in range(first, last)]


async def test_a_machine_that_stands_still_for_a_moment_freezes_no_log() -> None:
    late = chain([0.0], repeat(10.0))  # after the first of a timer's looks at the clock
    clock = SimpleNamespace(get_time=lambda: time.monotonic() + next(late))
    async with bench() as hand:
        with patch.object(timer, "_time", clock):
            await hand.take("after the stall")
        assert hand.shown == ["after the stall"]


async def test_an_empty_log_a_line_that_goes_on_and_time_stamps() -> None:
    async with bench() as hand:
        assert hand.shown == ["no output yet"]
        assert hand.title == " api · FOLLOWING"
        hand.pane.take([LogLine("10%", open=True)])
        hand.pane.take([LogLine("20%", open=True)])
        await hand.take("2026-05-05T12:34:56.123456789Z 100%", "next")
        assert hand.shown == ["100%", "next"]
        await hand.press("t")
        assert hand.shown[0].endswith(":56.123 100%")


async def test_it_follows_then_stays_put_then_follows_again() -> None:
    async with bench() as hand:
        await hand.take(*numbered(0, 100))
        assert hand.shown == numbered(90, 100)
        await hand.press("k", "up")
        assert hand.shown == numbered(88, 98)
        await hand.take(*numbered(100, 123))
        assert hand.shown == numbered(88, 98)
        assert "PAUSED +23 new" in hand.title
        await hand.press("G")
        assert hand.shown == numbered(113, 123)
        assert "FOLLOWING" in hand.title
        await hand.press("f")
        await hand.take("more")
        assert hand.shown == numbered(113, 123)
        await hand.press("f")
        assert hand.shown[-1] == "more"
        assert hand.app.spoilt == 0


async def test_what_is_read_does_not_slide_while_old_lines_are_dropped() -> None:
    async with bench() as hand:
        for key in ("k", "pageup", "g", "ctrl+u", "f"):
            hand.pane.attach("api", "no output yet")
            hand.pane.buffer.max_lines = 500
            await hand.take(*numbered(0, 500))
            await hand.press(key)
            page = hand.shown
            await hand.take(*numbered(500, 1000))
            await hand.take(*numbered(1000, 1400))
            assert hand.shown == page, key
            assert "no longer kept" in hand.title
            assert len(hand.pane.buffer) == 500
            await hand.press("j")
            assert hand.shown != page
            assert "no longer kept" not in hand.title


async def test_moving_about() -> None:
    async with bench() as hand:
        await hand.take(*numbered(0, 100))
        await hand.press("g")
        assert hand.shown == numbered(0, 10)
        await hand.press("j", "down")
        assert hand.shown == numbered(2, 12)
        await hand.press("pagedown")
        assert hand.shown == numbered(11, 21)
        await hand.press("ctrl+d")
        assert hand.shown == numbered(16, 26)
        await hand.press("ctrl+u", "pageup")
        assert hand.shown == numbered(2, 12)
        await hand.press("pageup", "k")
        assert hand.shown == numbered(0, 10)
        await hand.press("home", *["pagedown"] * 15)
        assert hand.shown == numbered(90, 100)
        assert "PAUSED" in hand.title
        await hand.press("end")
        assert "FOLLOWING" in hand.title


async def test_to_the_side_and_wrapped() -> None:
    async with bench(width=40) as hand:
        line = "".join(f"<{number:03}>" for number in range(30))
        await hand.take(line)
        assert hand.shown == [line[:37] + "›"]
        await hand.press("right")
        assert hand.shown == [line[16:53] + "›"]
        await hand.press("left", "left")
        assert hand.shown == [line[:37] + "›"]
        await hand.press("w")
        assert hand.shown == [line[:38], line[38:76], line[76:114], line[114:]]
        await hand.press("right")
        assert hand.shown[0] == line[:38]
        await hand.take(*numbered(0, 8))
        assert hand.shown == [line[76:114], line[114:], *numbered(0, 8)]
        await hand.press("k")
        assert hand.shown[0] == line[38:76]
        await hand.press("g", "j")
        assert hand.shown[0] == line[38:76]


async def test_errors_have_a_sign_and_are_found() -> None:
    async with bench() as hand:
        lines = numbered(0, 100)
        lines[20], lines[60] = "ERROR twenty", "RuntimeError: sixty"
        await hand.take(*lines, "--- 3 lines dropped ---", "WARNING careful")
        assert [row[:1] for row in hand.body[-3:]] == [" ", "▸", "●"]
        await hand.press("E")
        assert "! RuntimeError: sixty" in hand.body
        assert "PAUSED" in hand.title
        await hand.press("E")
        assert "! ERROR twenty" in hand.body
        await hand.press("e")
        assert "! RuntimeError: sixty" in hand.body
        await hand.press("e")
        assert "! ERROR twenty" in hand.body
        assert "continued at the top" in hand.title
        assert hand.app.spoilt == 0


async def test_another_log_begins_anew_and_the_others_are_named() -> None:
    async with bench() as hand:
        hand.pane.name_others(["chat", "bench of a long name that never ends", "build"])
        assert "api  ] chat" in hand.title
        await hand.take("old")
        await hand.press("k")
        hand.pane.attach("chat\x1b[2J [/]", "nothing yet")
        await hand.pilot.pause()
        assert hand.shown == ["nothing yet"]
        assert hand.title == " chat [/] · FOLLOWING"
        await hand.take("new")
        assert hand.shown == ["new"]


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("width", [3, 20, 61])
async def test_hostile_and_wide_text_keeps_to_its_cells(
    tmp_path: Path, wrap: bool, width: int
) -> None:
    path = tmp_path / "x.log"
    wide = "漢字かな" * 40 + "\n🚀👩‍👩‍👧‍👦🇩🇪e\u0301\u0301x\ufe0f❤️" * 20 + "\nerror [/] [red]x\n"
    path.write_bytes(HOSTILE + wide.encode() + b"A" * 1_000_000 + b"\nthe end\n")
    async with bench(width=width, height=30) as hand:
        app = hand.app
        tail = Tail(path, lambda batch: bool(app.call_later(hand.pane.take, batch)) or True)
        tail.start()
        try:
            await hand.until(lambda: len(hand.pane.buffer) > HOSTILE.count(b"\n") + 3)
        finally:
            assert tail.close(30.0)
        keys = ["w"] if wrap else []
        for key in [*keys, "t", "g", "right", "right", "j", "pagedown", "left", "G", "e", "E", "k"]:
            await hand.press(key)
            assert hand.widths == {width}
            assert [c for row in hand.rows(0, 30) for c in harmful(row)] == []


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (60, 5), (200, 60)])
async def test_any_size(size: tuple[int, int]) -> None:
    async with bench(*size) as hand:
        await hand.take(*numbered(0, 100), "漢字" * 30)
        for key in ["k", "w", "g", "G", "t", "pageup", "e", "slash", "escape", "f"]:
            await hand.press(key)
        await hand.resize(80, 24)


async def test_plain_signs_where_there_is_no_unicode() -> None:
    use_ascii(True)
    try:
        async with bench() as hand:
            await hand.take("--- 3 lines dropped ---", "WARNING x", "漢")
            assert hand.body[:2] == ["> --- 3 lines dropped ---", "* WARNING x"]
            assert hand.title.isascii()
    finally:
        use_ascii(False)


async def test_a_flood_is_painted_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(paint_s=0.25) as hand:
        painted = 0
        repaint = hand.pane.view.repaint

        def count() -> None:
            nonlocal painted
            painted += 1
            repaint()

        monkeypatch.setattr(hand.pane.view, "repaint", count)
        for number in range(500):
            hand.pane.take([LogLine(f"line {number}")])
        assert painted == 0
        await hand.until(lambda: hand.shown[-1:] == ["line 499"])
        assert painted <= 2


# -- search and filter -------------------------------------------------------------------------


async def test_search_goes_round_and_keeps_its_words() -> None:
    async with bench() as hand:
        await hand.take(*numbered(0, 100))
        await hand.press("n")
        assert "no search: / first" in hand.title
        await hand.type("slash", "line .3$")
        assert hand.pane.view.here == 93
        assert "PAUSED" in hand.title
        await hand.press("N")
        assert hand.pane.view.here == 83
        await hand.press("n", "n")
        assert hand.pane.view.here == 13
        assert "continued at the top" in hand.title
        assert "line 13" in hand.shown
        await hand.press("slash")
        assert hand.app.query_one(Words).value == "line .3$"
        await hand.press("escape")
        assert hand.pane.has_focus
        assert hand.pane.view.here == 13
        assert hand.app.spoilt == hand.app.backs == 0


async def test_matches_are_marked_and_counted() -> None:
    async with bench() as hand:
        await hand.take("one needle, two needles", "none")
        await hand.type("slash", "needle")
        await hand.until(lambda: "/ needle: 1 match" in hand.title)
        strip = hand.pane.view._strips[0]
        marked = [s.text for s in strip if s.style is not None and s.style.reverse]
        assert marked == ["  ", "needle", "needle"]


async def test_filter_inverse_and_none_left() -> None:
    async with bench(width=100) as hand:
        await hand.take(*numbered(0, 50), "other")
        await hand.type("ampersand", "line 4")
        assert hand.shown == ["line 4", *numbered(40, 50)][1:]
        assert "& line 4: 11 of 51 lines" in hand.title
        await hand.take("line 4 again", "not this")
        assert hand.shown[-1] == "line 4 again"
        await hand.press("ampersand")
        assert hand.app.query_one(Words).value == ""
        await hand.press("up")
        assert hand.app.query_one(Words).value == "line 4"
        await hand.press("escape")
        await hand.type("ampersand", "!line")
        assert hand.shown == ["other", "not this"]
        await hand.type("ampersand", "nowhere")
        assert hand.shown == ["no line matches; Esc or & Enter shows all"]
        await hand.press("ampersand", "enter")
        assert hand.shown[-1] == "not this"
        await hand.type("ampersand", "nowhere")
        await hand.press("escape")
        assert hand.shown[-1] == "not this"
        assert hand.app.backs == 0
        await hand.press("escape")
        assert hand.app.backs == 1


async def test_a_pattern_that_never_ends_is_taken_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.common.logs.buffer.SLOW_CPU_S", 0.02)
    monkeypatch.setattr("widgets.log_view._MATCH_CPU_S", 0.02)
    async with bench(width=120, notice_s=0.0) as hand:
        await hand.take(*["a" * 60 + "b"] * 200)
        await hand.type("ampersand", "(a+)+$")
        await hand.until(lambda: "too slow as a pattern" in hand.title)
        await hand.type("slash", "(a|aa)+$")
        await hand.press("escape")
        await hand.type("slash", "(a|aa)+$")
        await hand.until(lambda: "/ (a|aa)+$ (too slow" in hand.title)


async def test_pasted_control_characters_are_not_kept() -> None:
    async with bench() as hand:
        await hand.press("slash")
        hand.app.query_one(Words).value = "a\x1b]52;c;eA==\x07b\u202e"
        assert hand.app.query_one(Words).value == "ab\ufffd"
