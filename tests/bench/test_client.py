"""Requests against a scripted stand-in: shapes, errors, retries and cancel of the client; and of a
soak's requests what is heard, what is cut, what counts as good."""

import re
import threading
from collections.abc import Callable

import httpx
import pytest

from console.bench import client
from console.bench.answers import failure_of
from console.bench.client import ChatRequest, endpoint, stream_chat
from console.bench.sample import measure
from console.bench.soak_requests import EMPTY, Asker, Out
from console.bench.sse import FailureKind
from tests.bench.scripted import (
    DONE,
    FINISH,
    ROLE,
    Answer,
    Handler,
    answers,
    asked,
    delta,
    failed,
    reply,
    scripted,
    sse,
    streams,
    usage,
)
from tests.ports import free_port
from tests.waiting import LIMIT_S, until

REQUEST = ChatRequest("Hello", 4)
EMPTY_400 = answers(400, b"")


def test_what_is_sent() -> None:
    with scripted(streams(reply(4))) as server:
        got = stream_chat(server.url, ChatRequest("Hello", 4, 7, "m"))
    assert got.failure is None
    assert server.requests == [{
        "model": "m", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4,
        "temperature": 0, "seed": 7, "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "cache_prompt": False, "ignore_eos": True, "timings_per_token": True,
    }]  # fmt: skip


def test_a_plain_completion_is_asked_for_at_its_own_path() -> None:
    with scripted(streams(reply(4)), documents={"/v1/chat/completions": {}}) as server:
        stream_chat(server.url, ChatRequest("Hello", 4, 7, "m", endpoint="completions"))
    (body,) = server.requests
    assert (body["prompt"], "messages" in body) == ("Hello", False)
    chat = ChatRequest("Hello", 4, 7, "m").body()
    assert {k: v for k, v in body.items() if k != "prompt"} == {
        k: v for k, v in chat.items() if k != "messages"
    }


def test_a_delayed_first_token_is_not_hidden_by_role_ping_or_progress() -> None:
    progress = b'data: {"choices":[],"prompt_progress":{"total":9,"processed":3}}\n\n'
    parts = [ROLE, b": ping\n\n", progress, delta(reasoning_content="hm"), delta(content="a")]
    got = asked(REQUEST, streams([*parts, FINISH, DONE], 0.05))
    stamps = [got.started_ns, *(event.at_ns for event in got.events), got.ended_ns]
    assert stamps == sorted(stamps)
    text = [event for event in got.events if event.is_text]
    assert [event.is_answer for event in text] == [False, True]
    assert text[0].at_ns - got.started_ns >= 0.13e9  # three pauses came before it


def test_a_connection_that_stays_open_after_done_is_left() -> None:
    closed = threading.Event()

    def holds_on(handler: Handler) -> None:
        handler.stream(reply(4))
        handler.server.stop.wait(60)
        closed.set()

    with scripted(holds_on) as server:
        got = stream_chat(server.url, REQUEST)
        assert (got.failure, closed.is_set()) == (None, False)


def test_an_empty_400_is_tried_once_more_and_counted() -> None:
    with scripted(EMPTY_400, streams(reply(4))) as server:
        got = stream_chat(server.url, REQUEST)
    assert (got.failure, got.transport_retries, len(server.requests)) == (None, 1, 2)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b'{"error":{"message":"Unrecognized request argument supplied: cache_prompt"}}'),
        (422, b'{"detail":[{"type":"extra_forbidden","msg":"Extra inputs are not permitted"}]}'),
    ],
)
def test_refused_extras_are_left_out_once(status: int, body: bytes) -> None:
    with scripted(answers(status, body), streams(reply(4))) as server:
        got = stream_chat(server.url, REQUEST)
    assert (got.failure, got.extras_refused) == (None, True)
    assert "cache_prompt" not in server.requests[1]
    assert server.requests[1]["stream_options"] == {"include_usage": True}


def test_nobody_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert failed(stream_chat(url, REQUEST)) is FailureKind.TRANSPORT


def test_a_silence_is_told_apart_from_an_end() -> None:
    """Which of the two a deadline meets first is a matter of moments."""
    silence = client._transport(httpx.ReadTimeout("x"), streaming=True)
    assert (silence.kind, silence.text) == (FailureKind.TRANSPORT, "timeout, ReadTimeout")
    ended = httpx.RemoteProtocolError("peer closed")
    found = [client._transport(ended, streaming).kind for streaming in (True, False)]
    assert found == [FailureKind.TRUNCATED, FailureKind.TRANSPORT]


def test_a_stream_that_the_server_resets_is_cut_short_by_the_server() -> None:
    """A benchmark of the baseline whose every stream was reset said nothing of its state."""
    heard: list[str] = []

    def resets(handler: Handler) -> None:
        handler.stream([delta(content="one"), delta(content="two")])
        until(lambda: len(heard) == 2, "the client has read both tokens")
        handler.reset()

    with scripted(resets) as server:
        got = stream_chat(server.url, REQUEST, on_event=heard.append)
    assert failed(got) is FailureKind.TRUNCATED
    assert "reset" in failure_of(server.url, [measure(got, REQUEST.max_tokens)])


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://x", "http://[::bad", "http://\x00"])
def test_an_address_that_is_none(url: str) -> None:
    assert stream_chat(url, REQUEST, timeout_s=2).failure is not None


def _silent(handler: Handler) -> None:
    """Nothing for a minute; then it answers after all."""
    if not handler.server.stop.wait(60):
        handler.stream(reply(4))


def _drip(handler: Handler) -> None:
    handler.stream([delta(content="a")] * 2000, 0.01)


@pytest.mark.parametrize("answer", [_silent, _drip])
def test_the_whole_exchange_has_a_deadline(answer: Answer) -> None:
    assert failed(asked(REQUEST, answer, timeout_s=0.4)) is FailureKind.TRANSPORT


@pytest.mark.parametrize("answer", [_silent, _drip])
def test_cancel_ends_a_silent_and_a_talking_server(answer: Answer) -> None:
    cancelled = threading.Event()

    def cancels(handler: Handler) -> None:
        threading.Timer(0.05, cancelled.set).start()
        answer(handler)

    assert failed(asked(REQUEST, cancels, cancelled=cancelled)) is FailureKind.CANCELLED


def test_cancelled_before_it_began_sends_nothing() -> None:
    cancelled = threading.Event()
    cancelled.set()
    with scripted(streams(reply(4))) as server:
        got = stream_chat(server.url, REQUEST, cancelled=cancelled)
    assert (failed(got), server.requests) == (FailureKind.CANCELLED, [])


def test_proxies_in_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asked(REQUEST, streams(reply(4))).failure is None


def test_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the one that watches takes its time to end."""
    real = client._Watch._run

    def lingers(watch: client._Watch) -> None:
        real(watch)
        threading.Event().wait(0.05)

    monkeypatch.setattr(client._Watch, "_run", lingers)
    asked(REQUEST, streams(reply(4)))
    assert not [t for t in threading.enumerate() if t.name == "stream-watch"]


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])
def test_endpoint(url: str) -> None:
    assert endpoint(url, "/props") == "http://h:1/props"


# -- requests of a soak ------------------------------------------------------------------------


def ended(out: Out) -> Out:
    assert out.ended.wait(LIMIT_S)
    return out


def test_a_good_answer() -> None:
    """Each request has a nonce of its own, so that nothing of it is cached."""
    with scripted(streams(reply(16), 0.002)) as server:
        asker = Asker(server.url, 16, "m")
        for out in (ended(asker("Hello")), ended(asker("Hello"))):
            answer = out.answer()
            assert (answer.error, answer.void, out.heard) == ("", "", 16)
            assert answer.sample.tok_s is not None
            assert answer.sample.ttft_s is not None
    for body in server.requests:
        assert re.fullmatch(r"\[\w{16}\] Hello", body["messages"][0]["content"])
        assert (body["temperature"], body["max_tokens"], body["model"]) == (0, 16, "m")
    first, second = (body["messages"] for body in server.requests)
    assert first != second


def test_a_short_answer_is_good_and_its_rate_counts() -> None:
    """Its first event brings text already: that is heard as well."""
    with scripted(streams(reply(4)[1:], 0.002)) as server:
        out = ended(Asker(server.url, 128)("Hello"))
        answer = out.answer()
    assert (answer.error, answer.void, answer.sample.void, out.heard) == ("", "", "", 4)
    assert answer.sample.tok_s is not None


@pytest.mark.parametrize(
    ("parts", "void"),
    [
        (reply(8, cached=5), "cache"),
        (reply(64), "more than the 8 asked for"),
        ([ROLE, delta(content="x"), FINISH, DONE], "does not say how many"),
    ],
)
def test_an_answer_whose_rate_does_not_count(parts: list[bytes], void: str) -> None:
    with scripted(streams(parts)) as server:
        answer = ended(Asker(server.url, 8)("Hello")).answer()
    assert answer.error == ""
    assert void in answer.void


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (answers(500, b'{"error": {"message": "slot \x1b[31mgone"}}'), "server error", "slot gone"),
        (lambda handler: handler.reset(), "transport", ""),
        (streams([ROLE, FINISH, sse({"choices": [], "usage": usage(0)}), DONE]), EMPTY, "text"),
    ],
)  # fmt: skip
def test_errors_have_a_class(answer: Callable[[Handler], None], error: str, words: str) -> None:
    with scripted(answer) as server:
        found = ended(Asker(server.url, 16)("Hello")).answer()
    assert found.error == error
    assert words in found.words
    assert "\x1b" not in found.words


def test_only_text_is_heard_and_a_silent_request_can_be_cut() -> None:
    """A role, a progress report and pings are what a server sends that generates nothing."""
    silence = threading.Event()

    def mute(handler: Handler) -> None:
        progress = sse({"choices": [], "prompt_progress": {"processed": 1}})
        handler.stream([ROLE, progress, b": ping\n\n", delta(content="x"), b": ping\n\n"])
        silence.wait(LIMIT_S)

    with scripted(mute) as server:
        out = Asker(server.url, 16)("Hello")
        try:
            until(lambda: out.heard > 0, "a token")
            assert out.heard == 1
            with pytest.raises(RuntimeError, match="before the request has ended"):
                out.answer()
            out.cut()
            assert ended(out).answer().error == "cancelled"
        finally:
            silence.set()
