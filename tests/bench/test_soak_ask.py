"""A soak's requests against a scripted server: what is heard, what is cut, what counts as good."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import pytest

from console.bench.soak import EMPTY, Asker, Out
from tests.bench.scripted import (
    DONE,
    FINISH,
    ROLE,
    Handler,
    answers,
    delta,
    reply,
    scripted,
    sse,
    streams,
    usage,
)
from tests.waiting import LIMIT_S, until


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
