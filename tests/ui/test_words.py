"""What the widgets and pages say, from fixed scenes and without an app; widths and changes."""

import io
import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.style import Style
from syrupy.assertion import SnapshotAssertion
from textual.strip import Strip

from console.common.progress import clock
from console.frontends.cli.console import markdown
from console.frontends.tui.terminal.frames import FineUpdate
from console.frontends.tui.watch.baseline import BaselineView
from console.frontends.tui.watch.history import RunRow
from console.host.sample import History
from console.journal.run_view import BaselineServes, ClientsElsewhere, RunView
from console.journal.state import RunState
from console.recovery.rollback.baseline_state import Figure, time_words
from console.recovery.rollback.progress import Result
from console.render.cells import ASCII, UNICODE, use_ascii
from console.render.facts.step import StepFacts
from console.render.facts.words import RUN_TONE
from console.render.guard import marked_rows
from console.render.keymap import ACTIONS, EMERGENCY, action, of_scope
from console.render.upcoming import ShownBaseline, upcoming
from console.runner.prepare.catalog import Entry
from screens.emergency import _foot, _head, by_hand, ended_words, stage_rows
from screens.machine import answer_rows
from screens.playbooks import entry_rows
from screens.report import drawings, report_rows
from screens.runs import run_row
from tests.ui import scene
from widgets.bars import badge, emergency, key_row, option_rows, status
from widgets.detail import detail_rows, more_rows, result_row, summary_rows
from widgets.machine import gauge_rows
from widgets.rows import Row, changed_cells, fit, spread, strip_of, width_of
from widgets.steps import list_rows, step_row

HELD = scene.view(8, state=RunState.PAUSED, reason="hold")
HOSTILE = "A\x9d52;c;QUFB\x07\x1b[2JB\u202eC[/]"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def drawn(rows: Iterable[Row]) -> str:
    """Rows with the tone of each part in front of it."""
    return "\n".join(
        "".join(f"<{tone}>{text}" if tone else text for text, tone in row).rstrip() for row in rows
    )


def test_the_badge(snapshot: SnapshotAssertion) -> None:
    views = [
        *[scene.baseline(word, detail="connection refused") for word in (
            "serving", "loading", "refusing", "garbled", "down", "degraded", "unknown",
        )],
        scene.baseline("degraded", figure=Figure(3.68, scene.NOW - 400, "a rollback")),
        scene.baseline(proven_at=0.0), scene.baseline(proven_at=scene.NOW - 90_000),
        scene.baseline(figure=None), scene.baseline(doubt="not proven since it was down at 13:52"),
        scene.baseline("unknown", detail="its health path answers",
                       doubt="not proven since a rollback failed at 13:52:00: HTTP 500 boom"),
        BaselineView(), None,
    ]  # fmt: skip
    rows = [badge(view, scene.NOW, width) for view in views for width in (80, 44)]
    assert drawn(rows) == snapshot


def test_the_emergency_line(snapshot: SnapshotAssertion) -> None:
    rows = [
        emergency(live, climb, restore_s, readonly, width)
        for live, climb, restore_s, readonly in (
            (True, "", 74.0, False), (True, "", None, False), (False, "", 74.0, False),
            (False, "", None, False), (True, "rolling back", 74.0, False),
            (True, "restoring", 74.0, False), (True, "", 74.0, True),
        )
        for width in (80, 50)
    ]  # fmt: skip
    rows += [emergency(False, "", None, False, width, possible=False) for width in (80, 20)]
    assert drawn(rows) == snapshot


def test_the_status(snapshot: SnapshotAssertion) -> None:
    def of(view: RunView, word: str, mode: str = "", **more: Any) -> list[Row]:
        return [status(view, word, mode, scene.NOW, width, **more) for width in (120, 80, 60)]

    rehearsed = scene.approval()
    rehearsed.header = rehearsed.header.changed(rehearsal={"fault": "", "notes": []})
    allocated = scene.running()
    job = {"job": "12", "wish": "partition gpu, gres gpu:1, exclusive"}
    allocated.header = allocated.header.changed(allocation=job)
    elsewhere = scene.ended()
    elsewhere.site = "other"
    rows = [
        *of(scene.running(), "running", "auto"), *of(scene.approval(), "waiting_approval", "gate"),
        *of(scene.failed(), "paused", "step"), *of(scene.failed(), "interrupted"),
        *of(scene.ended(), "rolled_back"), *of(rehearsed, "running"),
        *of(allocated, "running"), *of(HELD, "paused", "gate", at="look"),
        *of(HELD, "paused", lease="back in 4:12"),
        *of(elsewhere, "succeeded", shown=ShownBaseline("ws")),
    ]  # fmt: skip
    rows += [status(scene.running(), word, "", scene.NOW, 60) for word in RUN_TONE]
    assert drawn(rows) == snapshot


def test_the_steps(snapshot: SnapshotAssertion) -> None:
    said = []
    for view in (scene.running(), scene.failed(), scene.ended()):
        for width in (60, 36):
            rows, index = list_rows(view, width, scene.NOW, "look" if view.outage else "")
            assert len(rows) == len(index)
            assert [i for i in index if i >= 0] == list(range(len(view.steps)))
            said.append(drawn(rows))
    said += [clock(seconds) for seconds in (0.04, 99.9, 100, 3599, 3600, 4000, 90_000)]
    assert "\n".join(said) == snapshot


def test_the_detail_of_a_step_and_what_can_be_done(snapshot: SnapshotAssertion) -> None:
    hostile = scene.failed()
    hostile.steps[5].lessons = ["F-024 x\x1b[2J\u202e – y"]
    said = []
    for view, step, word, confirm in (
        (scene.running(), 6, "running", ""), (scene.running(), 2, "running", ""),
        (scene.running(), 9, "interrupted", ""), (scene.failed(), 5, "paused", ""),
        (scene.approval(), 8, "waiting_approval", "SWITCH"), (scene.approval(), 7, "paused", ""),
        (HELD, 8, "paused", ""), (scene.ended(), 10, "rolled_back", ""), (hostile, 5, "paused", ""),
    ):  # fmt: skip
        for width in (60, 40):
            can = option_rows(view, word, confirm, width)
            said.append(drawn(detail_rows(view, view.steps[step], can, width, scene.NOW)))
    said += [drawn([result_row(StepFacts(step), 50) for step in scene.ended().steps])]
    said += [drawn(summary_rows(view, 60, scene.NOW)) for view in (scene.ended(), scene.failed())]
    assert "\n\n".join(said) == snapshot


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("width", [20, 40, 120])
def test_how_a_run_left_the_baseline_is_said_with_its_time_and_not_as_of_now(
    slow: bool, width: int
) -> None:
    """It may have ended since: the header says how it is."""
    view = scene.approval()
    view.state, view.ended, view.restored_s = RunState.SUCCEEDED, scene.NOW, 74.0
    view.serving = BaselineServes(at=scene.NOW - 90, degraded=slow)
    view.cutover, view.outage = ClientsElsewhere(), False
    said = " ".join(drawn(summary_rows(view, width, scene.NOW)).split())
    for tag in ("<warn>", "<good>"):
        said = said.replace(tag, "").replace("  ", " ")
    at = time_words(scene.NOW - 90, scene.NOW)
    assert f"at {at} the baseline {'was DEGRADED' if slow else 'served'}" in said
    assert "the baseline serves" not in said
    view.serving = view.serving.changed(looked_at=scene.NOW - 90_000)
    assert time_words(scene.NOW - 90_000, scene.NOW)[:10] in drawn(
        summary_rows(view, 120, scene.NOW)
    )


@pytest.mark.parametrize(
    ("shown", "head"),
    [
        (ShownBaseline(), ""), (ShownBaseline("alpha"), "on site beta: "),
        (ShownBaseline("beta"), ""),
        (ShownBaseline("beta", "http://127.0.0.1:7/"), ""),
        (ShownBaseline("beta", "http://127.0.0.1:8"), "on site beta at http://127.0.0.1:7: "),
    ],
)  # fmt: skip
def test_what_is_said_of_another_sites_run_names_that_site(shown: ShownBaseline, head: str) -> None:
    """The header above it is of the baseline on show, which may serve."""
    view = scene.approval()
    view.state, view.ended, view.site = RunState.SUCCEEDED, scene.NOW, "beta"
    view.cutover = ClientsElsewhere(service="cand", what="stays", url="http://127.0.0.1:9")
    view.header = view.header.changed(baseline={"url": "http://127.0.0.1:7"})
    rows = ["".join(part for part, _ in row) for row in summary_rows(view, 90, scene.NOW, shown)]
    assert f"{head}CUT OVER to cand, not promoted: F12 brings the baseline back" in rows
    following = upcoming(view, "succeeded", "", "", scene.NOW, shown=shown)
    assert following[1][0].startswith(f" {head}the run has ended") or following[1][0].startswith(
        f" {head}F12 brings the baseline back"
    )
    view.cutover, view.outage = ClientsElsewhere(), True
    rows = ["".join(part for part, _ in row) for row in summary_rows(view, 90, scene.NOW, shown)]
    assert f"{head}the baseline is DOWN: F12 brings it back" in rows


def test_a_panel_fills_its_rows_with_runs_and_earlier_runs() -> None:
    view = scene.approval()
    step, earlier = view.steps[8], scene.earlier(view)
    wide = drawn(more_rows(view, step, earlier, 130, 12))
    assert wide.splitlines()[1].count("earlier runs") == 1
    assert "NO-GO" in wide
    assert "GO if >= 20 tok/s" in wide
    narrow = drawn(more_rows(view, step, earlier, 60, 20)).splitlines()
    assert "earlier runs" in narrow[14]
    for room in range(14):
        assert len(more_rows(view, step, earlier, 60, room)) <= room
        assert len(more_rows(view, step, earlier, 130, room)) <= room


def test_a_report_draws_its_charts(tmp_path: Path) -> None:
    run, view = scene.run_dir(tmp_path), scene.ended()
    run.gauges.parent.mkdir()
    run.gauges.write_text("".join(
        json.dumps({"at": scene.NOW + n, "ram": n * scene.GIB, "gpu": {"GPU-a": scene.GIB}}) + "\n"
        for n in range(1, 60)
    ))  # fmt: skip
    lines = [
        "![tok_s of bench: 21.3](report/samples-bench.svg)",
        "",
        "![Memory](report/memory.svg)",
    ]
    rows = drawn(report_rows(lines, 80, drawings(run, view)))
    assert "run 9" in rows
    assert rows.index("tok_s of bench") < rows.index("run 9") < rows.index("samples-bench.svg")
    assert "<bold>RAM" in rows
    assert "<bold>card 0" in rows
    assert "in full: report/memory.svg" in rows
    # a chart that cannot be drawn is named
    assert "in full: report/tune-t.svg" in drawn(report_rows(["![T](report/tune-t.svg)"], 80))


def test_the_keys(snapshot: SnapshotAssertion) -> None:
    actions = [EMERGENCY, action("next"), action("auto"), *of_scope("log")]
    assert drawn(key_row(actions, width) for width in (12, 24, 40, 80, 200)) == snapshot


def test_ascii_signs(snapshot: SnapshotAssertion) -> None:
    use_ascii(True)
    try:
        view, sample, marks = scene.running(), scene.sample(), scene.guard(None).marks
        rows = [*list_rows(view, 40, scene.NOW)[0], badge(scene.baseline(), scene.NOW, 80)]
        rows += [status(view, "running", "gate", scene.NOW, 40)]
        rows += [row for chosen in (ASCII, UNICODE)
                 for row in marked_rows(sample, marks, 90, chosen)]  # fmt: skip
        rows += gauge_rows(sample, 101.0, 80, History()) + gauge_rows(None, 1.0, 80, History())
    finally:
        use_ascii(False)
    assert drawn(rows) == snapshot


def test_gauges(snapshot: SnapshotAssertion) -> None:
    sample = scene.sample()
    said = [
        drawn(gauge_rows(sample, at, width, History()))
        for at in (100.0, 112.0)
        for width in (80, 60)
    ]
    assert "\n".join([*said, drawn(gauge_rows(sample, 100.0, 120, History()))]) == snapshot


def test_a_rollback(snapshot: SnapshotAssertion) -> None:
    lines = [
        *scene.Climb().lines, {"rung": "start", "state": "failed", "detail": "no " * 40},
        {"rung": HOSTILE, "state": "note", "t": "soon", "detail": HOSTILE},
        {"rung": "ready", "state": "begin", "t": 1.0, "detail": ""},
    ]  # fmt: skip
    begun = [{"rung": "start", "state": "begin", "t": 1.0, "detail": ""}, lines[3]]
    said = [drawn(stage_rows(lines, 70)), drawn(stage_rows(begun, 70))]
    assert max(map(width_of, stage_rows(lines, 70))) <= 70, "the scroll bar covers what is wider"
    command = "docker run " + " ".join(f"--option-{n}=value" for n in range(12))
    for result, trouble in (
        (None, ""), (None, "it cannot be started"), (Result(False, detail="no answer"), ""),
        (Result(False, manual=(command, "docker start x")), ""), (Result(True, degraded=True), ""),
        (Result(True, tok_s=10.8, reference=10.9, restore_s=74.0), ""),
        (Result(True, tok_s=10.8), ""), (Result(True, nothing_to_do=True), ""),
        (Result(False, nothing_to_do=True, detail="no run"), ""),
    ):  # fmt: skip
        rows = [_head(result, trouble), *by_hand(result, 60), *_foot(result, trouble, 60)]
        said.append(drawn(rows))
    assert "\n\n".join(said) == snapshot


@pytest.mark.parametrize(
    ("result", "reports", "words"),
    [
        (Result(True), True, "the baseline is back: Esc closes this, then o reads the report"),
        (Result(True), False, "the baseline is back: Esc closes this"),
        (Result(True, nothing_to_do=True), False, "the baseline serves: Esc closes this"),
        (Result(False), True, "the baseline is not back: F12 tries again, Esc closes this"),
        (Result(False, nothing_to_do=True), False,
         "nothing says which baseline to restore: Esc closes this"),
    ],
)  # fmt: skip
def test_what_is_next_when_a_rollback_has_ended(result: Result, reports: bool, words: str) -> None:
    assert ended_words(result, reports=reports) == words


def test_a_report(snapshot: SnapshotAssertion) -> None:
    text = [
        "# Title", "", "Words with **bold** and `code`.", "", "## Figures", "- one", "- two", "",
        "| metric | value | mean ± std | median | n | void |", "|---|---|---|---|---|---|",
        "| `bench.tok_s` | 10.9 tok/s | 10.88 tok/s ± 0.06 tok/s | 10.9 tok/s | 9 | 0 |",
        "| bench.ttft | 412 ms | 415 ms ± 9.1 ms | 412 ms | 9 | 0 |", "",
        "| criterion | verdict | why |", "|---|---|---|",
        "| `bench.tok_s` | **GO** | bench.tok_s 1997 tok/s meets > 0.001 x baseline (1.07 tok/s) |",
    ]  # fmt: skip
    assert "\n\n".join(drawn(report_rows(text, width)) for width in (77, 40)) == snapshot


def test_rows_of_runs_and_playbooks(snapshot: SnapshotAssertion) -> None:
    row = RunRow(
        id="20261120-140312-book-1a2b", playbook="ik-llama-phase2", state="succeeded",
        created=scene.NOW, took_s=725.0, decision="go",
    )  # fmt: skip
    runs = [
        row, replace(row, decision="no_go", state="rolled_back", took_s=None),
        replace(row, playbook="", problem="the journal cannot be read", state="unreadable"),
        replace(row, created=0.0, state="waiting_approval"), replace(row, playbook=HOSTILE),
    ]  # fmt: skip
    rows = [run_row(one, width, marked=width == 60) for one in runs for width in (100, 60)]
    entry = Entry(Path("/x/one.yaml"), "one", "The one", source="site")
    entries = [
        entry,
        replace(entry, objective="find out", lessons=("F-001",), read_first=("F-001 x",)),
        replace(entry, path=Path("/x/other.yaml"), problem="line 14: missing key\nand more"),
        replace(entry, title=""),
    ]  # fmt: skip
    said = [drawn(rows), *[drawn(entry_rows(one, 40)) for one in entries]]
    assert "\n\n".join(said) == snapshot


# -- widths, cells, signs and keys -----------------------------------------------------------------


def test_rows_fill_or_keep_to_their_width_exactly() -> None:
    for width in (20, 36, 60, 80, 120):
        for view in (scene.running(), scene.failed(), scene.ended()):
            assert {
                width_of(step_row(StepFacts(step), width, scene.NOW)) for step in view.steps
            } == {width}
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


def test_every_sign_is_one_cell_and_ascii_where_it_has_to_be() -> None:
    for signs in (UNICODE, ASCII):
        for name in UNICODE.__slots__:
            value = getattr(signs, name)
            assert all(cell_len(char) == 1 for char in value)
            assert signs is UNICODE or "".join(value).isascii()


def test_the_key_table_is_the_registry() -> None:
    kept = (Path(__file__).parents[2] / "docs/reference/keys.md").read_text("utf-8")
    assert kept == markdown(), "omni-console keys > docs/reference/keys.md"


def test_no_key_is_taken_twice_in_a_scope() -> None:
    for scope in {one.scope for one in ACTIONS}:
        keys = [key for one in ACTIONS if one.scope == scope for key in one.keys]
        assert len(keys) == len(set(keys)), scope


# -- changed cells only: what is sent turns the old line into the new one --------------------------

WIDTH = 24
rows = st.lists(
    st.tuples(st.text("ab c漢字é·█", max_size=9), st.just("")), max_size=4
).map(tuple)  # fmt: skip
console = Console(file=io.StringIO(), width=WIDTH, color_system=None)


def as_strip(row: Row) -> Strip:
    return strip_of(row, WIDTH, Style.null(), {})


def screen(*sent: str) -> list[str]:
    made = pyte.Screen(WIDTH, 2)
    stream = pyte.Stream(made)
    for data in sent:
        stream.feed(data)
    return [line.rstrip() for line in made.display]


def whole(row: Row) -> str:
    return "\x1b[1;1H" + as_strip(row).render(console)


@given(rows, rows)
def test_a_partial_update_ends_where_a_whole_one_would(old: Row, new: Row) -> None:
    found = changed_cells(old, new)
    if found is None:
        assert screen(whole(old)) == screen(whole(new))
        return
    begin, end = found[0], min(found[1], WIDTH)
    if begin >= WIDTH:
        return
    update = FineUpdate([{0: as_strip(new)}], [(0, begin, end)], [[WIDTH]])
    assert screen(whole(old), update.render_segments(console)) == screen(whole(new))


def test_only_changed_cells_count() -> None:
    assert changed_cells((("abc", ""),), (("abc", ""),)) is None
    assert changed_cells((("abc", ""),), (("a", ""), ("bc", "bold"))) == (1, 3)
    assert changed_cells((("漢b", ""),), (("漢c", ""),)) == (2, 3)


def test_several_chops_and_spans() -> None:
    left = as_strip((("left part", ""),)).crop(0, 10)
    right = as_strip((("right part", ""),)).crop(0, 14)
    chops = [{0: left, 10: right}]
    ends = [[10, WIDTH]]
    both = FineUpdate(chops, [(0, 8, 13)], ends).render_segments(console)
    assert screen("\x1b[1;1H" + "x" * WIDTH, both)[0] == "xxxxxxxxt rigxxxxxxxxxxx"
    one = FineUpdate(chops, [(0, 21, 24)], ends).render_segments(console)
    assert screen("\x1b[1;1H" + "x" * WIDTH, one)[0] == "x" * 21
    none = FineUpdate([{0: None, 10: right}], [(0, 0, 10)], ends).render_segments(console)
    assert none == ""
