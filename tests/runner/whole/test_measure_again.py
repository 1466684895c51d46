"""A gate on HOLD for want of samples: it says why, and what can be measured again is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.bench.interference import Look
from console.bench.sample import Sample
from console.journal.run_view import RunView
from console.runner.executors import benchmark
from tests.runner.e2e.sites import SIDE, UP, book
from tests.runner.whole.world import ScriptedWorld as World

BENCH = "id: bench, benchmark: {service: %s, max_tokens: 4, runs: 5, warmup: 0, against: baseline}"
GATE = 'id: go, gate: [{metric: bench.tok_s, go: ">= 0.01 x baseline", min_samples: 3}]'
BUSY = "another engine was busy: llama-server pid 123"


@pytest.fixture
def busy(world: World, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the names of the services that another engine disturbs in most of their runs."""
    path, seen = world.root / "busy", list[str]()

    def surroundings(server: Any, others: Any) -> Any:
        made = world._surroundings(server, others)

        def judge(sample: Sample, before: Look, after: Look) -> Sample:
            seen.append(server.name)
            disturbed = path.exists() and server.name in path.read_text().split()
            spoilt = disturbed and seen.count(server.name) % 5 != 1
            return replace(sample, void=f"{BUSY} (1.3 cores)") if spoilt else sample

        made.judge = judge  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(benchmark, "Surroundings", surroundings)
    return path


def trial(service: str, start: str, *, stopped: bool) -> str:
    stop = [f"id: down, service: {{stop: {service}}}"] if stopped else []
    return book(start, BENCH % service, *stop, GATE)


def at_the_gate(world: World) -> RunView:
    """Go on past the question before the trial, to the gate that lacks samples."""
    world.state("paused:few_baseline")
    world.until(lambda: world.status().get("reason") == "few_baseline", "it waits")
    ok(world, "continue")
    return world.state("paused:few_samples", "paused:hold")


def attempts(world: World) -> dict[str, int]:
    return {step.id: step.attempt for step in world.view().steps if step.attempt}


def ok(world: World, verb: str, *args: str) -> None:
    told = world.tell(verb, *args)
    assert told.code == 0, told


def test_the_reason_is_at_the_step_at_the_gate_and_in_show(world: World, busy: Path) -> None:
    busy.write_text("baseline")
    world.detach(world.write("b.yaml", trial("side", SIDE, stopped=True)))
    view = at_the_gate(world)
    step = world.at("baseline:measure")
    assert step.warned
    assert step.detail.endswith(f"1 valid run, 4 discarded: {BUSY}"), step.detail
    assert f"1 of 5 baseline runs valid; 3 needed ({BUSY})" in view.detail
    assert view.offer == "measure the baseline again"
    shown = world.console("show", world.run.id).out
    assert "! baseline:measure" in shown
    assert BUSY in shown
    assert f"tell {world.run.id[-4:]} measure: measure the baseline again" in shown
    assert view.detail in shown
    report = world.console("report", world.run.id).out
    assert "1 of 5 baseline runs valid; 3 needed" in report
    assert BUSY in report


def test_the_baseline_alone_is_measured_again_and_the_gate_judges_anew(
    world: World, busy: Path
) -> None:
    busy.write_text("baseline")
    world.detach(world.write("b.yaml", trial("side", SIDE, stopped=True)))
    at_the_gate(world)
    ok(world, "measure")
    world.state("paused:few_baseline")
    assert world.states()["go"] == "pending", "the other engine is busy still"
    busy.unlink()
    world.until(lambda: world.status().get("attempt") == 2, "it waits")
    ok(world, "measure", "--reason", "the other engine is gone")
    view = world.over()
    assert (str(view.state), str(view.decision)) == ("succeeded", "go")
    wanted = {"baseline:measure": 3, "go": 2, "bench": 1, "up": 1}
    assert wanted.items() <= attempts(world).items()
    assert not world.at("baseline:measure").warned
    assert [(v.verb, v.why) for v in view.verbs] == [
        ("continue", ""), ("measure", ""), ("measure", "the other engine is gone"),
    ]  # fmt: skip


def test_a_candidate_that_was_stopped_is_started_measured_and_stopped_again(
    world: World, busy: Path
) -> None:
    busy.write_text("side")
    world.detach(world.write("b.yaml", trial("side", SIDE, stopped=True)))
    assert world.state("paused:few_samples").offer == "measure the candidate again"
    busy.unlink()
    ok(world, "measure")
    assert str(world.over().decision) == "go"
    wanted = {"up": 2, "bench": 2, "down": 2, "go": 2, "baseline:measure": 1}
    assert wanted.items() <= attempts(world).items()
    assert not world.listens(world.cand_url)


def test_a_candidate_that_is_up_is_only_measured_again(world: World, busy: Path) -> None:
    busy.write_text("cand")
    world.detach(world.write("b.yaml", trial("cand", UP, stopped=False)))
    assert world.state("paused:few_samples").offer == "measure the candidate again"
    assert world.view().outage
    busy.unlink()
    ok(world, "measure")
    assert str(world.over().decision) == "go"
    assert {"up": 1, "bench": 2, "go": 2, "baseline:stop": 1}.items() <= attempts(world).items()
    assert world.serves()


def test_an_exclusive_candidate_that_was_stopped_has_its_outage_again(
    world: World, busy: Path
) -> None:
    busy.write_text("cand")
    world.detach(world.write("b.yaml", trial("cand", UP, stopped=True)))
    world.state("paused:few_samples")
    assert not world.view().outage, "the baseline is back before the gate"
    busy.unlink()
    ok(world, "measure")
    assert str(world.over().decision) == "go"
    twice = {"baseline:stop": 2, "up": 2, "bench": 2, "down": 2, "baseline:restore-1": 2}
    assert twice.items() <= attempts(world).items()
    assert world.serves()


def test_a_baseline_that_is_down_is_not_offered(world: World, busy: Path) -> None:
    busy.write_text("baseline")
    world.detach(world.write("b.yaml", trial("cand", UP, stopped=False)))
    view = at_the_gate(world)
    assert view.reason == "hold"
    assert "the baseline is down for this run, so it cannot be measured now" in view.detail
    assert view.offer == ""
    refused = world.tell("measure")
    assert refused.code == 5
    assert "'measure' is not possible while the run is paused (hold)" in refused.err
    ok(world, "abort")
    world.over()
    assert world.serves()


def test_a_runner_that_dies_in_the_middle_goes_on_with_the_same_steps(
    world: World, busy: Path
) -> None:
    busy.write_text("side")
    path = world.write("b.yaml", trial("side", SIDE, stopped=True))
    world.detach(path)
    world.state("paused:few_samples")
    busy.unlink()
    for fault in ("before_intent@up", "in_benchmark@bench", "before_intent@go"):
        world.interrupt() if fault.endswith("up") else world.dead()
        resumed = world.console("resume", world.run.id, "--detach", OMNI_FAULT=fault)
        assert resumed.code == 0, resumed
        if fault.endswith("up"):
            world.until(lambda: world.status().get("reason") == "few_samples", "it asks again")
            ok(world, "measure")
    world.dead()
    assert world.states()["go"] == "pending", "no verdict of the samples before is left"
    assert world.view().verdicts == []
    assert world.console("resume", world.run.id, "--json").code == 0
    view = world.over()
    assert (str(view.state), str(view.decision)) == ("succeeded", "go")
    assert attempts(world)["baseline:measure"] == 1
    assert not world.listens(world.cand_url)


def test_an_input_may_be_changed_with_it(world: World, busy: Path) -> None:
    busy.write_text("baseline")
    text = trial("side", SIDE, stopped=True).replace("runs: 5", 'runs: "${{ inputs.runs }}"')
    text = text.replace("inputs: {}", "inputs: {runs: {type: int, default: 5}}")
    world.detach(world.write("b.yaml", text))
    at_the_gate(world)
    busy.unlink()
    ok(world, "measure", "--input", "runs=6")
    assert str(world.over().decision) == "go"
    assert world.view().measured["bench.baseline"].benchmark["protocol"]["runs"] == 6


def test_a_baseline_with_too_few_samples_is_told_before_the_outage(
    world: World, busy: Path
) -> None:
    busy.write_text("baseline")
    path = world.write("b.yaml", trial("cand", UP, stopped=False))
    world.detach(path)
    view = world.state("paused:few_baseline")
    assert not view.outage
    assert world.states()["baseline:stop"] == "pending"
    few = f"gate go could only be HOLD: 1 of 5 baseline runs valid; 3 needed ({BUSY})"
    assert (view.detail, view.offer) == (few, "measure the baseline again")
    world.interrupt()
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: world.status().get("reason") == "few_baseline", "it asks again")
    busy.unlink()
    ok(world, "measure")
    assert str(world.over().decision) == "go"
    assert attempts(world)["baseline:measure"] == 2
    busy.write_text("baseline")
    headless = world.go(path)
    assert (headless.code, headless.json["decision"]) == (4, "hold"), "nobody is there to ask"
