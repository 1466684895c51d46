"""Looks at a real HTTP server that answers, works for others, freezes or refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.host import process
from console.host.ports import port_of
from console.host.process import ProcessSpec
from console.journal.watch_record import (
    BUSY,
    CUT_OVER,
    GARBLED,
    LOADING,
    PLANNED,
    SERVING,
    SUSPECT,
    UNJUDGED,
)
from console.recovery.guard.record.recorder import LIVE, Recorder
from console.recovery.rollback import records
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word, state_of
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK
from console.recovery.rollback.sealed_plan import write as write_plan
from console.recovery.rollback.trigger import Lock
from console.runtime.answers.completion import LONGER, Completion
from console.runtime.engine_api import RawEngine
from console.runtime.occupancy import Occupancy
from console.runtime.probe import ALL_THE_SAME
from console.runtime.proxy import Relay
from console.watch import look as looking
from console.watch.look import Looker, first_token_s
from console.watch.plan import Settings
from console.watch.watcher import evidence_of
from tests.clock import FakeClock
from tests.ports import free_port
from tests.waiting import until
from tests.watching.conftest import plan_of
from tests.watching.llama import ANSWER, Llama, looker


def test_an_idle_server_is_asked_one_short_completion(llama: Llama) -> None:
    """And at the first look one that is long enough to tell how the model goes on."""
    one = looker(llama, tokens=12)
    for _ in range(2):
        seen = one.look()
        assert (seen.word, seen.tok_s, seen.requested) == (SERVING, 10.0, True)
    assert [ask["max_tokens"] for ask in llama.asked] == [12, LONGER, 12]
    assert [ask["stream"] for ask in llama.asked] == [True, True, False], "by turns"
    assert not any("id_slot" in ask for ask in llama.asked)


@pytest.mark.parametrize(
    ("rate", "interval", "tokens"),
    [(4.0, 600.0, 64), (1.0, 600.0, 48), (0.5, 600.0, 24), (0.4, 600.0, 0), (1.0, 60.0, 30),
     (1.0, 40.0, 0)],
)  # fmt: skip
def test_a_slow_server_is_judged_by_as_many_tokens_as_it_gives_in_time(
    llama: Llama, rate: float, interval: float, tokens: int
) -> None:
    timings = {"predicted_n": 16, "predicted_ms": 15 * 1000 / rate}
    llama.answer = {**ANSWER, "timings": timings}
    one = looker(llama, tokens=16, interval_s=interval)
    assert one.look().word == SERVING
    assert [ask["max_tokens"] for ask in llama.asked] == [16, tokens][: 1 + bool(tokens)]
    llama.answer = {
        **saying("You_ Youc Youc Youc Youc Youc\n\n\n\n\n\n\nHH H"), "timings": timings,
    }  # fmt: skip
    assert one.look().word == (GARBLED if tokens else SERVING)


def test_of_several_slots_always_the_same_answers(llama: Llama) -> None:
    llama.processing = [False, False, False]
    one = looker(llama)
    for _ in range(3):
        one.look()
    assert [ask["id_slot"] for ask in llama.asked] == [2] * 4


def test_a_server_that_works_for_others_is_not_asked_until_it_has_to_be(llama: Llama) -> None:
    llama.processing = [True]
    one = looker(llama, ask_after=4)
    words = [one.look() for _ in range(5)]
    assert [seen.word for seen in words] == [BUSY] * 5
    assert [seen.requested for seen in words] == [False] * 4 + [True]
    assert words[4].tok_s is None, "what shared the machine says nothing about the speed"
    llama.processing = [False]
    assert one.look().tok_s == 10.0


def test_the_figures_of_its_clients_are_the_servers_own(llama: Llama) -> None:
    llama.processing, llama.counters = [True], (1000.0, 100.0)
    one = looker(llama)
    assert "tok/s" not in one.look().detail
    llama.counters = (1300.0, 130.0)
    assert "10.0 tok/s" in one.look().detail


def test_a_request_that_hangs_in_the_engine_hides_no_outage(llama: Llama) -> None:
    """Its slot says that it works, and nothing comes of it; the second look asks again."""
    llama.processing, llama.holds = [True], True
    one = looker(llama, ask_after=2, interval_s=1.0)
    assert [one.look().word for _ in range(4)] == [BUSY, BUSY, SUSPECT, SUSPECT]
    llama.hold.set()


def test_a_queue_that_goes_on_is_no_outage(llama: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our question waits behind others', who get their tokens meanwhile."""
    tokens = iter(range(100))
    seen = Occupancy(5, 0, None)
    monkeypatch.setattr(
        looking, "occupancy_of", lambda url: replace(seen, generated=float(next(tokens)))
    )
    llama.holds = True
    one = looker(llama, ask_after=0, interval_s=1.0)
    assert {one.look().word for _ in range(3)} == {BUSY}
    llama.hold.set()


def test_without_slots_the_counters_say_that_it_works(llama: Llama) -> None:
    llama.slots_status, llama.processing, llama.counters = 501, [True], (1.0, 1.0)
    assert looker(llama).look().word == BUSY
    llama.counters = None
    assert looker(llama).look().word == SERVING, "one that says nothing is asked"


@pytest.mark.parametrize(
    ("health", "completion", "word"),
    [(503, 200, LOADING), (500, 200, UNJUDGED), (500, 500, SUSPECT), (401, 200, UNJUDGED),
     (200, 500, UNJUDGED), (200, 401, UNJUDGED), (200, 503, UNJUDGED)],
)  # fmt: skip
def test_words_of_answers(llama: Llama, health: int, completion: int, word: str) -> None:
    llama.health, llama.completion = health, completion
    assert looker(llama).look().word == word


def test_silence_is_suspect_while_no_slot_moves_and_busy_while_one_does(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "PART", 0.02)
    llama.holds, llama.processing = True, [False]
    one = looker(llama)
    assert one.look().word == SUSPECT
    llama.grows = llama.others_come = True
    assert one.look().word == BUSY
    assert len(llama.asked) == 2


def test_a_stopped_process_is_silent_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "HEALTH_S", 0.3)
    program = (
        "import socket, sys, time\n"
        "door = socket.create_server(('127.0.0.1', 0))\n"
        "print(door.getsockname()[1], flush=True)\n"
        "time.sleep(600)\n"
    )
    argv = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        url = f"http://127.0.0.1:{int(child.stdout.readline())}"
        os.kill(child.pid, 19)
        until(lambda: (found := process.stat(child.pid)) and found.state == "T", "it is stopped")
        one = Looker(plan_of(url).sealed, Settings())
        seen = one.look(child.pid)
        child.kill()
        child.wait()
        dead = one.look(child.pid)
    assert (seen.word, "is stopped (SIGSTOP)" in seen.detail) == (SUSPECT, True)
    assert (dead.word, f"pid {child.pid} is gone" in dead.detail) == (SUSPECT, True)


def test_one_that_is_silent_and_computes_gets_as_long_as_a_proof_may_take(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama.health = llama.completion = 500
    clock, computes = FakeClock(), [True]
    monkeypatch.setattr(looking, "works", lambda pid, seconds, clock: computes[0])
    one = Looker(plan_of(llama.url).sealed, Settings(), clock)
    words = []
    for _ in range(4):
        words.append(one.look(os.getpid()).word)
        clock.sleep(50.0)
    assert words == [UNJUDGED, UNJUDGED, UNJUDGED, SUSPECT], "two minutes"
    llama.health = llama.completion = 200
    assert one.look(os.getpid()).word == SERVING
    llama.health = llama.completion = 500
    assert one.look(os.getpid()).word == UNJUDGED, "it begins anew"
    computes[0] = False
    assert one.look(os.getpid()).word == SUSPECT


@pytest.mark.parametrize(("reference", "slow"), [(1000.0, True), (1.0, False), (None, False)])
def test_an_answer_that_takes_too_long_bounds_the_rate(
    llama: Llama, monkeypatch: pytest.MonkeyPatch, reference: float | None, slow: bool
) -> None:
    """Its health path answers and it computes: then it is slow, and no figure is missing."""
    llama.holds = True
    monkeypatch.setattr(looking, "works", lambda pid, seconds, clock: True)
    # no time passes for the clock of this test: the connection of a question before would last
    monkeypatch.setattr(looking, "lasting_clients", lambda url, sleep: 0)
    plan = plan_of(llama.url).sealed
    plan = replace(plan, baseline=replace(plan.baseline, reference_tok_s=reference))
    seen = Looker(plan, Settings(interval_s=1.0, tokens=16), FakeClock()).look(os.getpid())
    llama.hold.set()
    assert (seen.word, seen.slow) == (UNJUDGED, slow)
    assert "16 tokens in that time are 32 tok/s" in seen.detail
    told = evidence_of(seen, 100.0)
    assert (told is not None) is slow
    if told is not None:
        before = Evidence(Kind.MEASURED, Word.SERVING, 50.0, Witness.BENCHMARK, "", 1000.0)
        state = state_of([before, told], 100.0, reference=reference)
        assert state.word is Word.DEGRADED
        fast = Evidence(Kind.PROOF, Word.SERVING, 150.0, Witness.WATCH, "", 990.0)
        assert state_of([before, told, fast], 150.0, reference=reference).word is Word.SERVING


@pytest.mark.parametrize("late", [True, False])
def test_a_rate_beside_clients_of_a_server_that_does_not_tell_is_none(
    llama: Llama, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """Its only slot answers a client: how long the watch waits says nothing of its speed."""
    llama.slots_status, llama.holds = 404, late
    monkeypatch.setattr(looking, "works", lambda pid, seconds, clock: True)
    plan = plan_of(llama.url).sealed
    plan = replace(plan, baseline=replace(plan.baseline, reference_tok_s=1000.0))
    looker = Looker(plan, Settings(interval_s=1.0, tokens=16), FakeClock())
    with socket.create_connection(("127.0.0.1", port_of(llama.url))):
        seen = looker.look(os.getpid())
    llama.hold.set()
    assert (seen.word, seen.slow, seen.tok_s) == (UNJUDGED if late else SERVING, False, None)
    told = evidence_of(seen, 100.0)
    assert (told is None) is late
    if told is not None:
        assert "beside connected clients" in told.detail
        assert not told.degraded


def test_one_that_streams_to_clients_is_not_down_however_long_it_is_silent(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots answer others, on a card: no core computes, and the question of the watch waits."""
    llama.slots_status, llama.holds, clock = 404, True, FakeClock()
    monkeypatch.setattr(looking, "works", lambda pid, seconds, clock: False)
    monkeypatch.setattr(looking, "streams", lambda url, sleep: True)
    looker, words = Looker(plan_of(llama.url).sealed, Settings(interval_s=1.0), clock), []
    for _ in range(4):
        words.append(looker.look(os.getpid()))
        clock.sleep(60.0)
    llama.hold.set()
    assert {seen.word for seen in words} == {UNJUDGED}
    assert all(seen.detail.endswith("and streams to clients") for seen in words)


def test_what_a_process_and_its_children_compute_is_seen() -> None:
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'while True: pass'])\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
        "child.kill()\n"
    )
    argv = [sys.executable, "-S", "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        inner = int(parent.stdout.readline())

        class Clock(FakeClock):
            def sleep(self, seconds: float) -> None:
                begun = looking._cpu_s(inner)
                until(lambda: looking._cpu_s(inner) - begun > seconds * looking.WORKS, "it works")

        assert looking.works(parent.pid, 2.0, Clock())
        os.kill(inner, signal.SIGSTOP)
        until(lambda: (found := process.stat(inner)) and found.state == "T", "it is stopped")
        assert not looking.works(parent.pid, 2.0, FakeClock())
        os.kill(inner, signal.SIGCONT)
        parent.communicate()


def test_a_password_in_the_address_is_told_nobody() -> None:
    url = f"http://ann:very-secret-1@127.0.0.1:{free_port()}"
    seen = Looker(plan_of(url).sealed, Settings()).look()
    assert (seen.word, "very-secret" in seen.detail) == (SUSPECT, False)


def test_nothing_listens() -> None:
    seen = Looker(plan_of(f"http://127.0.0.1:{free_port()}").sealed, Settings()).look()
    assert (seen.word, "refused" in seen.detail) == (SUSPECT, True)


def began(run: Path) -> None:
    """A run of this process is active, with its directory there."""
    start = process.start_time(os.getpid()) or 0
    records.write(Pointer("20260101-x", str(run), "me", os.getuid(), os.getpid(), start,
                          started_at=time.time(), boot=process.boot_id()))  # fmt: skip


def test_a_run_that_leaves_the_baseline_serving_hides_no_outage(llama: Llama, home: Path) -> None:
    """Its sentinel's page says whether the run has stopped the baseline."""
    run = home / "run"
    began(run)
    (run / "guard").mkdir(parents=True)
    page = Recorder(run / "guard" / LIVE, "20260101-x", SystemClock())
    page.status({"outage": False})
    seen = looker(llama).look()
    assert (seen.word, seen.detail, llama.asked) == (BUSY, "run 20260101-x is on", [])
    llama.health = 500
    seen = looker(llama).look()
    assert seen.word == SUSPECT
    assert "HTTP 500" in seen.detail
    assert "20260101-x is on, which has not stopped" in seen.detail
    page.status({"outage": True})
    assert looker(llama).look().word == PLANNED
    page.close()


def sealed(run: Path, url: str, **more: Any) -> None:
    """What that run has sealed: a baseline at this address."""
    plan = replace(plan_of(url).sealed, run_id=run.name, run_dir=str(run), site_name="dock", **more)
    write_plan(plan, run / ROLLBACK / PLAN)


def test_what_dies_beside_the_outage_of_another_site_is_not_planned(home: Path) -> None:
    """The run's sentinel says that it is in its outage, and that is of another address."""
    port, run = free_port(), home / "run"
    one = Looker(plan_of(f"http://127.0.0.1:{port}").sealed, Settings())
    began(run)
    assert one.look().word == PLANNED, "nothing says which baseline it stops"
    sealed(run, f"http://localhost:{port}")
    assert one.look().word == PLANNED, "it is the same server under another site's name"
    sealed(run, f"http://127.0.0.1:{free_port()}")
    seen = one.look()
    assert seen.word == SUSPECT
    assert "run 20260101-x of site dock is on, which has not stopped it" in seen.detail
    lock = Lock(run / ROLLBACK)
    assert lock.taken()
    assert "a rollback of run 20260101-x of site dock is on" in one.look().detail
    lock.release()


def test_beside_a_run_of_another_site_only_a_doubted_one_is_asked(llama: Llama, home: Path) -> None:
    """A restore is possible then, and a health path that fails may be that of another engine."""
    began(home / "run")
    sealed(home / "run", f"http://127.0.0.1:{free_port()}")
    assert (looker(llama).look().word, llama.asked) == (BUSY, [])
    llama.health = 500
    seen = looker(llama).look()
    assert (seen.word, ALL_THE_SAME in seen.detail) == (UNJUDGED, True)


@pytest.mark.parametrize(("outage", "exclusive", "alone"), [
    (False, False, False), (True, False, True), (False, True, True),
])  # fmt: skip
def test_beside_which_run_of_another_site_a_baseline_is_restored(
    home: Path, outage: bool, exclusive: bool, alone: bool
) -> None:
    run, plan = home / "run", plan_of(f"http://127.0.0.1:{free_port()}").sealed
    began(run)
    sealed(run, f"http://127.0.0.1:{free_port()}", exclusive=exclusive)
    (run / "guard").mkdir(parents=True)
    page = Recorder(run / "guard" / LIVE, "20260101-x", SystemClock())
    page.status({"outage": outage})
    held = looking.held_by(plan)
    page.close()
    assert held is not None
    assert (held.stopped, held.other, held.alone) == (False, True, alone)


def test_what_a_run_holds_is_not_asked(llama: Llama, home: Path) -> None:
    began(home / "run")
    seen = looker(llama).look()
    assert (seen.word, seen.detail, llama.asked) == (PLANNED, "run 20260101-x is on", [])
    records.clear("20260101-x")
    assert looker(llama).look().word == SERVING


def test_a_cutover_whose_relay_is_gone_is_named_with_what_is_seen(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "cut_over", lambda plan: records.CutOver("r", "cand", plan))
    assert looker(llama).look().word == SERVING, "the baseline is back"
    llama.health = llama.completion = 502
    seen = looker(llama).look()
    assert seen.word == SUSPECT
    assert "its clients were cut over to cand, whose relay is gone" in seen.detail


def test_a_candidate_that_clients_were_switched_to_is_looked_at_in_its_place(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(1, 1, llama.url, llama.url, "cand", "", os.getuid())
    monkeypatch.setattr(looking.proxy, "recorded", lambda records, url: relay)
    seen = looker(llama).look()
    assert (seen.word, seen.detail[:26], bool(llama.asked), seen.tok_s) == (
        CUT_OVER, "cand answers in its place;", True, None,
    )  # fmt: skip
    llama.health = 401
    assert looker(llama).look().word == CUT_OVER
    llama.completion = 401
    assert looker(llama).look().word == UNJUDGED
    llama.health = llama.completion = 502
    seen = looker(llama).look()
    assert (seen.word, seen.detail[:50]) == (
        SUSPECT, "cand stands in its place and does not answer: HTTP"
    )  # fmt: skip


def test_what_a_rollback_holds_is_not_asked(llama: Llama) -> None:
    one = looker(llama)
    directory = one.plan.rollback_dir
    directory.mkdir(parents=True)
    lock = Lock(directory)
    assert lock.taken()
    assert (one.look().word, llama.asked) == (PLANNED, [])
    lock.close()
    assert one.look().word == SERVING


def test_the_first_token_is_what_the_others_leave() -> None:
    done = Completion(True, "", "", 16, 2.0, 10.0)
    assert first_token_s(done) == pytest.approx(0.5)
    assert first_token_s(replace(done, decode_tok_s=None)) is None


def saying(content: str, **more: Any) -> dict[str, Any]:
    choice = {"message": {"content": content, **more}, "finish_reason": "length"}
    return {**ANSWER, "choices": [choice]}


def test_garbage_is_no_answer_whatever_its_speed(llama: Llama) -> None:
    llama.answer = saying("\n" * 16)
    seen = looker(llama).look()
    assert (seen.word, seen.tok_s) == (GARBLED, None)
    assert seen.detail.startswith("garbled, nothing but white space: ")
    llama.answer = saying("", reasoning="The user wants to know")
    assert looker(llama).look().word == SERVING, "it was cut off while it reasoned"


def test_an_answer_that_falls_apart_is_looked_at_longer_each_time(llama: Llama) -> None:
    one = looker(llama)
    assert one.look().word == SERVING
    llama.answer = saying("You_ Youc Youc Youc Youc Youc\n\n\n\n\n\n\nHH H")
    seen = one.look()
    assert (seen.word, seen.weak) == (GARBLED, False)
    assert "line ends in a row, one word in a row: “You_ Youc Youc" in seen.detail
    llama.answer = saying("She sang: la la la la la la, la la la, and then")
    assert one.look().word == SERVING, "a song is none"


def test_a_look_says_whether_its_garbage_is_a_sure_sign(llama: Llama) -> None:
    for content, weak in (("| | |\n|---|---|", True), ("GGGGGGGG", False)):
        llama.answer = saying(content)
        seen = looker(llama).look()
        assert (seen.word, seen.weak) == (GARBLED, weak)


def test_an_answer_that_is_not_what_the_site_expects_is_garbled(llama: Llama) -> None:
    plan = plan_of(llama.url).sealed
    expecting = replace(
        plan.baseline, completion=replace(plan.baseline.completion, expect="yes|oui")
    )
    llama.answer = saying("blue wide of")
    found = Looker(replace(plan, baseline=expecting), Settings())
    assert found.look().word == GARBLED
    llama.answer = ANSWER
    assert found.look().word == SERVING


@pytest.mark.parametrize("status", [302, 401, 404, 429])
def test_a_refusal_is_no_outage(llama: Llama, status: int) -> None:
    llama.completion = status
    assert looker(llama).look().word == UNJUDGED
    llama.health = status
    assert looker(llama).look().word == UNJUDGED


@pytest.mark.parametrize(("health", "completion"), [(200, 200), (404, 404), (200, 500), (200, 401)])
def test_whatever_another_program_answers_the_baseline_is_down(
    llama: Llama, health: int, completion: int
) -> None:
    """The baseline died, and something that the site file does not start has its port."""
    llama.health, llama.completion = health, completion
    plan = plan_of(llama.url).sealed
    base = replace(plan.baseline, process=ProcessSpec(("/opt/llama-server", "-m", "a.gguf")))
    seen = Looker(replace(plan, baseline=base), Settings(interval_s=60.0)).look()
    assert (seen.word, seen.stranger) == (SUSPECT, True)
    assert f"something else answers there: pid {os.getpid()}, " in seen.detail
    down = evidence_of(seen, 9.0)
    assert down is not None
    assert (down.kind, down.word) == (Kind.AWAY, Word.DOWN)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"Status": "exited", "ExitCode": 137, "OOMKilled": True},
         "container exited (137, out of memory)"),
        ({"Restarting": True, "ExitCode": 137, "OOMKilled": True},
         "container ended (137, out of memory), and is to be started again"),
    ],
)  # fmt: skip
def test_how_a_container_that_refuses_has_ended_is_said(
    monkeypatch: pytest.MonkeyPatch, state: dict[str, Any], words: str
) -> None:
    """That a connection is refused is no cause of an outage."""
    plan = plan_of(f"http://127.0.0.1:{free_port()}").sealed
    base = replace(plan.baseline, kind="container", container_name="llm", process=None)
    plan = replace(plan, baseline=base)
    monkeypatch.setattr(RawEngine, "inspect", lambda engine, name: {"Name": "/llm", "State": state})
    seen = Looker(plan, Settings(interval_s=60.0), FakeClock()).look()
    assert seen.word == SUSPECT
    assert seen.detail.endswith(words)
    assert "refused" in seen.detail
