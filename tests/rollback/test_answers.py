"""What the baseline answers at a rollback: garbage is no answer, a refusal ends nobody, slow is
degraded, and an answer of whoever shares its address is not the baseline's."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.host import process
from console.host.ports import held_words, strangers
from console.journal.watch_record import SERVING, UNJUDGED
from console.recovery.rollback import evidence, observe
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word, state_of
from console.recovery.rollback.look import Looker
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import Line, Result
from console.recovery.rollback.sealed_plan import Proof
from console.recovery.rollback.stages import measure, verify
from console.runtime.answers.completion import prove
from console.runtime.probe import Health, health
from console.watch import look as watch
from console.watch.plan import Settings, WatchPlan
from console.watch.watcher import Hands, Restored, Watcher, evidence_of
from tests.clock import FakeClock
from tests.rollback.conftest import Stage, run_script, script_proves, serving, standin
from tests.waiting import some, until

WHOLE_REFUSALS = [(401, "Invalid API Key"), (429, "slow down"), (500, "Jinja: no role")]
REFUSALS = [
    (400, "no"), (401, "Invalid API Key"), (403, "no"), (404, "model not found"),
    (302, "login"), (501, "no chat"), (500, "Jinja: no role"),
]  # fmt: skip


def test_these_answers_are_refusals(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    for status, error in REFUSALS:
        lines.write_text(json.dumps({"status": status, "error": error}))
        answer = prove(stage.plan.baseline.url)
        assert (answer.refuses, error in answer.why) == (True, True), status
        assert script_proves(stage)[0] == 1, status
        assert f"it refuses (HTTP {status})" in script_proves(stage)[1]


@pytest.mark.parametrize(("status", "error"), WHOLE_REFUSALS)
def test_a_server_that_refuses_a_completion_is_left_alone(
    stage: Stage, lines: Path, status: int, error: str
) -> None:
    stage.base(completion=Proof(timeout_s=1.0))
    before = serving(stage, lines, status=status, error=error)
    result = stage.roll_back()
    assert not result.serving
    assert result.exit_code == 7
    assert "it refuses: " in result.detail
    assert error in result.detail
    assert process.alive(*before)
    done = run_script(stage)
    assert done.returncode == 7
    assert f"it refuses (HTTP {status})" in done.stdout
    assert stage.baseline_process() == before


def test_what_refuses_is_offered_no_command_that_ends_or_starts_it(
    stage: Stage, lines: Path
) -> None:
    serving(stage, lines, status=401, error="Invalid API Key")
    result = stage.roll_back()
    shown = run_script(stage).stdout.partition("By hand")[2]
    for text in ("\n".join(result.manual), shown):
        assert "curl -q --noproxy" in text
        assert not re.search(r"kill|setsid|restart|nohup", text)


def test_what_has_answered_garbage_is_not_said_to_load(stage: Stage, lines: Path) -> None:
    stage.base(ready_timeout_s=5.0)
    serving(stage, lines, message={"content": "GGGGGGGG"})
    result = stage.roll_back()
    assert "garbled" in result.detail
    by_hand = "\n".join(result.manual)
    assert "may still load" not in by_hand
    assert "answers garbage" in by_hand


@pytest.mark.parametrize(("emergency", "by"), [(True, "a rollback"), (False, "a run's restore")])
@pytest.mark.parametrize("content", ["I am ready.", "GGGGGGGG"])
def test_a_planned_restore_is_no_rollback_in_the_evidence(
    stage: Stage, lines: Path, emergency: bool, by: str, content: str
) -> None:
    stage.base(ready_timeout_s=5.0)
    stage.seal(site_name="ws")
    serving(stage, lines, message={"content": content})
    stage.roll_back(emergency)
    [seen] = evidence.read("ws", stage.plan.baseline.url)
    assert seen.by == by
    failed = evidence.after_failed_rollback("ws", stage.plan.baseline.url)
    assert bool(failed) is (content == "GGGGGGGG")


def test_these_answers_are_those_of_a_full_queue(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    for status in (502, 503, 504, 529):
        assert status in verify.PASSING
        lines.write_text(json.dumps({"status": status, "error": "The request queue is full."}))
        assert f"it is busy or overloaded (HTTP {status} " in prove(stage.plan.baseline.url).why
        result, said = script_proves(stage, "ASK_S=0")
        assert (result, f"it is busy or overloaded (HTTP {status})" in said) == (1, True), said


def test_a_full_queue_ends_nobody(stage: Stage, lines: Path) -> None:
    """SGLang answers HTTP 503 while its queue is full, and its health path is well."""
    status = 503
    stage.base(completion=Proof(timeout_s=1.0))
    before = serving(stage, lines, status=status, error="The request queue is full.")
    result = stage.roll_back()
    assert result.exit_code == 7
    assert "it is busy or overloaded (HTTP " in result.detail
    assert "The request queue is full.); it is alive and was left as it is" in result.detail
    assert not any("kill" in line for line in result.manual)
    done = run_script(stage)
    assert done.returncode == 7
    assert f"it is busy or overloaded (HTTP {status})" in done.stdout
    assert stage.baseline_process() == before
    found = watch.Looker(stage.plan, Settings(interval_s=60.0)).look()
    assert (found.word, found.requested) == (UNJUDGED, True)
    assert some(evidence_of(found, time.time())).word is Word.REFUSING


def test_a_queue_that_empties_in_time_is_waited_for(stage: Stage, lines: Path) -> None:
    before = serving(stage, lines, status=503, error="The request queue is full.")

    def empties(line: Line) -> None:
        if "asking again" in line["detail"]:
            lines.unlink(missing_ok=True)

    assert Procedure(stage.plan, emit=empties).run().serving
    assert stage.baseline_process() == before


@pytest.mark.parametrize(
    ("status", "runs"), [(307, True), (307, False), (401, True), (401, False), (404, True)]
)
def test_a_health_path_that_refuses_ends_nobody(
    stage: Stage, lines: Path, status: int, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said soon, also of one that this rollback has started, unless it may still load."""
    monkeypatch.setattr(verify, "REFUSING_S", 1.0)
    lines.write_text(json.dumps({"health": status}))
    if runs:
        stage.start_baseline()
        stage.until_it_is(Health.REFUSING)
    result = stage.roll_back()
    before = stage.running()
    assert (result.serving, stage.baseline_process()) == (False, before)
    assert f"its health path /health refuses: HTTP {status} not for you" in result.detail
    assert process.alive(*before)
    done = run_script(stage)
    assert done.returncode == 7
    assert f"the health path refuses (HTTP {status}): it is alive" in done.stdout
    assert process.alive(*before)


def test_one_that_refuses_only_while_it_starts_is_waited_for(stage: Stage, lines: Path) -> None:
    lines.write_text(json.dumps({"health": 404}))

    def loaded(line: Line) -> None:
        if "refusing: HTTP 404" in line["detail"]:
            lines.unlink(missing_ok=True)

    assert Procedure(stage.plan, emit=loaded).run().serving


GARBAGE = [
    {"content": "!!!!!!!!"}, {"content": "\ufffd" * 8}, {"content": "      "}, {"content": ""},
    {"content": None}, {"content": "", "reasoning_content": "\n\n\n\n\n\n\n\n"},
    {"content": "GGGGGGGG"}, {"content": "\n\n\n\n\n\n"},
]  # fmt: skip


def test_these_answers_are_garbage(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    for message in GARBAGE:
        lines.write_text(json.dumps({"message": message}))
        assert prove(stage.plan.baseline.url).garbled is not None, message
        result, said = script_proves(stage)
        assert (result, "garbled: " in said) == (3, True), message


@pytest.mark.parametrize("message", [GARBAGE[0], GARBAGE[5]])
def test_a_garbled_baseline_is_restarted_once_and_then_told(
    stage: Stage, lines: Path, message: dict[str, Any]
) -> None:
    before = serving(stage, lines, message=message)
    result = stage.roll_back()
    assert result.exit_code == 7
    assert "garbled, " in result.detail
    assert not process.alive(*before), "its engine may have gone wrong, not its files"
    before = stage.running()
    done = run_script(stage)
    assert done.returncode == 7, done.stdout
    assert "garbled: " in done.stdout
    assert not process.alive(*before)
    assert len([line for line in stage.lines if "restarting it once" in line["detail"]]) == 1


def test_a_health_path_that_is_slow_is_waited_for(stage: Stage, lines: Path) -> None:
    by_hand = stage.spawn(list(some(stage.plan.baseline.process).argv), "theirs")
    stage.until_it_is()
    lines.write_text(json.dumps({"slow": 1.5}))
    assert stage.roll_back().serving
    assert stage.said("start", "skipped") == ["already serving"]
    assert run_script(stage).returncode == 0
    assert process.alive(*by_hand)


def test_one_that_streams_to_others_is_not_restarted_for_a_late_answer(
    stage: Stage, lines: Path
) -> None:
    """What is computed by cards leaves no trace on a core; what its clients take does."""
    stage.base(completion=Proof(timeout_s=0.5))
    plan = stage.plan = replace(stage.plan, site_name="busy")
    before = serving(stage, lines, most=0)
    with socket.create_connection(("127.0.0.1", stage.port)) as client:
        client.sendall(b"GET /stream HTTP/1.0\r\n\r\n")
        assert client.recv(16)
        taken = threading.Thread(target=lambda: all(iter(lambda: client.recv(1 << 16), b"")))
        taken.start()
        result = Procedure(plan).run()
        done = run_script(stage)
        client.shutdown(socket.SHUT_RDWR)
        taken.join()
    assert (result.exit_code, done.returncode, process.alive(*before)) == (7, 7, True)
    for said in (result.detail, done.stdout):
        assert "clients are connected, and it sends them answers" in said
        assert evidence.state(plan).word is Word.UNKNOWN


@pytest.mark.parametrize("connected", [True, False])
def test_one_that_computes_for_others_is_not_restarted_for_a_late_answer(
    stage: Stage, lines: Path, connected: bool
) -> None:
    """Without slots nobody sees that it gets on; a restart would cut its clients."""
    stage.base(completion=Proof(timeout_s=0.5))
    plan = replace(stage.plan, site_name="busy")
    before = serving(stage, lines, most=0, spins=True)
    with contextlib.ExitStack() as stack:
        if connected:
            stack.enter_context(socket.create_connection(("127.0.0.1", stage.port)))
        result = Procedure(plan).run()
        assert result.exit_code == 7
        assert process.alive(*before) is connected
        assert ("clients are connected, and it computes" in result.detail) is connected
        if connected:
            assert evidence.state(plan).word is Word.UNKNOWN
            done = run_script(stage)
            assert "clients are connected, and it computes" in done.stdout
            assert (done.returncode, process.alive(*before)) == (7, True)


def test_one_that_only_answers_others_is_not_proven(
    stage: Stage, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot gets on, and what it gives there nobody has read: it may be garbage."""
    monkeypatch.setattr(verify, "busy", lambda *_, **__: True)
    stage.base(completion=Proof(timeout_s=0.5))
    plan = replace(stage.plan, site_name="busy")
    before = serving(stage, lines, most=0)
    result = Procedure(plan).run()
    assert result.serving
    assert "not proven: it has answered others" in result.detail
    assert not result.degraded
    assert evidence.last_proof("busy", plan.baseline.url) is None
    assert (evidence.state(plan).word, evidence.state(plan).proven) == (Word.SERVING, False)
    assert process.alive(*before)


@pytest.mark.parametrize("third", ["GGGGGGGGGGGG", "I am ready."])
def test_one_garbled_answer_of_two_is_decided_by_a_third(
    stage: Stage, lines: Path, third: str
) -> None:
    serving(stage, lines)

    def say(line: Line) -> None:
        if (line["rung"], line["state"]) == ("serving", "ok"):
            lines.write_text(json.dumps({"messages": ["GGGGGGGGGGGG", "I am ready.", third]}))

    stage.base(completion=Proof(timeout_s=5.0))
    result = Procedure(stage.plan, emit=say).run()
    assert result.serving is (third == "I am ready."), result


def test_an_adopted_server_is_restarted_like_any_other(stage: Stage, lines: Path) -> None:
    """It has no cookie of the console, and the very command line of the site file: it is no
    stranger to itself."""
    spec = some(stage.plan.baseline.process)
    adopted = subprocess.Popen(spec.argv, env={"PATH": os.environ["PATH"]}, start_new_session=True)
    start_time = some(process.start_time(adopted.pid))
    records = stage.plan.records_dir
    paths.make(records)
    process.write_record(records, stage.plan.baseline.name, spec, adopted.pid, start_time)
    stage.until_it_is()
    lines.write_text(json.dumps({"message": {"content": "GGGGGGGG"}}))

    def mend(line: Line) -> None:
        if "restarting it once" in line["detail"]:
            lines.unlink()

    assert Procedure(stage.plan, emit=mend).run().serving
    assert adopted.wait(60) is not None


def test_a_rollback_of_another_site_is_not_this_ones(stage: Stage) -> None:
    here, there = stage.of_site(site_name="a"), stage.of_site(site_name="b")
    assert here.rollback_dir != there.rollback_dir
    assert {here.rollback_dir.parent, there.rollback_dir.parent} == {
        paths.state_dir() / "rollback" / "sites"
    }


def test_garbage_after_the_restart_is_what_every_face_says(stage: Stage, lines: Path) -> None:
    serving(stage, lines, message={"content": "GGGGGGGG"})
    plan = replace(stage.plan, site_name="garbled")
    assert Procedure(plan).run().exit_code == 7
    state = evidence.state(plan)
    assert (state.word, state.by) == (Word.GARBLED, "a rollback")
    assert "garbled, " in state.doubt
    assert "not proven: " not in state.doubt


def test_a_restart_mends_what_an_engine_has_garbled(stage: Stage, lines: Path) -> None:
    serving(stage, lines, message={"content": "GGGGGGGG"})

    def mend(line: Line) -> None:
        if "restarting it once" in line["detail"]:
            lines.unlink()

    assert Procedure(stage.plan, emit=mend).run().serving


def test_a_longer_answer_may_show_that_it_is_garbled(stage: Stage, lines: Path) -> None:
    """The first tokens come from a sound prompt pass, the rest from a broken cache."""
    stage.base(completion=Proof(timeout_s=5.0))

    def broken(line: Line) -> None:
        if (line["rung"], line["state"]) == ("serving", "ok"):
            lines.write_text(json.dumps({"message": {"content": "I am" + "\ufffd" * 40}}))

    result = Procedure(stage.plan, emit=broken).run()
    assert result.exit_code == 7
    assert "garbled, replacement or control characters" in result.detail


def test_a_model_that_reasons_is_asked_once_more(stage: Stage, lines: Path) -> None:
    serving(stage, lines, message={"content": "", "reasoning": "The user wants to know whether"})
    result = stage.roll_back()
    assert result.serving
    [words] = stage.said("completion", "ok")
    assert re.match(r"only reasoning within 2\d\d tokens; ", words)


CALL = {"id": "a", "type": "function", "function": {"name": "ready", "arguments": "{}"}}


ODD = [
    {"content": "Ja."}, {"content": "準備ができました。"}, {"content": "5555555555"},
    {"content": "-> => <- <="}, {"content": None, "tool_calls": [CALL]},
]  # fmt: skip


def test_these_odd_answers_are_proofs(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    for message in ODD:
        lines.write_text(json.dumps({"message": message, "finish": "stop"}))
        assert prove(stage.plan.baseline.url).ok, message
        assert script_proves(stage)[0] == 0, message


@pytest.mark.parametrize("message", ODD[-2:])
def test_an_odd_answer_proves_it(stage: Stage, lines: Path, message: dict[str, Any]) -> None:
    before = serving(stage, lines, message=message, finish="stop")
    assert stage.roll_back().serving
    assert run_script(stage).returncode == 0
    assert process.alive(*before)


def test_what_is_expected_is_looked_for(stage: Stage, lines: Path) -> None:
    stage.base(completion=Proof(timeout_s=5.0, expect="(?i)paris"))
    serving(stage, lines, message={"content": "The capital is Paris."}, finish="stop")
    assert stage.roll_back().serving
    lines.write_text(json.dumps({"message": {"content": "blue wide of"}, "finish": "stop"}))
    result = stage.roll_back()
    assert result.exit_code == 7
    assert "it does not match `expect`: “blue wide of”" in result.detail


def test_an_expected_pattern_that_takes_years_hangs_no_rollback(stage: Stage, lines: Path) -> None:
    stage.base(completion=Proof(timeout_s=5.0, expect="(a+)+$"))
    serving(stage, lines, message={"content": "I am ready. " + "a" * 40 + "!"}, finish="stop")
    assert stage.roll_back().serving
    [words] = stage.said("completion", "ok")
    assert "`expect` was not looked for: the pattern (a+)+$ takes too long" in words


Slow = Callable[[float, float], Result]


@pytest.fixture
def slow(stage: Stage, lines: Path, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Rolls back to a baseline of this rate and reference, which gives 8 tokens and no 64 of them.
    Its proof has all the time that it needs."""
    monkeypatch.setattr(measure, "try_timeout_s", lambda *_: 0.5)

    def roll_back(rate: float, reference: float) -> Result:
        stage.base(reference_tok_s=reference)
        serving(stage, lines, most=8, rate=rate)
        return stage.roll_back()

    return roll_back


def test_a_baseline_too_slow_to_measure_is_degraded(stage: Stage, slow: Slow) -> None:
    result = slow(0.2, 200.0)
    assert (result.serving, result.degraded, result.tok_s) == (True, True, 0.2)
    [words] = stage.said("measure", "ok")
    assert words == (
        "DEGRADED: 0.20 tok/s in its proof; below 128.00 tok/s, as 64 tokens took longer than they "
        "may, reference 200.00"
    )


def test_a_timeout_alone_says_nothing_of_a_slow_reference(slow: Slow) -> None:
    """64 tokens in the timeout would be faster than the reference is."""
    result = slow(49.0, 50.0)
    assert (result.serving, result.degraded, result.tok_s) == (True, False, 49.0)


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_who_shares_the_address_of_the_baseline_is_not_it(stage: Stage, way: str) -> None:
    """SO_REUSEPORT: the kernel gives each of the two a part of the requests."""
    stage.base(process=standin(stage.port, "--shared"), ready_timeout_s=3.0)
    own, _ = stage.start_baseline()
    stage.until_it_is()
    theirs, _ = stage.spawn(list(standin(stage.port, "--shared").argv), "theirs")
    stage.until_said("listens")
    if way == "ladder":
        result = stage.roll_back()
        assert result.exit_code == 7
        assert "something else answers at the baseline's address" in result.detail
        words = result.detail
    else:
        done = run_script(stage)
        assert done.returncode == 7
        words = done.stdout.partition("By hand")[0]
    assert f"pid {theirs}, " in words
    assert f"pid {own}, " not in words


@pytest.mark.parametrize("count", [1, 2])
def test_strangers_at_an_address_are_named_and_nobody_of_ones_own(stage: Stage, count: int) -> None:
    stage.base(process=standin(stage.port, "--shared"))
    own, _ = stage.start_baseline()
    stage.until_it_is()
    url = stage.plan.baseline.url
    assert held_words(url, {own}) == ""
    assert f"pid {own}, " in held_words(url)
    theirs = set()
    for _ in range(count):
        theirs.add(stage.spawn(list(standin(stage.port, "--shared").argv), "theirs")[0])
    until(lambda: {one.pid for one in strangers(url, {own})} == theirs, "all listen")
    words = held_words(url, {own})
    assert f"pid {own}, " not in words
    assert all(f"pid {pid}, " in words for pid in theirs)


def test_a_server_that_shares_the_address_makes_the_state_unknown(stage: Stage) -> None:
    """The header's look and the watch's: proven by nothing, down by nothing, never restored."""
    stage.base(process=standin(stage.port, "--shared"), ready_timeout_s=3.0)
    stage.start_baseline()
    stage.until_it_is()
    plan = replace(stage.plan, site_name="shared")
    looker, watching = Looker(), watch.Looker(plan, Settings(interval_s=60.0))
    assert looker.look(plan).word is Word.SERVING
    assert watching.look().word == SERVING
    theirs, _ = stage.spawn(list(standin(stage.port, "--shared").argv), "theirs")
    stage.until_said("listens")
    seen, found = Looker().look(plan), watching.look()
    for detail in (seen.detail, found.detail):
        assert detail.startswith(f"something else answers there, too: pid {theirs}, ")
    assert (seen.word, found.word) == (Word.UNKNOWN, UNJUDGED)
    told = some(evidence_of(found, time.time()))
    before = Evidence(Kind.PROOF, Word.SERVING, told.at - 60, Witness.WATCH)
    state = state_of([before, told], told.at)
    assert (state.word, state.proven) == (Word.UNKNOWN, False)
    plan_of_watch = WatchPlan(Settings(interval_s=60.0, restore=True), plan)
    restored: list[float] = []

    def restore() -> Restored:
        restored.append(1.0)
        return Restored(True, "")

    hands = Hands(
        FakeClock(told.at), lambda: found, lambda: ({}, {}), restore, lambda *_: None
    )  # fmt: skip
    watcher = Watcher(plan_of_watch, hands)
    for _ in range(4):
        watcher.tick()
    assert not restored


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_a_name_of_two_addresses_has_to_be_the_baselines_at_both(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.host.ports._localhost", lambda: ("127.0.0.1", "::1"))
    stage.base(url=f"http://localhost:{stage.port}", ready_timeout_s=3.0)
    stage.start_baseline()
    stage.until_it_is()
    stage.spawn(list(standin(stage.port, "--host", "::1").argv), "theirs")
    stage.until_said("listens")
    if way == "ladder":
        assert stage.roll_back().exit_code == 7
    else:
        assert run_script(stage).returncode == 7
    until(lambda: stage.running() is not None, "it was left alone")


def test_a_process_that_no_record_names_is_another_start(stage: Stage) -> None:
    """Killed, and started again by hand: the proof of before says nothing of it."""
    plan = replace(stage.plan, site_name="by-hand")
    assert Procedure(plan).run().serving
    assert Looker().state(plan).proven
    first, (pid, start) = observe.life(plan), stage.running()
    process.send(pid, start, signal.SIGKILL)
    until(lambda: not process.alive(pid, start), "it has ended")
    by_hand = stage.spawn(list(some(plan.baseline.process).argv), cookie="hand")
    until(lambda: health(plan.baseline.url, "/health")[0] is Health.SERVING, "it serves")
    assert observe.life(plan) == f"{by_hand[0]} {by_hand[1]}" != first
    state = Looker().state(plan)
    assert not state.proven
    assert "not proven since" in state.doubt
