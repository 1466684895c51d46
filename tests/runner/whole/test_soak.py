"""A soak in a whole run, and one that is ended before its time or loses its server."""

from typing import Any

import pytest

from console.journal.run_view import RunView
from console.journal.samples import soak_lines
from tests.runner.e2e.sites import SIDE, book
from tests.runner.whole.world import ScriptedWorld
from tests.runner.world import WorldBase as World

JUDGE = "id: stable, gate: [{metric: soak.errors, go: '== 0'}]"


def soak(duration: str, more: str = "", service: str = "side") -> str:
    return (
        f"id: soak, soak: {{service: {service}, duration: {duration}, every: 1s, "
        f"max_tokens: 4{more}}}"
    )


def figure(view: RunView, name: str) -> Any:
    return view.metrics["soak"][name]["value"]


def lines(world: World) -> list[dict[str, Any]]:
    """What the newest attempt at the soak has written so far."""
    found = sorted((world.run.path / "attempts").glob("soak.*.soak.jsonl"))
    return list(soak_lines(found[-1])) if found else []


def answered(world: World, count: int) -> bool:
    return sum(1 for line in lines(world) if line.get("ok")) >= count


@pytest.fixture
def soaking(world: World) -> World:
    world.detach(world.write("b.yaml", book(SIDE, soak("10h"), JUDGE)))
    world.until(lambda: answered(world, 4), "the soak has begun")
    return world


def test_a_soak_of_the_baseline_takes_it_not_into_the_run(world: World) -> None:
    done = world.go(world.write("b.yaml", book(soak("30s", service="baseline"))))
    view = world.view()
    assert done.code == 0, done
    assert figure(view, "requests") > 1
    assert (figure(view, "errors"), figure(view, "restarts")) == (0, 0)
    assert not view.services
    assert world.serves()


def test_an_abort_ends_it_and_keeps_what_was_seen(soaking: World) -> None:
    with (soaking.run.path / "logs/side.log").open("a") as log:
        log.write("CUDA error: \x1b[31mout of memory\x1b[0m\n")
    assert soaking.tell("abort").code == 0
    view = soaking.over()
    assert str(soaking.at("soak").state) == "cancelled"
    assert figure(view, "requests") >= 4
    assert view.measured["soak"].soak["early"] == "stopped before its end"
    assert view.measured["soak"].soak["critical"] == ["CUDA error: out of memory"]
    assert not view.verdicts


def test_a_crash_is_named_with_its_cause_and_half_a_soak_is_no_go(soaking: World) -> None:
    soaking.kill("process")
    view = soaking.state("paused:step_failed")
    step = soaking.at("soak")
    assert step.cause == "signal"
    assert "SIGKILL" in step.detail
    assert "of the soak" in step.detail
    assert step.lines, "the last lines of the server"
    [crash] = view.measured["soak"].soak["restarts"]
    assert "SIGKILL" in crash["what"]
    assert 0 < crash["t"] <= figure(view, "observed_s") < 36_000
    assert figure(view, "restarts") == 1
    assert "SIGKILL" in view.measured["soak"].soak["gone"]
    assert "1 crash" in step.message
    assert soaking.tell("skip", "--reason", "to see the gate").code == 0
    assert str(soaking.state("paused:hold").decision) == "hold"


def test_too_many_errors_end_it_with_their_classes(world: ScriptedWorld) -> None:
    world.machine.answers[world.cand_port] = 6
    path = world.write("b.yaml", book(SIDE, soak("10h", ", max_errors: 3"), JUDGE))
    done = world.go(path)
    step = world.at("soak")
    assert (done.code, step.cause) == (5, "output_invalid"), done
    assert "4 server error" in step.detail
    assert "out of memory" in " ".join(step.lines)
    assert figure(world.view(), "errors") == 4


def test_a_context_that_the_server_does_not_tell_ends_it_at_its_start(world: World) -> None:
    done = world.go(world.write("b.yaml", book(SIDE, soak("10h", ", context: 90 %"))))
    step = world.at("soak")
    assert (done.code, step.cause) == (5, "precondition"), done
    assert "give context: as tokens" in step.detail


def test_a_conversation_grows_to_the_tokens_that_were_given(world: World) -> None:
    done = world.go(world.write("b.yaml", book(SIDE, soak("60s", ", context: 300"))))
    assert done.code == 0, done
    assert "as conversations, each of which grows until 300 tokens" in str(done.json["steps"])
    prompts = [line for line in lines(world) if line.get("ok")]
    assert len(prompts) > 5, "how many there are in a minute depends on the machine"


def test_an_answer_that_alone_fills_it_is_no_conversation(world: World) -> None:
    step = "id: soak, soak: {service: side, duration: 10h, context: 256, max_tokens: 200}"
    done = world.go(world.write("b.yaml", book(SIDE, step)))
    assert (done.code, world.at("soak").cause) == (5, "precondition"), done
    assert "256 tokens of context with max_tokens: 200" in world.at("soak").detail
