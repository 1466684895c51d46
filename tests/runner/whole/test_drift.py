"""A baseline that moved while a candidate was measured: every face says that the verdict is
DOUBTFUL, and nothing takes it for a GO."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from console.bench.interference import Look
from console.bench.sample import Sample
from console.common import paths
from console.frontends.cli.fleet.state import _run_json
from console.host.ports import port_of, ports_of
from console.notify.event import happened
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.sealed_plan import ROLLBACK, SITES
from console.runner.bisect.drive import judged
from console.runner.bisect.search import Word
from console.runner.executors import benchmark
from console.runtime.occupancy import Occupancy
from tests.children import end
from tests.runner.e2e.sites import UP, book
from tests.runner.whole.world import ScriptedWorld as World
from tests.waiting import until

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


def used(world: World, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """The candidate makes 20 tok/s, the baseline 10. One of them tells nobody whom it answers, and
    clients are connected to it."""
    rated(world, monkeypatch, 10.0)
    make = benchmark.Surroundings

    def surroundings(server: Any, others: Any) -> Any:
        made = make(server, others)
        made.users.look_at = lambda url: Occupancy(why="/slots says HTTP 501")
        made.users.clients_at = lambda url: 2 if server.name == who else 0
        return made

    monkeypatch.setattr(benchmark, "Surroundings", surroundings)


def test_a_go_over_a_baseline_that_others_may_have_used_is_doubtful(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(world, monkeypatch, "baseline")
    done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
    assert (done.code, done.json["decision"], done.json["mark"]) == (4, "hold", "DOUBTFUL")
    [doubt] = done.json["doubts"]
    assert "clients of others were connected to baseline at" in doubt["words"]
    report = world.console("report", world.run.id).out
    assert "**HOLD DOUBTFUL.** Gate go said GO, but it would be HOLD: clients of others" in report
    assert judged(0, world.run, world.view()).why.startswith("doubtful: ")


def test_clients_of_a_candidate_make_it_worse_and_no_go_doubtful(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    used(world, monkeypatch, "cand")
    done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
    assert (done.code, done.json["decision"], done.json["mark"]) == (0, "go", None)
    [verdict] = world.view().verdicts
    assert "clients of others were connected to cand at" in verdict.criteria[0]["why"]


@pytest.mark.parametrize("nothing", [False, True])
def test_a_go_beside_a_rollback_of_another_site_is_doubtful(
    world: World, monkeypatch: pytest.MonkeyPatch, nothing: bool
) -> None:
    rated(world, monkeypatch, 10.0)
    measure = benchmark._measure

    def measured(*args: Any) -> Any:
        place = paths.state_dir() / ROLLBACK / SITES / "zb"
        place.mkdir(parents=True, exist_ok=True)
        now = args[0].clock.now()
        rows = [
            {"trigger": "emergency-1", "rung": "stop", "state": "begin", "at": now - 3},
            {"trigger": "emergency-1", "rung": "done", "state": "ok", "at": now,
             "serving": True, "nothing_to_do": nothing},
        ]  # fmt: skip
        (place / PROGRESS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return measure(*args)

    monkeypatch.setattr(benchmark, "_measure", measured)
    done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
    assert done.json["mark"] == (None if nothing else "DOUBTFUL")
    if not nothing:
        assert "a rollback of site zb ended at" in done.json["doubts"][0]["words"]
        assert done.code == 4


LOOP = """
import socket
door = socket.create_server(("127.0.0.1", {}))
while True:
    door.accept()[0].close()
"""


def test_a_go_beside_a_baseline_that_something_started_again_is_doubtful(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop around its server, which nobody told that a run has stopped it."""
    rated(world, monkeypatch, 10.0)
    measure, again = benchmark._measure, list[subprocess.Popen[bytes]]()

    def measured(context: Any, *args: Any) -> Any:
        port = port_of(context.plan.site.model.baseline.url)
        if context.view.outage and not again:
            again.append(subprocess.Popen([sys.executable, "-c", LOOP.format(port)]))
            until(lambda: port in ports_of([again[0].pid]), "it listens")
        return measure(context, *args)

    monkeypatch.setattr(benchmark, "_measure", measured)
    try:
        done = world.go(world.write("b.yaml", book(UP, BENCH, GATE)))
        assert done.json["mark"] == "DOUBTFUL", done
        assert f"pid {again[0].pid}, " in done.json["doubts"][0]["words"]
        assert "where this run has stopped the baseline" in done.json["doubts"][0]["words"]
    finally:
        for server in again:
            end(server)
