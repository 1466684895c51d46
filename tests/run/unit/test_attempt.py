"""A step's output: what is kept of it in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.runner import context
from console.runner.context import Attempt
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
