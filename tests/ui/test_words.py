"""What the widgets and pages say, from fixed scenes and without an app."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.frontends.tui.watch.history import RunRow
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.recovery.rollback.progress import Result
from console.render.cells import ASCII, UNICODE, use_ascii
from console.render.gauges import marked_rows
from console.render.keymap import EMERGENCY, action, of_scope
from console.runner.prepare.catalog import Entry
from screens.emergency import _foot, _head, by_hand, stage_rows
from screens.playbooks import entry_rows
from screens.runs import report_rows, run_row
from tests.ui import scene
from widgets.bars import STATE_TONE, badge, emergency, gauge_rows, key_row, option_rows, status
from widgets.rows import Row
from widgets.steps import detail_rows, list_rows, result_row, short, summary_rows

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
    base = scene.baseline()
    views = [
        *[scene.baseline(word, detail="connection refused") for word in (
            "serving", "loading", "stopped", "unhealthy", "degraded", "unknown",
        )],
        replace(base, word="degraded", tok_s=3.68), replace(base, proven_at=None),
        replace(base, proven_at=scene.NOW - 90_000), replace(base, tok_s=None),
        replace(base, tok_s=999.6), replace(base, word="none"), None,
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
    assert drawn(rows) == snapshot


def test_the_status(snapshot: SnapshotAssertion) -> None:
    def of(view: RunView, word: str, mode: str = "", **more: str) -> list[Row]:
        return [status(view, word, mode, scene.NOW, width, **more) for width in (120, 80, 60)]

    rehearsed = scene.approval()
    rehearsed.header["rehearsal"] = {"fault": "", "notes": []}
    rows = [
        *of(scene.running(), "running", "auto"), *of(scene.approval(), "waiting_approval", "gate"),
        *of(scene.failed(), "paused", "step"), *of(scene.failed(), "interrupted"),
        *of(scene.ended(), "rolled_back"), *of(rehearsed, "running"),
        *of(HELD, "paused", "gate", at="look"), *of(HELD, "paused", lease="back in 4:12"),
    ]  # fmt: skip
    rows += [status(scene.running(), word, "", scene.NOW, 60) for word in STATE_TONE]
    assert drawn(rows) == snapshot


def test_the_steps(snapshot: SnapshotAssertion) -> None:
    said = []
    for view in (scene.running(), scene.failed(), scene.ended()):
        for width in (60, 36):
            rows, index = list_rows(view, width, scene.NOW, "look" if view.outage else "")
            assert len(rows) == len(index)
            assert [i for i in index if i >= 0] == list(range(len(view.steps)))
            said.append(drawn(rows))
    said += [short(seconds) for seconds in (0.04, 99.9, 100, 3599, 3600, 4000, 90_000)]
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
            said.append(drawn(detail_rows(view, view.steps[step], can, width)))
    said += [drawn([result_row(step, 50) for step in scene.ended().steps])]
    said += [drawn(summary_rows(view, 60)) for view in (scene.ended(), scene.failed())]
    assert "\n\n".join(said) == snapshot


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
        rows += gauge_rows(sample, 101.0, 80, {}) + gauge_rows(None, 1.0, 80, {})
    finally:
        use_ascii(False)
    assert drawn(rows) == snapshot


def test_gauges(snapshot: SnapshotAssertion) -> None:
    sample = scene.sample()
    said = [drawn(gauge_rows(sample, at, width, {})) for at in (100.0, 112.0) for width in (80, 60)]
    assert "\n".join([*said, drawn(gauge_rows(sample, 100.0, 120, {}))]) == snapshot


def test_a_rollback(snapshot: SnapshotAssertion) -> None:
    lines = [
        *scene.Climb().lines(), {"rung": "start", "state": "failed", "detail": "no " * 40},
        {"rung": HOSTILE, "state": "note", "t": "soon", "detail": HOSTILE},
        {"rung": "ready", "state": "begin", "t": 1.0, "detail": ""},
    ]  # fmt: skip
    begun = [{"rung": "start", "state": "begin", "t": 1.0, "detail": ""}, lines[3]]
    said = [drawn(stage_rows(lines, 70)), drawn(stage_rows(begun, 70))]
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
