"""`omni-console lessons`: what it finds and does, and how it ends."""

import json
import os
import stat
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.config.lessons.registry import known, load_lesson
from console.frontends.cli import guide
from console.frontends.cli import lessons as command
from console.frontends.cli.commands import shown
from console.journal.run_dir import RunDir
from console.render.cells import cells
from tests.clock import FakeClock
from tests.lessons.conftest import COUNT, Put
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
    assert (code, err, len(ids(out)), ids(out)[0]) == (0, "", COUNT, "F-001")


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


def test_a_page_with_a_line_for_each_lesson_fits_the_terminal(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, whole, _ = said(capsys, "--brief")
    assert code == 0
    assert {line.split()[0] for line in whole.splitlines() if line[1:2] == "-"} == known()
    head, _, works = whole.partition("\nWhat works\n")
    assert "git clone --recursive" in head
    assert "S-005" in works
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = said(capsys, "--brief")[1].splitlines()
    assert (len(lines), max(map(cells, lines))) == (len(whole.splitlines()), 60)


def test_a_page_of_what_matches(capsys: Capture, put: Put) -> None:
    put("F-028", 'lesson: "leave it\\e[2J be"\n', title="Mine")
    out = said(capsys, "--brief", "mine", "gravity")[1]
    assert [line.split() for line in out.splitlines() if "F-028" in line] == [
        ["F-028", "Mine", "leave", "it", "be"]
    ]
    assert said(capsys, "--brief", "zebra")[0] == 4
    assert told(capsys, "--brief") == told(capsys)


def test_a_file_for_agents_and_newcomers(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "AGENTS.md"
    code, made = told(capsys, "--export", str(path))
    assert (code, made) == (0, {"file": str(path), "lessons": COUNT})
    text = path.read_text()
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert titles == [
        "## What not to do", "## Before you suggest it", "## What works",
        "## How to reach this machine's console by one-shot ssh",
    ]  # fmt: skip
    for row in (
        "| F-003 | Disable CUDA VMM in Docker | 300 % performance regression |",
        "| What about vLLM? |", "| S-005 | NPS1 in the BIOS", "| `rollback` | bring the baseline",
        "| 7 | rollback failed",
    ):  # fmt: skip
        assert row in text
    assert [one.name for one in tmp_path.iterdir()] == ["AGENTS.md"], "nothing is left beside it"
    assert said(capsys, "--export", "-")[1] == text


def test_an_export_replaces_only_its_own(capsys: Capture, put: Put, tmp_path: Path) -> None:
    path, link = tmp_path / "AGENTS.md", tmp_path / "CLAUDE.md"
    path.write_text("# Ours\n")
    link.symlink_to(path)
    code, _, err = said(capsys, "--export", str(link))
    assert (code, path.read_text(), "--force" in err) == (2, "# Ours\n", True)
    assert said(capsys, "--export", str(link), "--force")[0] == 0
    assert (link.is_symlink(), "F-022" in path.read_text()) == (True, True)
    put("F-028", title="One more")
    assert said(capsys, "--export", str(path))[0] == 0, "an export of its own is renewed"
    mine = f"{path.read_text()}\nand this\n"
    path.write_text(mine)
    code, _, err = said(capsys, "--export", str(path))
    assert (code, path.read_text(), "changed" in err) == (2, mine, True)


def test_an_export_that_cannot_be_written(capsys: Capture, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name in ("no/such/place", "fifo", "."):
        assert said(capsys, "--export", str(tmp_path / name), "--force")[0] == 2
    assert stat.S_ISFIFO((tmp_path / "fifo").stat().st_mode)
    for words in (("--export", "x", "docker"), ("--force",), ("--brief", "--due")):
        assert said(capsys, *words)[0] == 2


def test_an_export_says_of_every_command_whether_it_is_safe() -> None:
    assert {command.name for command in shown() if command.danger not in guide.SENTENCES} == set()
    text = guide.markdown([], "host")
    assert [command.name for command in shown() if text.count(f"| `{command.name}` |") != 1] == []
