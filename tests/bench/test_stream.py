"""Server-sent events, and what a stream of them says."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.sse import (
    EVENT_LIMIT,
    Capture,
    Failure,
    FailureKind,
    Reply,
    SseParser,
    read_reply,
)
from tests.bench.scripted import failed
from tests.waiting import some

STREAM = (
    "\ufeffdata: one\r\n\r\n"
    ": ping\n\n"
    "event: message\nid: 7\ndata: two\r\ndata:lines\n\n"
    "data: grüße 🌍\r\r"
    "data\n\n"
    "retry: 5\n\n"
    "data: [DONE]\n\n"
)
EVENTS = ["one", "two\nlines", "grüße 🌍", "", "[DONE]"]


def parse(*chunks: bytes) -> list[str]:
    parser = SseParser()
    return [data for chunk in chunks for data in parser.feed(chunk)] + list(parser.close())


def read(*events: object, failure: Failure | None = None) -> Reply:
    data = [event if isinstance(event, str) else json.dumps(event) for event in events]
    stamped = [(1000 * (i + 1), text) for i, text in enumerate(data)]
    return read_reply(Capture(0, 10_000, 200, "text/event-stream", b"", stamped, failure))


def chunk(finish: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"delta": delta, "finish_reason": finish}]}


def test_a_refusal_in_words_is_an_answer() -> None:
    got = read(chunk(refusal="I cannot "), chunk(refusal="say that."), chunk("stop"), "[DONE]")
    assert got.answer == "I cannot say that."
    assert [event.is_answer for event in got.events] == [True, True, False]


def test_comments_multi_line_data_and_all_line_ends() -> None:
    assert parse(STREAM.encode()) == EVENTS
    assert parse(*(bytes([byte]) for byte in STREAM.encode())) == EVENTS


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=12))
def test_events_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    data = STREAM.encode()
    edges = [0, *sorted(cuts), len(data)]
    assert parse(*(data[a:b] for a, b in itertools.pairwise(edges))) == EVENTS


@given(st.binary(max_size=400))
def test_any_bytes_are_parsed_without_an_error(data: bytes) -> None:
    parse(data)


def test_an_event_without_its_blank_line_is_dropped_but_done_counts() -> None:
    assert parse(b'data: {"half') == []
    assert parse(b"data: [DONE]") == ["[DONE]"]


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than"):
        parse(b"data: " + b"x" * EVENT_LIMIT)


def test_an_event_of_endless_lines_is_refused_and_many_events_are_not() -> None:
    line = b"data: " + b"x" * 2**16 + b"\n"
    most = EVENT_LIMIT // len(line)
    with pytest.raises(ValueError, match="longer than"):
        parse(*[line] * (most + 1))
    assert len(parse(*[line + b"\n"] * (most + 2))) == most + 2


def test_only_text_is_text() -> None:
    reply = read(
        chunk(role="assistant", content=None),
        chunk(role="assistant", content="") | {"prompt_progress": {"total": 9, "processed": 0}},
        chunk(reasoning_content="hm"),
        chunk(reasoning="hm"),
        chunk(content="a"),
        chunk(tool_calls=[{"index": 0}]),
        chunk("stop"),
        {"choices": [{"text": ""}]},  # of a plain completion
        {"choices": [{"text": "b"}]},
        {"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 3}},
        "[DONE]",
    )
    carried = ["answer" if e.is_answer else "text" if e.is_text else "-" for e in reply.events]
    assert carried == ["-", "-", "text", "text", "answer", "text", "-", "-", "answer", "-"]
    assert reply.raw_text == 'hmhma[{"index": 0}]b'
    assert (reply.completion_tokens, reply.prompt_tokens) == (4, 3)
    assert (reply.done, reply.failure) == (True, None)


def test_thinking_is_taken_from_the_details_of_a_usage() -> None:
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}}
    assert read(chunk(content="a"), {"choices": [], "usage": usage}).reasoning_tokens == 5
    odd = {"completion_tokens": 9, "completion_tokens_details": "none"}
    assert read(chunk(content="a"), {"choices": [], "usage": odd}).reasoning_tokens is None


def test_a_later_usage_without_a_count_keeps_the_earlier_one() -> None:
    reply = read(chunk(content="a") | {"usage": {"completion_tokens": 1, "prompt_tokens": 9}},
                 chunk("stop") | {"usage": {"completion_tokens": 2}})  # fmt: skip
    assert (reply.completion_tokens, reply.prompt_tokens) == (2, 9)


def test_running_counts_come_from_usage_or_timings() -> None:
    reply = read(
        chunk(content="a") | {"timings": {"predicted_n": 3, "predicted_ms": 1.5, "cache_n": 0}},
        chunk(content="b") | {"usage": {"completion_tokens": 7}},
        chunk("stop"),
    )
    assert [event.tokens for event in reply.events] == [3, 7, None]
    assert some(reply.timings).cache_n == 0


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-3", "true", '"5"', "null", "1e999", "[]"])
def test_numbers_that_are_none(bad: str) -> None:
    reply = read(f'{{"usage": {{"completion_tokens": {bad}}}, "timings": {{"cache_n": {bad}}}}}')
    assert reply.completion_tokens is None
    assert some(reply.timings).cache_n is None


@pytest.mark.parametrize(
    "event",
    [
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"delta": 5}]},
        {"choices": [{"delta": {"content": ["x"], "reasoning": 7, "tool_calls": "no"}}]},
        {"choices": {}, "usage": 3, "timings": "x"},
    ],
)
def test_odd_shapes_are_no_text(event: object) -> None:
    assert not any(e.is_text for e in read(event, "[DONE]").events)


@pytest.mark.parametrize("event", ["<html>", "[1]", "[" * 100_000, '"text"'])
def test_an_event_that_is_no_object_ends_the_reading(event: str) -> None:
    assert failed(read(chunk(content="a"), event, "[DONE]")) is FailureKind.PROTOCOL


def test_empty_data_keeps_a_connection_alive_and_means_nothing() -> None:
    reply = read("", chunk(content="a"), " ", chunk("stop"))
    assert (len(reply.events), reply.failure) == (2, None)


def test_a_stream_without_an_end_is_truncated() -> None:
    failure = some(read(chunk(role="assistant"), chunk(content="a")).failure)
    assert (failure.kind, "2 events" in failure.text) == (FailureKind.TRUNCATED, True)


def test_a_connection_lost_after_the_finish_is_no_failure() -> None:
    lost = Failure(FailureKind.TRUNCATED, "peer closed connection")
    assert read(chunk(content="a"), chunk("length"), failure=lost).failure is None
    assert read(chunk(content="a"), failure=lost).failure is lost


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "Loading model"}, FailureKind.SERVER),
        ({"code": 400, "message": "too long"}, FailureKind.REFUSED),
        ("out of memory", FailureKind.SERVER),
    ],
)
def test_an_error_in_mid_stream_has_its_class(error: object, kind: FailureKind) -> None:
    assert failed(read(chunk(content="a"), {"error": error})) is kind


def test_foreign_text_is_clean() -> None:
    reply = read(chunk(content="a\x1b[2Jb\nc"), {"error": {"message": "\x1b]0;x\x07boom\n\u202e"}})
    assert reply.failure is not None
    assert "\x1b" not in str(reply.failure)
    assert "boom" in str(reply.failure)
    assert "\x1b" not in repr(reply)
