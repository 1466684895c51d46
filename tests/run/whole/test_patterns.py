"""A pattern that would take years ends its step, and nothing else waits for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.config.playbook.inputs import InputModel, convert
from console.host import matching
from console.runner.executors.soak_monitor import CriticalLog
from tests.run.e2e.sites import UP, book
from tests.run.world import WorldBase as World

SLOW, LINE = "(a+)+$", "a" * 60 + "b"


@pytest.mark.parametrize(
    "step",
    [
        {"run": ["echo", LINE], "outputs": {"n": {"pattern": SLOW}}},
        {"check": {"output": ["echo", LINE], "matches": SLOW}},
        {"check": {"output": ["echo", LINE], "not_matches": SLOW}},
    ],
    ids=["outputs", "matches", "not_matches"],
)
def test_its_step_fails_and_the_baseline_is_back(world: World, step: dict[str, Any]) -> None:
    slow = json.dumps({"id": "slow", "on_failure": "rollback", **step})[1:-1]
    done = world.go(world.write("b.yaml", book(UP, slow)))
    assert (done.code, str(world.over().state)) == (6, "rolled_back"), done
    assert world.at("slow").cause == "output_invalid"
    assert world.serves()


def test_an_abort_goes_through_meanwhile(world: World) -> None:
    slow = {"id": "slow", "run": ["echo", LINE], "outputs": {"n": {"pattern": SLOW}}}
    world.detach(world.write("b.yaml", book(UP, json.dumps(slow)[1:-1])))
    world.until(lambda: str(world.at("slow").state) == "running", "it is looked for")
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"


def test_a_log_that_cannot_be_judged_is_none_that_was_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("")
    log = CriticalLog(path, SLOW)
    path.write_text(f"{LINE}\n")
    assert log.read() is None
    assert log.close() == ()


def test_a_typed_value_is_refused() -> None:
    asked = InputModel.model_validate({"type": "string", "pattern": SLOW})
    with pytest.raises(ValueError, match="too long"):
        convert(asked, LINE, Path("/"))


def test_both_ways_find_the_same() -> None:
    for pattern, text, how in (
        (r"rate: ([0-9]+)", "rate: 1\nrate: 22", {}),
        (r"^b$", "a\nb", {"lines": True}),
        (r"(?i)A+", "aa", {"whole": True}),
        (r"a|(b)", "a", {}),
        (r"x", "\udcff\x00", {}),
    ):
        assert matching.find(pattern, [text], **how) == matching.here(pattern, [text], **how)
