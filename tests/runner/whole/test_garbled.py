"""A candidate that answers garbage, whole runs: no figure of it decides anything, whatever it is
faster by, and the run says why with both answers."""

import json
import re
import time

import pytest

from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Witness, Word, state_of
from console.render.report.next_steps import next_steps
from tests.runner.e2e.sites import SIDE, UP, book, gate
from tests.runner.scenes import restored
from tests.runner.whole.world import ScriptedWorld as World

BENCH = (
    "id: bench, benchmark: {service: SERVICE, runs: 3, max_tokens: 16, warmup: 0, "
    "against: baseline}"
)
GATE = "id: go, gate: [{metric: bench.tok_s, go: '>= 0.01 x baseline', min_samples: 1}]"
LONG = "id: soak, soak: {service: side, duration: 10h, every: 1s, max_tokens: 8}"
WHY = "nothing but white space"


def garbled(world: World, *numbers: int) -> None:
    """The candidate answers newlines: to all, or to the completions of these numbers."""
    world.machine.garbage[world.cand_port] = lambda number: (
        "\n" if not numbers or number in numbers else ""
    )


@pytest.mark.parametrize(("up", "name"), [(SIDE, "side"), (UP, "cand")])
def test_it_ends_in_no_go_at_once_with_both_answers(world: World, up: str, name: str) -> None:
    garbled(world)
    steps = (up, BENCH.replace("SERVICE", name), LONG.replace("side", name), GATE)
    done = world.go(world.write("b.yaml", book(*steps)))
    view = world.over()
    assert done.code == 3, done
    assert view.decision == "no_go"
    assert str(world.at("soak").state) in ("pending", "cancelled", "skipped"), "no hours of it"
    [verdict] = view.verdicts
    assert verdict.step == "bench"
    assert verdict.criteria[0]["why"].startswith(f"{name}: 3 of 3 answers are garbled: {WHY}")
    kept = {
        scope: view.measured[scope].benchmark["answers"] for scope in ("bench", "bench.baseline")
    }
    assert all(row["garbled"].startswith(WHY) for row in kept["bench"])
    assert kept["bench.baseline"][0]["answer"].startswith("0 1 2 3")
    assert not any(row["garbled"] for row in kept["bench.baseline"])
    report = world.run.report.read_text()
    assert "**NO-GO" in report
    assert WHY in report
    assert "0 1 2 3" in report
    told = json.loads(world.run.report_json.read_text())
    assert WHY in told["because"]
    assert told["benchmarks"]["bench"]["answers"] == kept["bench"]
    if name == "cand":
        restored(world)


def test_a_baseline_that_answers_garbage_is_no_measure_and_nothing_is_taken_down(
    world: World,
) -> None:
    """Sane in both answers that prove it at the start of the run, garbled from then on."""
    world.machine.garbage[world.base_port] = lambda number: "\n" if number > 2 else ""
    done = world.go(world.write("b.yaml", book(UP, BENCH.replace("SERVICE", "cand"), GATE)))
    assert done.code not in (0, 3), done
    measured = world.at("baseline:measure")
    assert (str(measured.state), measured.cause) == ("failed", "output_invalid")
    assert f"3 of 3 answers are garbled: {WHY}" in measured.detail
    assert not world.view().verdicts
    assert str(world.at("up").state) == "pending"
    known = evidence.read("local", world.base_url)
    state = state_of(known, time.time())
    assert (state.word, state.by) == (Word.GARBLED, "a benchmark"), known
    assert WHY in state.doubt
    assert [one.life for one in known if one.witness is Witness.BENCHMARK] != [""], "of that start"
    report = world.run.report.read_text()
    assert "**The baseline answers GARBAGE**: 3 of 3 answers are garbled" in report
    assert "**GARBLED** by a benchmark at" in report
    assert "the baseline answers garbage" in "\n".join(next_steps(world.view()))


def test_garbage_now_and_then_holds_the_gate(world: World) -> None:
    """One garbled answer of many: its run is void, and no figure beside it is believed."""
    garbled(world, 2)
    bench = BENCH.replace("SERVICE", "side").replace("runs: 3", "runs: 4, max_runs: 4")
    done = world.go(world.write("b.yaml", book(SIDE, bench, GATE)))
    view = world.over()
    assert done.code == 4, done
    [verdict] = view.verdicts
    assert (verdict.step, verdict.verdict) == ("go", "HOLD")
    assert f"1 of 4 answers are garbled: {WHY}" in verdict.criteria[0]["why"]
    assert view.step("bench").warned


SOAK = "id: soak, soak: {service: side, duration: 60s, every: 1s, max_tokens: 8}"


def test_a_soak_of_garbage_is_no_go_after_a_few_requests(world: World) -> None:
    garbled(world)
    judge = "id: stable, gate: [{metric: soak.hangs, go: '== 0'}]"
    done = world.go(world.write("b.yaml", book(SIDE, LONG, judge)))
    view = world.over()
    assert done.code == 3, done
    [verdict] = view.verdicts
    assert verdict.step == "soak"
    assert f"5 of 5 answers are garbled: {WHY}" in verdict.criteria[0]["why"]
    assert view.metrics["soak"]["hangs"]["n"] == 0, "no figure of it counts"
    assert view.measured["soak"].soak["answers"][0]["garbled"].startswith(WHY)
    assert WHY in world.run.report.read_text()


@pytest.mark.parametrize(
    ("metric", "code", "verdict"),
    [("soak.hangs, go: '== 0'", 4, "HOLD"), ("soak.garbled, go: '== 0'", 3, "NO-GO")],
)
def test_a_soak_counts_what_is_garbled_and_a_gate_can_name_it(
    world: World, metric: str, code: int, verdict: str
) -> None:
    garbled(world, 2, 3)  # a busy machine asks few times
    judge = f"id: stable, gate: [{{metric: {metric}, min_samples: 1}}]"
    done = world.go(world.write("b.yaml", book(SIDE, SOAK, judge)))
    view = world.over()
    assert done.code == code, done
    assert (view.metrics["soak"]["garbled"]["value"], view.metrics["soak"]["errors"]["value"]) == (
        2, 2,
    )  # fmt: skip
    [judged] = view.verdicts
    assert (judged.step, judged.verdict) == ("stable", verdict)
    assert "garbled" in judged.criteria[0]["why"]
    assert "(2 garbled)" in world.at("soak").detail


def test_clients_are_not_left_with_garbage(world: World) -> None:
    """It is sane when it is cut over to, and garbled in its watch."""
    garbled(world, 3, 4, 5, 6, 7, 8)
    cut = "id: cut, cutover: {to: cand, watch: 5s, every: 1s}"
    world.go(world.write("b.yaml", book(UP, cut)))
    assert str(world.over().state) == "rolled_back", world.words
    step = world.at("cut")
    assert str(step.state) == "failed"
    assert WHY in step.detail
    assert world.serves()


def test_nobody_is_cut_over_to_garbage(world: World) -> None:
    garbled(world)
    cut = "id: cut, cutover: {to: cand, watch: 5s, every: 1s}"
    world.go(world.write("b.yaml", book(UP, cut)))
    assert not world.over().cutover
    assert WHY in " ".join(step.detail for step in world.view().steps)
    assert world.serves()


def test_flags_that_make_garbage_never_win(world: World) -> None:
    garbled(world)
    tune = "id: tune, tune: {service: cand, flags: {'-t': [1, 2]}, max_tokens: 16, runs: 1}"
    world.go(world.write("b.yaml", book(tune)))
    points = world.view().measured["tune"].tune["points"]
    assert points
    assert not any(row.get("best") for row in points)
    assert all(WHY in row["why"] for row in points if row["fate"] == "failed")
    assert any(row["fate"] == "failed" for row in points)


def test_what_clients_reached_is_said_when_they_are_back(world: World) -> None:
    cut = "id: cut, cutover: {to: cand, watch: 4s, every: 1s}"
    say, judge = gate("9.0", "go: '>= 5 tok/s'")
    done = world.go(world.write("b.yaml", book(UP, cut, say, judge)))
    assert done.code == 0, done
    steps = " ".join(next_steps(world.over()))
    assert re.search(r"clients reached cand for [0-9.]+ \w+, then the baseline again", steps)
    assert "switched nothing over" not in steps
