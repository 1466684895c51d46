"""One run for each exit code, state and decision apart in --json; and which figures decide."""

import json
import time

import pytest

from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from tests.runner.e2e.sites import REPORT, SIDE, UP, book, gate
from tests.runner.scenes import restored
from tests.runner.world import Outcome
from tests.runner.world import WorldBase as World

GO, NO_GO = 'go: ">= 20 tok/s", no_go: "< 10 tok/s"', 'go: ">= 20 tok/s"'
BAD = 'id: bad, run: ["false"]'
OUTCOMES = ", outcomes: {go: migrate, no_go: retain, hold: evaluate}"


def settled(done: Outcome) -> tuple[int, str, str | None, int | None]:
    """(exit code, state, decision, the exit code the JSON names)."""
    return done.code, done.json["state"], done.json["decision"], done.json["exit_code"]


def test_go_measures_the_exclusive_candidate_and_restores_the_baseline(world: World) -> None:
    before = world.baseline()
    bench = "id: bench, benchmark: {service: cand, max_tokens: 16, runs: 3, against: baseline}"
    judge = 'id: go, gate: [{metric: bench.tok_s, go: "> 0.001 x baseline"}]' + OUTCOMES
    done = world.go(world.write("go.yaml", book(UP, bench, judge, final=REPORT)))
    assert settled(done) == (0, "succeeded", "go", 0), done
    assert not world.pids("runner"), "a run that has been told as ended has let the host go"
    assert done.json["outcome"] == "migrate"
    states = {s["id"]: s["state"] for s in done.json["steps"]}
    assert set(states.values()) == {"succeeded"}, states
    assert {"baseline:stop", "baseline:measure", "baseline:measure-again", "restore"} <= set(states)
    assert done.json["metrics"]["bench"]["tok_s"]["n"] >= 3
    assert done.json["metrics"]["bench.baseline"]["tok_s"]["n"] >= 3
    assert done.json["restore_s"] > 0
    restored(world)
    assert world.baseline() != before, "an exclusive candidate takes the baseline down"
    assert "**GO (migrate).** Gate go: " in world.run.report.read_text()
    world.until(lambda: not world.pids("ladder"), "the warm ladder went with the run")


@pytest.mark.parametrize(
    ("steps", "ends", "outcome", "after"),
    [
        (gate("15.5", NO_GO, OUTCOMES), (3, "succeeded", "no_go"), "retain", "pending"),
        ((UP, *gate("5", GO, OUTCOMES + ", on_no_go: rollback")),
         (6, "rolled_back", "no_go"), "retain", "pending"),
        (gate("15", GO, OUTCOMES), (4, "succeeded", "hold"), "evaluate", "pending"),
        ((SIDE, *gate("15", GO, ", on_hold: rollback")),
         (6, "rolled_back", "hold"), None, "pending"),
        ((SIDE, f"{BAD}, on_failure: rollback"), (6, "rolled_back", None), None, "pending"),
        ((f"{BAD}, on_failure: continue",), (0, "succeeded", None), None, "succeeded"),
    ],
    ids=["no-go, without a grey zone", "no-go with rollback", "hold with nobody there",
         "hold with rollback", "failure with rollback", "failure that may be"],
)  # fmt: skip
def test_how_a_run_ends(
    world: World, steps: tuple[str, ...], ends: tuple[int, str, str | None], outcome: str | None,
    after: str,
) -> None:  # fmt: skip
    done = world.go(world.write("b.yaml", book(*steps, "id: after, note: reached")))
    assert settled(done) == (*ends, ends[0]), done
    assert done.json["outcome"] == outcome
    assert next(s for s in done.json["steps"] if s["id"] == "after")["state"] == after
    restored(world)


def test_a_failed_step_ends_5_with_cause_code_and_last_lines(world: World) -> None:
    bad = 'id: bad, script: "echo oops >&2; exit 7", retry: {attempts: 2, backoff: 10ms}'
    done = world.go(world.write("b.yaml", book(UP, bad, "id: after, note: x", final=REPORT)))
    assert settled(done) == (5, "failed", None, 5), done
    step = next(s for s in done.json["steps"] if s["id"] == "bad")
    assert (step["state"], step["cause"], step["attempts"]) == ("failed", "exit_code", 2)
    assert step["lines"] == ["oops"]
    assert "oops" in world.run.report.read_text()
    restored(world)


@pytest.mark.parametrize(
    ("steps", "code", "state"), [((UP,), 6, "rolled_back"), ((), 5, "cancelled")]
)
def test_abort_rolls_back_what_is_alive(
    world: World, steps: tuple[str, ...], code: int, state: str
) -> None:
    world.detach(world.write("b.yaml", book(*steps, "id: long, run: [sleep, '600']")))
    world.step("long", "running")
    world.until(lambda: world.pids("step"), "the command runs")
    done = world.console("abort", world.run.id, "--reason", "enough", "--json")
    assert settled(done) == (code, state, None, code), done
    assert done.json["steps"][-1 if not steps else 2]["state"] == "cancelled"
    verb = done.json["verbs"][-1]
    assert (verb["verb"], verb["why"], bool(verb["who"])) == ("abort", "enough", True)
    restored(world)


def test_a_second_run_on_the_host_ends_8_and_leaves_nothing(world: World) -> None:
    path = world.write("b.yaml", book("id: long, run: [sleep, '600']"))
    first = world.detach(path)
    second = world.go(path)
    assert (second.code, second.json["exit_code"]) == (8, 8), second
    assert first.id in second.json["detail"]
    assert [r.id for r in world.runs] == [first.id]


@pytest.mark.parametrize(
    ("text", "args", "words"),
    [
        (book("id: a, note: x, colour: red"), (), "colour"),
        (book("id: a, note: x"), ("--input", "nope=1"), "nope"),
        (book("id: a, note: x"), ("--site", "/nowhere/site.yaml"), "/nowhere/site.yaml"),
        (book("id: a, service: {start: ghost}"), (), "ghost"),
    ],
    ids=["bad file", "unknown input", "missing site", "unknown service"],
)
def test_what_cannot_be_used_ends_2_before_anything(
    bare: World, text: str, args: tuple[str, ...], words: str
) -> None:
    done = bare.go(bare.write("b.yaml", text), *args)
    assert (done.code, done.json["exit_code"]) == (2, 2), done
    assert words in done.err
    assert "Traceback" not in done.err
    assert not bare.runs


def test_a_silent_baseline_ends_5_with_nothing_started(bare: World) -> None:
    act = f'id: act, script: "echo act >> {bare.effects}"'
    done = bare.go(bare.write("b.yaml", book(act)))
    assert done.code == 5, done
    assert "does not serve" in done.json["error"]
    assert "omni-console rollback" in done.json["hint"]
    assert (bare.runs, bare.done(), bare.mine()) == ([], [], [])


def test_a_rollback_that_failed_is_not_what_is_recommended_first(bare: World) -> None:
    why = "ready: pid 7, python3 -m http.server, holds port 8000"
    seen = Evidence(Kind.FAILED, Word.DOWN, time.time(), Witness.ROLLBACK, why)
    evidence.keep("local", bare.base_url, seen)
    done = bare.go(bare.write("b.yaml", book("id: a, note: x")))
    assert done.code == 5, done
    assert done.json["hint"].startswith(f"the last rollback failed ({why}): mend that, then")


def test_rollback_brings_a_silent_baseline_up_from_the_site_file(bare: World) -> None:
    done = bare.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    assert bare.serves()
    again = bare.console("rollback", "--json")
    assert (again.code, again.json["nothing_to_do"]) == (0, True), again


# -- figures, from a step's output to the gate -----------------------------------------------------

TG = [20.4, 20.5, 20.6, 20.5, 20.5]
ENTRY = {
    "build_commit": "d82b7a7", "build_number": 11549, "model_type": "deepseek2 671B Q3_K",
    "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 20.5, "stddev_ts": 0.07, "samples_ts": TG,
}  # fmt: skip
READ = 'id: tg, run: [cat, "{}"], figures: llama-bench'
JUDGE = 'id: go, gate: [{metric: tg.tg_tok_s, go: ">= 20 tok/s", min_samples: 5}]'


def test_llama_bench_is_read_and_judged_by_its_samples(world: World) -> None:
    path = world.write("out.json", json.dumps([ENTRY], indent=2))
    done = world.go(world.write("b.yaml", book(READ.format(path), JUDGE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    found = done.json["metrics"]["tg"]
    assert (found["tg_tok_s"]["value"], found["tg_tok_s"]["samples"]) == (20.5, TG)
    assert found["pp_tok_s"]["value"] is None
    view = world.view()
    assert view.measured["tg"].benchmark["build"] == "11549-d82b7a7"
    assert "(20.44 to 20.56 tok/s) meets >= 20 tok/s" in view.verdicts[0].criteria[0]["why"]


@pytest.mark.parametrize(
    ("said", "output", "decision"),
    [
        ("omni/ik-llama sm120 12.5GB", "pattern: '([0-9.]+)GB', unit: GB", "no_go"),
        ("omni/ik-llama sm120 9.5GB", "pattern: '([0-9.]+)GB', unit: GB", "go"),
        ("omni/ik-llama sm120 12.5GB", "pattern: '([0-9.]+)GB', unit: B", None),
        ("size 10,5 GB", "pattern: 'size ([0-9.]+)', unit: GB", None),
        ("used: -1", "pattern: 'used: (-?[0-9]+)', unit: GB", "hold"),
    ],
)
def test_an_image_that_is_too_large_is_never_go(
    world: World, said: str, output: str, decision: str | None
) -> None:
    step = f'id: image, run: [echo, "{said}"], outputs: {{size: {{{output}}}}}'
    judge = "id: go, gate: [{metric: image.size, go: '< 10GB'}]"
    done = world.go(world.write("b.yaml", book(step, judge)))
    assert done.json["decision"] == decision, done
    failed = world.at("image")
    assert (failed.cause == "output_invalid") is (decision is None)
    assert decision is not None or failed.detail.startswith("output 'size': 1")


def test_figures_are_the_newest_attempts(world: World) -> None:
    """A first attempt whose output is no result leaves nothing behind for a gate."""
    good = world.write("out.json", json.dumps([ENTRY], indent=2))
    text = f'test -e seen || {{ touch seen; echo "error: out of memory"; exit 0; }}; cat {good}'
    step = f"id: tg, script: {json.dumps(text)}, figures: llama-bench, retry: {{backoff: 10ms}}"
    done = world.go(world.write("b.yaml", book(step, JUDGE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done


def test_output_that_is_no_result_fails_the_step_with_its_last_lines(world: World) -> None:
    path = world.write("out.json", "error: failed to load model\n")
    done = world.go(world.write("b.yaml", book(READ.format(path), JUDGE)))
    assert (done.code, done.json["decision"]) == (5, None), done
    step = world.at("tg")
    assert (step.cause, step.lines) == ("output_invalid", ["error: failed to load model"])
    assert "no result of llama-bench in the output" in step.detail


def test_a_run_says_at_its_start_that_its_lease_is_shorter_than_its_outage(world: World) -> None:
    """A detached trial would lose its outage to the lease, and its operator read no plan."""
    step = "id: look, note: hi, takes: 2h"
    path = world.write("b.yaml", book(UP, step) + "lease: 30m\n")
    said = world.console("run", "--detach", str(path))
    assert said.code == 0, said
    assert "down for 2 h 00 min, longer than the lease of 30 min" in " ".join(said.out.split())
    world.over()
    longer = world.console("run", "--detach", str(path), "--lease", "3h")
    assert (longer.code, "longer than the lease" in longer.out) == (0, False)
    world.over()
