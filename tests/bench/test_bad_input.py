"""Servers that misbehave: each is classed, its run void or failed, and no number comes of it."""

import json
import math
from typing import Any

import pytest

from console.bench import sse as stream
from console.bench.benchmark import Benchmark, Protocol
from console.bench.client import ChatRequest
from console.bench.metrics import PER_SAMPLE
from console.bench.sample import Sample, measure
from console.bench.sse import Capture, FailureKind, read_reply
from console.rehearsal.demo import passage
from tests.bench.scripted import (
    DONE,
    FINISH,
    ROLE,
    Answer,
    Handler,
    answers,
    asked,
    delta,
    reply,
    scripted,
    spoken,
    sse,
    streams,
    usage,
)
from tests.clock import FakeClock

TOKENS = 8
REQUEST = ChatRequest("Hello", TOKENS)
COUNTED = [ROLE, *spoken(TOKENS, usages=True)]
"""A stream as far as its last token, with a count in each chunk."""
WEB_PAGE = b"<!doctype html><html><title>502 Bad Gateway</title>\x1b[2J</html>"


def _reset(handler: Handler) -> None:
    handler.stream([ROLE, delta(content="a")])
    handler.reset()


def said(tokens: Any, cached: Any = 0) -> list[bytes]:
    """A whole stream of eight chunks that reports these counts."""
    counts = usage(tokens) | {"prompt_tokens_details": {"cached_tokens": cached}}
    end = f"data: {json.dumps({'choices': [], 'usage': counts})}\n\n".encode()
    return [ROLE, *spoken(TOKENS), FINISH, end, DONE]


def timed(**values: Any) -> list[bytes]:
    """A whole stream without usage, whose timings say this."""
    base = {"cache_n": 0, "prompt_n": 9, "prompt_ms": 3.0, "predicted_n": 8, "predicted_ms": 4.0}
    end = sse({"choices": [], "timings": base | values})
    return [ROLE, *spoken(TOKENS), FINISH, end, DONE]


CASES: dict[str, tuple[Answer, str]] = {
    "a web page": (answers(200, WEB_PAGE, "text/html"), "not a stream"),
    "a web page as an error": (answers(502, WEB_PAGE, "text/html"), "server error"),
    "an empty 400, twice": (answers(400, b""), "transport"),
    "no key": (answers(401, b'{"error":{"message":"Invalid API Key"}}'), "refused"),
    "no such path": (answers(404, b'{"error":{"message":"File Not Found"}}'), "refused"),
    "a crash": (answers(500, b"\xff\x00 boom"), "server error"),
    "a long web page": (answers(500, b"<html>" + b"x" * 200_000), "server error"),
    "a document": (answers(200, b'{"choices":[]}'), "not a stream"),
    "another place": (answers(302, b""), "refused"),
    "a long prompt": (answers(400, b'{"error":{"message":"exceeds the context"}}'), "refused"),
    "an odd prompt": (answers(422, b'{"detail":"prompt"}'), "refused"),
    "a key with an escape": (answers(401, b"no\x1b[2J key"), "refused"),
    "loading": (answers(503, b'{"error":{"message":"Loading model"}}'), "server error"),
    "a reset": (Handler.reset, "transport"),
    "a reset in mid-stream": (_reset, "truncated"),
    "an end in mid-stream": (streams([ROLE, delta(content="a")]), "truncated"),
    "no JSON": (streams([ROLE, b"data: {half\n\n"]), "not a stream"),
    "an error in mid-stream":
        (streams([ROLE, sse({"error": {"message": "CUDA\x1b[0m"}})]), "server error"),
    "fewer tokens than asked for": (streams(reply(4)), "short output"),
    "more tokens than asked for": (streams(said(10**9)), "the server claims"),
    "a count below zero": (streams(said(-8)), "the server does not say"),
    "a count that is no number": (streams(said(math.nan)), "the server does not say"),
    "a count as text": (streams(said("8")), "the server does not say"),
    "a cached prompt": (streams(said(8, cached=5)), "5 tokens"),
    "an error with 200": (answers(200, b'{"error":"oops \\u001b[31mred"}'), "server error"),
    "an error with 200, as an object":
        (answers(200, b'{"error":{"message":"oops"}}'), "server error"),
    "two last counts":
        (streams([*said(8)[:-1], sse({"usage": usage(24)}), DONE]), "the server contradicts"),
    "a last count that falls":
        (streams([*said(24)[:-1], sse({"usage": usage(8)}), DONE]), "the server contradicts"),
    "a count that falls on the way":
        (streams([ROLE, delta(content="so far ", usage=usage(5)),
                  delta(content="so good ", usage=usage(4)), *spoken(4), FINISH,
                  sse({"usage": usage(8)}), DONE]), "the server contradicts"),
    "usage against timings":
        (streams([*said(8)[:-1], sse({"timings": {"predicted_n": 5}}), DONE]),
         "the server contradicts"),
    "tokens without text":
        (streams([ROLE, FINISH, sse({"usage": usage(8)}), DONE]), "garbled: no text"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_run_is_void_and_nothing_is_a_figure(name: str) -> None:
    answer, void = CASES[name]
    for endpoint in ("chat", "completions"):
        protocol = Protocol(max_tokens=TOKENS, runs=2, max_runs=2, warmup=0, endpoint=endpoint)
        with scripted(answer) as server:
            result = Benchmark(server.url, protocol).run()
        asked = [body for body in server.requests if "max_tokens" in body]
        assert len(asked) == (4 if "twice" in name else 2), "once for each run"
        assert len(result.voids) == len(result.runs) == 2
        for found in result.voids:
            assert found["reason"].startswith(void)
            assert "\x1b" not in found["reason"]
            assert len(found["reason"]) < 260
        assert [result.metrics[name].value for name in PER_SAMPLE] == [None] * len(PER_SAMPLE)
        json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.parametrize("last", [[FINISH], [FINISH, sse({"usage": usage(TOKENS)})]])
def test_a_stream_that_was_finished_needs_no_done(last: list[bytes]) -> None:
    got = asked(REQUEST, streams([*COUNTED, *last]))
    assert (got.failure, got.done) == (None, False)
    sample = measure(got, TOKENS)
    assert (sample.void, any("[DONE]" in flag for flag in sample.flags)) == ("", True)


@pytest.mark.parametrize("again", [1, 2])
def test_the_same_count_told_again_is_no_contradiction(again: int) -> None:
    """As vLLM does, whose finish_reason has a usage and is followed by another."""
    end = [delta(finish="length", usage=usage(TOKENS)), *[sse({"usage": usage(TOKENS)})] * again]
    sample = measure(asked(REQUEST, streams([*COUNTED, *end, DONE])), TOKENS)
    assert (sample.void, [f for f in sample.flags if "64 are advised" not in f]) == ("", [])


def test_a_token_of_a_megabyte() -> None:
    """Foreign text of any size costs time, never a wrong count."""
    big = delta(content="x" * 2**20, usage=usage(1))
    end = [FINISH, sse({"usage": usage(TOKENS)}), DONE]
    got = asked(REQUEST, streams([ROLE, big, *COUNTED[2:], *end]))
    sample = measure(got, TOKENS)
    assert got.raw_text == "x" * 2**20 + "".join(passage.words()[1:TOKENS])
    assert (sample.completion_tokens, sample.chunks, sample.void) == (TOKENS, TOKENS, "")


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "EVENT_LIMIT", 2**20)
    got = asked(REQUEST, streams([b"data: " + b"x" * 2**18] * 5))
    assert got.failure is not None
    assert (got.failure.kind, "longer than" in got.failure.text) == (FailureKind.PROTOCOL, True)


@pytest.mark.parametrize(
    "bad",
    [
        {"predicted_ms": math.nan}, {"predicted_ms": -1.0}, {"predicted_ms": 0},
        {"predicted_n": -8}, {"prompt_ms": math.inf}, {"prompt_n": "9"}, {"cache_n": math.nan},
    ],
)  # fmt: skip
def test_timings_that_are_nonsense_give_no_figure(bad: dict[str, Any]) -> None:
    sample = measure(asked(REQUEST, streams(timed(**bad))), TOKENS)
    if "predicted_ms" in bad or "predicted_n" in bad:
        assert sample.server_decode_tok_s is None
    else:
        assert sample.prompt_tok_s is None
    assert all(_sane(sample, name) for name in PER_SAMPLE)


def _sane(sample: Sample, name: str) -> bool:
    value = getattr(sample, name)
    return value is None or 0 <= value < math.inf


def test_a_token_a_minute_is_measured_as_just_that() -> None:
    """On stamps of an hour, since nobody wants to wait for it."""
    minute = 60 * 10**9
    events = [(minute * (n + 1), _said(n + 1)) for n in range(64)]
    events.append((events[-1][0], "[DONE]"))
    got = read_reply(Capture(0, events[-1][0], 200, "text/event-stream", b"", events))
    sample = measure(got, 64)
    assert sample.ttft_s == 60
    assert sample.decode_tok_s == pytest.approx(1 / 60)
    assert sample.tok_s == pytest.approx(1 / 60)
    assert (sample.stall_s, sample.void) == (60, "")


def _said(count: int) -> str:
    choice = {"delta": {"content": "x"}, "finish_reason": "length" if count == 64 else None}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": count}})


def test_an_engine_that_says_nothing_hangs_and_is_not_asked_again() -> None:
    """Three of them, with a baseline that waits to come back, would be a quarter of an hour."""
    hung = streams(spoken(2), 30.0)
    protocol = Protocol(max_tokens=8, runs=9, warmup=0, silence_s=0.2)
    with scripted(hung) as server:
        result = Benchmark(server.url, protocol).run()
    assert [run.error.partition(":")[0] for run in result.runs] == [FailureKind.SILENT]
    assert result.metrics["tok_s"].value is None


def test_a_server_that_drips_is_cut_at_the_end_of_the_budget() -> None:
    """Only a run takes time on this clock: however busy the machine is, one begins."""
    clock = FakeClock()
    slow = streams(spoken(5000), 0.02)
    protocol = Protocol(max_tokens=5000, runs=9, warmup=0, timeout_s=600, budget_s=0.6)
    with scripted(slow) as server:
        result = Benchmark(
            server.url, protocol, clock=clock, progress=lambda *_: clock.sleep(0.6)
        ).run()
    assert len(result.runs) == 1
    assert result.runs[0].error.startswith(FailureKind.TRANSPORT)
    assert result.protocol["budget_s"] == 0.6


@pytest.mark.parametrize(("good", "hung_ones"), [(0, 1), (1, 1), (2, 1), (3, 1), (4, 2)])
def test_whatever_met_the_hang_it_is_the_last_request(good: int, hung_ones: int) -> None:
    """In the warm-up, in the runs, in the prompts of fixed lengths, in each of two streams: no
    other silence is waited for."""
    hung = streams(spoken(2), 30.0)
    protocol = Protocol(max_tokens=8, runs=1, max_runs=1, warmup=1, silence_s=0.2,
                        prompt_lengths=(512, 2048), levels=(2,))  # fmt: skip
    with scripted(*[streams(reply(8))] * good, hung) as server:
        result = Benchmark(server.url, protocol).run()
        assert len(server.requests) == good + hung_ones
    assert bool(result.levels) is (hung_ones > 1)
    assert any("the server hangs" in flag for flag in result.flags)
