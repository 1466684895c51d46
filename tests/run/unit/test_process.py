"""The runner process at its ends: what a refusal leaves behind, and who has the host meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.errors import ConsoleError, Exit
from console.frontends.tui.watch.actions import BINDS
from console.journal.lock import HostLock
from console.journal.state import RunState
from console.recovery.guard import config as guard_config
from console.recovery.rollback.progress import Result
from console.runner import main as runners
from console.runner.control import Verb
from console.runner.executors import manual
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import META, Bench, mine
from tests.waiting import host_is_free

HANDLE = {"kind": "container", "container": "c"}


class Climb:
    """Stands where the runner's own ladder does: whether the host was free, before and after it
    settled."""

    def __init__(self) -> None:
        self.free: list[bool] = []

    def __call__(self, plan: object, *, settle: Callable[[], None]) -> Climb:
        self.settle = settle
        return self

    def run(self) -> Result:
        self.free.append(host_is_free())
        self.settle()
        self.free.append(host_is_free())  # the closer is started now
        return Result(serving=True)


class Broken:
    def __init__(self, context: object) -> None:
        pass

    def run(self) -> None:
        raise RuntimeError("a fault")


@pytest.fixture
def climb(monkeypatch: pytest.MonkeyPatch) -> Climb:
    made = Climb()
    monkeypatch.setattr(runners, "Procedure", made)
    return made


@pytest.fixture
def bench(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, plan("{id: up, service: {start: cand}}"), monkeypatch)
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made.context.run.write_meta(META)
    ignored = SimpleNamespace(SIGHUP=1, SIGPIPE=13, SIGTERM=15, SIG_IGN=1, signal=lambda *_: None)
    monkeypatch.setattr(runners, "signal", ignored)
    monkeypatch.setattr(runners, "_context", lambda run, closing: made.context)
    yield made
    made.close()


def run(bench: Bench, *, resume: bool) -> tuple[int, dict[str, Any]]:
    """The exit code, and the word that was said."""
    code = runners.main(bench.context.run, ready_fd=-1, resume=resume, close=False, from_step="")
    return code, json.loads((bench.context.run.path / "runner.word").read_text())


# -- a resume that is refused ----------------------------------------------------------------------


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(context: object, **_: object) -> None:
        raise ConsoleError("the sentinel did not start", "see its log")

    monkeypatch.setattr(runners, "_begin", begin)


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("up", [{"outage": {"down": True}}, {"service": {"service": "cand"}}])
def test_what_is_up_is_not_left_unguarded(bench: Bench, climb: Climb, up: dict[str, Any]) -> None:
    for event, data in up.items():
        bench.context.record(event, **{"alive": True, **HANDLE, **data})
    code, word = run(bench, resume=True)
    assert (code, word["title"]) == (Exit.INTERNAL, "the sentinel did not start")
    assert word["detail"].splitlines() == ["see its log", runners.UNGUARDED]
    assert climb.free == [False, True]


@pytest.mark.usefixtures("refused")
@pytest.mark.parametrize("how", ["watched", "over", "nothing up", "a new run"])
def test_nothing_is_done_where_nothing_is_owed(bench: Bench, climb: Climb, how: str) -> None:
    if how != "nothing up":
        bench.context.record("outage", down=True)
    if how == "watched":
        page = dict(zip(("pid", "start"), mine(), strict=True))
        (bench.context.run.guard / guard_config.READY).write_text(json.dumps(page))
    if how == "over":
        bench.context.enter(RunState.ROLLING_BACK)
        bench.context.enter(RunState.ROLLBACK_FAILED)
    word = run(bench, resume=how != "a new run")[1]
    assert (word["detail"], climb.free) == ("see its log", [])


# -- a runner that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize("up", [True, False])
def test_no_other_run_begins_while_the_baseline_is_brought_back(
    bench: Bench, climb: Climb, monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    monkeypatch.setattr(runners, "_begin", lambda context, **_: None)
    monkeypatch.setattr(runners, "_watch_machine", lambda context, resumed: None)
    monkeypatch.setattr(runners, "_end", lambda context, server: None)
    monkeypatch.setattr(runners, "Runner", Broken)
    bench.context.record("outage", down=up)
    assert run(bench, resume=False)[0] == Exit.INTERNAL
    assert climb.free == ([False, True] if up else [])
    assert host_is_free()


def test_a_resume_beside_a_live_runner_touches_nothing(bench: Bench, climb: Climb) -> None:
    bench.context.record("outage", down=True)
    held = HostLock()
    assert run(bench, resume=True)[0] == Exit.BUSY
    assert climb.free == []
    held.release()


# -- verbs that come at once -----------------------------------------------------------------------


def test_who_reads_a_state_in_the_journal_may_answer_it_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, control, append = bench.context, bench.context.control, bench.context.journal.append
    stood: list[tuple[str, RunState]] = []

    def appended(at: float, kind: str, step: str, attempt: int, data: dict[str, Any]) -> int:
        seq = append(at, kind, step, attempt, data)
        stood.append((data.get("state", ""), control.state))
        if data.get("state") == "waiting_approval":
            assert control.ask(Verb("approve", "op"), {n: control.status()[n] for n in BINDS}) == ""
        return seq

    monkeypatch.setattr(context.journal, "append", appended)
    control.set(step="up", attempt=1)
    attempt: Any = SimpleNamespace(step="up", remaining=lambda: 1.0)
    assert manual.wait(context, attempt, "go on?", 0.0, "").detail == "approved by op"
    context.enter(RunState.PAUSED, "operator")
    assert [said for said, state in stood if said and said != state] == []
