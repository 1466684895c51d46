"""A step's output: what is kept of it in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.runner import context
from console.runner.context import Attempt
from console.runner.executors import command
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import Bench


@pytest.mark.parametrize(("length", "kept"), [(10, 20_000), (100_000, 83)])
def test_the_last_lines_are_kept_up_to_a_number_and_a_size(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch, length: int, kept: int
) -> None:
    bench = Bench(tmp_path, plan("{id: up, note: x}"), monkeypatch)
    attempt = Attempt(bench.context, "up", 1, 60.0)
    attempt.path.parent.mkdir(parents=True)
    monkeypatch.setattr(context, "LOG_LIMIT", 1)
    for number in range(30_000 if length == 10 else 200):
        attempt.sink(f"{number} ".encode().ljust(length, b"x") + b"\n")
    attempt.close()
    assert len(attempt.output()) == kept
    assert len("".join(attempt.output())) <= context.KEPT
    assert attempt.output()[-1].startswith(f"{number} ")
    assert len(attempt.last_lines(2)) == 2
    bench.close()


def test_a_command_in_a_container_says_what_its_engine_says(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_oneoff(*_: object, say: Callable[[str], None], **__: object) -> int:
        say("omni-up was killed: out of memory")
        return 137

    bench = Bench(tmp_path, plan("{id: up, run: [x], where: {image: i}}"), monkeypatch)
    monkeypatch.setattr("console.runtime.docker.exec.run_oneoff", run_oneoff)
    bench.context.services = SimpleNamespace(client=None)  # type: ignore[assignment]
    attempt, said = Attempt(bench.context, "up", 1, 60.0), list[tuple[str, bool]]()
    monkeypatch.setattr(attempt, "say", lambda text, always=False: said.append((text, always)))
    step = bench.context.plan.at("up").step
    assert step is not None
    assert command._in_container(bench.context, step, {}, attempt) == 137
    assert said == [("omni-up was killed: out of memory", True)]
    bench.close()
