"""Blue/green on scripted engines: clients on the production port reach the candidate, and
whatever dies on the way, a rollback gives them the baseline."""

import json
import re
import signal
import subprocess
import sys
import threading

import pytest

from console.host import process
from console.host.ports import Answering, Listener
from console.journal.state import RunState
from console.recovery.rollback import live, records
from console.runner.executors import service
from console.runner.prepare.adopt import cut_overs_beside
from console.runtime import proxy
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runner.e2e.sites import SIDE, UP, book, gate, host_site
from tests.runner.scenes import STAY, WATCH, is_back, is_cut_over, points, roll_back, stay
from tests.runner.whole.server import UNSEEN
from tests.runner.world import WorldBase as World
from tests.runtime.made_engine import IMAGE, Refused, made_engine
from tests.waiting import host_is_free, some

BACK = "id: cut, cutover: {to: cand, watch: 2s, every: 1s}"
LONG = "id: cut, cutover: {to: cand, watch: 30d, every: 1s, then: stay}"
FAULTS = (
    "after_intent@cut", "effect_recorded@cutover", "cut_over", "service_ready@cutover", "in_watch",
    "after_effect@cut", "after_result@cut",
)  # fmt: skip


def watched(world: World) -> None:
    """A run that watches its candidate on the production port."""
    world.detach(world.write("b.yaml", book(UP, LONG)))
    world.until(lambda: world.view().cutover.what == "proven", "the watch has begun")


def health_said(world: World) -> list[dict[str, str]]:
    """What `doctor` finds at the baseline's address."""
    found = world.console("doctor", "--json").json["findings"]
    return [one for one in found if one["id"] == "baseline.health"]


def test_clients_reach_the_candidate_and_go_back(world: World) -> None:
    done = world.go(world.write("b.yaml", book(UP, BACK, "id: n, note: done")))
    assert done.code == 0, done
    view = world.over()
    assert str(view.state) == "succeeded", world.words
    answered = some(re.search(r"(\d+) of (\d+) completions answered", world.at("cut").detail))
    assert answered[1] == answered[2] != "0"
    assert world.at("baseline:restore-1").state == "succeeded"
    assert not view.cutover
    is_back(world)


def test_a_candidate_beside_the_baseline_takes_its_port_only_at_the_cutover(world: World) -> None:
    cut = f"id: cut, cutover: {{to: side, {WATCH}}}"
    done = world.go(world.write("b.yaml", book(SIDE, cut)))
    assert done.code == 0, done
    order = [s.id for s in world.over().steps]
    assert order == ["up", "baseline:stop", "cut", "baseline:restore-1", "restore"]
    is_back(world)


def test_clients_stay_until_a_rollback(world: World) -> None:
    stay(world)
    view = world.view()
    assert view.cutover.what == "stays"
    assert view.outage
    assert world.at("restore").state == "skipped"
    assert points(world), "a rollback from another shell knows whose baseline it is"
    refused = world.go(world.write("again.yaml", book("id: n, note: x")))
    assert refused.code != 0
    assert "cand answers at" in refused.json["detail"], refused
    assert points(world), "the run that was refused has put it back"
    roll_back(world)
    world.until(lambda: not points(world), "the run that is closed points no more")
    is_back(world)
    world.until(lambda: not world.view().cutover, "the run's journal knows")
    assert str(world.view().state) == "succeeded"


def test_a_finally_that_ends_the_candidate_leaves_no_clients_there(world: World) -> None:
    gate = world.root / "go on"
    wait = f"id: tidy, script: 'while [ ! -e \"{gate}\" ]; do sleep 0.02; done'"
    world.detach(world.write("b.yaml", book(UP, STAY, final=wait)))
    world.step("tidy", "running")
    assert world.view().state == RunState.SUCCEEDED
    process.stop_group(*world.pids("process")[0], grace_s=0.0)
    gate.touch()
    world.until(lambda: world.view().finished, "the run has said its last word")
    assert world.view().state == RunState.ROLLED_BACK
    assert not world.view().cutover
    is_back(world)


def test_the_report_is_written_anew_after_a_rollback_of_a_run_that_was_over(world: World) -> None:
    stay(world)
    world.until(lambda: world.view().finished, "the run has said its last word")
    assert "CUT OVER" in world.run.report.read_text()
    assert roll_back(world)["serving"]
    world.until(lambda: "CUT OVER" not in world.run.report.read_text(), "the report follows")


def test_show_says_that_what_clients_were_given_to_does_not_answer(world: World) -> None:
    stay(world)
    at = f"CUT OVER to cand, not promoted at {world.base_url}"
    assert f"{at}; " in world.console("show").out
    process.send(*some(process.read_record(world.records, "cand")), signal.SIGKILL)
    world.until(lambda: f"{at}, AND DOES NOT ANSWER; " in world.console("show").out, "it says so")
    roll_back(world)
    is_back(world)


@pytest.mark.parametrize(("killed", "changed"), [(False, True), (True, False), (True, True)])
def test_a_dead_relay_or_a_changed_site_file_leaves_nothing_behind(
    world: World, killed: bool, changed: bool
) -> None:
    found = stay(world)
    if killed:
        process.send(found.pid, found.start, signal.SIGKILL)
        world.until(lambda: not process.alive(found.pid, found.start), "the relay is dead")
        assert "CUT OVER to cand, but its relay is gone" in world.console("show").out
        (said,) = health_said(world)
        gone = "cut over to cand, not promoted, but its relay is gone"
        assert (said["level"], gone in said["detail"]) == ("failed", True), said
    if changed:
        world.site.write_text(world.site.read_text() + "\n")
    roll_back(world)
    is_back(world)
    world.until(lambda: not world.view().cutover, "the run's journal knows")


@pytest.mark.parametrize(
    ("victim", "number"),
    [("relay", signal.SIGKILL), ("cand", signal.SIGKILL), ("cand", signal.SIGSTOP)],
)
def test_what_dies_or_hangs_in_the_watch_brings_the_baseline_back(
    world: World, victim: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number == signal.SIGSTOP:
        monkeypatch.setattr(service, "LOOKS", 1)
    watched(world)
    relay = is_cut_over(world)
    candidate = some(process.read_record(world.records, "cand"))
    process.send(*((relay.pid, relay.start) if victim == "relay" else candidate), number)
    assert str(world.over().state) == "rolled_back", world.words
    cut = world.at("cut")
    died = number == signal.SIGKILL
    assert (str(cut.state), "died" in cut.detail) == ("failed", died), cut
    is_back(world)


def test_a_candidate_that_answers_garbage_gets_no_clients(world: World) -> None:
    world.machine.garbage[world.cand_port] = lambda number: "G"
    world.go(world.write("b.yaml", book(UP, STAY)))
    assert str(world.over().state) == "rolled_back", world.words
    assert "garbled, one character repeated: “GGGGGGGG”" in world.at("cut").detail
    assert "garbage" in world.at("cut").detail
    is_back(world)


def test_garbage_through_the_relay_brings_the_baseline_back(world: World) -> None:
    """The proof of the cutover itself, and then the watch, however many answers may fail."""
    world.machine.garbage[world.cand_port] = lambda number: "G" if number == 2 else ""
    world.go(world.write("b.yaml", book(UP, LONG)))
    assert str(world.over().state) == "rolled_back", world.words
    assert "garbage from cand at" in world.at("cut").detail
    is_back(world)


@pytest.mark.parametrize("most", [0, 1000])
def test_garbage_in_the_watch_brings_the_baseline_back(world: World, most: int) -> None:
    world.machine.garbage[world.cand_port] = lambda number: "G" if number > 3 else ""
    world.go(world.write("b.yaml", book(UP, LONG.replace("then", f"max_errors: {most}, then"))))
    assert str(world.over().state) == "rolled_back", world.words
    assert "garbled, one character repeated: “GGGGGGGG”" in world.at("cut").detail
    is_back(world)


def test_a_candidate_that_reasons_is_cut_over_to(world: World) -> None:
    """It says nothing within the few tokens of a proof, so it is asked for more."""
    world.machine.garbage[world.cand_port] = lambda number: UNSEEN if number % 2 else ""
    assert world.go(world.write("b.yaml", book(UP, BACK))).code == 0, world.words
    is_back(world)


def test_who_shares_the_production_port_ends_the_cutover(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get a part of the clients' requests."""
    other = Answering(0, (Listener(1, "other-server"),))

    def answering(url: str, **_: bool) -> list[Answering]:
        return [other] if url == world.base_url and world.view().cutover else []

    monkeypatch.setattr(live, "answering", answering)
    world.go(world.write("b.yaml", book(UP, BACK)))
    assert "pid 1, other-server, answers at" in world.at("cut").detail
    assert str(world.over().state) == "rolled_back", world.words


def test_garbage_is_not_promoted(world: World) -> None:
    stay(world)
    world.machine.garbage[world.cand_port] = lambda number: "G"
    done = world.console("promote", "--why", "it is faster", "--yes")
    assert done.code != 0
    assert "clients get garbage" in done.err
    assert "“GGGGGGGG”" in done.err
    assert world.view().cutover.what == "stays"
    roll_back(world)


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_an_operator_stops_the_watch(world: World, verb: str) -> None:
    watched(world)
    done = world.console(verb)
    assert done.code == (6 if verb == "abort" else 0), done
    assert str(world.over().state) == "rolled_back", world.words
    is_back(world)


def test_no_go_behind_a_cutover_that_stays_goes_back(world: World) -> None:
    done = world.go(world.write("b.yaml", book(UP, STAY, *gate("5", 'go: ">= 20 tok/s"'))))
    assert done.code == 3, done
    world.over()
    is_back(world)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rollback_after_the_runner_died(world: World, fault: str) -> None:
    world.detach(world.write("b.yaml", book(UP, STAY)), OMNI_FAULT=fault)
    world.dead()
    assert "being watched" not in world.console("show").out
    roll_back(world)
    assert str(world.over().state) == "rolled_back", world.words
    is_back(world)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_resume_after_the_runner_died(world: World, fault: str) -> None:
    world.detach(world.write("b.yaml", book(UP, STAY)), OMNI_FAULT=fault)
    world.dead()
    before = proxy.at(world.base_url)
    resumed = world.console("resume", world.run.id, "--detach")
    assert resumed.code == 0, resumed
    assert str(world.over().state) == "succeeded", world.words
    after = is_cut_over(world)
    assert before is None or before == after, "the relay is taken over, not doubled"


def test_a_relay_on_no_record_at_all_is_not_taken_for_the_baseline(world: World) -> None:
    """As one whose runner was killed between the spawn and its first line."""
    run = stay(world)
    process.stop_group(run.pid, run.start, grace_s=1)
    argv = proxy.argv(
        *(u.removeprefix("http://") for u in (world.base_url, world.cand_url)), "cand"
    )
    with running(argv, env={**world.env, "OMNI_RUN": "nobody"}, stdout=subprocess.DEVNULL):
        world.until(world.serves, "the candidate answers on the production port")
        assert "cand answers at" in world.go(world.write("n.yaml", book("id: n, note: x"))).out
        assert not roll_back(world)["nothing_to_do"]
        is_back(world)


def test_promote_is_recorded_and_rollback_still_means_the_site(world: World) -> None:
    stay(world)
    unsaid = world.console("promote", "--yes")
    assert (unsaid.code, "--why" in unsaid.err) == (2, True), unsaid
    nobody = world.console("promote", "--why", "faster")
    assert (nobody.code, "--yes" in nobody.err) == (2, True), nobody
    done = world.console("promote", "--why", "20 tok/s for an hour", "--yes", "--json")
    assert done.code == 0, done
    assert f'"{world.base_port}"' in "\n".join(done.json["site_lines"])
    view = world.view()
    assert view.cutover.what == "promoted"
    assert (view.verbs[-1].verb, view.verbs[-1].why) == ("promote", "20 tok/s for an hour")
    assert "promoted by" in world.run.report.read_text()
    (said,) = health_said(world)
    assert (said["level"], "promoted by" in said["detail"]) == ("warning", True), said
    is_cut_over(world)
    roll_back(world)
    is_back(world)


def test_a_candidate_that_died_is_not_promoted(world: World) -> None:
    stay(world)
    one = world.view().services["cand"]
    process.stop_group(one.pid, one.start, grace_s=0.0)
    done = world.console("promote", "--why", "it is better", "--yes")
    assert done.code != 0
    assert "cand, which does not run, or not at" in done.err
    (said,) = health_said(world)
    assert (said["level"], "rollback" in said["hint"]) == ("failed", True), said
    assert "AND DOES NOT ANSWER" in said["detail"], said
    assert world.view().cutover.what == "stays"
    roll_back(world)


def test_only_a_container_that_its_engine_knows_to_run_is_promoted(bare: World) -> None:
    with made_engine() as engine:
        site = json.loads(host_site(bare, engine.host))
        serve = ["env", "-u", "OMNI_RUN", "-u", "OMNI_STEP", sys.executable, "-S", str(STANDIN)]
        site["services"]["cand"] = {
            "container": {"image": IMAGE, "command": [*serve, str(bare.cand_port)]},
            "url": bare.cand_url, "exclusive": True,
        }  # fmt: skip
        bare.site.write_text(json.dumps(site))
        bare.bring_up()
        stay(bare)

        def promote(why: str) -> tuple[int, str]:
            done = bare.console("promote", "--why", why, "--yes")
            return done.code, done.err

        assert promote("it runs")[0] == 0
        cand = engine.find(bare.view().services["cand"].container)

        def refuse(call: str) -> None:
            raise Refused(500, "the engine is busy")

        engine.answer = refuse
        code, said = promote("its engine says nothing")
        assert (code != 0, "the engine is busy" in said) == (True, True), said
        engine.answer = lambda call: None
        ports = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "1"}]}
        host = cand.config["HostConfig"]
        cand.config["HostConfig"] = {**host, "NetworkMode": "bridge", "PortBindings": ports}
        code, said = promote("another server may have its port")
        assert (code != 0, "or not at" in said) == (True, True), said
        cand.config["HostConfig"] = host
        cand.job.send(signal.SIGKILL)
        cand.job.over.wait(60)
        with running(cand.config["Cmd"], stdout=subprocess.DEVNULL):
            bare.until(bare.serves, "another server has the port of the candidate")
            code, said = promote("it is dead")
            there = f"which does not run, or not at {bare.cand_url}; something else answers there:"
            assert (code != 0, f"cand, {there}" in said) == (True, True), said
            assert re.search(f"CUT OVER to cand, .*, {re.escape(there)}", bare.console("show").out)
        assert bare.view().verbs[-1].why == "it runs"
        roll_back(bare)


@pytest.mark.parametrize("again", [False, True])
def test_what_ended_while_promote_asked_is_not_promoted(
    world: World, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback ends the cutover, and another run may have made its own since."""
    stay(world)

    def meanwhile() -> None:
        roll_back(world)
        world.until(lambda: not world.view().cutover and host_is_free(), "the host is free")
        if again:
            stay(world)

    def agreed(cut: object) -> bool:
        beside = threading.Thread(target=meanwhile)
        beside.start()
        beside.join()
        return True

    monkeypatch.setattr("console.frontends.cli.run._agreed", agreed)
    done = world.console("promote", "--why", "it was better")
    assert done.code != 0, done
    assert not list(world.root.rglob(records.FILE)), "nothing is recorded"


def test_the_printed_site_lines_make_it_the_baseline(world: World) -> None:
    """Edit as told, roll back: the candidate's own argv serves on the production port."""
    stay(world)
    done = world.console("promote", "--why", "it is better", "--yes", "--json")
    head = "schema: omni.site/v1\nname: local\n"
    world.site.write_text(head + "\n".join(done.json["site_lines"]) + "\n")
    roll_back(world)
    world.until(lambda: not world.view().cutover and host_is_free(), "the closer let the host go")
    is_back(world)
    assert world.go(world.write("n.yaml", book("id: n, note: x"))).code == 0


def test_there_is_nothing_to_promote(world: World) -> None:
    done = world.console("promote", "--why", "x", "--yes")
    assert done.code == 2
    assert "nothing to promote" in done.err
    watched(world)
    done = world.console("promote", "--why", "x", "--yes")
    assert (done.code, "still active" in done.err) == (2, True), done


@pytest.mark.parametrize("promoted", [False, True])
def test_a_rollback_of_what_the_site_file_names_since_leaves_the_cutover_alone(
    world: World, promoted: bool
) -> None:
    """`init --force` chose another server: nothing of that one brings these clients anything."""
    stay(world)
    if promoted:
        assert world.console("promote", "--why", "faster", "--yes").code == 0
    url = f"http://127.0.0.1:{free_port()}"
    given = world.site.read_text().replace(world.base_url, url)
    given = given.replace(f'"{world.base_port}"', f'"{proxy.port_of(url)}"')
    world.site.write_text(json.dumps(json.loads(given) | {"name": "other"}))
    done = world.console("rollback")
    try:
        assert done.code == 0, done
        is_cut_over(world)
        word = "promoted" if promoted else "not promoted"
        assert f"clients of {world.base_url} are at cand ({word})" in done.out
        assert "it is left alone" in done.out
        status = world.console("watch", "status").out
        assert "serving" in status, "the evidence belongs to the site that was proven"
        assert "by a rollback" in status, status
        begun = f"clients of {world.base_url} are at cand ({word}), by the cutover of run"
        assert begun in world.console("init", "--yes").err, "nothing is written without --force"
        assert f"note: {begun}" in world.console("adopt").out
        (beside,) = in_force(world, url)
        assert str(world.run.site) in beside, "the run's copy names the baseline of these clients"
        roll_back(world, OMNI_SITE=str(world.run.site))
        is_back(world)
        assert not in_force(world, url)
    finally:
        ended(world, "other")


def in_force(world: World, url: str) -> list[str]:
    """What `init --force` says of cutovers before it writes."""
    return cut_overs_beside(url, str(world.site))


def test_a_rollback_of_a_renamed_site_is_evidence_of_the_name_that_it_has(world: World) -> None:
    stay(world)
    world.site.write_text(json.dumps(json.loads(world.site.read_text()) | {"name": "other"}))
    try:
        roll_back(world)
        assert "by a rollback" in world.console("watch", "status").out
        assert proxy.at(world.base_url) is None
        assert not world.listens(world.cand_url)
    finally:
        ended(world, "other")


def ended(world: World, site: str) -> None:
    """The baseline of another site name than the world's, which a rollback has started."""
    if (started := process.read_record(world.records.parent / site, "baseline")) is not None:
        process.stop_group(*started, grace_s=0.0)
