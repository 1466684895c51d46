"""The report: read alone it lets another engineer decide, whatever text the journal holds."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.render.report.compare import compare
from console.render.report.document import (
    Evidence,
    as_json,
    evidence,
    markdown,
    write_copy,
    write_report,
)
from console.render.report.guard import guard_chart, guard_lines
from tests.run.unit import reported
from tests.run.unit.breaches import BREACHES, breached
from tests.run.unit.hostile import BAD, check_harmless, tables, view
from tests.run.unit.stories import STORIES


def test_hostile_text_neither_acts_on_a_terminal_nor_breaks_a_table() -> None:
    text = markdown(view(BAD))
    check_harmless(text)
    assert "\n## Injected" not in text
    assert "\n| a | b |" not in text
    assert len(tables(text)) == len(tables(markdown(view())))
    assert text.count("\n## ") == markdown(view()).count("\n## ")


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#<*](")), max_size=40))
def test_any_text_keeps_the_report_in_shape(text: str) -> None:
    check_harmless(markdown(view(text)))


def test_no_key_is_in_it() -> None:
    made = reported.no_go()
    assert "sk-123456" in json.dumps(made.header)
    for text in (markdown(made), json.dumps(as_json(made))):
        assert "sk-123456" not in text
        assert "--api-key ***** --n-gpu-layers 999" in text


def test_a_go_before_all_gates_were_asked_is_none() -> None:
    """Whoever reads only the decision must not take it for a GO."""
    made = STORIES["go_with_a_gate_that_was_not_reached"]()
    assert [one.verdict for one in made.verdicts] == ["GO", "GO"]
    assert as_json(made)["decision"] is None
    assert as_json(STORIES["go"]())["decision"] == "go"


def test_a_rehearsal_is_marked_before_its_decision() -> None:
    real, made = STORIES["go"](), STORIES["a_rehearsal_with_a_fault"]()
    assert (real.mark, real.rehearsal, as_json(real)["rehearsal"]) == ("", {}, False)
    assert "REHEARSAL" not in markdown(real)
    found = as_json(made)
    assert (made.mark, found["rehearsal"], found["fault"]) == ("REHEARSAL", True, "slow")
    text = markdown(made)
    assert text.index("fault `slow`") < text.index("NO-GO")
    [attempt] = compare([(made, "succeeded")]).attempts
    assert attempt.decision.startswith("REHEARSAL NO-GO")


def test_a_figure_that_is_no_number_is_printed() -> None:
    for value in (math.nan, math.inf, -math.inf):
        assert "| `tok_s` | unknown |" in markdown(view(value=value, mean=value, std=value))


def test_the_same_number_is_printed_the_same_way_everywhere() -> None:
    """A gate's words and the tables: rounded alike, or a reader sees two numbers."""
    from console.config.playbook.threshold import parse_threshold
    from console.config.playbook.verdict import Criterion, Evidence, judge
    from console.render.report.markdown import figure

    for value, unit, go in (
        (10.7512, "tok/s", ">= 20 tok/s"), (0.81234, "s", "< 2s"), (1.9134, "s", "< 900 ms"),
        (116.94e9, "B", "<= 117GB"), (4.2 * 2**30, "B", "< 20GiB"), (0.00877, "ratio", "< 1 %"),
        (1997.31, "tok/s", "> 1 tok/s"), (3.0, "count", "== 0"),
    ):  # fmt: skip
        found = judge(Criterion("a.b", parse_threshold(go)), Evidence(value, unit, 9))
        assert f"a.b {figure(value, unit, go)}" in found.why


def test_the_exit_code_is_in_the_json() -> None:
    for state, code in (
        ("succeeded", 3), ("failed", 5), ("cancelled", 5), ("rolled_back", 6),
        ("rollback_failed", 7), ("paused", None), ("rolling_back", None),
    ):  # fmt: skip
        found = as_json(view(state=state))
        assert (found["state"], found["decision"], found["exit_code"]) == (state, "no_go", code)


def test_both_files_are_written_and_replaced_whole(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert write_report(run, RunView()) == run.report
    copy = tmp_path / "docs" / "deep" / "evaluation.md"
    assert write_report(run, view(BAD), copy) == copy
    assert copy.read_text("utf-8") == run.report.read_text("utf-8")
    assert json.loads(run.report_json.read_text("utf-8"))["verdicts"][0]["overridden"] == BAD
    assert run.report_json.read_text("utf-8").isascii()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["docs", "report.json", "report.md"]


def test_what_is_no_ordinary_file_is_not_replaced(tmp_path: Path) -> None:
    """`--to /dev/null` has made a file of the node."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(OSError, match="not an ordinary file"):
        write_copy(RunView(), Evidence(), fifo)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_charts_lie_beside_the_report_and_beside_its_copy(tmp_path: Path) -> None:
    made = reported.soaked()
    run = reported.run_dir(tmp_path / "run", made)
    copy = tmp_path / "docs" / "phase 2 (b).md"
    write_report(run, made, copy)
    names = ["memory.svg", "samples-bench.svg", "soak-memory-soak.svg", "soak-soak.svg"]
    assert sorted(p.name for p in (run.path / "report").iterdir()) == names
    assert sorted(p.name for p in (copy.parent / "phase 2 (b)").iterdir()) == names
    links = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", copy.read_text("utf-8"))
    assert links == [f"phase%202%20%28b%29/{name}" for name in (
        "samples-bench.svg", "soak-soak.svg", "soak-memory-soak.svg", "memory.svg")]  # fmt: skip
    write_copy(made, evidence(run, made), tmp_path / "bare")
    assert (tmp_path / "bare-charts" / "memory.svg").exists()


def test_every_chart_of_a_guard_is_well_formed() -> None:
    for made in BREACHES.values():
        if (chart := guard_chart(made)) is not None:
            ElementTree.fromstring(chart.svg)
            assert "](report/guard.svg)" in markdown(made, Evidence(charts=[chart]), "report")


def test_what_is_no_curve_and_no_limit_is_left_out() -> None:
    for window in (None, {}, {"fast": []}, {"fast": [["x"]]}):
        made = breached(window=window)
        assert guard_chart(made) is None
        assert "## Guard" in "\n".join(guard_lines(made, {}))
    for limit in (None, {}, {"metric": "x"}, [], {"metric": "host.pressure"}):
        assert "the limit:" not in "\n".join(guard_lines(breached(limit=limit), {}))


def test_a_program_reads_all_of_a_breach() -> None:
    (one,) = as_json(breached())["guards"]
    assert (one["kind"], one["cause"], one["killed"][0]["empty_s"]) == ("breach", "guard", 0.22)
