"""`omni-console lessons`: what it finds and does, and how it ends."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.config.lessons.registry import load_lesson
from console.frontends.cli import lessons as command
from console.journal.run_dir import RunDir
from tests.clock import FakeClock
from tests.lessons.conftest import Put
from tests.runner.unit import reported

Capture = pytest.CaptureFixture[str]
NOON = datetime(2026, 4, 26, 12).timestamp()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock(NOON)
    monkeypatch.setattr(command, "SystemClock", lambda: made)
    return made


def said(capsys: Capture, *words: str) -> tuple[int, str, str]:
    code = main(["lessons", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def told(capsys: Capture, *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = said(capsys, *words, "--json")
    return code, json.loads(out)


def ids(lines: str) -> list[str]:
    return [line[:5] for line in lines.splitlines() if line[1:2] == "-"]


def test_all_of_them(capsys: Capture) -> None:
    code, out, err = said(capsys)
    assert (code, err, len(ids(out)), ids(out)[0]) == (0, "", 53, "F-001")


def test_one_by_its_id_in_any_form(capsys: Capture) -> None:
    for text in ("F-022", "f22"):
        code, out, _ = said(capsys, text)
        assert (code, "319 GB" in out) == (0, True)
    code, one = told(capsys, "F-022")
    assert (code, one["lesson"]["id"]) == (0, "F-022")
    assert "F-020" in one["lesson"]["linked_from"]


def test_nothing_found(capsys: Capture) -> None:
    code, out, _ = said(capsys, "no", "such\x1b[2Jthing")
    assert (code, "suchthing" in out) == (4, True)
    assert told(capsys, "zebra") == (4, {"query": "zebra", "lessons": [], "problems": []})


def test_a_file_whose_name_is_no_lessons_is_said(capsys: Capture, put: Put) -> None:
    path = put("F-043")
    for name in ("notes.txt", ".#F-043.yaml"):
        path.with_name(name).write_text("x")
    for name, meant in {
        "F-031.yml": "F-031.yaml", "f-032.yaml": "F-032.yaml", "F-28.yaml": "F-028.yaml",
        "my-lesson.yaml": "FSPAD",
    }.items():  # fmt: skip
        path = path.rename(path.with_name(name))
        code, out, err = said(capsys, "shallow")
        assert (code, ids(out)[0]) == (2, "F-013")
        (line,) = err.splitlines()
        assert f"{path}:0:0: " in line
        assert meant in line


def test_rechecks_say_what_they_found_and_change_nothing(
    capsys: Capture, put: Put, clock: FakeClock
) -> None:
    clock.time = NOON - 40 * 86400
    more = "due: 2026-01-01\nrecheck: {{output: [echo, {0}], matches: '^yes$', words: w}}\n"
    paths = [put("F-028", more.format("yes")), put("F-029", more.format("no"))]
    before = [path.read_bytes() for path in paths]
    code, found = told(capsys, "--due", "--run")
    assert (code, [one["answer"] for one in found["rechecks"]]) == (4, ["passed", "changed"])
    assert [path.read_bytes() for path in paths] == before
    paths[1].unlink()
    assert said(capsys, "--due", "--run")[0] == 0


def test_listing_what_is_due_runs_nothing(capsys: Capture, put: Put, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    put("F-028", f"due: 2026-01-01\nrecheck: {{output: [touch, '{mark}'], matches: x, words: w}}\n")
    said(capsys, "--due")
    assert not mark.exists()


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunDir:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return reported.kept(reported.no_go_rows())


def test_a_draft_from_a_run(capsys: Capture, put: Put, over: RunDir) -> None:
    put("F-028")
    code, made = told(capsys, "--draft", over.id[-4:])
    assert (code, made["id"], made["run"]) == (0, "F-029", over.id)
    model = load_lesson(Path(made["file"])).model
    assert model.status == "draft"
    assert over.id in model.evidence[0]
    assert len(model.evidence) > 2
    code, _, err = said(capsys, "--draft", over.id[-4:])
    assert (code, "F-029" in err, over.id in err) == (2, True, True)


def test_a_draft_of_another_kind(capsys: Capture, put: Put, over: RunDir) -> None:
    assert told(capsys, "--draft", over.id, "--as", "P")[1]["id"] == "P-006"


def test_no_draft_from_a_run_that_goes_on_or_does_not_exist(capsys: Capture, over: RunDir) -> None:
    going = reported.kept(reported.trial())
    assert [said(capsys, "--draft", one)[0] for one in (going.id, "zzzz")] == [2, 2]
