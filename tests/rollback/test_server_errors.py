"""What an error of a live server means (HTTP 5xx): it fails a request, or its engine is dead."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from console.host import process
from console.journal.watch_record import SUSPECT, UNJUDGED
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import Looker
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import Line
from console.recovery.rollback.script.write import ITS_ENGINE_IS_DEAD, WAIT
from console.recovery.rollback.stages import verify
from console.runtime.answers.completion import prove
from console.runtime.probe import engine_dead
from console.watch import look as watch
from console.watch.plan import Settings
from console.watch.watcher import evidence_of
from tests.rollback.conftest import Stage, run_script, script_proves, serving
from tests.waiting import some

FAILING = [
    (500, "litellm.AuthenticationError: OpenAIException - Incorrect API key provided: not-a-key."),
    (500, "Incomplete generation"),
    (500, "Conversation roles must alternate user/assistant/user/assistant/..."),
    (500, "CUDA error: out of memory"), (500, ""), (505, "no"), (507, "no"), (520, "unknown"),
    (522, "timed out"), (525, "handshake"), (527, "no"), (530, "1033"), (599, "no"),
]  # fmt: skip
DEAD = [
    (500, "EngineCore encountered an issue. See stack trace (above) for the root cause."),
    (500, "vllm.v1.engine.exceptions.EngineDeadError"),
    (500, "Engine loop is not running. Inspect the stacktrace to find the original error"),
    (500, "CUDA error: an illegal memory access was encountered"),
    (503, "CUDA error: device-side assert triggered"),
    (500, "Rank 0 scheduler is dead. Please check if there are relevant logs."),
    (200, "CUDA error: an illegal memory access was encountered"),  # as some gateways pass it on
]


def test_these_errors_are_of_the_request_or_of_a_dead_engine(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    looker = watch.Looker(stage.plan, Settings(interval_s=60.0))
    for status, error in FAILING:
        lines.write_text(json.dumps({"status": status, "error": error}))
        answer = prove(stage.plan.baseline.url)
        assert (answer.fails, answer.refuses, answer.dead) == (True, False, ""), error
        assert f"it fails this request (HTTP {status}" in answer.why
        result, said = script_proves(stage)
        assert result == 1, error
        assert f"it fails this request (HTTP {status}): it is alive" in said
    for status, error in DEAD:
        body = {"raw": {"error": {"message": error}}} if status == 200 else {}
        lines.write_text(json.dumps({"status": status, "error": error, **body}))
        answer = prove(stage.plan.baseline.url)
        assert (answer.fails, bool(answer.dead)) == (False, True), error
        found = looker.look()
        assert (found.word, found.dead) == (SUSPECT, True), error
        result, said = script_proves(stage)
        assert result == 2, error
        assert "its engine is dead" in said


@pytest.mark.parametrize(("status", "error"), [FAILING[0], FAILING[3], (522, "timed out")])
def test_a_server_that_fails_a_request_is_left_alone(
    stage: Stage, lines: Path, status: int, error: str
) -> None:
    before = serving(stage, lines, status=status, error=error)
    result = stage.roll_back()
    assert result.exit_code == 7
    assert f"it fails this request (HTTP {status}" in result.detail
    assert error.split("key provided")[0] in result.detail
    assert result.detail.endswith("; it is alive and was left as it is")
    assert not any(word in line for line in result.manual for word in ("kill", "setsid"))
    assert stage.baseline_process() == before
    done = run_script(stage)
    assert done.returncode == 7
    assert f"it fails this request (HTTP {status}): it is alive" in done.stdout
    assert "kill" not in done.stdout.partition("By hand")[2]
    assert stage.baseline_process() == before
    found = watch.Looker(stage.plan, Settings(interval_s=60.0)).look()
    assert (found.word, found.requested) == (UNJUDGED, True)
    assert some(evidence_of(found, time.time())).word is Word.REFUSING


@pytest.mark.parametrize(("status", "error"), [DEAD[0], DEAD[4]])
def test_a_server_whose_engine_is_dead_is_restarted_once(
    stage: Stage, lines: Path, status: int, error: str
) -> None:
    before = serving(stage, lines, status=status, error=error)
    found = watch.Looker(stage.plan, Settings(interval_s=60.0)).look()
    assert (found.word, found.dead) == (SUSPECT, True)
    result = stage.roll_back()
    assert result.exit_code == 7
    assert "its engine is dead" in result.detail
    assert not process.alive(*before)
    assert len([line for line in stage.lines if "restarting it once" in line["detail"]]) == 1
    assert ITS_ENGINE_IS_DEAD in result.manual
    assert WAIT not in result.manual, "it is known that it does not load"
    before = stage.running()
    done = run_script(stage)
    assert done.returncode == 7
    assert "its engine is dead" in done.stdout
    assert done.stdout.count("restarting it once") == 1
    assert (ITS_ENGINE_IS_DEAD in done.stdout, WAIT in done.stdout) == (True, False)
    assert not process.alive(*before)


def test_a_restart_mends_a_dead_engine(stage: Stage, lines: Path) -> None:
    serving(stage, lines, status=500, error="EngineDeadError")

    def mend(line: Line) -> None:
        if "restarting it once" in line["detail"]:
            lines.unlink()

    assert Procedure(stage.plan, emit=mend).run().serving


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_the_log_of_the_server_may_say_that_its_engine_is_dead(
    stage: Stage, lines: Path, way: str
) -> None:
    """Only what it writes of this very request: it may have been started again since."""
    words = "RuntimeError: CUDA error: an illegal memory access was encountered"
    before = serving(stage, lines, status=500, error="Internal Server Error", log=words)
    if way == "ladder":
        assert "its engine is dead" in stage.roll_back().detail
    else:
        assert "its engine is dead" in run_script(stage).stdout
    assert not process.alive(*before)


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_what_an_earlier_engine_wrote_ends_nobody(stage: Stage, lines: Path, way: str) -> None:
    (stage.root / "base.log").write_text("EngineDeadError\n" * 3)
    before = serving(stage, lines, status=500, error="Internal Server Error", log="500 answered")
    words = stage.roll_back().detail if way == "ladder" else run_script(stage).stdout
    assert "it fails this request (HTTP 500" in words
    assert process.alive(*before)


def test_an_error_that_passes_is_asked_again(stage: Stage, lines: Path) -> None:
    before = serving(stage, lines, status=500, error="Incomplete generation")

    def passes(line: Line) -> None:
        if "asking again" in line["detail"]:
            lines.unlink(missing_ok=True)

    assert Procedure(stage.plan, emit=passes).run().serving
    assert stage.baseline_process() == before


@pytest.mark.parametrize(("text", "dead"), [
    ("torch.AcceleratorError: CUDA error: unspecified launch failure", True),
    ("CUDA error: out of memory; then EngineDeadError", True),
    ("HIP error: out of memory", False), ("CUDA out of memory. Tried to allocate 2 GiB", False),
    ("CUDA error: no kernel image is available for execution", False),
    ("AsyncEngineDeadError: Background loop has errored already.", True),
    ("the worker thread died of boredom", False), ("Engine process failed to start", True),
])  # fmt: skip
def test_words_of_a_dead_engine(text: str, dead: bool) -> None:
    assert bool(engine_dead(text)) is dead


def test_a_health_path_that_refuses_is_refusing_for_every_look(stage: Stage, lines: Path) -> None:
    serving(stage, lines)
    plan = replace(stage.plan, site_name="refusing")
    for status in (301, 302, 307, 308, 401, 403, 404, 429):
        lines.write_text(json.dumps({"health": status, "status": status}))
        assert Looker().look(plan).word is Word.REFUSING, status
        found = watch.Looker(plan, Settings(interval_s=60.0)).look()
        assert some(evidence_of(found, time.time())).word is Word.REFUSING, status


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize("way", ["ladder", "script"])
def test_a_health_path_that_fails_ends_nobody_who_answers(
    stage: Stage, lines: Path, way: str, status: int
) -> None:
    """TGI's says 503 while its queue is full, and a site file may name another engine's path."""
    stage.base(ready_timeout_s=1.0)
    before = serving(stage, lines, health=status)
    if way == "script":
        assert run_script(stage).returncode == 7
    else:
        result = stage.roll_back()
        assert not result.serving
        assert "it answers a completion all the same" in result.detail
        seen = Looker()
        assert seen.look(stage.plan).word is (Word.LOADING if status == 503 else Word.UNKNOWN)
    assert process.alive(*before)


@pytest.mark.parametrize("way", ["ladder", "script"])
def test_a_health_path_that_is_silent_ends_nobody_who_answers(
    stage: Stage, lines: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "HUNG_S", 2.0)
    before = serving(stage, lines, slow=60)
    if way == "script":
        done = run_script(stage)
        assert done.returncode == 7
        assert "it answers a completion all the same: is " in done.stdout
    else:
        result = stage.roll_back()
        assert not result.serving
        assert "it answers a completion all the same" in result.detail
    assert process.alive(*before)
    looker = watch.Looker(stage.plan, Settings(interval_s=60.0))
    assert looker.look().word == UNJUDGED


def test_a_health_path_that_fails_and_no_completion_is_restarted(stage: Stage, lines: Path) -> None:
    stage.base(ready_timeout_s=1.0)
    before = serving(stage, lines, health=500, status=500, error="Internal Server Error")
    assert not stage.roll_back().serving
    assert not process.alive(*before)


def test_the_watch_asks_a_server_whose_health_path_fails(stage: Stage, lines: Path) -> None:
    serving(stage, lines, health=500)
    looker = watch.Looker(stage.plan, Settings(interval_s=60.0))
    found = looker.look()
    assert (found.word, found.requested) == (UNJUDGED, True)
    assert "answers a completion all the same" in found.detail
    lines.write_text(json.dumps({"health": 500, "status": 500, "error": "EngineDeadError"}))
    found = looker.look()
    assert found.word == SUSPECT
    assert "HTTP 500" in found.detail
