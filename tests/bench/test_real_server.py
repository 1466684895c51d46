"""The benchmark against a real llama.cpp server; the figures are compared with its own."""

import threading
from collections.abc import Iterator

import pytest

from console.bench.benchmark import Benchmark, Protocol, tokenize
from console.bench.client import ChatRequest, stream_chat
from console.bench.sample import measure
from console.bench.sse import FailureKind
from tests.bench.embedded import embedded
from tests.bench.scripted import failed
from tests.testbed.models import visible_llama
from tests.waiting import some

pytestmark = pytest.mark.alone
TOKENS = 96


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on a model of 72 MB; a smaller one outruns the client."""
    model = tmp_path_factory.mktemp("server") / "visible.gguf"
    visible_llama(model)
    with embedded(model) as url:
        yield url


def test_a_benchmark_is_valid_and_agrees_with_the_server(url: str) -> None:
    """How close its rate comes to the server's depends on the load; one above it is not kept."""
    result = Benchmark(url, Protocol(max_tokens=TOKENS, runs=2, max_runs=2)).run()
    assert result.voids == []
    assert (result.metrics["runs"].value, result.metrics["error_rate"].value) == (2, 0)
    assert result.model == "visible"
    assert result.cold is not None
    for sample in result.runs:
        assert (sample.completion_tokens, sample.token_source) == (TOKENS, "usage")
        assert sample.server_decode_tok_s is not None
        assert sample.tok_s is not None
        assert sample.prompt_tok_s is not None
        if sample.decode_tok_s is not None:
            assert 0 < sample.decode_tok_s <= 1.05 * sample.server_decode_tok_s


def test_the_plain_endpoint_and_two_streams_at_once(url: str) -> None:
    protocol = Protocol(max_tokens=16, runs=2, max_runs=2, endpoint="completions", levels=(2,))
    result = Benchmark(url, protocol).run()
    assert result.voids == []
    for sample in result.runs:
        assert (sample.completion_tokens, sample.token_source) == (16, "usage")
        assert sample.prompt_tok_s is not None, "nothing came from a cache"
        assert sample.ttft_s is not None
    (level,) = result.levels
    assert (level.valid, level.voids) == (6, {})
    assert level.tok_s is not None
    assert any("1 slot" in flag for flag in result.flags)


def test_events_carry_the_running_count_and_the_tokenizer_answers(url: str) -> None:
    reply = stream_chat(url, ChatRequest("Hello", 16))
    assert reply.failure is None
    assert not reply.events[0].is_text
    counts = [event.tokens for event in reply.events if event.is_text]
    assert None not in counts
    assert counts[-1] == reply.completion_tokens == 16
    assert reply.done
    assert (tokenize(url, "abc") or 0) >= 1


@pytest.mark.parametrize("extras", [True, False])
def test_a_prompt_that_comes_again_is_not_cached_or_void(url: str, extras: bool) -> None:
    """Without the extras a server takes what it has, and that is noticed."""
    request = ChatRequest(f"Remember this, all of it, word by word: {extras}.", 8, extras=extras)
    replies = [stream_chat(url, request) for _ in range(2)]
    timings, again = replies[1].timings, measure(replies[1], 8)
    assert (some(timings).cache_n == 0, again.void == "") == (extras, extras)
    assert (again.prompt_tok_s is None) == (not extras)


def test_a_prompt_beyond_the_context_is_refused(url: str) -> None:
    failure = some(stream_chat(url, ChatRequest("word " * 6000, 8)).failure)
    assert (failure.kind, "context" in failure.text) == (FailureKind.REFUSED, True)


@pytest.mark.full
def test_many_streams_in_a_row_have_no_transport_failure(url: str) -> None:
    replies = [stream_chat(url, ChatRequest("Hello", 2)) for _ in range(25)]
    assert [reply.failure for reply in replies] == [None] * 25
    assert sum(reply.transport_retries for reply in replies) == 0


def test_cancel_in_mid_stream_frees_the_server(url: str) -> None:
    cancelled = threading.Event()
    request = ChatRequest("Tell me everything.", 3900)
    reply = stream_chat(url, request, cancelled=cancelled, on_event=lambda data: cancelled.set())
    assert failed(reply) is FailureKind.CANCELLED
    assert stream_chat(url, ChatRequest("Hello", 4)).failure is None
