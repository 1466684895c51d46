"""What a rollback prints: of each stage, of RAM that is freed, and of plans that it refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.common.errors import Exit, InvalidFile
from console.host.process import ProcessSpec
from console.recovery.rollback import context, observe
from console.recovery.rollback.finder import _belongs_to
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import Result, Trigger
from console.recovery.rollback.script import write
from console.recovery.rollback.sealed_plan import EngineAddress, SealedPlan
from console.recovery.rollback.stages import drain, measure, verify
from console.runtime.answers.completion import Completion
from console.runtime.probe import Health
from tests.clock import FakeClock
from tests.rollback.conftest import Stage
from tests.rollback.test_plan import FULL, GARBAGE
from tests.rollback.test_ram import MemoryStage, memory_stage

__all__ = ["memory_stage"]
GIB, MIB = 1 << 30, 1 << 20
SLEEPS = ProcessSpec(("sleep", "600.5"))
SERVES = (Health.SERVING, "200 OK")
LOADS = (Health.LOADING, "503: Loading model")
REFUSES = (Health.REFUSED, "connection refused")
PROVED = Completion(True, "2 tokens in 0.10 s", "", 2, 0.1, 50.0, status=200)
MUTE = Completion(False, "HTTP 500 out of memory", "", 0, 0.1, None, status=500)
Answers = Callable[..., None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Sets the health of the baseline's address, the last of which repeats, and completions."""

    def use(*states: tuple[Health, str], completes: object = PROVED, busy: bool = False) -> None:
        left = list(states)

        def health(*_: object) -> tuple[Health, str]:
            return left.pop(0) if len(left) > 1 else left[0]

        for module in (observe, verify, measure):
            monkeypatch.setattr(module, "health", health)
        monkeypatch.setattr(verify, "prove", lambda *_, **__: completes)
        monkeypatch.setattr(measure, "complete", lambda *_, **__: completes)
        for module in (verify, measure):
            monkeypatch.setattr(module, "busy", lambda *_, **__: busy)

    return use


def roll_back(stage: Stage, **changes: object) -> list[str]:
    """Every line of a rollback on a fake clock, and its result."""
    base = replace(stage.plan.baseline, process=SLEEPS, url="http://127.0.0.1:8000")
    more = changes.pop("baseline", {})
    stage.seal(baseline=replace(base, **more), **changes)  # type: ignore[arg-type]
    stage.lines.clear()
    trigger = Trigger("test-1", True, 0.0)
    result = Procedure(
        stage.plan, clock=FakeClock(), trigger=trigger, emit=stage.lines.append
    ).run()
    return [*reported(stage), *(steady(stage, one) for one in summary(result))]


def took(stage: Stage) -> float:
    """Seconds from the first line to the last one."""
    return float(stage.lines[-1]["t"] - stage.lines[0]["t"])


def reported(stage: Stage) -> list[str]:
    lines = [x for x in stage.lines if x["rung"] != "done" and "done" not in x]  # no figures
    found = [f"{x['rung']} {x['state']}: {x['detail']}" for x in lines]
    return [steady(stage, one) for one in found]


def summary(result: Result) -> list[str]:
    words = f"serving {result.serving}, degraded {result.degraded}, code {int(result.exit_code)}"
    figures = f"{result.tok_s} tok/s, reference {result.reference}"
    return [words, figures, f"nothing to do: {result.nothing_to_do}", *result.manual[-3:-2]]


def steady(stage: Stage, text: str) -> str:
    text = text.replace(str(stage.root), "…")
    return re.sub(r"(pid|process|kill) \d+", r"\1 N", text)


def test_a_baseline_that_comes_back(
    stage: Stage, answers: Answers, snapshot: SnapshotAssertion
) -> None:
    answers(REFUSES, REFUSES, LOADS, LOADS, SERVES)
    found = {"started": roll_back(stage)}
    answers(SERVES)
    found["a second time"] = roll_back(stage)
    found["slower than before"] = roll_back(stage, baseline={"reference_tok_s": 60.0})
    found["as before"] = roll_back(stage, baseline={"reference_tok_s": 54.0})
    answers(SERVES, completes=MUTE, busy=True)
    found["too busy to answer"] = roll_back(stage)
    assert found == snapshot


def test_a_baseline_that_does_not(
    stage: Stage, answers: Answers, snapshot: SnapshotAssertion
) -> None:
    timeout = {"ready_timeout_s": 120.0}
    answers(LOADS, completes=MUTE)
    found = {"it loads for ever": roll_back(stage, baseline=timeout)}
    stage.close()
    answers(REFUSES, SERVES, completes=MUTE)
    found["it completes nothing"] = roll_back(stage)
    stage.close()
    answers(REFUSES)
    found["no such program"] = roll_back(
        stage, baseline={"process": ProcessSpec(("/nowhere/llama-server",))}
    )
    engine = EngineAddress(socket=str(stage.root / "none.sock"))
    container = {"kind": "container", "container_id": "ab" * 32, "process": None}
    (stage.root / "bin").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(stage.root / "bin"))
        patch.setattr(Procedure, "_ping_engine", lambda *_: None)  # its note may come at any moment
        patch.setattr(context, "is_installed", lambda: True)
        found["no engine"] = roll_back(stage, baseline=container, engine=engine)
        limit_s = context.ENGINE_WAIT_S
        assert limit_s < took(stage) < limit_s + 30, "it may come back, but is waited for once"
        patch.setattr(context, "is_installed", lambda: False)
        found["none is installed"] = roll_back(stage, baseline=container, engine=engine)
        assert took(stage) < 1, "nothing is waited for that cannot come"
    for name in ("no engine", "none is installed"):
        assert len(found[name]) == len(set(found[name])), "each fact once"
    stage.seal(baseline=replace(stage.plan.baseline, process=SLEEPS, kind="process"))
    assert found == snapshot


def test_candidates_that_end(
    stage: Stage, answers: Answers, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(REFUSES, SERVES)
    found = {}
    for name, scarce in (("in time", False), ("at once", True)):
        monkeypatch.setattr(drain, "is_scarce", lambda scarce=scarce: scarce)
        stage.record("process", "cand", stage.sleeper("no"))
        roll_back(stage, grace_s=600.0)
        found[name] = [steady(stage, one) for one in reported(stage) if one.startswith("stop")]
    assert found == snapshot


def test_memory_that_comes_back(
    memory_stage: MemoryStage,
    stage: Stage,
    snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seen(trigger: str, *figures: int | None, stopped: int = 0, **plan: object) -> list[str]:
        memory_stage.wait(
            [*figures, *[figures[-1]] * 1000], memory_stage.context(trigger, stopped, **plan)
        )
        return reported(stage)

    def used(*figures: int | None) -> None:
        left = chain(figures, repeat(figures[-1]))
        monkeypatch.setattr(drain, "vram_used", lambda gpus, call_s: next(left))

    after, slow = "sentinel-1", (10 * GIB, 10 * GIB + 40 * MIB, 12 * GIB)
    found = {
        "nothing was stopped": seen("command-1", GIB),
        "gone at once": seen("runner-1", 20 * GIB, 20 * GIB + 8 * MIB, stopped=1),
        "gone slowly": seen("runner-1", *slow, stopped=1),
        "after a kill": seen(after, *(2 * GIB + step * 1200 * MIB for step in range(200))),
        "without an end": seen(after, *range(GIB, 900 * GIB, GIB)),
        "not known": seen(after, None),
    }
    used(90 * GIB, 40 * GIB, GIB)
    found["VRAM"] = seen(after, GIB, gpus=("GPU-1",), exclusive=True)
    used(None)
    found["VRAM not known"] = seen(after, GIB)
    stage.seal(gpus=(), exclusive=False)
    memory_stage.breach(2 * GIB)
    found["missing"] = seen(after, 5 * GIB)
    memory_stage.breach(0, metric="host.ram_available", below=6.0 * GIB)
    found["below its limit"] = seen(after, 5 * GIB)
    assert found == snapshot


def test_a_plan_that_is_refused(snapshot: SnapshotAssertion) -> None:
    found = []
    for value in GARBAGE:
        with pytest.raises(InvalidFile) as caught:
            SealedPlan.from_json(value, "x/plan.json")
        assert caught.value.exit_code is Exit.USAGE
        found.append(" | ".join(caught.value.lines()))
    assert found == snapshot


def test_what_a_person_would_type(
    tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    full, base = replace(FULL, candidates=()), FULL.baseline
    process = replace(base, process=ProcessSpec(("llama-server", "a b"), (("K", "v w"),), "/a b"))
    plans = {
        "a process": replace(full, baseline=process, engine=EngineAddress()),
        "a container": replace(full, baseline=replace(base, kind="container")),
        "a container by its name": replace(
            full, engine=EngineAddress(),
            baseline=replace(base, kind="container", container_id="", compose_argv=()),
        ),
        "an engine far away": replace(full, engine=EngineAddress(docker_host="tcp://a:1")),
    }  # fmt: skip
    assert {name: list(write.commands(plan)) for name, plan in plans.items()} == snapshot


def test_the_script(snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("OMNI_HOST_DIR", "/var/tmp")
    base = replace(FULL.baseline, completion=replace(FULL.baseline.completion, prompt="say"))
    process = write.render(replace(FULL, baseline=base))
    container = write.render(replace(FULL, baseline=replace(base, kind="container")))
    assert process == snapshot
    assert "\n".join(sorted(set(container.splitlines()) - set(process.splitlines()))) == snapshot


def test_a_run_of_another(snapshot: SnapshotAssertion) -> None:
    assert _belongs_to("run r1", 0) == snapshot
