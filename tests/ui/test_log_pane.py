"""The log pane under keys: it follows, stays put, moves, wraps, and nothing breaks it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from console.log.line import LogLine
from console.log.tail import Tail
from tests.ground.harmful import harmful
from tests.log.test_tail import HOSTILE
from tests.ui.log_bench import bench, numbered
from widgets.glyph import use_ascii


async def test_an_empty_log_says_so() -> None:
    async with bench() as hand:
        assert hand.shown == ["no output yet"]
        assert hand.title == " api · FOLLOWING"


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
            hand.pane.buffer.most_lines = 500
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


async def test_time_stamps() -> None:
    async with bench() as hand:
        await hand.take("2026-05-05T12:34:56.123456789Z hello")
        assert hand.shown == ["hello"]
        await hand.press("t")
        assert hand.shown[0].endswith(":56.123 hello")


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
        assert "went round to the top" in hand.title
        assert hand.app.spoilt == 0


async def test_other_logs_are_asked_for() -> None:
    async with bench() as hand:
        await hand.press("right_square_bracket", "left_square_bracket")
        assert hand.app.steps == [1, -1]
        await hand.take("old")
        await hand.press("k")
        hand.pane.attach("chat\x1b[2J [/]", "nothing yet")
        await hand.pilot.pause()
        assert hand.shown == ["nothing yet"]
        assert hand.title == " chat [/] · FOLLOWING"
        await hand.take("new")
        assert hand.shown == ["new"]


async def test_the_footer_shows_the_keys_of_the_pane() -> None:
    async with bench(width=120) as hand:
        footer = hand.rows(11, 12)[0]
        assert "/ Search" in footer
        assert "& Filter" in footer


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


async def test_a_line_that_goes_on_is_replaced() -> None:
    async with bench() as hand:
        hand.pane.take([LogLine("10%", open=True)])
        hand.pane.take([LogLine("20%", open=True)])
        await hand.take("100%", "next")
        assert hand.shown == ["100%", "next"]


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


async def test_lines_may_come_from_a_callback_of_another_thread() -> None:
    async with bench() as hand:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=lambda: loop.call_soon_threadsafe(hand.pane.take, [LogLine("from afar")])
        )
        thread.start()
        await hand.until(lambda: hand.shown == ["from afar"])
        thread.join()
