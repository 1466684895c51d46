"""What a snapshot holds of a run's files: its logs in order, and nothing a terminal acts on."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from console.common.text import clean, cleaned
from console.frontends.tui.watch.run import RunWatch
from console.host.process import ProcessSpec
from console.journal.run_files import Source
from console.journal.state import RunState
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from tests.clock import FakeClock
from tests.waiting import until
from tests.watch.conftest import Hand

Make = Callable[..., Hand]
EVIL = "\x1b]52;c;eA==\x07\x1b[2J\x9b31m\x1b]0;t\x1b\\boo\u202e\r\n\x08"


def strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [s for pair in value.items() for part in pair for s in strings(part)]
    if isinstance(value, list | tuple):
        return [s for item in value for s in strings(item)]
    return []


def forge(made: Hand) -> None:
    """A journal and a ladder with an escape in every string that may be free."""
    row = {"id": EVIL, "title": EVIL, "phase": EVIL, "kind": EVIL, "effects": [EVIL]}
    made.add(
        "run.created", run_id=EVIL, title=EVIL, playbook=EVIL, site=EVIL, owner=EVIL,
        inputs={EVIL: EVIL}, steps=[row], **{EVIL: [EVIL, {EVIL: EVIL}]},
    )  # fmt: skip
    made.state("running", reason=EVIL, detail=EVIL)
    made.add("step.state", EVIL, 1, state="running", effects=[EVIL], detail=EVIL)
    made.add("step.say", EVIL, 1, text=EVIL)
    made.add("step.state", EVIL, 1, state="failed", cause=EVIL, detail=EVIL, lines=[EVIL] * 2)
    made.add("metrics", EVIL, scope=EVIL, metrics={EVIL: {EVIL: EVIL}}, benchmark={EVIL: EVIL})
    criteria = [{"metric": EVIL, "verdict": "GO", "why": EVIL}]
    made.add("verdict", EVIL, verdict="GO", outcome=EVIL, criteria=criteria, overridden=EVIL)
    made.add("verb", EVIL, verb=EVIL, who=EVIL, why=EVIL, args={EVIL: EVIL})
    made.add("input", EVIL, name=EVIL, value=EVIL)
    made.add("rung", EVIL, rung=EVIL, state=EVIL, detail=EVIL)
    made.add("serving", EVIL, detail=EVIL)
    made.add("service", EVIL, service=EVIL, alive=True, container=EVIL)
    made.add(EVIL, EVIL, why=EVIL)
    line = {"trigger": EVIL, "rung": EVIL, "state": EVIL, "detail": EVIL, "manual": [EVIL]}
    made.run.ladder.write_text(json.dumps(line) + "\n")


def test_a_forged_journal_is_harmless(hand: Make) -> None:
    made = hand()
    made.runner()
    control = made.serve()
    control.set(reason=EVIL, step=EVIL, evidence=EVIL, mode=EVIL, confirm=EVIL)
    forge(made)
    watch = RunWatch(lambda snapshot: None, made.run, poll_s=0.02)
    watch.start()
    try:
        now: Any = until(lambda: (s := watch.latest) and s.control and s)
    finally:
        watch.close()
    [step] = now.view.steps
    assert clean(EVIL).startswith("boo\ufffd")
    assert (step.id, step.cause, step.detail) == (clean(EVIL),) * 3
    assert (len(step.lines), len(now.stages), len(now.view.verdicts)) == (2, 1, 1)
    assert now.view.services
    found = [*strings(asdict(now.view)), *strings(now.control), *strings(now.stages)]
    found += [now.trouble, now.word, *(log.name for log in now.logs)]
    assert sum("boo" in s for s in found) > 40
    assert [s for s in found if s != clean(s)] == []
    assert not any("\x1b" in s or "\n" in s for s in found)


def test_what_readers_take_for_text_is_text(hand: Make) -> None:
    made = hand()
    made.add("step.say", "one", 1, text={"a": [EVIL]})
    made.add("step.state", "one", 1, state="failed", cause=5, detail=None, lines="abc")
    made.add("verdict", "one", verdict="GO", outcome=["x"], criteria=[{"metric": 7}, "no"])
    made.add("step.say", "one", 1, text="last")
    source = Source(made.run, FakeClock())
    source.look()
    source.close()
    step = source.view.steps[0]
    assert (step.cause, step.message, len(source.view.trouble)) == ("", "last", 3)
    assert not source.view.verdicts
    assert [t for t in (source.trouble, *source.view.trouble) if not t or t != clean(t)] == []


def test_a_value_that_is_nested_without_end_is_cut_off() -> None:
    deep: Any = EVIL
    for _ in range(500):
        deep = [{"a": deep}]
    assert strings(cleaned(deep)) == ["a"] * 6


def names(source: Source) -> list[tuple[str, str, bool]]:
    return [(log.name, log.kind, log.filled) for log in source.logs]


def write(path: Path, text: str = "x\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_logs_in_the_order_that_matters_now(hand: Make, tmp_path: Path) -> None:
    made, clock = hand(), FakeClock()
    source = Source(made.run, clock)
    made.runner()
    source.look()
    assert names(source) == [("the runner's own log", "console", False)]
    spec = ProcessSpec(("serve",))
    base = Baseline("b", "process", "http://127.0.0.1:1", process=spec, log=str(tmp_path / "b.log"))
    sealed.write(SealedPlan("r", str(made.run.path), base), made.run.sealed)
    made.state("running")
    for step in ("one", "two"):
        made.step(step, "running")
        made.step(step, "succeeded")
        write(made.run.attempt_log(step, 1))
    write(made.run.log("gone"))
    write(made.run.log("serves"), "")
    made.add("service", "two", service="serves", alive=True)
    source.look()
    assert len(source.logs) == 1, "not more often than once a second"
    clock.sleep(1.1)
    source.look()
    services = [
        ("serves", "service", False), ("gone", "service", True), ("baseline", "service", False),
    ]  # fmt: skip
    outputs = [("output of two", "step", True), ("output of one", "step", True)]
    runner = ("the runner's own log", "console", False)
    assert names(source) == [outputs[0], *services, outputs[1], runner]
    assert [log.step for log in source.logs] == ["two", "", "", "", "one", ""]
    made.add(
        "run.created", run_id=made.run.id, title="t", playbook="p", owner="me",
        steps=[{"id": s, "title": s, "phase": "p", "kind": "benchmark"} for s in ("one", "two")],
    )  # fmt: skip
    for step in ("one", "two"):
        made.step(step, "running")
    write(made.run.log("serves"))
    clock.sleep(1.1)
    source.look()
    services[0] = ("serves", "service", True)
    assert names(source) == [*services, *outputs, runner], "a benchmark says little itself"
    source.close()


def test_an_empty_log_that_fills_is_said_and_an_ended_run_is_left_alone(hand: Make) -> None:
    made, clock = hand(), FakeClock()
    source = Source(made.run, clock)
    made.runner()
    made.state("running")
    source.look()
    made.run.runner_log.write_text("words\n")
    clock.sleep(1.1)
    source.look()
    assert names(source) == [("the runner's own log", "console", True)]
    made.state("failed")
    made.run.live.unlink()
    clock.sleep(1.1)
    source.look()
    assert source.view.state is RunState.FAILED
    assert not source.alive
    write(made.run.log("late"))
    clock.sleep(60.0)
    source.look()
    assert len(source.logs) == 1
    source.close()
