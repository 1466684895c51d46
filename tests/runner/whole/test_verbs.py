"""What an operator can do to a run from another terminal, each verb acknowledged and recorded; what
a follower is told when its run ends by somebody else's hand, and how a resume is told."""

import json

import pytest

from console.host.systemd import Detachment
from console.journal.state import RunState
from console.runner import control, launch
from tests.runner.e2e.sites import REPORT, UP, book, gate
from tests.runner.scenes import LONG, restored
from tests.runner.world import LONGEST_S
from tests.runner.world import WorldBase as World

GREY = 'go: ">= 20 tok/s", no_go: "< 10 tok/s"'


def note(*names: str) -> tuple[str, ...]:
    return tuple(f"id: {name}, note: reached" for name in names)


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
    assert world.states()["a"] == "succeeded"
    assert world.states()["b"] == "pending"
    refused(world, "moved on", "next", "--step", "a")
    refused(world, "not possible", "reject")
    refused(world, "not possible", "retry")
    ok(world, "auto", "--reason", "to the gate")
    paused_before(world, "d")
    assert world.states()["go"] == "succeeded"
    ok(world, "continue")
    assert str(world.over().state) == "succeeded"
    verbs = [(v["verb"], v["why"]) for v in world.show()["verbs"]]
    assert verbs == [("next", ""), ("auto", "to the gate"), ("continue", "")]
    late = world.tell("next")
    assert late.code == 5
    assert "has ended" in late.err


def test_a_step_that_does_not_apply_is_passed_over(world: World) -> None:
    left_out = "id: b, when: false, note: reached"
    world.detach(world.write("b.yaml", book(*note("a"), left_out, *note("c"))), "--step")
    paused_before(world, "a")
    ok(world, "next")
    paused_before(world, "c")
    assert world.states()["b"] == "skipped"
    ok(world, "next")
    assert str(world.over().state) == "succeeded"


def test_pause_takes_hold_between_steps_and_skip_needs_a_reason(world: World) -> None:
    stop = world.root / "stop"
    wait = f'id: long, script: "until test -e {stop}; do sleep 0.02; done"'
    act = f'id: act, script: "echo act >> {world.effects}"'
    world.detach(world.write("b.yaml", book(wait, act, *note("z"))))
    world.step("long", "running")
    ok(world, "pause")
    assert world.states()["long"] == "running", "a pause does not cut a step off"
    stop.touch()
    paused_before(world, "act")
    assert world.view().reason == "operator"
    refused(world, "needs a reason", "skip")
    ok(world, "skip", "--reason", "done by hand")
    world.over()
    assert world.states() == {"long": "succeeded", "act": "skipped", "z": "succeeded"}
    assert "done by hand" in world.at("act").detail
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
    assert world.states()["z"] == "pending"
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
    world.state("paused:step_failed")
    step = world.at("ask")
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


def test_a_secret_input_that_a_retry_changes_is_hidden_like_the_first(world: World) -> None:
    echo = 'script: "echo $OMNI_INPUT_HF_TOKEN; test $OMNI_INPUT_HF_TOKEN != OldCanary1"'
    script = f"id: bad, {echo}"
    path = world.write("b.yaml", book(script, inputs="hf_token: {type: string, default: x}"))
    world.detach(path, "--input", "hf_token=OldCanary1")
    world.state("paused:step_failed")
    ok(world, "retry", "--input", "hf_token=NewCanary2", "--reason", "it was revoked")
    assert str(world.over().state) == "succeeded"
    faces = [world.console(*words.split()) for words in ("show", "show --json", "logs", "report")]
    shown = "".join(f"{face.out}{face.err}" for face in faces)
    kept = b"".join(one.read_bytes() for one in world.run.path.rglob("*.[dlm]*") if one.is_file())
    for value in ("OldCanary1", "NewCanary2"):
        assert value not in shown
        assert value.encode() not in kept


def test_a_retry_may_change_an_input_and_says_so(world: World) -> None:
    bad = 'id: bad, script: "echo try-$OMNI_INPUT_CODE; exit $OMNI_INPUT_CODE"'
    text = book(bad, *note("z"), inputs="code: {type: int, default: 3, max: 9}", final=REPORT)
    world.detach(world.write("b.yaml", text))
    world.state("paused:step_failed")
    step = world.at("bad")
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
    refused(world, "this changes what gate go asks for (say.rate >= 20 tok/s", *lower)
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


def test_logs_bring_no_foreign_bytes_and_a_name_is_no_pattern(world: World) -> None:
    assert world.go(world.write("b.yaml", book('id: say, run: [printf, "\\e[31mred"]'))).code == 0
    logs = world.console("logs", "say")
    assert "red" in logs.out
    assert "\x1b" not in logs.out
    assert world.console("logs", "s**y").code == 2


# -- followers, and runs without a runner ----------------------------------------------------------


def test_a_follower_learns_of_a_rollback_from_another_shell(world: World) -> None:
    follower = world.start("run", str(world.write("b.yaml", book(UP, LONG))), "--json")
    world.until(lambda: world.runs, "the run begins")
    world.step("long", "running")
    assert world.console("rollback").code == 0
    out, err = follower.communicate(timeout=LONGEST_S)
    assert follower.returncode == 6, (out, err)
    told = json.loads(out)
    assert (told["state"], told["decision"], told["exit_code"]) == ("rolled_back", None, 6)
    assert world.at("long").state == "cancelled"
    assert "serving" in err


def test_a_run_without_a_runner_is_interrupted_and_a_headless_resume_does_not_guess(
    world: World,
) -> None:
    act = f'id: act, script: "echo act >> {world.effects}"'
    path = world.write("b.yaml", book(UP, act, "id: z, note: reached"))
    done = world.go(path, OMNI_FAULT="after_effect@act")
    assert (done.code, done.json["state"], done.json["exit_code"]) == (4, "interrupted", None), done
    assert "omni-console resume" in done.err
    assert "omni-console rollback" in done.err
    assert world.console("runs", "--json").json["runs"][0]["state"] == "interrupted"
    for verb in ("pause", "approve"):
        told = world.tell(verb)
        assert told.code == 5
        assert "interrupted" in told.err
    resumed = world.console("resume", "--json")
    assert (resumed.code, resumed.json["state"]) == (5, "failed"), resumed
    assert (world.at("act").state, world.at("z").state) == ("in_doubt", "pending")
    assert world.done() == ["act"]
    restored(world)
    assert resumed.json["verbs"][-1]["verb"] == "resume"
    again = world.console("resume")
    assert again.code == 2
    assert "has ended" in again.err


def test_a_declared_idempotent_step_runs_again_and_a_proven_one_does_not(world: World) -> None:
    again = f'id: again, script: "echo again >> {world.effects}", idempotent: true'
    made = world.root / "made"
    once = f'id: once, script: "echo once >> {world.effects}; touch {made}", '
    once += f"unless: {{file: {made}}}"
    path = world.write("b.yaml", book(again, once))
    for fault in ("after_effect@again", "after_effect@once"):
        world.detach(path, OMNI_FAULT=fault)
        world.dead()
        assert world.console("resume", "--json").code == 0
        assert str(world.over().state) == "succeeded"
        wanted = {"again": ["again", "again", "once"], "once": ["again", "once"]}
        assert world.done() == wanted[fault.partition("@")[2]]
        world.effects.unlink()
        made.unlink()


def test_resume_from_a_step_repeats_what_the_operator_asks_for_and_records_it(
    world: World,
) -> None:
    steps = [f'id: {name}, script: "echo {name} >> {world.effects}"' for name in "abc"]
    world.detach(world.write("b.yaml", book(*steps)), OMNI_FAULT="after_result@b")
    world.dead()
    assert world.console("resume", "--from", "nowhere").code == 2
    assert world.done() == ["a", "b"]
    resumed = world.console("resume", "--from", "b", "--json")
    assert resumed.code == 0, resumed
    assert world.done() == ["a", "b", "b", "c"]
    verb = resumed.json["verbs"][-1]
    assert (verb["verb"], verb["step"], bool(verb["who"])) == ("resume", "b", True)
    assert "from b" in verb["why"]


def test_a_resume_says_where_logind_would_end_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = f'id: act, script: "echo act >> {world.effects}", idempotent: true'
    world.detach(world.write("b.yaml", book(act)), OMNI_FAULT="after_effect@act")
    world.dead()
    monkeypatch.setattr(launch, "detachment", lambda: Detachment(False, "logind ends it"))
    resumed = world.console("resume", "--json")
    assert (resumed.code, "WARNING: logind ends it" in resumed.err) == (0, True), resumed
