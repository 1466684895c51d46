"""What an operator can do to a run from another terminal, each verb acknowledged and recorded."""

from __future__ import annotations

from console.journal.state import RunState
from console.runner import control
from tests.run.e2e.sites import REPORT, book, gate
from tests.run.world import WorldBase as World

GREY = 'go: ">= 20 tok/s", no_go: "< 10 tok/s"'


def note(*names: str) -> tuple[str, ...]:
    return tuple(f"id: {name}, note: reached" for name in names)


def states(world: World) -> dict[str, str]:
    return {s.id: str(s.state) for s in world.view().steps}


def paused_before(world: World, step: str) -> None:
    def there() -> bool:
        # the runner answers verbs in its new state a moment before its journal says so
        now = world.status()
        paused = (now.get("step"), now.get("state")) == (step, "paused")
        return paused and world.view().state is RunState.PAUSED

    world.until(there, f"paused before {step}")


def ok(world: World, verb: str, *args: str) -> None:
    told = world.tell(verb, *args)
    assert told.code == 0, told


def refused(world: World, words: str, verb: str, *args: str) -> None:
    told = world.tell(verb, *args)
    assert told.code == 5, told
    assert words in told.err, told


def test_next_walks_one_step_and_auto_walks_to_the_gate(world: World) -> None:
    text = book(*note("a", "b", "c"), *gate("25", GREY), *note("d"))
    world.detach(world.write("b.yaml", text), "--step")
    paused_before(world, "a")
    ok(world, "next")
    paused_before(world, "b")
    assert states(world)["a"] == "succeeded"
    assert states(world)["b"] == "pending"
    refused(world, "moved on", "next", "--step", "a")
    refused(world, "not possible", "reject")
    refused(world, "not possible", "retry")
    ok(world, "auto", "--reason", "to the gate")
    paused_before(world, "d")
    assert states(world)["go"] == "succeeded"
    ok(world, "continue")
    assert str(world.over().state) == "succeeded"
    verbs = [(v["verb"], v["why"]) for v in world.show()["verbs"]]
    assert verbs == [("next", ""), ("auto", "to the gate"), ("continue", "")]
    late = world.tell("next")
    assert late.code == 5
    assert "has ended" in late.err


def test_pause_takes_hold_between_steps_and_skip_needs_a_reason(world: World) -> None:
    stop = world.root / "stop"
    wait = f'id: long, script: "until test -e {stop}; do sleep 0.02; done"'
    act = f'id: act, script: "echo act >> {world.effects}"'
    world.detach(world.write("b.yaml", book(wait, act, *note("z"))))
    world.step("long", "running")
    ok(world, "pause")
    assert states(world)["long"] == "running", "a pause does not cut a step off"
    stop.touch()
    paused_before(world, "act")
    assert world.view().reason == "operator"
    refused(world, "needs a reason", "skip")
    ok(world, "skip", "--reason", "done by hand")
    view = world.over()
    assert states(world) == {"long": "succeeded", "act": "skipped", "z": "succeeded"}
    skipped = view.step("act")
    assert skipped is not None
    assert "done by hand" in skipped.detail
    assert not world.done()


def test_an_approval_is_bound_to_its_step_its_evidence_and_its_word(world: World) -> None:
    ask = "id: ask, approval: {prompt: Go on?, confirm: yes-please, expires: 5m}"
    world.detach(world.write("b.yaml", book(ask, *note("z"), final=REPORT)))
    now = world.until(lambda: world.status() if world.status().get("evidence") else None, "it asks")
    assert (now["state"], now["confirm"]) == ("waiting_approval", "yes-please")
    refused(world, "type the word yes-please", "approve")
    refused(world, "type the word yes-please", "approve", "--confirm", "yes")
    refused(world, "moved on", "approve", "--confirm", "yes-please", "--step", "other")
    seen = {"verb": "approve", "step": "ask", "attempt": 1, "args": {"confirm": "yes-please"}}
    for wrong in ({"evidence": "0" * 16}, {"evidence": now["evidence"], "attempt": 2}, {}):
        answer = control.send(world.run.socket, {**seen, **wrong})
        assert not answer["ok"], wrong
    assert states(world)["z"] == "pending"
    ok(world, "approve", "--confirm", "yes-please", "--reason", "looks right")
    assert str(world.over().state) == "succeeded"
    verb = world.show()["verbs"][-1]
    assert (verb["verb"], verb["step"], verb["why"]) == ("approve", "ask", "looks right")
    assert verb["args"]["evidence"] == now["evidence"]
    assert "confirm" not in verb["args"]
    assert "looks right" in world.run.report.read_text()


def test_a_rejected_approval_stands_still_until_the_operator_decides(world: World) -> None:
    world.detach(world.write("b.yaml", book("id: ask, approval: {prompt: Go on?}", *note("z"))))
    world.state("waiting_approval")
    ok(world, "reject", "--reason", "not today")
    view = world.state("paused:step_failed")
    step = view.step("ask")
    assert step is not None
    assert (str(step.state), step.cause) == ("failed", "gate")
    assert "not today" in step.detail
    refused(world, "not possible", "next")
    ok(world, "retry")
    world.state("waiting_approval")
    ok(world, "approve")
    assert str(world.over().state) == "succeeded"


def test_yes_answers_an_approval_and_is_recorded_as_that(world: World) -> None:
    ask = "id: ask, approval: {prompt: Go on?, confirm: word}"
    done = world.go(world.write("b.yaml", book(ask)), "--yes")
    assert done.code == 0, done
    assert [(v["verb"], v["why"]) for v in done.json["verbs"]] == [("approve", "--yes")]


def test_a_retry_may_change_an_input_and_says_so(world: World) -> None:
    bad = 'id: bad, script: "echo try-$OMNI_INPUT_CODE; exit $OMNI_INPUT_CODE"'
    text = book(bad, *note("z"), inputs="code: {type: int, default: 3, max: 9}", final=REPORT)
    world.detach(world.write("b.yaml", text))
    view = world.state("paused:step_failed")
    step = view.step("bad")
    assert step is not None
    assert (step.exit_code, step.lines) == (3, ["try-3"])
    refused = world.tell("retry", "--input", "code=77", "--reason", "out of range")
    assert (refused.code, "at most 9" in refused.err) == (5, True), refused
    assert "unknown input" in world.tell("retry", "--input", "nope=1").err
    assert world.at("bad").attempt == 1
    assert world.view().inputs["code"] == 3, "a value the playbook refuses changes nothing"
    ok(world, "retry", "--input", "code=0", "--reason", "fewer experts")
    assert str(world.over().state) == "succeeded"
    shown = world.show()
    assert shown["inputs"]["code"] in (0, "0")
    assert next(s for s in shown["steps"] if s["id"] == "bad")["attempts"] == 2
    verb = shown["verbs"][-1]
    assert (verb["verb"], verb["why"], verb["args"]["inputs"]) == (
        "retry", "fewer experts", {"code": "0"},
    )  # fmt: skip
    assert "fewer experts" in world.run.report.read_text()
    logs = world.console("logs", "bad")
    assert (logs.code, logs.out) == (0, "try-0\n"), logs


def test_a_hold_is_overridden_only_with_a_reason_and_the_report_shows_it(world: World) -> None:
    text = book(*gate("15", GREY, ", outcomes: {go: migrate}"), *note("z"), final=REPORT)
    world.detach(world.write("b.yaml", text))
    world.state("paused:hold")
    refused(world, "needs a reason", "approve")
    refused(world, "not possible", "skip", "--reason", "no")
    refused(world, "not possible", "continue")
    ok(world, "approve", "--reason", "measured elsewhere")
    assert str(world.over().state) == "succeeded"
    shown = world.show()
    assert shown["verdicts"][0]["overridden"].endswith(": measured elsewhere")
    assert (shown["decision"], shown["outcome"], shown["exit_code"]) == ("go", "migrate", 0)
    report = world.console("report", world.run.id).out
    assert "**OVERRIDDEN**: gate go, by " in report
    assert "measured elsewhere" in report


def test_a_threshold_that_is_moved_needs_a_reason_and_marks_the_go(world: World) -> None:
    asked = 'go: "${{ inputs.bar }}", no_go: "< 2 tok/s"'
    text = book(*gate("15", asked), inputs='bar: {type: string, default: ">= 20 tok/s"}')
    world.detach(world.write("b.yaml", text))
    world.state("paused:hold")
    lower = ("retry", "--input", "bar=>= 10 tok/s")
    refused(world, "moves what gate go asks for (say.rate >= 20 tok/s", *lower)
    ok(world, *lower, "--reason", "a trial")
    assert str(world.over().state) == "succeeded"
    shown = world.show()
    assert (shown["decision"], shown["exit_code"]) == ("go", 0)
    [verdict] = shown["verdicts"]
    assert ": a trial (say.rate >= 20 tok/s, " in verdict["overridden"]
    assert verdict["overridden"].endswith("before that it said HOLD")
    assert world.console("runs").out.splitlines()[0].endswith("OVERRIDDEN")
    report = world.console("report", world.run.id).out
    assert "**OVERRIDDEN**: gate go, by " in report
    assert "bar=>= 10 tok/s" in report


def test_the_history_reads_ended_runs_alone(world: World) -> None:
    path = world.write("b.yaml", book(*gate("25", GREY), 'id: say2, run: [printf, "\\e[31mred"]'))
    assert world.go(path).code == 0
    one = world.run.id
    assert world.go(path).code == 0
    two = next(r.id for r in world.runs if r.id != one)
    listed = world.console("runs")
    assert (listed.code, one in listed.out, two in listed.out) == (0, True, True)
    assert len(world.console("report", one, two, "--json").json["runs"]) == 2
    shown = world.console("show", two)
    assert shown.code == 0
    assert "gate go: GO" in shown.out
    logs = world.console("logs", "say2", "--run", two)
    assert "red" in logs.out
    assert "\x1b" not in logs.out, "foreign bytes do not reach the terminal"
    missing = world.console("logs", "nothing", "--run", two)
    assert missing.code == 2
    assert "say" in missing.err
    assert world.console("logs", "a**b", "--run", two).code == 2, "a name is no pattern"
    assert world.console("show", "no-such-run").code == 2
