"""A tuning step in the report: what it says of its winner, and what it makes of odd records."""

import re
from typing import Any

import pytest

from console.common import redact
from console.journal.run_view import RunView, StepMeasurement
from console.render.report.next_steps import next_steps
from console.render.report.tune import tune_chart, tune_lines
from tests.common.harmful import harmful

GIB = 1 << 30


def row(changes: str, score: float | None, **more: Any) -> dict[str, Any]:
    fate = "measured" if score else "card"
    return {"changes": changes, "score": score, "fate": fate, "decode": score, **more}


def view_of(*rows: Any, **more: Any) -> RunView:
    tuning = {
        "of": "baseline",
        "prefer": "decode",
        "size": 9,
        "why": "the end",
        "points": list(rows),
    }
    return RunView(measured={"tune": StepMeasurement(tune={**tuning, **more})})


ROWS = (
    row(
        "-ngl 20",
        12.0,
        vram=30 * GIB,
        best=True,
        front=True,
        starts=4,
        gain={"mean": 0.2, "low": 0.15, "high": 0.25, "rounds": 3},
    ),
    row("as it is", 10.0, vram=20 * GIB, today=True, front=True),
    row("-ngl 40", None, why="CUDA error: out of memory"),
)


def said(view: RunView) -> str:
    return "\n".join(tune_lines(view, "tune"))


def test_the_winner_its_gain_and_its_command_line_come_first() -> None:
    text = said(view_of(*ROWS, argv=["llama-server", "-ngl", "20", "-ot", "exps=CPU|x"]))
    first = text.split("\n")[2]
    assert "`-ngl 20`" in first
    assert "+20.0 % (+15.0 % to +25.0 %) against today" in first
    assert "    llama-server -ngl 20 -ot 'exps=CPU|x'" in text
    assert "out of a card's memory" in text


def test_a_long_command_line_can_be_pasted_whole_and_a_hidden_secret_is_said() -> None:
    argv = ["llama-server", "-ot", "x" * 5000, "--api-key", redact.HIDDEN, "-t", "8"]
    text = said(view_of(*ROWS, argv=argv))
    assert "x" * 5000 in text
    assert "-t 8" in text
    assert f"shown as {redact.HIDDEN}" in text


def test_why_a_point_failed_when_it_was_started_again_is_said() -> None:
    text = said(view_of(*ROWS, row("-t 16", 13.0, why="exit code 9")))
    assert "| `-t 16` | failed when it was started again | exit code 9 |" in text


def test_todays_flags_that_failed_again_have_not_won() -> None:
    text = said(view_of(row("as it is", 10.0, today=True, best=True, why="exit code 9")))
    assert "as they are win" not in text
    assert "Nothing is decided" in text


def test_todays_flags_may_win() -> None:
    view = view_of(row("as it is", 10.0, today=True, best=True))
    assert "The flags as they are win" in said(view)
    assert tune_chart(view, "tune") is None


def test_the_picture_marks_today_and_the_best() -> None:
    chart = tune_chart(view_of(*ROWS), "tune")
    assert chart is not None
    assert "best: 12 tok/s" in chart.svg
    assert "today: 10 tok/s" in chart.svg
    assert "GPU memory, GiB" in chart.svg


def test_foreign_text_is_harmless() -> None:
    hostile = "\x1b]0;x\x07\u202e<script>alert(1)</script> | ` ![](http://x) *b*"
    view = view_of(
        row(hostile, 3.0, why=hostile, best=True), row("x", None, why=hostile),
        of=hostile, why=hostile, argv=[hostile], early=hostile, file=hostile,
    )  # fmt: skip
    text = said(view) + "".join(next_steps(view))
    assert harmful(text.replace("\n", "")) == []
    prose = "\n".join(line for line in text.split("\n") if not line.startswith("    "))
    assert not re.search(r"(?<!\\)<script", re.sub(r"(?<!\\)`[^`\n]*`", "", prose))


@pytest.mark.parametrize(
    "points", [None, 3, ["x", 4, {}], [{"fate": "measured", "changes": 3, "score": "fast"}]]
)
def test_an_odd_record_is_no_traceback(points: Any) -> None:
    tune = {"points": points, "argv": 3, "early": 4}
    view = RunView(measured={"tune": StepMeasurement(tune=tune)})
    assert said(view).startswith("## Flags of")
    assert tune_chart(view, "tune") is None
