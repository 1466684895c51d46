"""What a step does when the world misbehaves: engines, children, secrets, approvals nobody sees."""

from __future__ import annotations

from typing import Any

from tests.run.e2e.sites import book
from tests.run.e2e.world import World

REPR = "import sys; print(repr(sys.argv[1:]))"
SECRET = "hf_Zw9-not-to-be-seen"
GRACE = """
from console.runner.executors import command
(one, _), (two, _), last = command.GRACE
command.GRACE = (one, 0.5), (two, 0.5), last
"""


def step_of(shown: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in shown["steps"] if s["id"] == name)
    return found


def test_a_model_that_llama_cpp_refuses_fails_with_its_own_words(world: World) -> None:
    done = world.go(world.write("b.yaml", book("id: up, service: {start: broken}")))
    assert (done.code, done.json["state"]) == (5, "failed"), done
    step = step_of(done.json, "up")
    assert step["cause"] in ("not_ready", "start_error")
    assert "unknown model architecture: 'deepseek3_2'" in "\n".join(step["lines"]), step
    assert "unknown model architecture" in world.run.report.read_text()
    assert "unknown model architecture" in world.console("logs", "broken").out
    assert not world.listens(world.cand_url)
    assert world.serves()
