"""Bytes into lines: any cut of the stream gives the same lines."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.common.logs.line import HOLD_S, KEPT, Splitter
from console.common.text import LINE_LIMIT
from tests.ground.harmful import harmful

STAMP = b"2026-05-05T12:34:56.123456789Z "


def texts(*chunks: bytes) -> list[str]:
    splitter = Splitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk, 0.0)]
    return [line.text for line in found + splitter.cut()]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"\n\na", ["", "", "a"]),
        (b"10%\r50%\r100%\n", ["100%"]),
        (b"\r10%\r\r50%\nx\n", ["50%", "x"]),
        (b"10%\r50%\r\n", ["50%"]),
        (b"10%\r50%", ["50%"]),
        (b"10%\r\x1b[K50%\n", ["50%"]),
        (b"\xff\xfebad\ngood\n", ["\ufffd\ufffdbad", "good"]),
        (b"cut \xe6\xbc\nnext\n", ["cut \ufffd", "next"]),
        (STAMP + b"1\r2\r3\n", ["3"]),
        (b"", []),
    ],
)
def test_lines(data: bytes, lines: list[str]) -> None:
    assert texts(data) == lines
    assert texts(*(data[i : i + 1] for i in range(len(data)))) == lines


pieces = st.sampled_from(
    [b"a", b"\n", b"\r", b"\r\n", b" ", "é漢".encode(), b"\xff", STAMP, b"\n" + STAMP, b"\x1b[31m"]
)


@example(parts=[b"\r", STAMP, b"\r", STAMP], cuts=[2])
@example(parts=[b"a", b"\n", b"\r", STAMP], cuts=[3])
@given(st.lists(pieces, max_size=40), st.lists(st.integers(min_value=0, max_value=400)))
def test_where_the_stream_is_cut_makes_no_difference(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(at)]
    assert texts(*chunks) == texts(data)


@given(st.binary(max_size=500))
def test_any_bytes_become_harmless_lines(data: bytes) -> None:
    assert [c for text in texts(data) for c in harmful(text)] == []


def test_a_stamp_survives_a_progress_bar() -> None:
    splitter = Splitter()
    assert splitter.feed(STAMP[:10], 0.0) == []
    assert splitter.feed(STAMP[10:] + b"10%\r20%\r", 0.0) == []
    (line,) = splitter.feed(b"30%\n", 0.0)
    assert (line.text, line.stamp[5:]) == ("30%", ":56.123")
    (line,) = splitter.feed(STAMP + b"1%\r2%\n", 0.0)
    assert (line.text, line.stamp[5:]) == ("2%", ":56.123")


def test_an_endless_progress_bar_keeps_moving() -> None:
    """It is one line, and what it says last is what is shown."""
    splitter = Splitter()
    for step in range(20_000):
        assert splitter.feed(f"{step:6} of many\r".encode(), 0.0) == []
    (line,) = splitter.overdue(HOLD_S)
    assert (line.text, line.open) == (" 19999 of many", True)


def test_a_line_without_its_end_is_held_back_then_shown_then_replaced() -> None:
    splitter = Splitter()
    assert splitter.feed(b"prompt> ", 10.0) == []
    assert splitter.overdue(10.0 + HOLD_S / 2) == []
    (line,) = splitter.overdue(10.0 + HOLD_S)
    assert (line.text, line.open) == ("prompt> ", True)
    assert splitter.overdue(10.0 + 5 * HOLD_S) == []
    splitter.feed(b"yes", 16.0)
    (line,) = splitter.overdue(16.0 + 2 * HOLD_S)
    assert (line.text, line.open) == ("prompt> yes", True)
    (line,) = splitter.feed(b"!\n", 19.0)
    assert (line.text, line.open) == ("prompt> yes!", False)
    assert splitter.overdue(99.0) == []


def test_of_a_line_of_many_megabytes_little_is_kept_and_it_is_cut() -> None:
    splitter = Splitter()
    chunk = b"x" * 65536
    for _ in range(400):
        assert splitter.feed(chunk, 0.0) == []
    assert len(splitter._held) <= KEPT
    first, second = splitter.feed(b"\nnext\n", 0.0)
    assert len(first.text) == LINE_LIMIT
    assert first.text.endswith("…")
    assert second.text == "next"


def test_a_long_line_in_one_piece_is_cut_the_same_way() -> None:
    whole, bit = texts(b"y" * 1_000_000 + b"\nz"), texts(b"y" * 500_000, b"y" * 500_000, b"\nz")
    assert whole == bit
    assert [len(text) for text in whole] == [LINE_LIMIT, 1]
