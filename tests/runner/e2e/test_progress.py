"""A load and a benchmark of a real engine tell how far they are, and the next plan how long."""

import json
import re
from pathlib import Path
from typing import Any

from console.common.progress import Figures, share
from console.journal.events import StepSay
from console.render.cells import plain
from console.render.progress import step_progress
from tests.runner.e2e.sites import SIDE, book
from tests.runner.e2e.world import World

BENCH = "id: bench, benchmark: {service: side, max_tokens: 32, runs: 3, max_runs: 3}"


def told(world: World, step: str) -> list[dict[str, Any]]:
    """The figures that a step told."""
    return [
        {name: getattr(event.body, name) for name in Figures._fields} for event in world.events()
        if isinstance(event.body, StepSay) and event.step == step and event.body.done is not None
    ]  # fmt: skip


def test_a_load_and_a_benchmark_are_seen_and_remembered(world: World) -> None:
    """The engine begins when its load has been seen once: a tiny model is there too soon."""
    go, site = world.root / "go", json.loads(world.site.read_text())
    argv = site["services"]["side"]["process"]["argv"]
    script = f'until [ -e {go} ]; do sleep 0.05; done; exec "$@"'
    site["services"]["side"]["process"]["argv"] = ["sh", "-c", script, "sh", *argv]
    world.site.write_text(json.dumps(site))
    path: Path = world.write("trial.yaml", book(SIDE, BENCH))
    assert "as in the last run" not in world.console("plan", str(path)).out
    world.detach(path)
    world.until(lambda: told(world, "up"), "the load is seen")
    step = world.at("up")
    assert step.progress is not None
    assert (step.progress.figures.unit, step.progress.share) == ("B", None)
    assert step.progress.figures.done > 0, "what its processes hold"
    assert plain(step_progress(step, step.started + 5, 80)).endswith(", limit 1:30")
    shown = world.console("show", world.run.id).out
    assert re.search(r"… starting, not listening yet .*  \([0-9.]+ [KM]iB\)\n", shown), shown
    go.touch()
    assert world.over().state == "succeeded", world.where()
    bench = [Figures(**one) for one in told(world, "bench")]
    assert bench[-1] == (3, 3, "run")
    shares = [share(one.done, one.total) or 0.0 for one in bench]
    assert shares == sorted(shares)
    followed = world.console("attach", world.run.id).out
    assert any(re.search(r"run 3/3 .*  \(100 %\)", line) for line in followed.splitlines()), (
        followed
    )
    planned = world.console("plan", str(path)).out
    assert planned.count("as in the last run; limit") >= 2, planned
