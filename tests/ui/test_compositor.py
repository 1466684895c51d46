"""Changed cells only: what is sent turns the old line into the new one, whatever its widths."""

from __future__ import annotations

import io

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.style import Style
from textual.strip import Strip

from screens.base import FineUpdate
from widgets.rows import Row, changed_cells, strip_of

WIDTH = 24
rows = st.lists(
    st.tuples(st.text("ab c漢字é·█", max_size=9), st.just("")), max_size=4
).map(tuple)  # fmt: skip
console = Console(file=io.StringIO(), width=WIDTH, color_system=None)


def drawn(row: Row) -> Strip:
    return strip_of(row, WIDTH, Style.null(), {})


def screen(*sent: str) -> list[str]:
    made = pyte.Screen(WIDTH, 2)
    stream = pyte.Stream(made)
    for data in sent:
        stream.feed(data)
    return [line.rstrip() for line in made.display]


def whole(row: Row) -> str:
    return "\x1b[1;1H" + drawn(row).render(console)


@given(rows, rows)
def test_a_partial_update_ends_where_a_whole_one_would(old: Row, new: Row) -> None:
    found = changed_cells(old, new)
    if found is None:
        assert screen(whole(old)) == screen(whole(new))
        return
    begin, end = found[0], min(found[1], WIDTH)
    if begin >= WIDTH:
        return
    update = FineUpdate([{0: drawn(new)}], [(0, begin, end)], [[WIDTH]])
    assert screen(whole(old), update.render_segments(console)) == screen(whole(new))


def test_several_chops_and_spans() -> None:
    left, right = drawn((("left part", ""),)).crop(0, 10), drawn((("right part", ""),)).crop(0, 14)
    chops = [{0: left, 10: right}]
    ends = [[10, WIDTH]]
    both = FineUpdate(chops, [(0, 8, 13)], ends).render_segments(console)
    assert screen("\x1b[1;1H" + "x" * WIDTH, both)[0] == "xxxxxxxxt rigxxxxxxxxxxx"
    one = FineUpdate(chops, [(0, 21, 24)], ends).render_segments(console)
    assert screen("\x1b[1;1H" + "x" * WIDTH, one)[0] == "x" * 21
    none = FineUpdate([{0: None, 10: right}], [(0, 0, 10)], ends).render_segments(console)
    assert none == ""
