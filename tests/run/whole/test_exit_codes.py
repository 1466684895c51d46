"""One run for each exit code; state and decision apart in --json."""

from __future__ import annotations

import pytest

from tests.run.e2e.sites import REPORT, SIDE, UP, book, gate
from tests.run.world import Outcome
from tests.run.world import WorldBase as World

GO, NO_GO = 'go: ">= 20 tok/s", no_go: "< 10 tok/s"', 'go: ">= 20 tok/s"'
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
    assert world.serves()
    assert world.baseline() != before, "an exclusive candidate takes the baseline down"
    assert not world.listens(world.cand_url)
    assert "**GO (migrate).** Gate go: " in world.run.report.read_text()
    world.until(lambda: not world.pids("ladder"), "the warm ladder went with the run")


def test_no_go_ends_3_and_a_criterion_with_go_alone_has_no_grey_zone(world: World) -> None:
    done = world.go(world.write("b.yaml", book(*gate("15.5", NO_GO, OUTCOMES))))
    assert settled(done) == (3, "succeeded", "no_go", 3), done
    assert done.json["outcome"] == "retain"


def test_no_go_with_rollback_ends_6(world: World) -> None:
    steps = (UP, *gate("5", GO, OUTCOMES + ", on_no_go: rollback"), "id: after, note: reached")
    done = world.go(world.write("b.yaml", book(*steps)))
    assert settled(done) == (6, "rolled_back", "no_go", 6), done
    assert next(s for s in done.json["steps"] if s["id"] == "after")["state"] == "pending"
    assert world.serves()
    assert not world.listens(world.cand_url)


def test_hold_ends_4_when_nobody_is_there(world: World) -> None:
    done = world.go(world.write("b.yaml", book(*gate("15", GO, OUTCOMES), "id: after, note: x")))
    assert settled(done) == (4, "succeeded", "hold", 4), done
    assert done.json["outcome"] == "evaluate"
    assert done.json["steps"][-1]["state"] == "pending"


def test_hold_with_rollback_ends_6(world: World) -> None:
    steps = (SIDE, *gate("15", GO, ", on_hold: rollback"))
    done = world.go(world.write("b.yaml", book(*steps)))
    assert settled(done) == (6, "rolled_back", "hold", 6), done


def test_a_failed_step_ends_5_with_cause_code_and_last_lines(world: World) -> None:
    bad = 'id: bad, script: "echo oops >&2; exit 7", retry: {attempts: 2, backoff: 10ms}'
    done = world.go(world.write("b.yaml", book(UP, bad, "id: after, note: x", final=REPORT)))
    assert settled(done) == (5, "failed", None, 5), done
    step = next(s for s in done.json["steps"] if s["id"] == "bad")
    assert (step["state"], step["cause"], step["attempts"]) == ("failed", "exit_code", 2)
    assert step["lines"] == ["oops"]
    assert "oops" in world.run.report.read_text()
    assert world.serves(), "an ended run leaves the baseline serving"
    assert not world.listens(world.cand_url)


def test_a_failed_step_with_rollback_ends_6(world: World) -> None:
    bad = 'id: bad, run: ["false"], on_failure: rollback'
    done = world.go(world.write("b.yaml", book(SIDE, bad)))
    assert settled(done) == (6, "rolled_back", None, 6), done


def test_a_failed_step_that_may_fail_changes_nothing(world: World) -> None:
    bad = 'id: bad, run: ["false"], on_failure: continue'
    done = world.go(world.write("b.yaml", book(bad, "id: after, note: x")))
    assert settled(done) == (0, "succeeded", None, 0), done
    assert [s["state"] for s in done.json["steps"]] == ["failed", "succeeded"]


@pytest.mark.parametrize(
    ("steps", "code", "state"), [((UP,), 6, "rolled_back"), ((), 5, "cancelled")]
)
def test_abort_rolls_back_what_is_alive(
    world: World, steps: tuple[str, ...], code: int, state: str
) -> None:
    world.detach(world.write("b.yaml", book(*steps, "id: long, run: [sleep, '600']")))
    world.step("long", "running")
    world.until(lambda: world.pids("step"), "the command runs")
    sleeper = world.pids("step")
    done = world.console("abort", world.run.id, "--reason", "enough", "--json")
    assert settled(done) == (code, state, None, code), done
    assert done.json["steps"][-1 if not steps else 2]["state"] == "cancelled"
    verb = done.json["verbs"][-1]
    assert (verb["verb"], verb["why"]) == ("abort", "enough")
    assert verb["who"]
    assert sleeper
    assert not world.pids("step")
    assert world.serves()
    assert not world.listens(world.cand_url)


def test_a_second_run_on_the_host_ends_8_and_leaves_nothing(world: World) -> None:
    path = world.write("b.yaml", book("id: long, run: [sleep, '600']"))
    first = world.detach(path)
    second = world.go(path)
    assert second.code == 8, second
    assert second.json["exit_code"] == 8
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
    assert done.code == 2, done
    assert done.json["exit_code"] == 2
    assert words in done.err
    assert "Traceback" not in done.err
    assert not bare.runs


def test_a_silent_baseline_ends_5_with_nothing_started(bare: World) -> None:
    act = f'id: act, script: "echo act >> {bare.effects}"'
    done = bare.go(bare.write("b.yaml", book(act)))
    assert done.code == 5, done
    assert "does not serve" in done.json["error"]
    assert "omni-console rollback" in done.json["hint"]
    assert not bare.runs
    assert not bare.done()
    assert not bare.mine()


def test_rollback_brings_a_silent_baseline_up_from_the_site_file(bare: World) -> None:
    done = bare.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    assert bare.serves()
    again = bare.console("rollback", "--json")
    assert (again.code, again.json["nothing_to_do"]) == (0, True), again
