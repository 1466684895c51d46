"""However a run ends, the baseline is back; what was decided or done is not done again; and what a
journal or an old proof says is asked of the world before it is believed."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.common.errors import Exit
from console.host import process
from console.journal import events
from console.journal.run_dir import RunDir
from console.journal.run_files import left_down, read_view, served_since
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.notify.event import missed
from console.recovery.rollback import evidence, observe, records
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.progress import Result
from console.runner import finish
from console.runner.context import Context
from console.runner.control import Verb
from console.runner.executors import service
from console.runner.loop import Runner
from console.runtime import proxy
from tests.children import running
from tests.rollback.conftest import STANDIN
from tests.runner.e2e.sites import UP, book
from tests.runner.scenes import LONG, STAY, restored
from tests.runner.whole.test_emergency import elsewhere
from tests.runner.whole.test_faults import crash as crash_at
from tests.runner.world import WorldBase as World

STOP = "id: down, service: {stop: cand}"
SLOW = "id: n, run: [echo, 'tg: 5'], outputs: {tg: {pattern: 'tg: ([0-9]+)'}}"
GATE = "id: go, gate: [{metric: n.tg, go: '>= 20'}]"


def after(world: World) -> str:
    return f'id: after, script: "echo after >> {world.effects}"'


def crash(world: World, path: Path, fault: str) -> None:
    """A run up to its fault."""
    world.detach(path, OMNI_FAULT=fault)
    world.dead()
    assert world.show()["state"] == "interrupted"


def script_ended(world: World, name: str) -> RunDir:
    """A run that rollback.sh ended: it starts no Python, and the journal knows nothing of it."""
    hold = "id: hold, approval: {prompt: 'go on?', expires: 1h}"
    run = world.detach(world.write("hold.yaml", book(UP, hold, name=name)))
    world.state("waiting_approval")
    for kind in ("runner", "ladder"):
        world.kill(kind)
    world.dead()
    [candidate] = world.pids("process")
    process.stop_group(*candidate, grace_s=0.0)
    world.bring_up()
    line = {"trigger": "script-1-2", "rung": "done", "state": "ok", "at": 1, "serving": True}
    with run.ladder.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return run


@pytest.mark.parametrize("how", ["--json", "--if-interrupted"])
def test_an_interrupted_run_is_found_after_one_on_another_site(world: World, how: str) -> None:
    site, _ = elsewhere(world)
    other = world.write("other.yaml", json.dumps(site | {"name": "other"}))
    assert world.console("rollback", OMNI_SITE=str(other)).code == 0
    first = world.detach(world.write("b.yaml", book(UP, LONG)))
    world.step("long", "running")
    world.interrupt()
    world.kill("ladder")
    check = world.write("c.yaml", book("id: n, note: hello", name="check"))
    refused = world.console("run", str(check), OMNI_SITE=str(other))
    assert refused.code == 8, "two engines would be loaded"
    assert f"omni-console rollback --site {world.site}" in refused.err
    assert "cand is still loaded" in refused.err
    [candidate] = world.pids("process")
    process.stop_group(*candidate, grace_s=0.0)
    assert world.console("run", str(check), OMNI_SITE=str(other)).code == 0
    assert not world.serves()
    assert world.console("rollback", how).code == 0
    restored(world)
    world.until(lambda: read_view(first).state == "rolled_back", "it is on record")


@pytest.mark.parametrize("how", ["--if-interrupted", "--json"])
def test_all_interrupted_runs_are_rolled_back_while_the_first_is_being_closed(
    world: World, how: str
) -> None:
    """By the unit at boot, and by one press of the key; no second call is needed."""
    site, url = elsewhere(world)
    other = world.write("other.yaml", json.dumps(site | {"name": "other"}))
    assert world.console("rollback", OMNI_SITE=str(other)).code == 0
    path = world.write("b.yaml", book(UP, LONG))
    for at in (world.site, other):
        assert world.console("run", "--detach", str(path), OMNI_SITE=str(at)).code == 0
        world.step("long", "running")
        world.interrupt()
        world.kill("ladder")
        [candidate] = world.pids("process")
        process.stop_group(*candidate, grace_s=0.0)
    assert not world.serves()
    assert not world.serves(url)
    assert world.console("rollback", how).code == 0
    assert world.serves()
    assert world.serves(url)


def test_an_end_before_the_step_that_stops_the_candidate(world: World) -> None:
    steps = (UP, "id: bad, run: ['false']", STOP, "id: z, note: reached")
    done = world.go(world.write("b.yaml", book(*steps)))
    assert done.code == 5, done
    restored(world)
    assert world.at("restore").state == "succeeded"


@pytest.mark.parametrize(("verb", "ends"), [("rollback", "rolled_back"), ("abort", "cancelled")])
def test_the_end_is_what_was_asked_for_while_the_baseline_came_back(
    world: World, verb: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bring_back(context: Context, step: str, attempt: int) -> Result:
        context.control.halt(Verb(verb, "op", "enough"))
        return finish.bring_back(context, step, attempt)

    monkeypatch.setattr(service, "bring_back", bring_back)
    done = world.go(world.write("b.yaml", book(UP)))
    assert (done.code, done.json["state"]) == (6 if verb == "rollback" else 5, ends), done
    restored(world)
    assert world.run.ladder.read_text().count('"done"') == 1, "no second rollback was needed"


def test_a_gate_that_said_no_says_no_after_a_resume(world: World) -> None:
    path = world.write("b.yaml", book(SLOW, GATE, after(world)))
    crash(world, path, "after_result@go")
    resumed = world.console("resume", "--json")
    assert (resumed.code, resumed.json["decision"]) == (3, "no_go"), resumed
    assert world.done() == []


def test_a_hold_is_still_a_hold_after_a_resume(world: World) -> None:
    held = "id: go, gate: [{metric: n.tg, go: '>= 20', no_go: '< 1'}]"
    world.detach(world.write("b.yaml", book(SLOW, held, after(world))))
    world.state("paused:hold")
    world.interrupt()
    assert world.console("resume", "--detach").code == 0
    world.until(lambda: world.status().get("state") == "paused", "it holds again")
    assert world.done() == []
    assert world.tell("approve", "--reason", "seen by hand").code == 0
    world.over()
    assert world.done() == ["after"]


def test_a_retry_starts_a_candidate_that_died(world: World) -> None:
    again = "id: up, service: {start: crash}, retry: {attempts: 3, backoff: 10ms}"
    done = world.go(world.write("b.yaml", book(again)))
    assert done.code == 5, done
    log = (world.run.path / "logs/crash.log").read_text()
    assert log.count("last words") == 3, done


def test_what_a_dead_runner_left_running_does_not_run_beside_its_repetition(world: World) -> None:
    long = f'id: long, idempotent: true, script: "echo one >> {world.effects}; exec sleep 600"'
    world.detach(world.write("b.yaml", book(long)))
    world.until(lambda: world.done() == ["one"], "the step has begun")
    world.interrupt()
    assert world.console("resume", "--detach").code == 0
    world.until(lambda: world.done() == ["one", "one"], "the step has begun again")
    found = world.until(lambda: process.by_cookie(world.run.id, "long"), "it sleeps")
    assert len(found) == 1
    assert world.console("abort").code == 5


def test_a_baseline_the_console_did_not_start_is_not_believed_stopped(bare: World) -> None:
    started = bare.bring_up()
    (bare.records / "baseline.json").unlink()
    done = bare.go(bare.write("b.yaml", book(UP)))
    assert done.code == 5, done
    assert "could not be stopped" in done.err
    assert process.alive(*started)
    assert bare.runs == []


def test_an_abort_reaches_a_step_that_closed_its_output(world: World) -> None:
    silent = "id: silent, run: [sh, -c, 'exec >&- 2>&-; exec sleep 600']"
    world.detach(world.write("b.yaml", book(silent)))
    world.step("silent", "running")
    assert world.console("abort").code == 5
    assert world.over().state == "cancelled"


def test_a_final_step_that_failed_is_not_tried_again_by_a_later_rollback(world: World) -> None:
    mail = f'id: mail, script: "echo mail >> {world.effects}; exit 1"'
    done = world.go(world.write("b.yaml", book("id: a, note: x", final=mail)))
    assert done.code == 0, done
    assert world.console("rollback").code == 0
    assert world.console("rollback").code == 0
    world.dead()
    assert world.done() == ["mail"]


def test_a_judge_that_is_left_out_judges_nothing(world: World) -> None:
    left_out = [
        "id: room, when: false, host: {disk: {path: /, free: 1B}}",
        "id: go, when: false, gate: [{metric: n.tg, go: '>= 20'}]",
    ]
    done = world.go(world.write("b.yaml", book(SLOW, *left_out, after(world))))
    assert (done.code, done.json["state"], done.json["decision"]) == (0, "succeeded", None), done
    assert world.done() == ["after"]


def test_a_fault_of_the_console_fails_the_step_and_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug between two steps costs the run what any failure does, and is told as what it is."""
    judged = Runner._judged

    def broken(self: Runner, planned: Any) -> Any:
        return {}[planned.id] if planned.id == "up" else judged(self, planned)

    monkeypatch.setattr(Runner, "_judged", broken)
    done = world.go(world.write("b.yaml", book(UP, SLOW, after(world))))
    assert done.json["state"] == "rolled_back", done
    up = next(s for s in done.json["steps"] if s["id"] == "up")
    assert (up["state"], up["cause"]) == ("failed", "internal")
    assert "an error in this console: KeyError: 'up'" in up["detail"]
    assert world.serves()
    assert world.done() == []
    report = world.run.report.read_text()
    assert "emergency" not in report
    assert "an error in this console" in report


@pytest.mark.parametrize("resumed", [False, True])
def test_a_baseline_that_died_beside_a_run_is_brought_back(world: World, resumed: bool) -> None:
    """The run took nothing down, so its journal knows of nothing: the world is asked."""
    world.detach(world.write("b.yaml", book("id: ask, approval: {prompt: Go on?}")))
    world.state("waiting_approval")
    assert process.stop_group(*(world.baseline() or (0, 0)), grace_s=0.0)
    if resumed:
        world.interrupt()
        assert world.console("resume", world.run.id, "--detach").code == 0
        world.until(lambda: world.at("ask").attempt == 2, "it asks again")
        world.state("waiting_approval")
    assert world.tell("approve").code == 0
    view = world.over()
    assert world.serves()
    assert str(view.state) in ("succeeded", "rolled_back"), world.words
    assert view.stages, "the ladder was climbed"


def test_a_run_is_not_resumed_while_somebody_else_answers_for_the_baseline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that one answers would be measured as the baseline's."""
    world.detach(world.write("b.yaml", book("id: ask, approval: {prompt: Go on?}")))
    world.state("waiting_approval")
    world.interrupt()
    with monkeypatch.context() as patch:
        words = "something else answers there: pid 9, imposter, holds port 1"
        patch.setattr(observe, "somebody_else", lambda plan: words)
        refused = world.console("resume", world.run.id, "--detach")
        assert refused.code != 0
        for part in ("the run is not resumed: something else answers at", "pid 9, imposter"):
            assert part in refused.err
    assert not any(event.kind == "verb" for event in world.events())
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: world.view().step("ask").attempt == 2, "it asks again")
    world.state("waiting_approval")
    assert world.tell("approve").code == 0
    assert str(world.over().state) == "succeeded"


def test_what_the_script_has_rolled_back_is_not_resumed(world: World) -> None:
    run = script_ended(world, "trial")
    assert not left_down(run, unknown=True), "the unit at boot has nothing to do"
    assert world.console("rollback", "--if-interrupted", "--json").json["nothing_to_do"]
    resumed = world.console("resume", "--detach")
    assert resumed.code == Exit.USAGE, resumed
    assert "omni-console rollback does" in resumed.err
    assert not world.listens(world.cand_url)
    assert world.console("rollback").code == 0
    world.until(lambda: world.view().state == RunState.ROLLED_BACK, "its journal is closed")


# -- what a journal and an old proof say is asked of the world -------------------------------------

SITE = "local"


def prove_after_outage(world: World) -> None:
    """By the run's own clock, which is ahead of this machine's."""
    evidence.keep(SITE, world.base_url, proof_at(world.view().down_since + 1))


def proof_at(at: float) -> Evidence:
    return Evidence(Kind.PROOF, Word.SERVING, at, Witness.VERIFY, "", 5.0)


def test_resume_stops_a_baseline_that_came_back(world: World) -> None:
    """`docker start` by hand, `restart: always` after a reboot, or a rollback that was killed."""
    crash_at(world, "after_intent@up")
    world.bring_up()
    world.until(world.serves, "the baseline serves again")
    prove_after_outage(world)
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: world.listens(world.cand_url), "the candidate serves")
    assert world.baseline() is None, "two engines are loaded"
    notes = [e.body.text for e in world.events() if isinstance(e.body, events.RunNote)]
    assert any("came back" in text for text in notes)
    said = [e.body.text for e in world.events() if isinstance(e.body, events.StepSay)]
    assert "no GPUs in the site file" in said, "GPU memory is waited for after every stop"
    for kind in ("runner", "ladder"):
        world.kill(kind)
    world.dead()
    assert left_down(world.run, unknown=False), "the proof is of while it was back"
    world.console("rollback")


def test_a_stranger_at_the_address_proves_nothing_for_a_run_that_left_the_baseline_down(
    world: World,
) -> None:
    crash_at(world, "after_intent@up")
    before = evidence.last_proof(SITE, world.base_url)
    with running([sys.executable, "-S", str(STANDIN), str(world.base_port)]):
        world.until(world.serves, "the stranger answers")
        again = world.console("run", str(world.write("other.yaml", book(UP, name="other"))))
        assert again.code == 5
    assert evidence.last_proof(SITE, world.base_url) == before
    assert left_down(world.run, unknown=False)
    assert world.console("rollback", "--if-interrupted").code == 0
    assert world.serves()


def test_a_proof_of_before_the_outage_does_not_end_it(world: World) -> None:
    """The clock was an hour ahead when the baseline was proven, and was set right since."""
    file = paths.state_dir() / "proof" / f"{evidence.directory(SITE, world.base_url).name}.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"at": time.time() + 3600, "tok_s": 50.0, "degraded": False}))
    crash_at(world, "after_intent@up")
    assert left_down(world.run, unknown=False)
    prove_after_outage(world)
    assert not left_down(world.run, unknown=True), "a proof that came later counts"


@pytest.mark.parametrize(
    ("before_s", "newest_s", "counts"),
    [
        (-60, 5, True),
        (3600, 3600, False),  # the clock was ahead when the baseline was proven
        (3600, 3601, True),
        (-60, -30, False),  # a rollback wrote its proof late, when the next outage had begun
        (None, 5, False),  # an old journal: a proof of the future is none
        (None, -0.5, True),
    ],
)
def test_which_proof_ends_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    before_s: float | None, newest_s: float, counts: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = time.time()
    before = None if before_s is None else now + before_s
    url = "http://127.0.0.1:8000"
    view = RunView(site=SITE, outage=True, down_since=now - 1, proof_before=before, down_url=url)
    evidence.keep(SITE, "http://127.0.0.1:8001", proof_at(now + newest_s))
    run = RunDir(tmp_path)
    assert not served_since(run, view, alive=False), "the proof of another site with the same name"
    evidence.keep(SITE, url, proof_at(now + newest_s))
    assert bool(served_since(run, view, alive=False)) is counts


def test_a_refused_resume_leaves_another_runs_cutover_alone(world: World) -> None:
    """Clients stay at the candidate of the other one."""
    first = script_ended(world, "aa")
    mine = {
        "process": {"argv": world.engine(world.model, world.cand_port)}, "url": world.cand_url,
        "ready": {"timeout": "30s"}, "exclusive": True,
    }  # fmt: skip
    steps = ("id: up, service: {start: mine}", STAY.replace("cand", "mine"))
    services = json.dumps({"mine": mine})
    text = book(*steps, name="bb").replace("phases:", f"services: {services}\nphases:")
    world.go(world.write("b.yaml", text))
    world.over()
    relay, pointer = proxy.at(world.base_url), records.read(0)
    assert relay is not None
    assert pointer is not None
    resumed = world.console("resume", first.id, "--detach")
    assert resumed.code == 2
    assert "a rollback has ended run" in resumed.err
    assert (proxy.at(world.base_url), records.read(0)) == (relay, pointer)
    assert (world.baseline(), world.listens(world.cand_url)) == (None, True)
    assert world.console("rollback").code == 0
    assert not world.listens(world.cand_url)


# -- the end is said of the world as the last step leaves it ---------------------------------------


def tidies(world: World, *steps: str) -> Path:
    """A run whose `finally` waits for this file; it is there when that step runs."""
    gate = world.root / "go on"
    wait = f"id: tidy, script: 'while [ ! -e \"{gate}\" ]; do sleep 0.02; done'"
    world.detach(world.write("b.yaml", book(*steps, final=wait)))
    world.step("tidy", "running")
    return gate


@pytest.mark.parametrize("well", [True, False])
def test_a_finally_that_stops_the_baseline_is_no_success(
    world: World, monkeypatch: pytest.MonkeyPatch, well: bool
) -> None:
    gate = tidies(world, "id: one, note: hi")
    assert world.view().state == RunState.SUCCEEDED
    baseline = world.baseline()
    assert baseline is not None
    process.stop_group(*baseline, grace_s=0.0)
    if not well:
        failed = Result(serving=False, detail="ready: it does not start")
        monkeypatch.setattr(finish, "_bring_back", lambda context, *_: told(context, failed))
    gate.touch()
    world.until(lambda: world.view().finished, "the run has said its last word")
    view = world.view()
    assert view.state == (RunState.ROLLED_BACK if well else RunState.ROLLBACK_FAILED)
    assert world.console("show").code == (Exit.ROLLED_BACK if well else Exit.ROLLBACK_FAILED)
    assert world.serves() is well
    assert view.outage is not well
    report = world.run.report.read_text()
    assert ("NOT SERVING" in report) is not well
    assert "Nothing failed by itself" not in report
    assert "until the steps of `finally` (tidy) had run" in report
    told_of = [one.title for one in missed(world.events(), view.ended)]
    end = "ROLLED BACK" if well else "ROLLBACK FAILED"
    assert told_of == [f"trial has ended: {end}"], "once, by what it came to"


def told(context: Context, result: Result) -> Result:
    finish.record_result(context, result)
    return result


def test_the_report_says_when_the_baseline_was_looked_at_last(world: World) -> None:
    gate = tidies(world, "id: one, note: hi")
    gate.touch()
    world.until(lambda: world.view().finished, "the run has said its last word")
    view = world.view()
    assert view.state == RunState.SUCCEEDED
    assert view.serving.by == "a run's start"
    assert view.serving.looked_at > view.serving.at
    assert "after the last step" in world.run.report.read_text()
