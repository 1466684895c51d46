"""What the lessons' command and files say, whole."""

import re
from datetime import date, datetime
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from console.common.errors import InvalidFile
from console.config.lessons import use as module
from console.config.lessons.registry import load_lesson, load_registry
from console.config.lessons.use import bearing
from console.frontends.cli import lessons as command
from console.render.lessons import due_words, entry
from tests.clock import FakeClock
from tests.lessons.conftest import COUNT, Put
from tests.runner.unit import reported

ROOT = Path(__file__).parents[2]
TODAY = date(2026, 11, 22)
REFUSED = [
    "colour: red", "cuase: x", "due: 2026-02-30", "due: 2027-01-01",
    "links: [{to: F-220, words: x}]", "links: [{to: F-99, words: x}]",
    "contradictions: [{with: [F-900], words: x}]",
    "history: [{date: 2026-11-01, status: open, words: x}]",
    "history: [{date: 2026-11-02, status: open, words: x}, "
    "{date: 2026-11-01, status: stands, words: x}]",
    "recheck: {output: [x], words: y}", "recheck: {output: [x], matches: '(', words: y}",
    "recheck: {output: [], matches: x, words: y}",
    "recheck: {output: [x], matches: x, words: y, timeout: 2h}", "rules: [Not A Rule]", "id: F-029",
]  # fmt: skip
RECHECKED = "due: 2026-01-01\nrecheck: {{output: [{0}], matches: '^yes$', words: why}}\n"


def test_what_is_wrong_with_a_lesson(put: Put, snapshot: SnapshotAssertion) -> None:
    said = []
    for more in REFUSED:
        path = put("F-028", f"{more}\n")
        with pytest.raises(InvalidFile) as caught:
            load_lesson(path)
        said += [more, *(line.replace(str(path), "  F") for line in caught.value.lines()[1:])]
    assert "\n".join(said) == snapshot


def test_entries(put: Put, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """Between them they have every part that an entry can have."""
    put("F-028", "runs: [a-run]\nnotes: [a note]\nseverity: high\ndue: 2026-11-22\nreview: look\n")
    registry, said = load_registry(), []
    for one in ("F-006", "F-013", "F-028"):
        lesson = registry.get(one)
        assert lesson is not None
        said += [f"{tone:>7}| {line}" for line, tone in entry(registry, lesson, 90, TODAY)]
    assert "\n".join(said).replace(str(ROOT), "ROOT").replace(str(tmp_path), "TMP") == snapshot


def test_when_it_is_due(put: Put, snapshot: SnapshotAssertion) -> None:
    for number, day in ((28, 21), (29, 22), (30, 23), (31, 20)):
        put(f"F-0{number}", f"due: 2026-11-{day}\nreview: look\n")
    put("F-032")
    assert [due_words(one, TODAY) for one in load_registry().lessons if one.own] == snapshot


def test_why_it_bears(snapshot: SnapshotAssertion) -> None:
    assert [one.words for one in bearing("run", ["$ git clone --depth 1 x"], acts=True)] == snapshot


def more_than(total: int) -> str:
    """A number of lessons, told by how many more than ship."""
    return f"SHIPPED+{total - COUNT}" if total > COUNT else "SHIPPED"


def test_the_command(
    put: Put, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    clock = FakeClock(datetime(2026, 4, 26, 12).timestamp())
    monkeypatch.setattr(command, "SystemClock", lambda: clock)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = reported.kept(reported.no_go_rows())
    said: list[str] = []

    def ask(*words: str) -> None:
        code = main(["lessons", *words])
        out = "".join(capsys.readouterr()).replace(str(tmp_path), "TMP").replace(run.id, "RUN")
        out = re.sub(r"(?<= of )\d+(?= lessons)", lambda total: more_than(int(total[0])), out)
        shown = " ".join(words).replace(run.id, "RUN")
        said.append(f"$ lessons {shown}\n{out.replace(str(ROOT), 'ROOT')}{code}\n")

    for words in (
        "shallow", "F-220", "P-999", "no such", "no such zebra", "--due", "--run", "--due x",
        "--draft x --due", "--draft x y", "--as S",
    ):  # fmt: skip
        ask(*words.split())
    put("F-028", RECHECKED.format("echo, yes"), title="Yes")
    put("F-029", RECHECKED.format("echo, no"))
    put("F-030", RECHECKED.format("no-such-command"))
    put("F-031", "due: 2026-01-02\nreview: look at it\n")
    clock.time -= 40 * 86400
    for words in ("Mine", "--due", "--due --run", f"--draft {run.id}", f"--draft {run.id}"):
        ask(*words.split())
    put("F-034", status="nonsense").with_name("my-lesson.yaml").touch()
    for words in ("shallow", "F-034"):
        ask(*words.split())
    clock.time -= 400 * 86400
    ask("--due")
    assert "\n".join(said) == snapshot
