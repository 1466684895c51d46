"""The panel Now shows what candidate and baseline answered, a row each, however narrow it is."""

from pathlib import Path

import pytest

from console.frontends.cli import show
from console.frontends.tui.watch.actions import question_lines
from console.frontends.tui.watch.run import Snapshot
from console.journal.guard_status import NOBODY
from console.journal.run_dir import RunDir
from console.journal.run_view import GateDoubt, GateVerdict, RunView, StepMeasurement, StepView
from console.journal.state import StepState
from console.render.facts.gate import gates
from console.render.measuring import answer_lines, judged_answers
from widgets.detail import answer_rows, detail_rows, summary_rows
from widgets.rows import width_of

SAID = [{"metric": "bench.tok_s", "verdict": "HOLD", "why": "too few"}]


def answered(*rows: dict[str, str]) -> StepMeasurement:
    return StepMeasurement(benchmark={"answers": list(rows)})


JUDGED = RunView(
    measured={
        "bench": answered({"prompt": "?", "answer": "GGG", "garbled": "one letter"}),
        "bench.baseline": answered({"prompt": "?", "answer": "Paris.", "garbled": ""}),
    },
    metrics={"bench": {}, "bench.baseline": {}},
    verdicts=[GateVerdict(step="go", verdict="HOLD", criteria=SAID)],
    steps=[StepView("go", "Gate", "Trial", "gate", state=StepState.RUNNING)],
)


@pytest.mark.parametrize("width", [38, 78, 150])
def test_both_answers_stand_below_each_other_and_a_garbled_one_is_marked(width: int) -> None:
    sane = {"prompt": "Capital?", "answer": "The capital of France is Paris. " * 9, "garbled": ""}
    bad = {"prompt": "Capital?", "answer": "", "garbled": "nothing but white space: “\\n\\n…”"}
    view = RunView(measured={"bench": answered(bad), "bench.baseline": answered(sane)})
    rows = answer_rows(view, "bench", width)
    assert [row[0][0].strip() for row in rows] == ["candidate said", "baseline said"]
    assert [row[1][1] for row in rows] == ["bad", ""]
    assert rows[0][1][0].startswith("GARBLED, nothing")
    assert all(width_of(row) <= width for row in rows)


def test_who_overrides_a_gate_reads_both_answers() -> None:
    """The dialogue has the answers of the measurements that the gate has judged, in one form with
    `show` and what follows a run."""
    lines = question_lines(Snapshot(view=JUDGED))
    assert lines[1:] == ["HOLD: too few", *answer_lines(JUDGED, "bench")]
    assert lines[2].split() == ["candidate", "said", "GARBLED,", "one", "letter"]
    assert lines[3].split() == ["baseline", "said", "Paris."]
    assert judged_answers(JUDGED, gates(JUDGED)[0]) == lines[2:]


@pytest.mark.parametrize("scope", ["bench.baseline", "bench.baseline-after"])
def test_the_baselines_own_answers_are_its_own(scope: str) -> None:
    rows = [{"prompt": "?", "answer": "Paris.", "garbled": ""}]
    view = RunView(measured={scope: StepMeasurement(benchmark={"answers": rows})})
    assert answer_lines(view, scope) == ["baseline said    Paris."]


@pytest.mark.parametrize("kind", ["benchmark", "soak"])
def test_a_step_that_asks_the_baseline_names_it(kind: str) -> None:
    record = {"service": "baseline", "answers": [{"prompt": "?", "answer": "Paris."}]}
    for said, service in (("baseline said    ", "baseline"), ("candidate said   ", "box")):
        known = StepMeasurement(**{kind: {**record, "service": service}})
        assert answer_lines(RunView(measured={"b": known}), "b") == [f"{said}Paris."]


def test_what_makes_a_gate_doubtful_stands_before_its_word() -> None:
    words = "bench.tok_s may have moved as the baseline did, by -54.9 % (99.6 before, 44.9 after)"
    doubt = GateDoubt(gate="go", verdict="NO-GO", words=words)
    step = StepView("go", "Gate", "Trial", "gate", state=StepState.SUCCEEDED)
    view = RunView(
        verdicts=[GateVerdict(step="go", verdict="GO", criteria=SAID)], doubts=[doubt], steps=[step]
    )
    for rows in (summary_rows(view, 76, 0.0), detail_rows(view, step, [], 76, 0.0, 9)):
        lines = ["".join(text for text, _ in row) for row in rows]
        at = next(number for number, line in enumerate(lines) if line.startswith("GATE"))
        before = [number for number, line in enumerate(lines) if line.startswith("DOUBTFUL: gate")]
        assert before
        assert before[0] < at


def test_show_prints_both_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show._print(RunDir(tmp_path), JUDGED, "paused", NOBODY)
    out = capsys.readouterr().out
    assert all(line in out for line in answer_lines(JUDGED, "bench"))
