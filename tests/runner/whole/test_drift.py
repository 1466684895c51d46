"""A baseline that moved while a candidate was measured: every face says that the verdict is
DOUBTFUL, and nothing takes it for a GO."""

import json
from dataclasses import replace
from typing import Any

import pytest

from console.bench.interference import Look
from console.bench.metrics import Sample
from console.frontends.cli.fleet.state import _run_json
from console.notify.event import happened
from console.runner.bisect.drive import judged
from console.runner.bisect.search import Word
from console.runner.executors import benchmark
from tests.runner.e2e.sites import UP, book
from tests.runner.whole.world import ScriptedWorld as World

BENCH = (
    "id: bench, benchmark: {service: cand, max_tokens: 4, runs: 5, warmup: 0, against: baseline}"
)
GATE = 'id: go, gate: [{metric: bench.tok_s, go: ">= 1.4 x baseline"}], outcomes: {go: migrate}'


def rated(world: World, monkeypatch: pytest.MonkeyPatch, after: float) -> None:
    """The candidate makes 20 tok/s, the baseline 10 before it and `after` behind it."""
    rates = {"cand": [20.0], "baseline": [10.0, after]}

    def surroundings(server: Any, others: Any) -> Any:
        made, rate = world._surroundings(server, others), rates[server.name].pop(0)

        def judge(sample: Sample, before: Look, after: Look) -> Sample:
            return replace(sample, tok_s=rate, void="")

        made.judge = judge  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(benchmark, "Surroundings", surroundings)


@pytest.mark.parametrize("after", [20.0, 5.0])
def test_a_go_against_a_baseline_that_moved_by_two_is_no_go_in_any_face(
    world: World, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    rated(world, monkeypatch, after)
    done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
    view = world.view()
    assert [one.verdict for one in view.verdicts] == ["GO"], "the gate was right on its data"
    assert (done.code, done.json["decision"], done.json["mark"]) == (4, "hold", "DOUBTFUL")
    assert done.json["doubts"][0]["gate"] == "go"
    assert (view.outcome, view.mark) == ("", "DOUBTFUL")
    report = world.console("report", world.run.id).out
    assert "**HOLD DOUBTFUL.** Gate go said GO, but it would be" in report
    assert "| **DOUBTFUL** |" in report
    assert "**GO (" not in report
    [row] = json.loads(world.console("runs", "--json").out)["runs"]
    assert (row["decision"], row["mark"]) == ("hold", "DOUBTFUL")
    for shown in (world.console("show", world.run.id), world.console("attach", world.run.id)):
        assert shown.code == 4
        assert "DOUBTFUL" in shown.out
    fleet = _run_json(world.run, view, "succeeded", alive=False)
    assert (fleet["decision"], fleet["mark"]) == ("HOLD", "DOUBTFUL")
    assert judged(0, world.run, view).word is Word.SKIP
    last = [event for event in world.events() if event.kind == "run.state"][-1]
    told = happened(last, view)
    assert told is not None
    assert "DOUBTFUL" in told.title


def test_a_go_that_has_more_to_spare_than_the_baseline_moved_stands(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rated(world, monkeypatch, 13.0)
    done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
    assert (done.code, done.json["decision"], done.json["mark"]) == (0, "go", None)
    report = world.console("report", world.run.id).out
    assert "**GO (migrate).**" in report
    assert "The baseline itself moved by +30.0 %" in report
    assert "What was decided has more to spare than that." in report
