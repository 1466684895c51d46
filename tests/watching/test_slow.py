"""Servers whose health path, or whose answer, is slow or none: what lives is not called down."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from console.journal.watch_record import CUT_OVER, GARBLED, LOADING, SUSPECT, UNJUDGED
from console.recovery.rollback.baseline_state import Word
from console.runtime.probe import ALL_THE_SAME
from console.runtime.proxy import Relay
from console.watch import look as looking
from console.watch.watcher import evidence_of
from tests.watching.llama import Llama, looker


@pytest.mark.parametrize("health", [500, 502, "drips"])
@pytest.mark.parametrize("completion", [200, 404, 401, "drips", "garbage"])
def test_a_candidate_is_doubted_as_the_baseline_is(
    llama: Llama, monkeypatch: pytest.MonkeyPatch, health: Any, completion: Any
) -> None:
    """Whatever its health path says, a completion tells."""
    relay = Relay(1, 1, llama.url, llama.url.partition("//")[2], "cand", "", os.getuid())
    monkeypatch.setattr(looking.proxy, "recorded", lambda records, url: relay)
    tells(llama, health, completion)
    seen = looker(llama, interval_s=1.0).look()
    well = completion == 200
    word = CUT_OVER if well else GARBLED if completion == "garbage" else UNJUDGED
    assert (seen.word, "cand answers in its place; " in seen.detail) == (word, well), seen
    assert all("model" not in asked for asked in llama.asked), "that is the baseline's"


def test_a_candidate_that_computes_in_silence_is_waited_for_as_the_baseline_is(
    llama: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(1, 1, llama.url, llama.url.partition("//")[2], "cand", "", os.getuid())
    monkeypatch.setattr(looking.proxy, "recorded", lambda records, url: relay)
    llama.holds, llama.health = True, 500
    asked = list[int]()
    monkeypatch.setattr(looking, "works", lambda pid, seconds, clock: not asked.append(pid))
    one = looker(llama, interval_s=1.0)
    assert [one.look().word, one.look().word] == [UNJUDGED, UNJUDGED]
    assert asked == [os.getpid()] * 2, "that of the candidate, and not of the baseline"
    one._silent_since = float("-inf")
    assert one.look().word == SUSPECT, "longer than a proof may take"


HEADS = {
    "not even a status line": b"HTTP/1.1 2",
    "headers": b"HTTP/1.1 200 OK\r\nX-Slow: ",
    "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n{",
    "events": b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n",
}


def tells(llama: Llama, health: Any, completion: Any) -> None:
    """Has it answer its health path and completions with a status, or dribble, or garbage."""
    if health == "drips":
        llama.drips["/health"] = HEADS["not even a status line"]
    else:
        llama.health = health
    if completion == "drips":
        llama.drips["/v1/chat/completions"] = HEADS["events"]
    elif completion == "garbage":
        llama.answer = {"choices": [{"message": {"content": "G" * 40}}],
                        "usage": {"completion_tokens": 40}}  # fmt: skip
    else:
        llama.completion = completion


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "both"])
def test_a_server_that_dribbles_its_answer_is_slow_and_never_down(
    llama: Llama, head: bytes, path: str
) -> None:
    """It was silent for the watch, down at the second look, and restored."""
    for one in ("/v1/chat/completions", *(["/health"] if path == "both" else [])):
        llama.drips[one] = head
    looks = looker(llama, interval_s=1.0)
    looks.plan = replace(
        looks.plan, baseline=replace(looks.plan.baseline, reference_tok_s=1000.0)
    )  # fmt: skip
    for _ in range(2):
        seen = looks.look(os.getpid())
        assert (seen.word, seen.slow) == (UNJUDGED, True), seen
        assert seen.detail.startswith("only a part of the answer in time"), seen
        found = evidence_of(seen, 1.0)
        assert found is not None
        assert (found.word, found.degraded) == (Word.SERVING, True)


@pytest.mark.parametrize(("completion", "word"), [(401, UNJUDGED), (404, UNJUDGED), (500, SUSPECT)])
def test_a_refusal_of_a_completion_shows_that_it_lives_whatever_its_health_path_says(
    llama: Llama, completion: int, word: str
) -> None:
    llama.health, llama.completion = 500, completion
    seen = looker(llama).look()
    assert seen.word == word, seen
    assert "HTTP 500" in seen.detail
    if word == UNJUDGED:
        found = evidence_of(seen, 1.0)
        assert found is not None
        assert found.word is Word.REFUSING


def test_one_that_says_for_long_that_it_loads_is_asked_a_completion(llama: Llama) -> None:
    """Its health path may be that of another engine; while it loads, it answers 503 to that, too,
    or not in time."""
    llama.health = llama.completion = 503
    one = looker(llama)
    assert [one.look().word for _ in range(3)] == [LOADING] * 3
    assert len(llama.asked) == 2, "at the first look it may have just begun"
    llama.completion = 200
    seen = one.look()
    assert (seen.word, ALL_THE_SAME in seen.detail) == (UNJUDGED, True)
