"""Guards that are breached before anything starts: no outage, and `plan` says so."""

from __future__ import annotations

import json

import pytest

from tests.run.e2e.sites import UP, book, guards
from tests.run.world import WorldBase as World

NOW = [
    ("metric: disk.free, below: 900TiB, of: /", "disk free (/) ", "below 900.0 TiB"),
    ("metric: disk.free, below: 900TiB", "disk free (", "below 900.0 TiB"),
    ("metric: disk.free, below: 1GiB, of: /no/such", "disk.free of /no/such", "no such directory"),
    ("metric: gpu.memory_used, above: 1GiB, of: sum, missing: breach", "VRAM used", "no NVIDIA"),
]


def test_guards_that_would_act_at_once_cost_no_outage(world: World) -> None:
    path = world.write("b.yaml", guards(*(row for row, _, _ in NOW)) + book(UP))
    before = world.baseline()
    planned = world.console("plan", str(path))
    assert planned.code == 0, planned
    done = world.go(path)
    assert done.code == 2, done
    told = json.dumps(done.json)
    warnings = [line for line in planned.out.splitlines() if "WARNING" in line]
    for line, (warning, (_, *words)) in enumerate(zip(warnings, NOW, strict=True), 2):
        assert "NO RUN WOULD START" in warning, planned
        for text in (*words, f"(playbook, line {line})"):
            assert text in warning, planned
            assert text in told, done
    assert not world.runs
    assert world.baseline() == before


def test_a_guard_that_cannot_be_looked_at_is_only_told(world: World) -> None:
    path = world.write(
        "b.yaml", guards("metric: gpu.memory_used, above: 1GiB, of: sum") + book("id: a, note: x")
    )
    planned = world.console("plan", str(path))
    assert "it guards nothing" in planned.out, planned
    assert "NO RUN" not in planned.out, planned
    assert world.go(path).code == 0


@pytest.mark.parametrize(
    "row", ["metric: runner.silent, above: 1ms", "metric: host.time_to_full, below: 10h"]
)
def test_a_limit_that_any_day_breaches_is_no_playbook(bare: World, row: str) -> None:
    path = bare.write("b.yaml", guards(row) + book(UP))
    for command in ("plan", "run"):
        done = bare.console(command, str(path))
        assert done.code == 2, done
        assert "b.yaml:2:" in done.err, done
        assert "any day" in done.err, done
    assert not bare.runs
