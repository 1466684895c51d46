"""What the kernel tells of a baseline that answers no check in time."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.checks.doctor import baseline
from console.checks.doctor.facts import Facts
from console.common import paths
from console.host import process
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from tests.waiting import until

SPEC = ProcessSpec(("sleep", "600"))


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    """A process on record as the baseline of the facts' site."""
    place = tmp_path / "records"
    place.mkdir()
    site = SimpleNamespace(name="s", baseline_spec=lambda: SimpleNamespace(runs=SPEC))
    monkeypatch.setattr(Facts, "site", lambda _: site)
    monkeypatch.setattr(paths, "records_dir", lambda _: place)
    plan = SealedPlan("", "", Baseline("baseline", "process", "http://127.0.0.1:9"), "s")
    monkeypatch.setattr(baseline, "_plan", lambda _: plan)
    mark = process.mark(place, "baseline", SPEC)
    made = process.spawn(SPEC, log=tmp_path / "log", cookie=BASELINE_COOKIE, extra_env=[mark])
    process.write_record(place, "baseline", SPEC, *made, process.Owner(), 0)
    yield made
    process.stop_group(*made, grace_s=0.0, cookie=BASELINE_COOKIE)


def test_one_that_is_stopped_is_said_to_be_with_what_lets_it_go_on(
    running: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "WORK_S", 0.0)
    assert baseline.at_work(Facts()) == ""
    process.send(*running, signal.SIGSTOP)
    until(lambda: getattr(process.stat(running[0]), "state", "") == "T", "it is stopped")
    words: Any = baseline.at_work(Facts())
    assert words == f"its process is stopped by a signal: kill -CONT {running[0]} lets it go on"
