"""A whole benchmark against a scripted stand-in."""

import itertools
import json
import socket
import threading
from typing import Any

import pytest

from console.bench import benchmark as protocol
from console.bench.benchmark import Benchmark, Protocol, tokenize
from console.bench.client import PROMPTS
from console.bench.metrics import METRICS
from console.bench.sample import Sample, repeated
from console.rehearsal.demo import passage
from tests.bench.scripted import (
    DONE,
    FINISH,
    ROLE,
    answers,
    reply,
    scripted,
    spoken,
    sse,
    streams,
    usage,
)
from tests.clock import FakeClock
from tests.runtime.serving import serving

GOOD = streams(reply(8))
QUICK = Protocol(max_tokens=8, runs=6, max_runs=6)
INFO: dict[str, Any] = {
    "/props": {"build_info": "b42-\x1b[31mabc", "model_alias": "alias"},
    "/v1/models": {"data": [{"id": "deepseek-v3.2"}]},
}


def test_prompts_are_cycled_behind_a_nonce_and_the_warm_up_is_apart() -> None:
    seen: list[tuple[int, int]] = []
    with scripted(GOOD, documents=INFO) as server:
        result = Benchmark(
            server.url, QUICK, clock=FakeClock(5.0), progress=lambda i, n, _: seen.append((i, n))
        ).run()
    sent = [request["messages"][0]["content"] for request in server.requests]
    assert len(set(sent)) == 7
    assert [text.partition("] ")[2] for text in sent[1:]] == [*PROMPTS, *PROMPTS]
    assert seen == [(number, 6) for number in range(7)]
    assert (len(result.runs), result.cold is None, result.started_at) == (6, False, 5.0)


def test_result_is_json_with_the_names_of_the_table() -> None:
    with scripted(GOOD, documents=INFO) as server:
        result = Benchmark(server.url, QUICK).run()
        Benchmark(server.url, QUICK, model="mine").run()
    assert [request["model"] for request in server.requests[::7]] == ["deepseek-v3.2", "mine"]
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert set(data["metrics"]) == set(METRICS)
    for name, metric in METRICS.items():
        assert data["metrics"][name]["unit"] == metric.unit
        assert data["metrics"][name]["headline"] == metric.headline
    tok_s = data["metrics"]["tok_s"]
    assert tok_s["n"] == len(tok_s["samples"]) == 6
    assert tok_s["value"] == tok_s["mean"]
    assert (data["build_info"], data["model"]) == ("b42-abc", "deepseek-v3.2")
    assert data["voids"] == []


def test_void_runs_are_listed_with_their_reason() -> None:
    script = [GOOD, GOOD, streams(reply(4)), streams(reply(8, cached=5)), answers(500, b""), GOOD]
    with scripted(*script) as server:
        result = Benchmark(server.url, QUICK).run()
    assert [(void["run"], void["reason"][:5]) for void in result.voids] == [
        (2, "short"), (3, "5 tok"), (4, "serve"),
    ]  # fmt: skip
    assert result.metrics["tok_s"].n == 3
    assert result.metrics["error_rate"].value == pytest.approx(1 / 6)
    assert result.metrics["runs"].value == 3


def test_transport_retries_are_counted_and_the_run_is_valid() -> None:
    with scripted(GOOD, answers(400, b""), GOOD) as server:
        result = Benchmark(server.url, QUICK).run()
    assert (result.transport_retries, result.voids) == (1, [])
    assert result.flags[:2] == repeated(1, 7)


def test_a_crowd_s_retries_count_as_well() -> None:
    with scripted(GOOD, GOOD, answers(400, b""), GOOD) as server:
        protocol = Protocol(max_tokens=8, runs=1, max_runs=1, levels=(2,))
        result = Benchmark(server.url, protocol).run()
    assert result.transport_retries == 1
    assert result.flags[:2] == repeated(1, 8)


def test_a_server_that_only_fails_is_left_after_three_runs() -> None:
    with scripted(answers(500, b"")) as server:
        result = Benchmark(server.url, QUICK).run()
    assert len(result.runs) == 3
    assert result.metrics["tok_s"].value is None
    assert result.metrics["error_rate"].value == 1.0
    assert any("in a row" in flag for flag in result.flags)


def test_refused_extras_are_not_sent_again() -> None:
    refusal = answers(422, b'{"detail":"extra_forbidden"}')
    with scripted(refusal, GOOD) as server:
        result = Benchmark(server.url, QUICK).run()
    assert len(server.requests) == 8
    assert sum("cache_prompt" in request for request in server.requests) == 1
    assert any("refuses" in flag for flag in result.flags)


def test_it_goes_on_while_the_runs_disagree() -> None:
    """On a clock that goes a thousand times as far in every second run."""
    now, steps = [0], itertools.cycle([10**6, 10**9])

    def ticks() -> int:
        now[0] += step[0]
        return now[0]

    step = [10**6]
    with scripted(GOOD) as server:
        result = Benchmark(
            server.url, Protocol(max_tokens=8, runs=2, max_runs=5), clock_ns=ticks,
            progress=lambda *_: step.__setitem__(0, next(steps)),
        ).run()  # fmt: skip
    assert len(result.runs) == 5
    assert any("5.0%" in flag for flag in result.flags), "the target is told"


def test_it_stops_as_soon_as_the_runs_agree() -> None:
    """On a clock of its own, and with room for what one read brings together."""
    stamps = itertools.count(0, 10**6)
    with scripted(GOOD) as server:
        result = Benchmark(
            server.url, Protocol(max_tokens=8, runs=3, max_runs=9, cv_target=50.0),
            clock_ns=lambda: next(stamps),
        ).run()  # fmt: skip
    assert len(result.runs) == 3


def test_a_void_run_is_made_up_for_within_the_bounds() -> None:
    script = [GOOD, GOOD, streams(reply(4)), GOOD]
    with scripted(*script) as server:
        result = Benchmark(
            server.url, Protocol(max_tokens=8, runs=4, max_runs=6, cv_target=99)
        ).run()
    assert len(result.runs) == 5
    assert (result.metrics["tok_s"].n, len(result.voids)) == (4, 1)


def test_a_server_that_is_always_void_is_not_asked_for_longer() -> None:
    with scripted(streams(reply(4))) as server:
        result = Benchmark(server.url, Protocol(max_tokens=8, runs=4, max_runs=9)).run()
    assert (len(result.runs), len(result.voids)) == (4, 4)


def test_the_plain_endpoint_has_the_same_figures() -> None:
    parts = [_text(word, usage(n)) for n, word in enumerate(passage.words()[:8], 1)]
    with scripted(streams([*parts, _text("", usage(8), finish="length"), DONE])) as server:
        protocol = Protocol(max_tokens=8, runs=2, max_runs=2, endpoint="completions")
        result = Benchmark(server.url, protocol).run()
    assert result.voids == []
    assert (result.metrics["tok_s"].n, result.runs[0].completion_tokens) == (2, 8)
    assert result.protocol["endpoint"] == "completions"
    assert [text.partition("] ")[2] for text in (r["prompt"] for r in server.requests)] == [
        PROMPTS[0], PROMPTS[0], PROMPTS[1],
    ]  # fmt: skip


def _text(text: str, counts: dict[str, Any], finish: str | None = None) -> bytes:
    """A chunk of /v1/completions."""
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return sse({"choices": [choice], "usage": counts})


def test_cancel_keeps_what_was_measured() -> None:
    cancelled = threading.Event()

    def stop(number: int, _: int, __: Sample) -> None:
        if number == 2:
            cancelled.set()

    with scripted(GOOD) as server:
        result = Benchmark(server.url, QUICK, cancelled=cancelled, progress=stop).run()
    assert result.cancelled
    assert len(result.runs) == 2
    assert result.metrics["error_rate"].value == 0.0


def test_without_usage_the_tokenizer_counts() -> None:
    parts = [ROLE, *spoken(4), FINISH, DONE]
    with scripted(streams(parts), documents={"/tokenize": {"tokens": list(range(8))}}) as server:
        result = Benchmark(server.url, QUICK).run()
        assert tokenize(server.url, "x") == 8
    assert result.voids == []
    assert result.runs[0].token_source == "tokenizer"


@pytest.mark.parametrize(
    "document", [[], {"data": 5}, {"data": [5]}, {"data": [{"id": 7}]}, {"data": []}]
)
def test_odd_server_information_is_no_error(document: object) -> None:
    with scripted(GOOD, documents={"/v1/models": document, "/props": {"build_info": 7}}) as server:
        result = Benchmark(server.url, QUICK).run()
    assert (result.model, result.build_info, result.voids) == ("", "", [])


def test_a_password_in_the_address_is_not_kept() -> None:
    with scripted(GOOD) as server:
        result = Benchmark(server.url.replace("//", "//me:secret@"), QUICK).run()
    assert result.url == server.url
    assert "secret" not in json.dumps(result.to_json())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"prompts": ()}, "one"), ({"runs": 0}, "one"), ({"max_tokens": 1}, "one"),
        ({"warmup": -1}, "one"), ({"levels": (1,)}, "2 to 64"), ({"levels": (4, 65)}, "2 to 64"),
    ],
)  # fmt: skip
def test_what_measures_nothing_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Protocol(**wrong)


def test_a_server_that_drips_its_head_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the whole never does."""
    monkeypatch.setattr(protocol, "INFO_S", 0.5)
    over = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(b"HTTP/1.1 200 OK\r\n")
        while not over.wait(0.05):
            peer.sendall(b"X")

    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, drip):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert protocol.fetch_json(url, "/v1/models") == {}
        over.set()
