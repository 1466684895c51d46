"""Widths, cells, signs and keys of what the widgets say, without an app."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len

from console.frontends.cli.console import markdown
from console.render.cells import ASCII, UNICODE
from console.render.keymap import ACTIONS
from screens.machine import answer_rows
from tests.ui import scene
from widgets.bars import emergency, status
from widgets.rows import changed_cells, fit, spread, width_of
from widgets.steps import step_row


def test_rows_fill_or_keep_to_their_width_exactly() -> None:
    for width in (20, 36, 60, 80, 120):
        for view in (scene.running(), scene.failed(), scene.ended()):
            assert {width_of(step_row(step, width, scene.NOW)) for step in view.steps} == {width}
        row = status(scene.approval(), "waiting_approval", "gate", scene.NOW, width)
        assert width_of(row) == width
    assert width_of(emergency(True, "", 74.0, False, 50)) <= 50
    for width in (30, 60, 79):
        lines = (
            "NO-GO  x: " + "word " * 14,
            "  weights   2.0 GiB   layers 43 to 57",
            "note: " + "y" * 70,
        )
        assert all(width_of(row) <= width for row in answer_rows(lines, width))
    assert answer_rows(lines, 79)[0][0][1] == "bad"


def test_parts_are_cut_by_cells_not_characters() -> None:
    row = (("漢字漢字", "bold"), ("tail", ""))
    for width in range(1, 14):
        assert width_of(fit(row, width)) <= width
    assert width_of(spread(row, (("7s", "dim"),), 10)) == 10


def test_only_changed_cells_count() -> None:
    assert changed_cells((("abc", ""),), (("abc", ""),)) is None
    assert changed_cells((("abc", ""),), (("abd", ""),)) == (2, 3)
    assert changed_cells((("abc", ""),), (("a", ""), ("bc", "bold"))) == (1, 3)
    assert changed_cells((("漢b", ""),), (("漢c", ""),)) == (2, 3)


def test_every_sign_is_one_cell_and_ascii_where_it_has_to_be() -> None:
    for signs in (UNICODE, ASCII):
        for name in UNICODE.__slots__:
            value = getattr(signs, name)
            assert all(cell_len(char) == 1 for char in value)
            assert signs is UNICODE or value.isascii()


def test_the_key_table_is_the_registry() -> None:
    kept = (Path(__file__).parents[2] / "docs/reference/keys.md").read_text("utf-8")
    assert kept == markdown(), "omni-console keys > docs/reference/keys.md"


def test_no_key_is_taken_twice_in_a_scope() -> None:
    for scope in {action.scope for action in ACTIONS}:
        keys = [key for action in ACTIONS if action.scope == scope for key in action.keys]
        assert len(keys) == len(set(keys)), scope


def test_what_stops_something_is_marked() -> None:
    assert {action.id for action in ACTIONS if action.dangerous} == {"emergency", "abort"}
    assert all(action.changes for action in ACTIONS if action.dangerous)
