"""The report: read alone it lets another engineer decide, whatever text the journal holds; its
charts draw nothing that was not measured. Its words are in test_words."""

import json
import math
import os
import re
import stat
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.cli import main
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.samples import gauges, soak_series
from console.render.report import compare as comparison
from console.render.report.charts import thinned, unbroken
from console.render.report.document import (
    Evidence,
    as_json,
    evidence,
    markdown,
    write_copy,
    write_report,
)
from console.render.report.guard import guard_chart, guard_lines
from console.render.report.soak import soak_lines, soak_of
from console.render.report.svg import Panel, Svg, seconds_ticks, spread_out, ticks
from tests.common.harmful import harmful
from tests.runner.unit import reported
from tests.runner.unit.journals import BAD, BREACHES, breached, check_harmless, tables, view
from tests.runner.unit.stories import STORIES, attempts


def test_hostile_text_neither_acts_on_a_terminal_nor_breaks_a_table() -> None:
    text = markdown(view(BAD))
    check_harmless(text)
    assert "\n## Injected" not in text
    assert "\n| a | b |" not in text
    assert len(tables(text)) == len(tables(markdown(view())))
    assert text.count("\n## ") == markdown(view()).count("\n## ")


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#<*](")), max_size=40))
@example(BAD)
def test_any_text_keeps_report_and_table_in_shape(text: str) -> None:
    check_harmless(markdown(view(text)))
    made = comparison.compare([(view(text), text), (view("ok"), "failed"), (RunView(), "pending")])
    check_harmless(comparison.markdown(made))
    assert len(tables(comparison.markdown(made))) == 1
    shown = comparison.lines(made, 80)
    assert [bad for line in shown for bad in harmful(line)] == []
    assert all(len(line) <= 80 for line in shown)


def test_no_key_is_in_it() -> None:
    made = reported.no_go()
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
    assert as_json(STORIES["go"]())["rehearsal"] is False
    made = STORIES["a_rehearsal_with_a_fault"]()
    found, text = as_json(made), markdown(made)
    assert (found["rehearsal"], found["fault"]) == (True, "slow")
    assert text.index("fault `slow`") < text.index("NO-GO")
    [attempt] = comparison.compare([(made, "succeeded")]).attempts
    assert attempt.decision.startswith("REHEARSAL NO-GO")


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
    for window in ({}, {"fast": []}, {"fast": [["x"]]}):
        made = breached(window=window)
        assert guard_chart(made) is None
        assert "## Guard" in "\n".join(guard_lines(made, {}))
    for limit in ({}, {"metric": "x"}, {"metric": "host.pressure"}):
        assert "the limit:" not in "\n".join(guard_lines(breached(limit=limit), {}))


def test_a_program_reads_all_of_a_breach() -> None:
    (one,) = as_json(breached())["guards"]
    assert (one["kind"], one["cause"], one["killed"][0]["empty_s"]) == ("breach", "guard", 0.22)


def test_several_as_json_have_numbers() -> None:
    made = comparison.compare(attempts()[-2:])
    assert [one.short for one in made.attempts] == ["0000", "0001"], "oldest first"
    found = json.loads(json.dumps(comparison.as_json(made)))
    assert found["attempts"][0]["metrics"]["tok_s"] == 6.1
    assert found["attempts"][0]["metrics"]["stability"] is None
    assert found["inputs_that_differ"] == ["split"]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    monkeypatch.chdir(tmp_path)
    return [
        reported.kept(reported.no_go_rows()),
        reported.kept(reported.soaked_rows(), inputs={"split": "layer", "port": 8001}),
    ]


def test_at_a_terminal_the_table_fits_it(
    two: list[RunDir], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    ids = [run.id for run in two]
    assert main(["report", *ids]) == 0
    drawn = capsys.readouterr().out
    assert max(map(len, drawn.splitlines())) <= 80
    assert "  split=graph\n" in drawn
    assert "|" not in drawn
    assert main(["report", "--markdown", *ids]) == 0
    assert capsys.readouterr().out.startswith("# 2 attempts\n")


def test_a_command_writes_a_copy(two: list[RunDir], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", two[1].id, "--to", "docs/phase2-evaluation.md", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": "docs/phase2-evaluation.md"}
    assert Path("docs/phase2-evaluation/soak-soak.svg").exists()
    assert not two[1].report.exists(), "the run's own directory is not touched"
    assert main(["report", two[0].id, two[1].id, "--to", "x.md"]) == 2
    Path("file").write_text("")
    assert main(["report", two[0].id, "--to", "file/x.md"]) == 2


SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [str(one.text) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    made = reported.soaked()
    made.header.machine["cards"][0]["name"] = BAD
    made.header.targets[0]["go"] = ">= 20 tok/s"
    run = reported.run_dir(tmp_path, made)
    for chart in evidence(run, made).charts:
        assert [bad for line in texts(chart.svg) for bad in harmful(line)] == []
    for text in (BAD, "</text><script>x</script>", "\ufffe\uffff & < > \"'", "]]>", "\x00"):
        svg = Svg(100, 50, text, text)
        svg.text(1, 2, text)
        root = ElementTree.fromstring(str(svg))
        assert [one.tag for one in root.iter()].count(f"{SVG}text") == 3
        assert f"{SVG}script" not in [one.tag for one in root.iter()]
    assert evidence(run, view(BAD)).charts is not None


def test_torn_and_odd_lines_cost_themselves_only(tmp_path: Path) -> None:
    made = reported.soaked()
    run = reported.run_dir(tmp_path, made)
    known = len(gauges(run))
    with run.gauges.open("a") as file:
        file.write('\n[1]\n{"at": "x"}\n{"at": NaN}\n{"at": 2, "gpu": [], "ram": true}\nx\n')
    assert len(gauges(run)) == known + 1
    path = run.path / "attempts" / "soak.1.soak.jsonl"
    path.write_text('{"t": 1, "ok": true, "tok_s": Infinity}\n{"t": null, "ok": true}\n{"t": 2,')
    series = soak_series(run, soak_of(made, "soak"))
    assert [(r.t, r.tok_s) for r in series.requests] == [(1.0, None)]
    made.measured["soak"].soak["file"] = "/etc/passwd"
    assert soak_series(run, soak_of(made, "soak")).requests == []


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e12), st.integers(2, 12))
def test_ticks_are_round_inside_and_few(low: float, span: float, most: int) -> None:
    high = low + span
    if high <= low:
        return
    found = ticks(low, high, most)
    slack = (high - low) * 1e-6
    assert len(found) <= most + 1
    assert all(low - slack <= tick <= high + slack for tick in found)
    steps = [b - a for a, b in pairwise(found)]
    if steps:
        mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_ticks_of_nonsense_are_none(value: float) -> None:
    assert ticks(0, value) in ([0], [])
    assert ticks(value, 1) in ([], [1])


@given(st.floats(0.1, 1e7))
def test_moments_are_in_a_unit_people_count_by(high: float) -> None:
    found = seconds_ticks(high)
    assert 1 <= len(found) <= 9
    assert found[0] == (0.0, "0")
    assert all(t <= high for t, _ in found)
    assert all(label == "0" or re.fullmatch(r"[\d.]+ (s|min|h)", label) for _, label in found)


@given(st.lists(st.floats(0, 100), max_size=8))
def test_labels_keep_apart_and_in_order(wanted: list[float]) -> None:
    placed = spread_out(wanted, 10, 0, 100)
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    for one, two in pairwise(order):
        assert placed[two] - placed[one] >= 10 - 1e-6


def test_thinning_keeps_every_peak() -> None:
    points = [(float(t), 90.0 if t == 7777 else 1.0) for t in range(20_000)]
    few = thinned(points)
    assert len(few) <= 602
    assert max(few, key=lambda p: p[1]) == (7777.0, 90.0)
    assert few == sorted(few)


def test_a_line_is_broken_where_nothing_was_answered() -> None:
    points = [(float(t), 1.0) for t in (*range(10), *range(40, 50))]
    assert [len(part) for part in unbroken(points, [])] == [10, 10]
    assert [len(part) for part in unbroken(points[:10], [(3.5, 3.6)])] == [4, 6]
    assert unbroken([], []) == []


def test_a_panel_keeps_what_is_outside_at_its_edge() -> None:
    panel = Panel(10, 20, 100, 50, 10, 5)
    assert (panel.x(-5), panel.x(20), panel.y(-1), panel.y(99)) == (10, 110, 70, 20)
    assert Panel(0, 0, 10, 10, 0, 0).x(0) == 0


def test_a_report_says_how_full_the_context_was() -> None:
    made = reported.soaked()
    made.metrics["soak"]["context_peak"] = {"value": 7245, "unit": "count", "n": 26, "void": 0}
    [row] = [line for line in soak_lines(made, "soak") if "context_peak" in line]
    assert "7245" in row.replace(",", "")
    assert "most tokens of a prompt and its answer" in row
