"""A server that dribbles its answer is alive, whatever it is slow for: it is named and left."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.common.errors import BaselineNotReady
from console.config.site.site import load_site
from console.host import process
from console.journal.watch_record import UNJUDGED
from console.recovery.rollback import evidence, look, observe
from console.recovery.rollback.baseline_state import Witness, Word
from console.recovery.rollback.look import Looker
from console.recovery.rollback.observe import Observed
from console.recovery.rollback.stages import measure, verify
from console.runner.prepare import baseline
from console.runtime.answers.completion import prove
from console.runtime.probe import ALL_THE_SAME, Health, health, remedy
from console.watch.look import Looker as Watcher
from console.watch.plan import Settings
from tests.rollback.conftest import Stage, run_script, script_proves, serving

ASK = "/v1/chat/completions"
HEADS = {
    "not even a status line": "HTTP/1.1 2",
    "headers": "HTTP/1.1 200 OK\r\nX-Slow: ",
    "a body": "HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n{",
    "events": 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {"content": "',
}
heads = pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
CLIENTS = ["curl", "python3", "wget"]


@pytest.fixture
def impatient(stage: Stage, lines: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A baseline that is told by these lines, and a rollback that waits for nothing for long."""
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    monkeypatch.setattr(verify, "QUICK_S", 0.5)
    stage.base(completion=replace(stage.plan.baseline.completion, timeout_s=1.0))
    stage.seal(site_name="ws")
    return lines


@heads
@pytest.mark.parametrize("paths", [(ASK,), (ASK, "/health")], ids=["completion", "both"])
def test_the_rollback_leaves_it_alone(
    stage: Stage, impatient: Path, head: str, paths: tuple[str, ...]
) -> None:
    """It said "nothing within 10 s" of it, and restarted it."""
    before = serving(stage, impatient, drips=dict.fromkeys(paths, head))
    result = stage.roll_back()
    assert result.exit_code == 7
    assert result.detail.endswith(f"; {verify.LEFT}")
    assert result.detail.count(verify.LEFT) == 1
    assert "only a part of the answer in time" in result.detail
    assert "nothing within" not in result.detail
    assert not any(word in line for line in result.manual for word in ("kill", "setsid"))
    assert stage.baseline_process() == before
    kept = [
        e for e in evidence.read("ws", stage.plan.baseline.url) if e.witness is Witness.ROLLBACK
    ]
    assert [e.word for e in kept] == [Word.UNKNOWN]
    assert Looker().state(stage.plan).word is Word.UNKNOWN


@heads
def test_a_health_path_that_dribbles_says_nothing_of_the_answers(
    stage: Stage, impatient: Path, head: str
) -> None:
    """With its head it has said all that is asked; without, one completion shows that it serves."""
    before = serving(stage, impatient, drips={"/health": head})
    result = stage.roll_back()
    whole = head.count("\r\n\r\n") == 1
    assert result.serving is whole, result
    assert whole or "it answers a completion all the same" in result.detail
    assert stage.baseline_process() == before


@heads
@pytest.mark.parametrize("client", CLIENTS)
def test_the_script_leaves_it_alone(stage: Stage, impatient: Path, head: str, client: str) -> None:
    before = serving(stage, impatient, drips={ASK: head})
    result, said = script_proves(stage, f"ASK_S=1; CLIENT={client}")
    assert result == 1, said
    assert "it sends its answer, and is slow: it is alive and was left as it is" in said
    assert stage.baseline_process() == before


def test_the_whole_script_leaves_one_alone_whose_health_path_dribbles_too(
    stage: Stage, impatient: Path
) -> None:
    before = serving(stage, impatient, drips=dict.fromkeys((ASK, "/health"), "HTTP/1.1 2"))
    done = run_script(stage)
    assert done.returncode == 7
    assert "it sends its answer, and is slow: it is alive and was left as it is" in done.stdout
    assert "restarting" not in done.stdout
    assert stage.baseline_process() == before
    assert [e.word for e in evidence.read("ws", stage.plan.baseline.url)] == [Word.UNKNOWN]


@heads
def test_every_face_says_that_it_is_slow_and_not_that_nothing_came(
    stage: Stage, impatient: Path, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stage.plan.baseline.url
    serving(stage, impatient, drips=dict.fromkeys((ASK, "/health"), head))
    answer = prove(url, timeout_s=0.3)
    assert (answer.sends, answer.status) == (True, 0)
    assert "fewer than" in answer.detail
    assert "is alive" in remedy(answer.why)
    found = evidence.of_completion(answer, Witness.VERIFY, time.time())
    assert found.word is Word.UNKNOWN
    state, words = health(url, timeout_s=0.3)
    assert state is (Health.SERVING if head.endswith(("{", '"')) else Health.SLOW), words
    monkeypatch.setattr(look, "HEALTH_S", 0.3)
    seen = Looker().look(stage.plan)
    assert "nothing within" not in seen.detail
    assert seen.word in (Word.SERVING, Word.UNKNOWN)
    assert look.silence(url, "/health") == (Word.SERVING, "")


def test_an_error_whose_words_come_slowly_is_that_error(stage: Stage, impatient: Path) -> None:
    head = "HTTP/1.1 {}\r\nContent-Length: 99999\r\n\r\n{{"
    before = serving(stage, impatient, drips={ASK: head.format("401 no")})
    answer = prove(stage.plan.baseline.url, timeout_s=0.3)
    assert (answer.status, answer.refuses, answer.sends) == (401, True, False)
    assert "it wants a key" in stage.roll_back().detail
    assert script_proves(stage, "ASK_S=1")[0] == 1
    assert stage.baseline_process() == before


@pytest.mark.parametrize("way", ["ladder", "script"])
@pytest.mark.parametrize("status", [404, 401, 301, 500])
def test_a_health_path_of_another_engine_is_named_as_the_reason(
    stage: Stage, impatient: Path, monkeypatch: pytest.MonkeyPatch, way: str, status: int
) -> None:
    """It refuses, or fails, and completions are answered: then it is the wrong path."""
    monkeypatch.setattr(verify, "REFUSING_S", 0.5)
    stage.base(ready_timeout_s=2.0)
    before = serving(stage, impatient, health=status)
    if way == "ladder":
        result = stage.roll_back()
        assert result.exit_code == 7
        assert f"HTTP {status}" in result.detail
        assert "it answers a completion all the same: is /health its health path?" in result.detail
        assert result.detail.count(verify.LEFT) == 1
    else:
        done = run_script(stage)
        assert done.returncode == 7
        assert "it answers a completion all the same: is /health its health path?" in done.stdout
    assert stage.baseline_process() == before
    assert evidence.read("ws", stage.plan.baseline.url)[0].word is Word.UNKNOWN
    seen = Watcher(stage.plan, Settings(interval_s=10.0)).look()
    assert seen.word == UNJUDGED
    assert ALL_THE_SAME in seen.detail


@pytest.mark.parametrize(
    ("told", "what", "hint"),
    [
        ({"health": 500}, "is not well, by its health path", "`ready.http`"),
        ({"health": 404}, "is not well, by its health path", "`ready.http`"),
        ({"health": 503}, "is not well, by its health path", "`ready.http`"),
        ({"drips": {"/health": "HTTP"}}, "is not well, by its health path", "`ready.http`"),
        ({"drips": {ASK: HEADS["a body"]}}, "answers too slowly", "completion.timeout"),
        ({"health": 500, "status": 500}, "does not serve", "omni-console rollback"),
    ],
)  # fmt: skip
def test_the_first_proof_of_a_run_says_what_is_wrong(
    stage: Stage, impatient: Path, told: dict[str, Any], what: str, hint: str
) -> None:
    """It advised a rollback, which leaves such a server as it is."""
    file = stage.root / "site.yaml"
    file.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline:\n  process: {argv: [serve]}\n"
        f"  url: {stage.plan.baseline.url}\n  completion: {{timeout: 1s}}\n"
    )
    site = load_site(file)
    running, runs = serving(stage, impatient, **told), site.baseline_spec().runs
    assert isinstance(runs, process.ProcessSpec)
    process.write_record(paths.records_dir("ws"), "baseline", runs, *running)
    with pytest.raises(BaselineNotReady, match=what) as caught:
        baseline.prove(site, Witness.RUN_START)
    assert hint in caught.value.hint
    assert "nothing within" not in str(caught.value)


@pytest.mark.parametrize(
    "told", [{"status": 401}, {"status": 404}, {"answer": "!!!!!"}, {"health": 401}, {}],
)  # fmt: skip
@pytest.mark.parametrize("shares", [False, True])
def test_what_a_stranger_answers_is_no_word_of_the_baseline(
    stage: Stage, impatient: Path, monkeypatch: pytest.MonkeyPatch, told: dict[str, Any],
    shares: bool,
) -> None:  # fmt: skip
    """It was said that the baseline wants a key, or answers garbage, and that a rollback helps."""
    file = stage.root / "site.yaml"
    file.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline:\n  process: {argv: [llama-server, -m, a.gguf]}\n"
        f"  url: {stage.plan.baseline.url}\n  completion: {{timeout: 1s}}\n"
    )
    site = load_site(file)
    pid, _ = serving(stage, impatient, **told)
    if shares:
        words = f"{observe.ELSE}, too: pid {pid}, x"
        monkeypatch.setattr(observe, "somebody_else", lambda plan: words)
    with pytest.raises(BaselineNotReady, match="something else answers at") as caught:
        baseline.prove(site, Witness.RUN_START)
    assert f"pid {pid}" in caught.value.detail
    assert caught.value.hint.endswith("one of the two needs another port")
    assert not evidence.read("ws", stage.plan.baseline.url)


@pytest.mark.parametrize("when", ["completion", "measure"])
def test_no_line_says_ok_of_what_somebody_else_has_answered(
    stage: Stage, impatient: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Who has the port by the time of an answer is asked first, then what was said is reported."""
    serving(stage, impatient)
    room = verify if when == "completion" else measure
    name = "prove" if when == "completion" else "complete"
    ask, is_ours, taken = getattr(room, name), Observed.is_ours, list[bool]()

    def asked(*given: Any, **more: Any) -> Any:
        taken.append(True)
        return ask(*given, **more)

    monkeypatch.setattr(room, name, asked)
    monkeypatch.setattr(
        Observed,
        "is_ours",
        lambda self, *given, **more: not taken and is_ours(self, *given, **more),
    )
    assert not stage.roll_back().serving
    assert stage.said("ready", "ok")
    assert stage.said(when, "ok") == []
    assert when == "measure" or stage.said("serving", "ok") == []


@pytest.mark.parametrize("status", [401, 404, 429])
@pytest.mark.parametrize("way", ["ladder", "script"])
def test_a_refused_completion_shows_life_where_the_health_path_is_not_well(
    stage: Stage, impatient: Path, way: str, status: int
) -> None:
    """HTTP 500 of its health path for as long as a hang takes, and a restart followed."""
    before = serving(stage, impatient, health=500, status=status, error="no")
    if way == "ladder":
        result = stage.roll_back()
        assert result.exit_code == 7
        assert f"HTTP {status}" in result.detail
        assert result.detail.endswith(verify.LEFT)
    else:
        stage.base(ready_timeout_s=2.0)
        done = run_script(stage)
        assert done.returncode == 7
        assert f"it refuses (HTTP {status}): it is alive and was left as it is" in done.stdout
    assert process.alive(*before)
    assert Looker().state(stage.plan).word is Word.REFUSING
