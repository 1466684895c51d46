"""`omni-console lessons`: what it prints and how it ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from console import paths
from console.cli import main
from console.clock import FakeClock
from console.command import lessons as command
from console.lessons.load import load_lesson
from console.run.directory import RunDir
from tests.lessons.conftest import Put
from tests.run.unit import reported

NOON = datetime(2026, 4, 26, 12, tzinfo=UTC).timestamp()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock(NOON)
    monkeypatch.setattr(command, "SystemClock", lambda: made)
    return made


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["lessons", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = said(capsys, *words, "--json")
    return code, json.loads(out)


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys)
    assert (code, err) == (0, "")
    rows = out.splitlines()
    assert rows[0].startswith("F-001   resurrected  2026-01-19  KTransformers' prebuilt")
    assert "53 of 53 lessons; 2 due for review" in rows[-1]


def test_one_by_its_id_in_any_form(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("F-022", "f22"):
        code, out, _ = said(capsys, text)
        assert code == 0
        assert "319 GB" in out
    code, one = told(capsys, "F-022")
    assert one["lesson"]["id"] == "F-022"
    assert "F-020" in one["lesson"]["linked_from"]


def test_an_id_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, "F-220")
    assert (code, out) == (2, "")
    assert "there is no lesson F-220" in err
    assert "omni-console lessons F-022" in err


def test_words_and_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "shallow", "clone")
    assert code == 0
    assert out.startswith("F-013 ")
    code, out, _ = said(capsys, "no", "such\x1b[2Jthing")
    assert code == 4
    assert "no lesson has all of: no suchthing" in out
    assert told(capsys, "zebra") == (4, {"query": "zebra", "lessons": [], "problems": []})


def test_a_bad_file_is_said_and_the_others_are_listed(
    capsys: pytest.CaptureFixture[str], put: Put
) -> None:
    put("F-028", status="nonsense")
    code, out, err = said(capsys, "shallow")
    assert code == 2
    assert "F-013" in out
    assert "F-028.yaml:5:9: 'status' is 'nonsense'" in err


def test_a_lesson_that_cannot_be_read_is_asked_for_by_its_id(
    capsys: pytest.CaptureFixture[str], put: Put
) -> None:
    path = put("F-043", status="nonsense")
    code, out, err = said(capsys, "F-043")
    assert (code, out) == (2, "")
    assert f"{path}:5:9: 'status' is 'nonsense'" in err
    assert "there is no lesson" not in err


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("F-031.yml", "expected F-031.yaml"),
        ("f-032.yaml", "expected F-032.yaml"),
        ("F-28.yaml", "expected F-028.yaml"),
        ("my-lesson.yaml", "three digits, like F-028.yaml"),
    ],
)
def test_a_file_whose_name_is_no_lessons_is_said(
    capsys: pytest.CaptureFixture[str], put: Put, name: str, meant: str
) -> None:
    path = put("F-043").rename(paths.lessons_dir() / name)
    (paths.lessons_dir() / "notes.txt").write_text("x")
    (paths.lessons_dir() / ".#F-043.yaml").write_text("x")
    code, out, err = said(capsys, "shallow")
    assert (code, out.startswith("F-013 ")) == (2, True)
    assert f"{path}:0:0: its name is no lesson's, so it is not read; " in err
    assert meant in err
    assert len(err.splitlines()) == 1


def test_what_is_due_by_the_clock(capsys: pytest.CaptureFixture[str], clock: FakeClock) -> None:
    code, out, _ = said(capsys, "--due")
    assert code == 0
    assert [line[:5] for line in out.splitlines() if line[1:2] == "-"] == ["P-001", "A-001"]
    assert "due since 2026-04-01 (25 days)" in out
    clock.time = NOON - 40 * 86400
    assert said(capsys, "--due")[1] == "nothing is due on 2026-03-17\n"
    clock.time = NOON + 86400
    assert len(told(capsys, "--due")[1]["due"]) == 20


def test_rechecks_say_what_they_found_and_change_nothing(
    capsys: pytest.CaptureFixture[str], put: Put, clock: FakeClock
) -> None:
    clock.time = NOON - 40 * 86400
    more = "due: 2026-01-01\nrecheck: {{output: [echo, {0}], matches: '^yes$', words: w}}\n"
    paths = [put("F-028", more.format("yes")), put("F-029", more.format("no"))]
    paths.append(put("F-030", more.format("x").replace("echo", "no-such-command")))
    paths.append(put("F-031", "due: 2026-01-02\nreview: look at it\n"))
    before = [path.read_bytes() for path in paths]
    code, out, _ = said(capsys, "--due", "--run")
    assert code == 4
    assert "PASSED the output matches ^yes$" in out
    assert "CHANGED the output does not match ^yes$" in out
    assert "FAILED nothing learnt: no-such-command: No such file" in out
    assert "look: look at it" in out
    assert "rechecked 3 of 4: 1 passed, 1 changed, 1 failed. No status was changed. 1 are" in out
    assert [path.read_bytes() for path in paths] == before
    paths[1].unlink()
    paths[2].unlink()
    assert said(capsys, "--due", "--run")[0] == 0


def test_listing_what_is_due_runs_nothing(
    capsys: pytest.CaptureFixture[str], put: Put, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    put("F-028", f"due: 2026-01-01\nrecheck: {{output: [touch, '{mark}'], matches: x, words: w}}\n")
    said(capsys, "--due")
    assert not mark.exists()


@pytest.mark.parametrize(
    "words",
    [["--run"], ["--due", "x"], ["--draft", "x", "--due"], ["--draft", "x", "y"], ["--as", "S"]],
    ids=" ".join,
)
def test_bad_usage(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert said(capsys, *words)[0] == 2


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunDir:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return reported.kept(reported.no_go_rows())


def test_a_draft_from_a_run(capsys: pytest.CaptureFixture[str], put: Put, over: RunDir) -> None:
    put("F-028")
    code, made = told(capsys, "--draft", over.id[-4:])
    assert (code, made["id"], made["run"]) == (0, "F-029", over.id)
    model = load_lesson(Path(made["file"])).model
    assert model.status == "draft"
    assert over.id in model.evidence[0]
    assert len(model.evidence) > 2
    code, _, err = said(capsys, "--draft", over.id[-4:])
    assert code == 2
    assert f"F-029 was drafted from run {over.id}" in err


def test_a_draft_of_another_kind(
    capsys: pytest.CaptureFixture[str], put: Put, over: RunDir
) -> None:
    assert told(capsys, "--draft", over.id, "--as", "P")[1]["id"] == "P-006"


def test_no_draft_from_a_run_that_goes_on(capsys: pytest.CaptureFixture[str], over: RunDir) -> None:
    going = reported.kept(reported.trial())
    code, _, err = said(capsys, "--draft", going.id)
    assert code == 2
    assert "is not over" in err


def test_no_draft_from_a_run_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--draft", "zzzz")[0] == 2
