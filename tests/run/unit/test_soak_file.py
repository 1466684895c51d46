"""A soak's lines on disk, and which attempt goes on with which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.bench.soak_stats import Line
from console.journal.run_dir import RunDir
from console.journal.samples import SoakFile, soak_lines
from tests.disk import nearly_full

BEGAN: Line = {"t": 0.0, "event": "began", "at": 1000.0}
GOOD: Line = {"t": 60.0, "ok": True, "error": "", "tok_s": 9.0, "ttft_s": 0.1}


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    (tmp_path / "attempts").mkdir()
    return RunDir(tmp_path)


def left(run: RunDir, attempt: int, *lines: Line, torn: bytes = b"") -> Path:
    """What an attempt whose runner was killed left."""
    file = SoakFile(run, "soak", attempt, 0.0)
    for line in lines:
        file.keep(line)
    with file.path.open("ab") as end:
        end.write(torn)
    return file.path


def test_a_first_attempt_begins_with_nothing(run: RunDir) -> None:
    file = SoakFile(run, "soak", 1, 2000.0)
    assert (file.path.name, file.resumed, file.tally.t) == ("soak.1.soak.jsonl", False, 0.0)
    assert file.path.stat().st_mode & 0o777 == 0o600


def test_the_next_attempt_goes_on_behind_a_gap(run: RunDir) -> None:
    before = left(run, 1, BEGAN, GOOD, torn=b'{"t":61.0,"ok":tr')
    file = SoakFile(run, "soak", 2, 1500.0)
    assert file.resumed
    assert file.tally.gaps == [[60.0, 500.0]]
    assert (file.tally.observed, len(file.tally.requests)) == (60.0, 1)
    gap = {"t": 500.0, "event": "gap", "from": 60.0, "to": 500.0}
    assert list(soak_lines(file.path)) == [BEGAN, GOOD, gap]
    assert b'"ok":tr' in before.read_bytes(), "what the first one left is left alone"


def test_what_a_full_disk_cut_off_hides_no_later_line(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = SoakFile(run, "soak", 1, 0.0)
    file.keep(BEGAN)
    with monkeypatch.context() as patch:
        nearly_full(patch, 10)
        with pytest.raises(OSError, match="No space left"):
            file.keep({**GOOD, "t": 30.0})
    file.keep(GOOD)
    assert list(soak_lines(file.path)) == [BEGAN, GOOD]


def test_a_third_attempt_has_both_gaps(run: RunDir) -> None:
    left(run, 1, BEGAN, GOOD)
    left(run, 2)  # died before its first line: it is a copy of the first
    file = SoakFile(run, "soak", 3, 1200.0)
    assert file.tally.gaps[0][0] == 60.0
    assert file.tally.observed == 60.0
    assert len(file.tally.requests) == 1
    assert file.tally.t == 200.0


def test_what_ended_by_itself_is_not_gone_on_with(run: RunDir) -> None:
    first = SoakFile(run, "soak", 1, 1000.0)
    first.keep(BEGAN)
    first.tally.take(GOOD)
    first.close("too many errors")
    assert list(soak_lines(first.path))[-1] == {"t": 60.0, "event": "end", "why": "too many errors"}
    file = SoakFile(run, "soak", 2, 1200.0)
    assert (file.resumed, file.tally.requests) == (False, [])
    first.close("again")
    assert len(list(soak_lines(first.path))) == 2


def test_rubbish_between_lines_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b'\xff\n[1]\n{"t": "x"}\n' + json.dumps(GOOD).encode() + b"\n\n{}\n")
    assert list(soak_lines(path)) == [GOOD]


@pytest.mark.parametrize(
    ("lines", "attempt", "now", "gaps"),
    [
        ((BEGAN, GOOD), 3, 1200.0, [[60.0, 200.0]]),  # there is no file of attempt 2
        ((BEGAN, GOOD), 2, 900.0, [[60.0, 60.0]]),  # the clock was set back
        ((GOOD,), 2, 1200.0, []),  # without a beginning there is nothing to go on with
    ],
)
def test_what_is_gone_on_with(
    run: RunDir, lines: tuple[Line, ...], attempt: int, now: float, gaps: list[list[float]]
) -> None:
    left(run, 1, *lines)
    file = SoakFile(run, "soak", attempt, now)
    assert (file.resumed, file.tally.gaps) == (bool(gaps), gaps)
