"""A soak in a whole run, and one that is ended before its time. Time is the scripted one."""

from __future__ import annotations

from typing import Any

from console.journal.run_view import RunView
from console.journal.samples import soak_lines
from tests.run.e2e.sites import SIDE, book
from tests.run.whole.server import Script
from tests.run.whole.world import ScriptedWorld
from tests.run.world import WorldBase as World

JUDGE = "id: stable, gate: [{metric: soak.errors, go: '== 0'}]"


def soak(duration: str, more: str = "", service: str = "side") -> str:
    return (
        f"id: soak, soak: {{service: {service}, duration: {duration}, every: 100ms, "
        f"max_tokens: 4{more}}}"
    )


def figure(view: RunView, name: str) -> Any:
    return view.metrics["soak"][name]["value"]


def answered(world: World, count: int) -> bool:
    """Whether the newest attempt has so many good answers in its file."""
    found = sorted((world.run.path / "attempts").glob("soak.*.soak.jsonl"))
    return bool(found) and sum(1 for row in soak_lines(found[-1]) if row.get("ok")) >= count


def test_a_soak_of_the_baseline_takes_it_not_into_the_run(world: World) -> None:
    done = world.go(world.write("b.yaml", book(soak("3s", service="baseline"))))
    view = world.view()
    assert done.code == 0, done
    assert figure(view, "requests") > 1
    assert (figure(view, "errors"), figure(view, "restarts")) == (0, 0)
    assert not view.services
    assert world.serves()


def test_an_abort_ends_it_and_keeps_what_was_seen(world: World) -> None:
    world.detach(world.write("b.yaml", book(SIDE, soak("10h"), JUDGE)))
    world.until(lambda: answered(world, 3), "the soak has begun")
    assert world.tell("abort").code == 0
    view = world.over()
    assert str(world.at("soak").state) == "cancelled"
    assert figure(view, "requests") >= 3
    assert view.soaks["soak"]["early"] == "stopped before its end"
    assert not view.verdicts


def test_too_many_errors_end_it_with_their_classes(world: ScriptedWorld) -> None:
    world.machine.scripts[world.cand_port] = Script(answers=6)
    path = world.write("b.yaml", book(SIDE, soak("10h", ", max_errors: 3"), JUDGE))
    done = world.go(path)
    step = world.at("soak")
    assert (done.code, step.cause) == (5, "output_invalid"), done
    assert "4 server error" in step.detail
    assert "out of memory" in " ".join(step.lines)
    assert figure(world.view(), "errors") == 4
