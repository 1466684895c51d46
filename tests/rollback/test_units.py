"""A baseline that is a systemd unit, by the ladder and the script; systemctl is a stand-in."""

import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.common.errors import ServiceError
from console.host import ports, process, units
from console.host.licence import Licence, Reason
from console.host.units import UnitSpec
from console.recovery.rollback import observe
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.script.write import commands
from console.recovery.rollback.stages import start, verify, whose
from console.runtime.probe import Health, health
from console.runtime.spec import Handle, Launch, ServiceSpec
from console.runtime.unit_driver import UnitDriver
from tests.rollback.conftest import Stage, run_script, standin
from tests.waiting import some, until

SYSTEMCTL = Path(__file__).with_name("systemctl.py")
BASELINE = Licence(Reason.BASELINE, "test")
UNIT = UnitSpec("llama@big.service")


class Unit:
    """A unit of the stand-in; the stage's baseline."""

    def __init__(self, stage: Stage, place: Path) -> None:
        self.stage, self.place = stage, place

    def write(self, *words: str) -> None:
        argv = [*some(standin(self.stage.port)).argv, *words]
        (self.place / UNIT.name).write_text(json.dumps(argv))

    @property
    def pid(self) -> int:
        return units.look(UNIT).main

    def begin(self) -> int:
        units.start(UNIT)
        self.stage.until_it_is()
        return self.pid

    def said(self, verb: str) -> list[str]:
        rows = (self.place / "said").read_text().splitlines()
        return [row for row in rows if re.search(rf"\b{verb}\b", row)]


def stands_in(place: Path) -> str:
    return f'exec {shlex.join([sys.executable, "-S", str(SYSTEMCTL), str(place)])} "$@"'


@pytest.fixture
def unit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unit]:
    place = stage.root / "units"
    place.mkdir()
    monkeypatch.setenv("PATH", stage.tool("systemctl", stands_in(place)))
    stage.tool("journalctl", "echo what it wrote; echo CUDA error")
    stage.base(kind="unit", process=None, unit=UNIT)
    made = Unit(stage, place)
    made.write()
    yield made
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", stage.tool("systemctl", stands_in(place)))
        if made.pid:
            os.killpg(made.pid, signal.SIGKILL)


def test_a_unit_that_is_down_is_started(unit: Unit, restore: Callable[[], None]) -> None:
    restore()
    assert ports.listener(unit.stage.plan.baseline.url) is not None
    assert some(ports.listener(unit.stage.plan.baseline.url)).pid == unit.pid
    assert len(unit.said("start")) == 1


def test_a_unit_that_serves_is_left_alone(unit: Unit, restore: Callable[[], None]) -> None:
    pid = unit.begin()
    restore()
    assert unit.pid == pid
    assert unit.said("stop") == []


def test_one_that_hangs_is_killed_and_started_again(
    unit: Unit, restore: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts connections and answers none of them; a stop in order it does not notice."""
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    monkeypatch.setattr(observe, "SLOW_S", 0.2)
    monkeypatch.setattr(start, "RESTART_GRACE_S", 1.0)
    pid = unit.begin()
    os.kill(pid, signal.SIGSTOP)
    restore()
    assert unit.pid not in (0, pid)
    assert unit.said("SIGKILL")


def test_what_answers_in_its_place_is_not_the_baseline(unit: Unit) -> None:
    """The unit is up and does not listen; a process of the same user has its port."""
    (unit.place / UNIT.name).write_text(json.dumps(["sleep", "600"]))
    units.start(UNIT)
    unit.stage.base(ready_timeout_s=1.0)
    unit.stage.spawn(list(standin(unit.stage.port).argv), cookie="other")
    unit.stage.until_it_is()
    assert not unit.stage.roll_back().serving, unit.stage.lines
    done = run_script(unit.stage)
    assert done.returncode == 7, done.stdout


def test_a_candidate_ends_and_the_unit_does_not(unit: Unit, restore: Callable[[], None]) -> None:
    pid = unit.begin()
    candidate = unit.stage.recorded("process", "cand", cookie=unit.stage.plan.run_id)
    restore()
    assert not process.alive(*candidate)
    assert unit.pid == pid


@pytest.mark.parametrize("fault", ["gone", "denied"])
def test_a_unit_that_cannot_be_started(unit: Unit, fault: str) -> None:
    """The words of systemd, and what a person can type."""
    unit.stage.base(ready_timeout_s=1.0)
    if fault == "gone":
        (unit.place / UNIT.name).unlink()
    else:
        body = 'case "$*" in *start*) echo Interactive authentication required. >&2; exit 1;; esac'
        unit.stage.tool("systemctl", f"{body}\n{stands_in(unit.place)}")
    words = "Unit llama@big.service not found" if fault == "gone" else "authentication required"
    result = unit.stage.roll_back()
    assert not result.serving
    assert any(one.endswith(" || systemctl start llama@big.service") for one in result.manual)
    failed = " ".join(unit.stage.said("start", "failed"))
    assert ("there is no unit" if fault == "gone" else words) in failed
    done = run_script(unit.stage)
    assert (done.returncode, words in done.stdout) == (7, True), done.stdout


@pytest.mark.parametrize("silent", [False, pytest.param(True, marks=pytest.mark.full)])
def test_without_an_answer_of_systemd_no_rollback_waits_for_it(
    unit: Unit, silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "CALL_S", 1.0)
    unit.stage.base(ready_timeout_s=1.0)
    unit.stage.tool("systemctl", "exec sleep 600" if silent else "exit 1")
    assert not unit.stage.roll_back().serving
    assert run_script(unit.stage).returncode == 7


def test_a_plan_names_the_unit(unit: Unit) -> None:
    plan = replace(unit.stage.plan, baseline=replace(unit.stage.plan.baseline, unit=UNIT))
    assert sealed.SealedPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert "journalctl --unit llama@big.service --lines 50 --no-pager" in commands(plan)
    mine = replace(plan.baseline, unit=UnitSpec("a.service", user=True))
    typed = commands(replace(plan, baseline=mine))
    assert any(one.endswith(" || systemctl --user start a.service") for one in typed)
    value = plan.to_json()
    value["baseline"]["unit"] = None
    with pytest.raises(Exception, match="not a usable"):
        sealed.SealedPlan.from_json(value)


def test_the_end_of_an_earlier_start_is_no_cause_of_this_one(unit: Unit) -> None:
    """`CUDA error` is what ended the start before; this one says nothing of it."""
    (unit.place / UNIT.name).write_text(json.dumps(["sh", "-c", "exit 3"]))
    units.start(UNIT)
    until(lambda: not units.look(UNIT).is_up, "it has ended")
    before = units.look(UNIT).invocation
    other = f"*{before}*) echo CUDA error ;; *_INVOCATION_ID=*) echo bad flag ;;"
    unit.stage.tool("journalctl", f'case "$*" in {other} *) echo CUDA error ;; esac')
    assert units.last_lines(UNIT, 5, before) == ["CUDA error"]
    result = unit.stage.roll_back()
    assert not result.serving
    assert "bad flag" in result.detail
    assert "CUDA error" not in result.detail
    lines = UnitDriver(ServiceSpec("baseline", "", UNIT)).last_lines(Handle("b", "process"), 5)
    assert lines == ["bad flag"]


def test_the_driver(unit: Unit) -> None:
    spec = ServiceSpec("baseline", unit.stage.plan.baseline.url, UNIT)
    driver, seen = UnitDriver(spec), list[Handle]()
    assert driver.find() is None
    made = driver.start(Launch("run", unit.stage.root / "x.log", seen.append))
    assert (seen, made.pid, made.kind) == ([made], unit.pid, "process")
    assert driver.find() == made
    assert driver.status(made).alive
    assert driver.last_lines(made, 1) == ["CUDA error"]
    unit.stage.until_it_is()
    driver.stop(BASELINE, made, 10.0)
    assert (driver.find(), driver.status(made).alive) == (None, False)
    assert unit.said("SIGKILL") == []
    assert not units.stop(BASELINE, UNIT, 1.0), "it is down"


def test_a_stop_ends_by_force_and_says_what_outlives_it(
    unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit.write("--ignore-term")
    unit.begin()
    assert units.stop(BASELINE, UNIT, 0.2, SystemClock())
    assert unit.said("SIGKILL")
    assert health(unit.stage.plan.baseline.url)[0] is Health.REFUSED
    unit.begin()
    monkeypatch.setattr(units.memory, "kill_wait_s", lambda _: 0.2)
    body = 'case "$*" in *kill*) exit 0;; esac'
    unit.stage.tool("systemctl", f"{body}\n{stands_in(unit.place)}")
    with pytest.raises(ServiceError, match="outlived SIGKILL"):
        units.stop(BASELINE, UNIT, 0.2)


def test_a_unit_that_listens_at_another_address_is_left_alone(
    stage: Stage, unit: Unit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whose, "ELSEWHERE_S", 0.0)
    unit.write("--host", "127.0.0.4")
    units.start(UNIT)
    until(lambda: health(f"http://127.0.0.4:{stage.port}")[0] is Health.SERVING, "it serves")
    pid = unit.pid
    result = stage.roll_back()
    assert f"it listens at 127.0.0.4:{stage.port}, and the url says 127.0.0.1" in result.detail
    assert (result.exit_code, unit.pid) == (7, pid)
    assert not unit.said("restart")
