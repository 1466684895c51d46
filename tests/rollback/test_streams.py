"""Answers in events, as most clients ask for them: what breaks only then, whole answers hide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from console.host import process
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.runtime.answers.completion import complete, streamed
from console.runtime.answers.stream import whole
from console.watch import look as watch
from console.watch.plan import Settings
from tests.rollback.conftest import Stage, serving


@pytest.mark.parametrize(
    ("ends", "word", "restarts"),
    [("well", Word.SERVING, 0), ("cut", Word.REFUSING, 0), ("no such adapter", Word.REFUSING, 0),
     ("CUDA error: device-side assert triggered", Word.REFUSING, 0), ("http", Word.REFUSING, 0),
     ("reset", Word.REFUSING, 0), ("dies", Word.DOWN, 1)],
)  # fmt: skip
def test_the_proof_streams_one_of_its_answers(
    stage: Stage, lines: Path, ends: str, word: Word, restarts: int
) -> None:
    """A server may answer as a whole and break each stream, as each client asks for it."""
    before = serving(stage, lines, stream=ends)
    stage.seal(site_name="ws")
    result = stage.roll_back()
    state = evidence.state(stage.plan)
    assert (result.serving, state.word) == (ends == "well", word), (result.detail, state)
    words = "its engine is dead" if ends == "dies" else "its streamed answer breaks"
    assert (words in result.detail) is (ends != "well"), result.detail
    assert sum("restarting it once" in line["detail"] for line in stage.lines) == restarts
    assert process.alive(*before) is not bool(restarts)
    if word is Word.REFUSING:
        assert "left as it is" in result.detail
        assert not any("setsid" in line for line in result.manual)


@pytest.mark.parametrize("ends", ["well", "cut"])
def test_the_watch_streams_by_turns_and_doubts_until_no_stream_breaks(
    stage: Stage, lines: Path, ends: str
) -> None:
    serving(stage, lines, stream=ends)
    looker = watch.Looker(stage.plan, Settings(interval_s=60.0))
    words = [looker.look().word for _ in range(3)]
    assert words == ([watch.SERVING] * 3 if ends == "well" else [watch.UNJUDGED] * 3)
    lines.write_text(json.dumps({"stream": "well"}))
    assert looker.look().word == watch.SERVING


def test_a_stream_is_judged_as_the_whole_that_it_would_have_been(stage: Stage, lines: Path) -> None:
    serving(stage, lines, stream="well")
    as_whole, by_stream = complete(stage.plan.baseline.url), streamed(stage.plan.baseline.url)
    assert (by_stream.ok, by_stream.tokens, by_stream.finish) == (True, 8, "length")
    assert by_stream.text.split() == as_whole.text.split()
    assert by_stream.decode_tok_s == as_whole.decode_tok_s
    lines.write_text(json.dumps({"status": 400}))
    assert not streamed(stage.plan.baseline.url).breaks


def test_a_stream_that_stops_is_no_slow_server(
    stage: Stage, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its whole answers came in a moment; of the stream three words come, and nothing more."""
    monkeypatch.setattr("console.recovery.rollback.stages.measure.try_timeout_s", lambda *_: 3.0)
    before = serving(stage, lines, stream="stops")
    result = stage.roll_back()
    assert (result.serving, process.alive(*before)) == (False, True)
    assert "its streamed answer breaks: whole answers come in time" in result.detail


WORD = {"choices": [{"delta": {"content": "Yes"}, "finish_reason": None}]}
LAST = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


@pytest.mark.parametrize(
    "stream",
    [
        f"data: {json.dumps(WORD)}\n\ndata: {json.dumps(LAST)}\n\ndata: [DONE]\n\n",
        f"data: {json.dumps(WORD)}\r\n\r\ndata: {json.dumps(LAST)}\r\n\r\n",
        f"data: {json.dumps(WORD)}\ndata: {json.dumps(LAST)}\ndata: [DONE]\n",
        f": ping\n\nevent: message\ndata: {json.dumps(WORD)}\nid: 7\n\n"
        f"data: {json.dumps(LAST)}\n\n",
        "".join(f"data: {line}\n" for line in json.dumps(WORD, indent=1).splitlines())
        + f"\ndata: {json.dumps(LAST)}\n\n",
    ],
)
def test_streams_of_every_lawful_form_are_whole(stream: str) -> None:
    body, trouble = whole(stream.encode())
    assert trouble == ""
    assert json.loads(body)["choices"][0] == {
        "message": {"content": "Yes"},
        "finish_reason": "stop",
    }


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ('event: error\ndata: {"message": "CUDA error: misaligned address"}\n\n', "misaligned"),
        ('event: error\ndata: {"error": {"message": "no room"}}\n\n', "no room"),
        ("event: error\ndata: no memory\n\n", "no memory"),
        ('error: {"message": "no such adapter"}\n\n', "no such adapter"),
        ('data: {"error": {"message": "dead"}}\n\n', "dead"),
        ('data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\n', "ends with an error"),
        ("", "before the answer does"),
        ('data: {"choices": [{"del', "no JSON"),
    ],
)
def test_streams_that_break_say_how(ends: str, words: str) -> None:
    _, trouble = whole(f"data: {json.dumps(WORD)}\n\n{ends}".encode())
    assert trouble.startswith("its streamed answer breaks: ")
    assert words in trouble
