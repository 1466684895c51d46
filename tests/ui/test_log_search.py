"""Search and filter in the log pane, by keys."""

from __future__ import annotations

import pytest

from tests.ui.log_bench import bench, numbered
from widgets.log_prompt import Words


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
        assert "went round to the top" in hand.title
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


async def test_search_is_text_where_it_is_no_pattern_and_heeds_capitals() -> None:
    async with bench(width=80) as hand:
        await hand.take("a(b", "Error", "error")
        await hand.type("slash", "a(B")
        assert "0 matches" in hand.title or "no match" in hand.title
        await hand.type("slash", "a(b")
        assert hand.pane.view.here == 0
        await hand.type("slash", "error")
        assert len(hand.pane.buffer.searched.all) == 2  # type: ignore[union-attr]
        await hand.type("slash", "Error")
        assert len(hand.pane.buffer.searched.all) == 1  # type: ignore[union-attr]


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


async def test_search_in_what_the_filter_shows() -> None:
    async with bench() as hand:
        await hand.take(*[f"{kind} {number}" for number in range(50) for kind in ("a", "b")])
        await hand.type("slash", "7$")
        await hand.type("ampersand", "^b")
        await hand.until(lambda: len(hand.pane.buffer.searched.all) == 5)  # type: ignore[union-attr]
        await hand.press("N")
        assert hand.pane.buffer.line(hand.pane.view.here or 0).text == "b 37"


async def test_a_pattern_that_never_ends_is_taken_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.log.sieve.SLOW_CPU_S", 0.02)
    monkeypatch.setattr("widgets.log_view._MATCH_CPU_S", 0.02)
    async with bench(width=120, notice_s=0.0) as hand:
        await hand.take(*["a" * 60 + "b"] * 200)
        await hand.type("ampersand", "(a+)+$")
        await hand.until(lambda: "too slow as a pattern" in hand.title)
        await hand.type("slash", "(a|aa)+$")
        await hand.press("escape")
        await hand.type("slash", "(a|aa)+$")
        await hand.until(lambda: "/ (a|aa)+$ (too slow" in hand.title)


async def test_typing_does_nothing_but_type() -> None:
    async with bench() as hand:
        await hand.take(*numbered(0, 50))
        await hand.press("slash", *"nNefgGw", "end", "ctrl+d", "left")
        assert hand.app.query_one(Words).value == "nNefgGw"
        assert hand.app.spoilt == 0
        assert hand.shown[-1] == "line 49"
        await hand.press("escape")
        assert hand.app.backs == 0


async def test_pasted_control_characters_are_not_kept() -> None:
    async with bench() as hand:
        await hand.press("slash")
        hand.app.query_one(Words).value = "a\x1b]52;c;eA==\x07b\u202e"
        assert hand.app.query_one(Words).value == "ab\ufffd"
