"""What a rollback may end, and whom it leaves alone: strangers, each with its own way to be one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import EngineError
from console.common.options.engines import LLAMA
from console.host import licence, process
from console.host.licence import Licence, Reason, Refused
from console.host.ports import ports_of
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.recovery.rollback import context, live
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.live import Live
from console.recovery.rollback.sealed_plan import Candidate, Proof
from console.recovery.rollback.stages import start, stop, verify
from tests.children import SLEEP
from tests.ports import free_port
from tests.rollback.conftest import DASH, Stage, run_script, standin
from tests.rollback.test_ladder_engine import Yard, in_this_process
from tests.waiting import until

SLEEPS = ProcessSpec(SLEEP)
CANDIDATE = Licence(Reason.CANDIDATE, "r1")


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """A baseline that exists, in an engine of this process."""
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(in_this_process(tmp_path, stack))
        base = made.plan.baseline
        identity = made.create_baseline(base.container_name)
        made.plan = replace(made.plan, baseline=replace(base, container_id=identity))
        sealed.write(made.plan, made.plan.rollback_dir / sealed.PLAN)
        yield made


def adopted(stage: Stage, site: str, name: str = "baseline") -> tuple[int, int]:
    """A server that nobody of this console started, recorded as a site's baseline."""
    who = stage.spawn(list(SLEEPS.argv), cookie="theirs")
    process.write_record(paths.records_dir(site), name, SLEEPS, *who)
    return who


def run(stage: Stage, by: str) -> str:
    """Roll back with the procedure or with the script; return what it said."""
    if by == "script":
        done = run_script(stage)
        assert done.returncode == 0, done.stdout
        return str(done.stdout)
    assert stage.roll_back().serving, stage.lines
    return str(stage.lines)


BOTH = pytest.mark.parametrize("by", ["procedure", "script"])
needs_dash = pytest.mark.skipif(DASH is None, reason="needs dash")


@needs_dash
@BOTH
def test_the_adopted_baseline_of_another_site_is_nobodys_candidate(stage: Stage, by: str) -> None:
    """A wrong line in the run's own records does not change that."""
    theirs = adopted(stage, "other")
    stage.base(records_dir=str(paths.records_dir("ws")))
    stage.seal()
    stage.record("process", "cand", theirs)
    said = run(stage, by)
    assert process.alive(*theirs)
    assert f"pid {theirs[0]} is left alone" in said
    assert "site other" in said


def test_a_record_that_a_later_choice_put_aside_is_no_licence(stage: Stage) -> None:
    """`init --pick :A`, then `init --pick :B --force`: A's record lies beside B's."""
    first = adopted(stage, "ws", "baseline.0123")
    records = paths.records_dir("ws")
    stage.base(records_dir=str(records))
    stage.plan = replace(stage.plan, candidates=(Candidate("baseline.0123", "process"),), run_id="")
    assert stage.roll_back().serving, stage.lines
    assert process.alive(*first)
    assert not stage.said("stop", "ok")


@pytest.mark.parametrize("reason", [one for one in Reason if one is not Reason.BASELINE])
def test_no_reason_but_its_own_sites_covers_a_baseline(stage: Stage, reason: Reason) -> None:
    theirs = adopted(stage, "other")
    for subject in ("other", "mine", ""):
        with pytest.raises(Refused, match="recorded baseline of site other"):
            licence.stop_group(Licence(reason, subject), *theirs, grace_s=0.0)
        with pytest.raises(Refused, match="left alone"):
            licence.send(Licence(reason, subject), *theirs, signal.SIGKILL)
    assert process.alive(*theirs)
    assert licence.stop_group(Licence(Reason.BASELINE, "other"), *theirs, grace_s=0.0)


def test_a_service_whose_name_begins_like_the_baselines_is_none(stage: Stage) -> None:
    """A sweep starts the baseline's engine as `baseline-tuned`, and has to end it again."""
    pid, start = stage.spawn(list(SLEEPS.argv))
    process.write_record(paths.records_dir("ws"), "baseline-tuned", SLEEPS, pid, start)
    stage.base(records_dir=str(paths.records_dir("ws")))
    stage.record("process", "baseline-tuned", (pid, start))
    done = run_script(stage)
    assert "left alone" not in done.stdout
    assert not process.alive(pid, start)
    pid, start = stage.spawn(list(SLEEPS.argv))
    process.write_record(paths.records_dir("ws"), "baseline-tuned", SLEEPS, pid, start)
    licence.stop_group(Licence(Reason.CANDIDATE, "r1"), pid, start, grace_s=0.0)
    assert not process.alive(pid, start)


def test_a_baseline_needs_a_record_or_the_consoles_mark(stage: Stage) -> None:
    stranger = stage.spawn(list(SLEEPS.argv), cookie="theirs")
    with pytest.raises(Refused, match="nothing records it"):
        licence.stop_group(Licence(Reason.BASELINE, "ws"), *stranger, grace_s=0.0)
    marked = stage.spawn(list(SLEEPS.argv), cookie=BASELINE_COOKIE)
    with pytest.raises(Refused, match="started it as a baseline"):
        licence.stop_group(CANDIDATE, *marked, grace_s=0.0)
    assert process.alive(*stranger)
    assert licence.stop_group(Licence(Reason.BASELINE, "ws"), *marked, grace_s=0.0)


def test_a_pid_that_is_used_again_is_somebody_else(stage: Stage) -> None:
    """The record names a pid and when it began; whoever has the number now began later."""
    pid, start = stage.spawn(list(SLEEPS.argv), cookie="theirs")
    for before in (start - 1, start - 100_000):
        assert not licence.send(CANDIDATE, pid, before, signal.SIGKILL)
        assert not licence.stop_group(CANDIDATE, pid, before, grace_s=0.0)
    stage.record("process", "cand", (pid, start - 1))
    assert stage.roll_back().serving
    assert process.alive(pid, start)


def test_a_record_of_an_earlier_boot_names_nobody(stage: Stage) -> None:
    pid, start = stage.spawn(list(SLEEPS.argv), cookie="theirs")
    line = Live("process", "cand", pid, start).line().replace(process.boot_id(), "another-boot")
    with open(stage.plan.rollback_dir / live.LIVE, "a") as file:
        file.write(line + "\n")
    assert stage.roll_back().serving
    assert process.alive(pid, start)


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_another_users_process_is_not_reached(stage: Stage) -> None:
    """A plain user's rollback with a wrong record of root's process says so, and goes on."""
    pid, start = stage.spawn(list(SLEEPS.argv), cookie="theirs")
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        try:
            licence.send(CANDIDATE, pid, start, signal.SIGKILL)
        except PermissionError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert process.alive(pid, start)


def test_members_of_a_group_that_are_a_baseline_live_on(stage: Stage) -> None:
    """A start script is on record as a candidate; the server beside it in its group is adopted."""
    script = stage.spawn(["sh", "-c", "sleep 600 & sleep 601 & wait"], cookie="no")
    until(lambda: len(process.members(*script, cookie="no")) == 3, "both sleep")
    inside = [one for one in process.members(*script, cookie="no") if one.pid != script[0]]
    kept = inside[0]
    process.write_record(paths.records_dir("other"), "baseline", SLEEPS, kept.pid, kept.start)
    assert licence.stop_group(CANDIDATE, *script, grace_s=0.0, cookie="no")
    assert process.alive(kept.pid, kept.start)
    assert not process.alive(inside[1].pid, inside[1].start)
    process.send(kept.pid, kept.start, signal.SIGKILL)


def test_a_rollback_says_what_it_stops_and_why_before_it_does(stage: Stage) -> None:
    candidate = stage.up("echo up; while :; do sleep 600; done")
    stage.record("process", "cand", candidate)
    assert stage.roll_back().serving
    words = [(line["state"], line["detail"]) for line in stage.lines if line["rung"] == "stop"]
    said = words.index(("note", f"ending pid {candidate[0]}, cand: a candidate of this run"))
    assert said < words.index(("ok", "1 candidate stopped"))


def test_a_container_is_known_by_its_full_id_alone(yard: Yard) -> None:
    other = yard.candidate("")
    with pytest.raises(Refused, match="full id"):
        yard.raw.stop(CANDIDATE, yard.name(other), 0.0)
    with pytest.raises(Refused, match="full id"):
        yard.raw.kill(CANDIDATE, other[:12])
    assert yard.up(other)


def test_the_baseline_container_of_another_site_is_nobodys_candidate(yard: Yard) -> None:
    """A candidate that was promoted, and is the baseline of another site file by now."""
    promoted = yard.candidate()
    theirs = replace(yard.plan.baseline, container_id=promoted, container_name="p")
    file = paths.state_dir() / sealed.ROLLBACK / "other.json"
    sealed.write(replace(yard.plan, site_name="other", baseline=theirs), file)
    assert yard.roll_back().serving, yard.lines
    assert yard.up(promoted)
    assert f"container {promoted[:12]} is left alone" in str(yard.lines)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_baseline_that_was_renamed_is_known_by_its_id(yard: Yard, by_name: bool) -> None:
    base = yard.plan.baseline
    yard.plan = replace(yard.plan, baseline=replace(base, by_name=by_name))
    yard.raw.start(base.container_id)
    yard.engine.find(base.container_id).name = "renamed"  # type: ignore[union-attr]
    result = yard.roll_back()
    assert result.serving, yard.lines
    assert yard.up(base.container_id)


@pytest.mark.parametrize("by_name", [True, False])
def test_what_runs_and_is_known_by_its_id_comes_before_what_has_taken_its_name(
    yard: Yard, by_name: bool
) -> None:
    base = yard.plan.baseline
    yard.raw.start(base.container_id)
    yard.engine.find(base.container_id).name = "renamed"  # type: ignore[union-attr]
    other = yard.create(base.container_name, list(SLEEP), {})
    yard.plan = replace(yard.plan, baseline=replace(base, by_name=by_name))
    assert yard.roll_back().serving, yard.lines
    assert not yard.up(other)
    assert yard.up(base.container_id)


def hangs(yard: Yard, monkeypatch: pytest.MonkeyPatch, candidate: str) -> None:
    """The engine answers all but `stop` and `kill` of the candidate."""

    def inside(identity: str) -> list[int]:
        pid = yard.engine.find(identity).job  # type: ignore[union-attr]
        child = pid.child.pid if pid.child else 0
        return [one.pid for one in process.all_stats() if child and one.session == child]

    def slow(call: str) -> None:
        if candidate in call and call.endswith(("/stop", "/kill")):
            time.sleep(0.6)
            raise OSError("the client has gone")

    monkeypatch.setattr(stop, "pids_of_container", inside)
    monkeypatch.setattr("console.runtime.engine_api.STOP_EXTRA_S", 0.1)
    monkeypatch.setattr("console.runtime.engine_api.CALL_S", 0.3)
    yard.engine.answer = slow  # type: ignore[union-attr]


def test_an_engine_that_hangs_on_stop_and_kill_keeps_no_candidate_alive(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidate = yard.candidate()
    yard.record("cand", candidate)
    hangs(yard, monkeypatch, candidate)
    yard.plan = replace(yard.plan, exclusive=True, grace_s=0.1)
    result = yard.roll_back()
    assert not yard.up(candidate), yard.lines
    assert result.serving, yard.lines
    assert "killing its processes directly" in str(yard.lines)


def test_an_exclusive_candidate_that_lives_on_is_no_success(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes belong to root, as those of most containers do, and this user may not signal
    them; the engine hangs."""
    candidate = yard.candidate()
    yard.record("cand", candidate)
    hangs(yard, monkeypatch, candidate)
    monkeypatch.setattr(stop, "_kill_inside", lambda identity, why: True)
    monkeypatch.setattr(stop, "_all_denied", lambda identity, why: True)
    monkeypatch.setattr(stop, "GONE_S", 0.2)
    monkeypatch.setattr(stop, "HUNG_KILL_S", 0.1)
    monkeypatch.setattr(stop, "kill_wait_s", lambda holding: 0.1)
    yard.plan = replace(yard.plan, exclusive=True, grace_s=0.1)
    result = yard.roll_back()
    assert result.serving, yard.lines
    assert result.exit_code == 7
    assert f"candidate container {candidate[:12]} still runs beside it" in result.notes
    assert "sudo omni-console rollback" in str(yard.lines)


def test_a_container_that_the_engine_does_not_tell_to_end_is_told_from_here(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine hangs on `stop` for the whole grace; a SIGTERM of ours ends the candidate well."""
    candidate = yard.candidate()
    yard.record("cand", candidate)
    hangs(yard, monkeypatch, candidate)
    killed: list[str] = []
    monkeypatch.setattr(stop, "TERM_AFTER_S", 0.1)
    monkeypatch.setattr(stop, "_kill_inside", lambda identity, why: killed.append(identity))
    yard.plan = replace(yard.plan, exclusive=True, grace_s=60.0)
    assert yard.roll_back().serving, yard.lines
    assert not stop._lives(candidate)
    assert not killed


@pytest.mark.parametrize("refuses", [False, True])
def test_roots_helper_kills_what_this_user_may_not_signal(
    yard: Yard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refuses: bool
) -> None:
    """The helper is asked when the engine hangs; if it refuses, that is said, and it is exit 7."""
    candidate = yard.candidate()
    yard.record("cand", candidate)
    hangs(yard, monkeypatch, candidate)
    inside = stop.pids_of_container(candidate)
    send = licence.send
    monkeypatch.setattr(stop, "_signal_inside", lambda identity, why, number: None)
    monkeypatch.setattr(stop, "_all_denied", lambda identity, why: True)
    for name in ("GONE_S", "GRACE_EXTRA_S", "HUNG_KILL_S"):
        monkeypatch.setattr(stop, name, 0.3)
    if refuses:
        monkeypatch.setattr(stop, "kill_wait_s", lambda holding: 0.1)

    def answer() -> None:
        link, _ = listener.accept()
        with link:
            asked = link.recv(128).decode()
            assert asked == f"kill {candidate}\n"
            for pid in [] if refuses else inside:
                send(CANDIDATE, pid, process.start_time(pid) or 0, signal.SIGKILL)
            says = {"ok": False, "error": "that container is protected"}
            link.sendall(json.dumps(says if refuses else {"ok": True}).encode() + b"\n")

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "guard.sock"))
        listener.listen()
        monkeypatch.setattr("console.runtime.root_helper.HELPER", str(tmp_path / "guard.sock"))
        monkeypatch.setattr(stop, "helper_is_there", lambda: True)
        helper = threading.Thread(target=answer)
        helper.start()
        yard.plan = replace(yard.plan, exclusive=True, grace_s=0.1)
        result = yard.roll_back()
        helper.join()
    assert result.exit_code == (7 if refuses else 0), yard.lines
    assert ("that container is protected" in str(yard.lines)) is refuses
    assert stop._lives(candidate) is refuses


def test_an_engine_that_answers_nothing_keeps_no_candidate_that_is_on_record(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists nothing, so that no container can be inspected; its id is on record."""
    candidate, other = yard.candidate(), yard.candidate()
    yard.record("cand", candidate)
    hangs(yard, monkeypatch, candidate)

    def gone(call: str) -> None:
        raise OSError("nobody answers")

    def no_command(*_: object) -> str:
        raise EngineError("docker did not end in time")

    yard.engine.answer = gone  # type: ignore[union-attr]
    monkeypatch.setattr(context.RollbackContext, "command", no_command)
    for module in (stop, context):
        monkeypatch.setattr(module, "ENGINE_WAIT_S", 0.2)
    for module in (start, stop):
        monkeypatch.setattr(module, "ENGINE_RETRY_S", 0.05)
    monkeypatch.setattr(verify, "FAILED_S", 0.1)
    yard.plan = replace(yard.plan, exclusive=True, grace_s=0.1)
    result = yard.roll_back()
    yard.engine.answer = lambda call: None  # type: ignore[union-attr]
    assert f"ending container {candidate[:12]} without the engine" in str(yard.lines)
    assert not stop._lives(candidate), yard.lines
    assert stop._lives(other), "no record is no licence where no engine tells of its labels"
    assert result.exit_code == 7


SERVES = """
import os, socket, sys, time
port = int(os.environ.get("LLAMA_ARG_PORT") or sys.argv[1])
server = socket.create_server(("127.0.0.1", port if os.fork() else 0))
time.sleep(600)
"""


@pytest.mark.parametrize(
    "way", ["words", "usual port", "variable", "program", "script", "worker", "runner"]
)
def test_a_server_beside_the_baseline_in_its_group_is_known_by_the_port_it_was_told(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its words, its engine, or a variable where its words are those of its leader. Another
    program may have it from a file. A worker has the words and variables of its leader, and listens
    at a port that nothing names."""
    port, file = free_port(), stage.root / "serves.py"
    words = [sys.executable, "-S", str(file)]
    own = ProcessSpec((*words, "0"))
    other, variable = [*words, str(port)], ""
    if way == "usual port":
        monkeypatch.setattr(licence, "engine_of", lambda argv: replace(LLAMA, port=port))
        other = [*words, f"0{port}"]
    if way == "variable":
        other, variable = list(own.argv), f"LLAMA_ARG_PORT={port} "
    if way in ("program", "script"):
        proxy, config = stage.root / "proxyd.py", stage.root / "port"
        proxy.write_text(SERVES.replace("sys.argv[1]", f"open({str(config)!r}).read()"))
        config.write_text(str(port))
        other = [sys.executable, "-S", str(proxy), str(file)]
        if way == "program":
            copied = shutil.copy(os.path.realpath(sys.executable), stage.root / "proxyd")
            other = ["env", f"PYTHONHOME={sys.base_prefix}", str(copied), *other[1:]]
    file.write_text(SERVES)
    if way == "runner":
        link = stage.root / "ollama"
        link.symlink_to(sys.executable)
        (stage.root / "runner").write_text(SERVES.replace("sys.argv[1]", "sys.argv[-1]"))
        other = ["cd", str(stage.root), ";", "./ollama", "runner", str(file), "--port", str(port)]
    joined = " ".join(other) if way == "runner" else shlex.join(other)
    begun = "" if way == "worker" else f"( {variable}{joined} ) & "
    leader = stage.spawn(["sh", "-c", f"{begun}exec {shlex.join(own.argv)}"], "theirs")
    members = process.Group(*leader)
    wanted = 2 if way == "worker" else 4
    until(lambda: len(ports_of([one.pid for one in members.members()])) >= wanted, "they listen")
    process.write_record(paths.records_dir("ws"), "baseline", own, *leader)
    others = licence.other_servers(*leader)
    assert [at for _, at in others] == ([] if way in ("worker", "runner") else [port])
    licence.stop_group(Licence(Reason.BASELINE, "ws"), *leader, grace_s=1.0)
    assert not process.alive(*leader)
    left = [one.pid for one in process.all_stats() if str(file) in process.argv(one.pid)]
    assert len(left) == (0 if way in ("worker", "runner") else 2), "the other one, and its worker"
    for pid in left:
        os.kill(pid, signal.SIGKILL)


@BOTH
@needs_dash
@pytest.mark.parametrize("program", ["program", "script", "module"])
def test_a_restart_of_an_adopted_server_ends_no_proxy_beside_it(
    stage: Stage, by: str, program: str
) -> None:
    """The start script has started a proxy, whose port is in a file, and has become the server. The
    proxy may be another script or module of the server's own interpreter."""
    lines, config, port = stage.root / "lines.json", stage.root / "port", free_port()
    own = standin(stage.port, "--lines", str(lines))
    stage.base(process=own, completion=Proof(timeout_s=30.0))
    file = stage.root / "proxy.py"
    file.write_text(SERVES.replace("sys.argv[1]", f"open({str(config)!r}).read()"))
    config.write_text(str(port))
    proxyd, way = stage.root / "proxyd", [str(file)]
    if program == "program":
        shutil.copy(os.path.realpath(sys.executable), proxyd)
    if program == "module":
        way = ["-m", "proxy", str(file)]
    begun = [str(proxyd) if program == "program" else sys.executable, "-S", *way]
    proxy = f"PYTHONPATH={stage.root} PYTHONHOME={sys.base_prefix} {shlex.join(begun)}"
    script = ["setsid", "sh", "-c", f"{proxy} & exec {shlex.join(own.argv)}"]
    with subprocess.Popen(script, env={"PATH": os.environ["PATH"]}) as leader:
        until(lambda: port in ports_of(one.pid for one in process.all_stats()), "the proxy is up")
        stage.until_it_is()
        start = process.start_time(leader.pid) or 0
        paths.make(stage.plan.records_dir)
        process.write_record(
            stage.plan.records_dir, stage.plan.baseline.name, own, leader.pid, start
        )
        lines.write_text(json.dumps({"message": {"content": "GGGGGGGGGGGG"}}))
        if by == "script":
            said = run_script(stage).stdout
        else:
            stage.roll_back()
            said = str(stage.lines)
        assert "restarting it once" in said
        leader.wait(60)
    beside = [one.pid for one in process.all_stats() if str(file) in process.argv(one.pid)]
    assert len(beside) == 2, "the proxy, and its worker"
    for pid in beside if by == "script" else ():
        assert f"pid {pid}, {begun[0]}" in said
    for pid in beside:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_loop_beside_the_baseline_in_its_group_is_spared_unless_a_script_starts_it_again(
    stage: Stage, wrapped: bool
) -> None:
    """A script that runs on is the baseline: what it has started ends with it, its server too."""
    seconds = f"654.{os.getpid()}"
    port, file, loop = free_port(), stage.root / "serves.py", f"sleep {seconds}"
    file.write_text(SERVES)
    own = ProcessSpec((sys.executable, "-S", str(file), str(port)))
    last = f"{shlex.join(own.argv)}; true" if wrapped else f"exec {shlex.join(own.argv)}"
    leader = stage.spawn(["sh", "-c", f"{loop} & {last}"], "theirs")
    until(lambda: port in ports_of(one.pid for one in process.all_stats()), "it listens")
    process.write_record(paths.records_dir("ws"), "baseline", own, *leader)
    assert licence.other_servers(*leader) == []
    licence.stop_group(Licence(Reason.BASELINE, "ws"), *leader, grace_s=1.0)
    left = {one.pid for one in process.all_stats() if process.argv(one.pid) == ("sleep", seconds)}
    assert port not in ports_of(one.pid for one in process.all_stats())
    assert bool(left) is not wrapped
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_a_second_start_after_one_that_failed_is_no_restart(stage: Stage) -> None:
    none = ProcessSpec(("/nowhere/vllm", "serve", "m"))
    stage.seal(baseline=replace(stage.plan.baseline, process=none, program=""))
    assert not stage.roll_back().serving
    said = [line["detail"] for line in stage.lines if line["rung"] == "ready"]
    assert any("it was not started: trying once more" in words for words in said), said
    assert "restart" not in str(said)
    assert "/nowhere/vllm: not found" in said[-1]
