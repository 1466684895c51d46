"""A container that ends soon after each start: its engine waits longer and longer before the next
one, and a rollback does not wait with it."""

from typing import Any

import pytest

from console.common.clock import SystemClock
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.progress import Report, new_trigger
from console.recovery.rollback.script.write import LOOPS
from console.recovery.rollback.stages.start import Baseline
from console.recovery.rollback.stages.verify import Readiness, waits_to_start_again
from tests.rollback.conftest import DASH, Stage, run_script


def container(restarts: int, **state: Any) -> dict[str, Any]:
    return {"State": {"ExitCode": 3, **state}, "RestartCount": restarts}


@pytest.mark.parametrize(
    ("seen", "waits"),
    [
        (container(7, Restarting=True), True),
        (container(3, Restarting=True), True),
        (container(2, Restarting=True), False),
        (container(7, Restarting=False, Running=True), False),
        ({"State": None, "RestartCount": 7}, False),
        ({}, False),
    ],
)
def test_it_is_known_by_its_count_while_it_waits(seen: dict[str, Any], waits: bool) -> None:
    assert waits_to_start_again(seen) is waits


def test_its_first_look_names_it_with_its_last_lines(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to wait for four starts, which take longer and longer, for its whole `ready`."""
    stage.base(kind="container", process=None, container_name="base", ready_timeout_s=3600.0)
    clock = SystemClock()
    report = Report(stage.root / "lines", new_trigger(clock), clock, None)
    baseline = Baseline(RollbackContext(stage.plan, clock, report, None))
    monkeypatch.setattr(baseline, "running", lambda: True)
    monkeypatch.setattr(baseline, "last_lines", lambda *_, **__: ["loads", "no such model: x.gguf"])
    baseline.inspected = container(7, Restarting=True)
    readiness = Readiness(baseline.context, baseline)
    words = readiness._ends_each_time()
    report.close()
    assert words.startswith("its container engine starts it again and again: ")
    assert "no such model: x.gguf" in words
    assert readiness.loops


def test_what_is_to_be_done_by_hand_is_not_to_wait() -> None:
    assert "wait" not in LOOPS


SAYS = """
case "$*" in
  *.RestartCount*) echo "7, exit code 3" ;;
  *.State.Running*) echo "false false true 0 never" ;;
  *stop*|*start*) echo "$1" >>{0} ;;
esac
"""


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_starts_it_anew_once_and_gives_up(stage: Stage) -> None:
    path = stage.tool("docker", SAYS.format(stage.root / "calls"))
    stage.base(
        kind="container", process=None, container_id="a" * 64, container_name="base",
        ready_timeout_s=30.0,
    )  # fmt: skip
    done = run_script(stage, path)
    assert done.returncode == 7
    words = "its container engine starts it again and again: the baseline ended, exit code 3"
    assert words in done.stdout
    assert "not ready after" not in done.stdout
