"""What the widgets say, without an app."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from rich.cells import cell_len

from console.run.state import RunState
from tests.ui import scene
from widgets.badge import badge, emergency
from widgets.glyph import ASCII, UNICODE, use_ascii
from widgets.options import key_row, option_rows, verbs_now
from widgets.rows import Row, changed_cells, fit, spread, width_of
from widgets.status_line import status
from widgets.step_text import detail_rows, list_rows, short, step_row


def text(rows: list[Row] | Row) -> str:
    many = rows if rows and isinstance(rows[0], tuple) and isinstance(rows[0][0], tuple) else [rows]
    return "\n".join("".join(part for part, _ in row) for row in many)  # type: ignore[misc]


@pytest.mark.parametrize("width", [20, 36, 60, 120])
def test_rows_of_steps_fill_their_width_exactly(width: int) -> None:
    for view in (scene.running(), scene.failed(), scene.ended()):
        for step in view.steps:
            assert width_of(step_row(step, width, scene.NOW)) == width


def test_a_list_has_headings_and_knows_which_row_is_which_step() -> None:
    view = scene.running()
    rows, index = list_rows(view, 40, scene.NOW)
    assert len(rows) == len(index) == len(view.steps) + 4
    assert [i for i in index if i >= 0] == list(range(len(view.steps)))
    assert text(rows[0]) == "Host"
    bench = rows[index.index(6)]
    assert "bench" in text(bench)
    assert "4:05/10:00" in text(bench)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.04, "0.0s"), (99.9, "99.9s"), (100, "1:40"), (4000, "1h06")]
)
def test_durations_are_short(seconds: float, words: str) -> None:
    assert short(seconds) == words


def test_a_failure_says_what_why_and_what_can_be_done() -> None:
    view = scene.failed()
    can = option_rows(view, "paused", "", 60)
    found = text(detail_rows(view, view.steps[5], can, 60))
    assert "failed (not ready)" in found
    assert "container exited (1)" in found
    assert "unknown model architecture: 'deepseek3_2'" in found.replace("\n| ", " ")
    for key in (" r ", " s ", " x ", " F12 "):
        assert key in found


def test_an_approval_shows_its_question_and_keys() -> None:
    view = scene.approval()
    can = option_rows(view, "waiting_approval", "SWITCH", 60)
    found = text(detail_rows(view, view.steps[8], can, 60))
    assert "waits for an answer" in found
    assert "Do the three answers" in found
    assert "approve by typing SWITCH" in found
    assert " N " in found


def test_what_can_be_done_follows_the_state() -> None:
    assert verbs_now(scene.failed(), "paused") == ["retry", "skip", "abort"]
    assert verbs_now(scene.running(), "running") == ["auto", "pause", "abort"]
    assert verbs_now(scene.ended(), "rolled_back") == []
    assert verbs_now(scene.running(), "interrupted") == ["resume"]
    held = scene.view(8, state=RunState.PAUSED, reason="hold")
    assert verbs_now(held, "paused") == ["approve", "retry", "abort"]
    assert "override the gate" in text(option_rows(held, "paused", "", 80))


def test_a_gate_shows_each_criterion() -> None:
    view = scene.approval()
    found = text(detail_rows(view, view.steps[7], [], 60))
    assert "GATE GO" in found
    assert "21.3 tok/s (n 9), go >= 20 tok/s" in found


@pytest.mark.parametrize("word", ["serving", "loading", "stopped", "unhealthy", "degraded"])
def test_the_badge_says_the_state_in_a_word(word: str) -> None:
    found = text(badge(scene.baseline(word, detail="connection refused"), scene.NOW, 80))
    assert word.upper() in found
    assert "deepseek-r1" in found
    assert ("connection refused" in found) == (word not in ("serving", "degraded"))


def test_the_badge_has_rate_and_proof() -> None:
    view = scene.baseline()
    when = time.strftime("%H:%M:%S", time.localtime(view.proven_at))
    found = text(badge(view, scene.NOW, 80))
    assert "10.9 tok/s" in found
    assert f"proven {when}" in found
    slow = replace(view, word="degraded", tok_s=3.68)
    assert "3.68 of 10.9 tok/s" in text(badge(slow, scene.NOW, 80))
    assert "not proven yet" in text(badge(replace(view, proven_at=None), scene.NOW, 80))
    assert "no baseline known" in text(badge(replace(view, word="none"), scene.NOW, 80))


def test_the_emergency_line_says_how_long_a_restore_takes() -> None:
    assert "back in 1 min 14 s" in text(emergency(True, "", 74.0, False))
    assert "not measured yet" in text(emergency(True, "", None, False))
    assert "ROLLING BACK" in text(emergency(True, "rolling back", 74.0, False))
    assert "RESTORING" in text(emergency(True, "restoring", 74.0, False))
    assert "READ-ONLY" in text(emergency(True, "", 74.0, True))
    narrow = text(emergency(True, "", 74.0, False, 50))
    assert len(narrow) <= 50
    assert "back in 1 min 14 s" in narrow


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_status_fits_and_has_state_decision_and_outage(width: int) -> None:
    row = status(scene.approval(), "waiting_approval", "gate", scene.NOW, width)
    assert width_of(row) == width
    assert "WAITING APPROVAL" in text(row)
    assert "BASELINE DOWN" in text(row)
    over = text(status(scene.ended(), "rolled_back", "", scene.NOW, 80))
    assert "ROLLED BACK" in over
    assert "decision NO-GO retain" in over


def test_a_rehearsal_says_so_first_at_any_width() -> None:
    view = scene.approval()
    assert "REHEARSAL" not in text(status(view, "running", "", scene.NOW, 120))
    view.header["rehearsal"] = {"fault": "", "notes": []}
    for width in (40, 120):
        assert text(status(view, "running", "", scene.NOW, width)).startswith("REHEARSAL RUNNING")


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


@pytest.mark.parametrize("signs", [UNICODE, ASCII])
def test_every_sign_is_one_cell(signs: object) -> None:
    for name in UNICODE.__slots__:
        value = getattr(signs, name)
        assert all(cell_len(char) == 1 for char in value)
        assert signs is UNICODE or value.isascii()


def test_ascii_rows_are_ascii() -> None:
    use_ascii(True)
    try:
        view = scene.running()
        rows, _ = list_rows(view, 40, scene.NOW)
        found = text(rows) + text(status(view, "running", "gate", scene.NOW, 40))
        assert found.isascii()
    finally:
        use_ascii(False)


def test_keys_that_do_not_fit_are_left_out_from_the_end() -> None:
    from console.actions import EMERGENCY, action

    row = key_row([EMERGENCY, action("next"), action("auto")], 24)
    assert "ROLL BACK" in text(row)
    assert "Auto" not in text(row)
