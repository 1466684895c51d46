"""Widths, cells and signs of what the widgets say, without an app."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from console.rollback.report import Result
from console.run.state import RunState
from screens.preflight import answer_rows
from screens.rollback import by_hand
from tests.ui import scene
from tests.ui.test_words import HELD, drawn
from widgets.badge import badge, emergency
from widgets.glyph import ASCII, UNICODE, use_ascii
from widgets.options import verbs_now
from widgets.rows import changed_cells, fit, spread, width_of
from widgets.status_line import status
from widgets.step_text import detail_rows, list_rows, step_row


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


def test_what_can_be_done_follows_the_state() -> None:
    assert verbs_now(scene.failed(), "paused") == ["retry", "skip", "abort"]
    assert verbs_now(scene.running(), "running") == ["auto", "pause", "abort"]
    assert verbs_now(scene.ended(), "rolled_back") == []
    assert verbs_now(scene.running(), "interrupted") == ["resume"]
    assert verbs_now(HELD, "paused") == ["approve", "retry", "abort"]


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
    use_ascii(True)
    try:
        view = scene.running()
        rows = [*list_rows(view, 40, scene.NOW)[0], status(view, "running", "gate", scene.NOW, 40)]
        assert drawn([*rows, badge(scene.baseline(), scene.NOW, 80)]).isascii()
    finally:
        use_ascii(False)


def test_commands_to_type_by_hand_are_whole() -> None:
    command = "docker run " + " ".join(f"--option-{n}=value" for n in range(60))
    rows = by_hand(Result(False, manual=(command,)), 70)
    words = " ".join("".join(part for part, _ in row) for row in rows).split()
    assert words[2:] == command.split()


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED])
def test_foreign_text_of_a_step_is_text(state: RunState) -> None:
    made = scene.failed()
    made.state = state
    made.steps[5].lessons = ["F-024 x\x1b[2J\u202e – y"]
    rows = detail_rows(made, made.steps[5], [], 60)
    assert all(part.isprintable() for row in rows for part, _ in row)
