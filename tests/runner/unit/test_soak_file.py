"""What a run writes of its figures: a soak's lines, and gauges; no disk can hurt the run."""

import errno
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.soak import SoakPlan
from console.bench.soak_stats import Line
from console.config.playbook.measuring_steps import SoakStep
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView, StepMeasurement
from console.journal.samples import PATIENCE, GaugeFile, SoakFile, gauge_lines, soak_lines
from console.runner.executors.soak import patience_for, plan_of
from tests.disk import nearly_full
from tests.runner.unit.cases import NOTE
from tests.runner.unit.conftest import MakePlan

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


def test_the_next_attempt_goes_on_behind_a_gap(run: RunDir) -> None:
    before = left(run, 1, BEGAN, GOOD, torn=b'{"t":61.0,"ok":tr')
    assert (before.name, before.stat().st_mode & 0o777) == ("soak.1.soak.jsonl", 0o600)
    file = SoakFile(run, "soak", 2, 1500.0)
    assert (file.resumed, file.tally.gaps) == (True, [[60.0, 500.0]])
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
    assert (file.tally.observed, file.tally.t, len(file.tally.requests)) == (60.0, 200.0, 1)
    assert file.tally.gaps[0][0] == 60.0


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


def test_a_step_as_the_loop_takes_it() -> None:
    step = SoakStep.model_validate(
        {"service": "x", "duration": "1h", "every": "5s", "arrivals": "fixed", "prompts": ["a"],
         "max_errors": 0}
    )  # fmt: skip
    assert plan_of(step) == SoakPlan(3600.0, 5.0, "fixed", ("a",), 0)
    assert len(plan_of(SoakStep.model_validate({"service": "x", "duration": "1h"})).prompts) == 3


@pytest.mark.parametrize(
    ("measured", "bound"),
    [
        ({}, 60.0),
        ({"other": (9.0, 9.0)}, 60.0),  # another service's
        ({"cand": (2.0, 1.0)}, 20.0),
        ({"cand": (1.0, 3.0)}, 30.0),  # the first request paged the model in
        ({"cand": (None, None)}, 60.0),
    ],
)
def test_the_first_silence_is_bounded_by_what_a_benchmark_saw(
    plan: MakePlan, measured: dict[str, tuple[float | None, float | None]], bound: float
) -> None:
    steps = [f"{{id: {name}, benchmark: {{service: {name}}}}}" for name in ("cand", "other")]
    view = RunView(
        metrics={name: {"ttft_s": {"max": warm}} for name, (warm, _) in measured.items()},
        measured={
            name: StepMeasurement({"cold": {"ttft_s": cold}})
            for name, (_, cold) in measured.items()
        },
    )
    context: Any = SimpleNamespace(plan=plan(NOTE, *steps), view=view)
    assert patience_for(context, "cand").cold_s == bound


def line(at: float, ram: int = 5, **more: Any) -> dict[str, Any]:
    return {"at": at, "step": "a", "gpu": {"G": ram * 2}, "ram": ram, "swap": 0, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "samples" / "gauges.jsonl"


def opened() -> set[str]:
    """What this process has open."""
    links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return {os.readlink(link) for link in links if link.is_symlink()}


@given(st.lists(st.integers(0, 100), min_size=1, max_size=200), st.integers(2, 30))
def test_bounded_and_the_peak_stays(tmp_path_factory: Any, rams: list[int], most: int) -> None:
    path = tmp_path_factory.mktemp("f") / "samples" / "gauges.jsonl"
    file = GaugeFile(path, most)
    for at, ram in enumerate(rams):
        file.add(line(at, ram))
        assert path.read_bytes().count(b"\n") <= most
    found = gauge_lines(path)
    stamps = [one["at"] for one in found]
    assert stamps == sorted(set(stamps))
    written = rams[: int(stamps[-1]) + 1]  # the rest waits for the end of its stride
    assert max(one["ram"] for one in found) == max(written)
    assert max(one["gpu"]["G"] for one in found) == 2 * max(written)
    assert len(written) > len(rams) - max(1, len(rams) * 2 // most)


def test_after_thinning_a_line_stands_for_twice_as_many_looks(path: Path) -> None:
    file = GaugeFile(path, 4)
    for at in range(9):
        file.add(line(at, ram=at))
    assert kept(path) == [3, 6, 8]
    file.add(line(9))
    assert kept(path) == [3, 6, 8], "a line is four looks by now"


def kept(path: Path) -> list[float]:
    return [one["at"] for one in gauge_lines(path)]


def test_a_second_runner_goes_on_and_a_torn_line_stays_alone(path: Path) -> None:
    first = GaugeFile(path, 10)
    first.add(line(0))
    first.close()
    with path.open("ab") as file:
        file.write(b'{"at": 1, "st')
    second = GaugeFile(path, 10)
    for at in range(2, 20):
        second.add(line(at))
        assert path.read_bytes().count(b"\n") <= 10
        assert at > 5 or kept(path) == [0, *range(2, at + 1)]


def test_a_full_disk_costs_lines_and_nothing_else(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/dev/full")
    file = GaugeFile(path)
    for at in range(5):
        file.add(line(at))
    path.unlink()
    file.add(line(5))
    assert gauge_lines(path) == [line(5)]
    file.close()
    assert {str(path), "/dev/full"} & opened() == set()


def test_a_directory_that_is_gone_or_a_file_is_no_error(tmp_path: Path) -> None:
    GaugeFile(tmp_path / "gone" / "samples" / "x").add(line(0))
    (tmp_path / "samples").write_text("a file")
    GaugeFile(tmp_path / "samples" / "x").add(line(0))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["samples"]


def test_a_thinning_that_fails_is_tried_again_later_and_the_bound_holds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, tries = GaugeFile(path, 4), []

    def full(path: Path, target: Path) -> None:
        tries.append(target)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        for at in range(4 + 2 * PATIENCE):
            file.add(line(at))
        assert (kept(path), len(tries)) == ([0, 1, 2, 3], 2)
        assert os.listdir(path.parent) == [path.name]
    for at in range(1000, 1004):
        file.add(line(at))
    assert kept(path)[:2] == [1, 3]
    assert 1000 <= kept(path)[2] <= 1003


def test_a_line_is_kept_as_it_is_and_what_is_none_is_passed_over(path: Path) -> None:
    file = GaugeFile(path)
    for at in range(3):
        file.add(line(at))
    file.close()
    assert gauge_lines(path) == [line(0), line(1), line(2)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_bytes(b'[1]\n{"at": "x"}\n\xff\xfe\n\n{"at": 1}\n' + b"[" * 5000 + b"\n")
    assert gauge_lines(path) == [{"at": 1}]
