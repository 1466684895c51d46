"""Stand-ins of engines that are not llama.cpp: they send what the real ones send, and no more."""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.bench.benchmark import Benchmark, Protocol, model_of, tokenize
from console.bench.llama_bench import read_figures
from console.bench.soak_requests import context_of
from console.rehearsal.inside import relay
from console.rehearsal.inside.dialect import CHAT, PLAIN, SGLANG, VLLM, Server
from console.rehearsal.inside.ik_llama import bench_entry, named, refused
from console.rehearsal.inside.settings import VARIABLE, Settings, packed
from console.runtime.answers.completion import complete
from console.runtime.probe import Health, health
from tests.children import running
from tests.ports import free_port
from tests.testbed.models import tiny_llama, visible_llama
from tests.waiting import until

pytestmark = pytest.mark.alone
SERVE = (
    "import sys; from console.rehearsal.inside import server; "
    "server.MODEL = sys.argv[1]; sys.exit(server.main(sys.argv[2], sys.argv[3:]))"
)
STARTS = {
    "sglang": ("sglang.launch_server", "--model-path", "/models/r1", "--context-length", "2048"),
    "vllm": ("vllm", "serve", "/models/r1", "--max-model-len", "2048"),
    "ktransformers": ("ktransformers.server.main", "--model_path", "/models/r1"),
}
IK_IMAGE = "omni/ik-llama:sm120"
IK = ("llama-server", "--model", "/models/r1.gguf", "--ctx-size", "2048", "-mla", "3", "-fmoe")
ALIVE = "/v1/models"
LLAMA_ONLY = {"timings", "system_fingerprint", "prompt_progress"}
ASK: dict[str, Any] = {"model": "", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
Document = tuple[int, bytes]


@contextmanager
def serving(model: Path, engine: str, fault: str = "") -> Iterator[str]:
    """The stand-in of an engine, as its image starts it; its address, once it answers."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    start = IK if engine == "ik" else STARTS[engine]
    argv = [sys.executable, "-c", SERVE, str(model), *start, "--port", str(port)]
    log = model.with_suffix(f".{engine}.log")
    image = IK_IMAGE if engine == "ik" else "stand-in"
    told = {VARIABLE: packed(Settings(image=image, fault=fault))}
    with (
        log.open("wb") as out,
        running(argv, stdout=out, stderr=out, env={**os.environ, **told}) as child,
    ):

        def answers() -> bool:
            assert child.poll() is None, log.read_text()[-2000:]
            return health(url, ALIVE)[0] is Health.SERVING

        until(answers, "the stand-in answers", where=log.read_text)
        yield url
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0, log.read_text()[-2000:]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """The address of an engine's stand-in; each is started once."""
    model = tmp_path_factory.mktemp("dialects") / "visible.gguf"
    visible_llama(model)
    engines = [*STARTS, "ik"]
    with_all = [serving(model, engine) for engine in engines]
    urls = {engine: one.__enter__() for engine, one in zip(engines, with_all, strict=True)}
    yield urls.__getitem__
    for one in with_all:
        one.__exit__(None, None, None)


def got(url: str, path: str, body: dict[str, Any] | None = None) -> Document:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def found(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    status, data = got(url, path, body)
    assert status == 200, (path, data)
    answer: dict[str, Any] = json.loads(data)
    return answer


def streamed(url: str, path: str, **body: Any) -> list[dict[str, Any]]:
    asked = (
        {"prompt": "Hello"} if path == PLAIN else {"messages": [{"role": "user", "content": "Hi"}]}
    )
    status, data = got(url, path, {**ASK, "model": model_of(url), "stream": True, **asked, **body})
    assert status == 200, data
    *events, done = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line]
    assert done == b"[DONE]"
    return [json.loads(one) for one in events]


@pytest.mark.parametrize("engine", STARTS)
def test_nothing_of_llama_cpp_is_there(at: Callable[[str], str], engine: str) -> None:
    url = at(engine)
    for path in ("/props", "/slots", "/metrics"):
        assert got(url, path)[0] == 404, path
    assert got(url, "/completion", {"prompt": "x"})[0] == 404
    every = {"include_usage": True, "continuous_usage_stats": True}
    for path in (CHAT, PLAIN):
        for event in streamed(url, path, stream_options=every, timings_per_token=True):
            assert not LLAMA_ONLY & set(event)


def test_health_and_what_else_is_asked(at: Callable[[str], str]) -> None:
    assert [got(at("sglang"), path) for path in ("/health", "/health_generate")] == [(200, b"")] * 2
    assert got(at("vllm"), "/health") == (200, b"")
    assert got(at("ktransformers"), "/health")[0] == 404, "it has none"
    info = found(at("sglang"), "/get_model_info")
    assert (info["model_path"], info["is_generation"]) == ("/models/r1", True)
    assert found(at("sglang"), "/get_server_info")["context_length"] == 2048
    assert found(at("vllm"), "/version").keys() == {"version"}
    assert got(at("vllm"), "/get_model_info")[0] == got(at("sglang"), "/version")[0] == 404


def test_models_and_tokens(at: Callable[[str], str]) -> None:
    for engine in ("sglang", "vllm"):
        (card,) = found(at(engine), "/v1/models")["data"]
        assert (card["id"], card["owned_by"], card["max_model_len"]) == ("/models/r1", engine, 2048)
        tokens = found(at(engine), "/tokenize", {"prompt": "one two three"})
        assert tokens["count"] == len(tokens["tokens"]) > 2
        assert tokens["max_model_len"] == 2048
        assert got(at(engine), "/tokenize", {"content": "llama.cpp's form"})[0] == 400
    (card,) = found(at("ktransformers"), "/v1/models")["data"]
    assert card.keys() == {"id", "name"}
    assert tokenize(at("ktransformers"), "x") is None


def test_usage_only_where_it_is_asked_for(at: Callable[[str], str]) -> None:
    for engine in ("sglang", "vllm"):
        url = at(engine)
        assert not any(one.get("usage") for one in streamed(url, CHAT))
        *rest, last = streamed(url, CHAT, stream_options={"include_usage": True})
        assert not any(one.get("usage") for one in rest)
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 4)
        assert last["usage"]["prompt_tokens_details"] is None
        every = {"include_usage": True, "continuous_usage_stats": True}
        usages = [one.get("usage") for one in streamed(url, PLAIN, stream_options=every)]
        told = [usage["completion_tokens"] for usage in usages if usage]
        assert told == sorted(told)
        assert (len(told) > 2, told[-1]) == (True, 4)
    assert found(at("sglang"), PLAIN, {"prompt": "x", "max_tokens": 2})["usage"].keys() >= {
        "prompt_tokens_details", "reasoning_tokens",
    }  # fmt: skip


def test_ktransformers_counts_a_chat_unasked_and_a_plain_completion_never(
    at: Callable[[str], str],
) -> None:
    *text, counted, end = streamed(at("ktransformers"), CHAT)
    assert (counted["choices"], counted["usage"]["completion_tokens"]) == ([], 4)
    assert end["choices"][0]["finish_reason"] == "stop"
    assert all(one["usage"] is None for one in text)
    *text, end = streamed(at("ktransformers"), PLAIN)
    assert all(one.keys() == {"choices"} and one["choices"][0].keys() == {"delta"} for one in text)
    assert end == {"choices": [{"delta": {"content": ""}, "finish_reason": ""}]}


def test_ik_llama_says_what_it_says_in_its_own_form(at: Callable[[str], str]) -> None:
    url = at("ik")
    health_told = {"status": "ok", "slots_idle": 1, "slots_processing": 0}
    assert found(url, "/health") == health_told
    props = found(url, "/props")
    assert ("build_info" in props, props["n_ctx"], context_of(url)) == (False, 2048, 2048)
    (slot,) = json.loads(got(url, "/slots")[1])
    assert ("is_processing" in slot, slot["state"]) == (False, 0)
    (card,) = found(url, "/v1/models")["data"]
    assert (card["id"], card["max_model_len"]) == ("r1", 2048)
    every = {"include_usage": True}
    *_, end, counted = streamed(url, CHAT, stream_options=every, timings_per_token=True)
    assert end["choices"][0]["finish_reason"] == "stop", "also where the limit ended it"
    assert counted["usage"]["completion_tokens"] == 4
    timings = counted["timings"]
    assert ("cache_n" in timings, timings["predicted_n"], timings["n_ctx"]) == (False, 4, 2048)
    assert not any("system_fingerprint" in one for one in streamed(url, PLAIN))
    assert got(url, CHAT, {"messages": 7})[0] >= 400


def test_llama_bench_of_ik_llama_takes_its_own_flags_with_values() -> None:
    usual = ["-m", "x.gguf", "-ngl", "19", "-ts", "75/25", "-b", "512", "-fa", "1", "-t", "96",
             "-r", "5", "-o", "json"]  # fmt: skip
    further = ["-mla", "3", "-fmoe", "1", "-rtr", "1", "-ot", "exps=CPU"]
    assert refused(usual) == refused([*usual, *further, "--fused_moe", "1"]) == ""
    assert refused([*usual, "-fmoe"]).endswith(": -fmoe")
    assert refused(["-fmoe", "-rtr", "1", *usual]).endswith(": 1"), "a switch of its server"
    assert refused([*usual, "-c", "8192"]).endswith(": -c")
    entry = {"n_prompt": 0, "n_gen": 128, "n_depth": 0, "samples_ns": [10**9] * 3,
             "samples_ts": [128.0] * 3, "avg_ts": 128.0, "stddev_ts": 0.0}  # fmt: skip
    made = bench_entry(entry)
    assert (made["test"], "n_depth" in made) == ("tg128", False)
    figures = read_figures(json.dumps([made]), "llama-bench")
    assert figures.metrics["tg_tok_s"]["n"] == 3


def test_an_image_or_a_path_says_that_it_is_ik_llama() -> None:
    sandbox = "/w/sandbox/ik_llama.cpp/package/bin/llama-bench"
    assert all(named(one) for one in (IK_IMAGE, sandbox, "ghcr.io/x/ik-llama.cpp:main"))
    assert not any(named(one) for one in ("omni/llama-server:sm120", "omni/mik-llama:1", ""))


def test_every_other_long_answer_is_late_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda s: now.__setitem__(0, now[0] + s))

    def answer(tokens: int) -> Iterator[dict[str, Any]]:
        for number in range(1, tokens + 1):
            now[0] += 0.01
            told = {"predicted_n": number, "predicted_ms": number * 10.0}
            yield {"choices": [{"text": "x"}], "timings": told}

    pace = relay.Pace(5.0)
    rates = []
    for tokens in (16, 2, 16, 16, 2, 16):
        began, events = now[0], list(pace({"max_tokens": tokens}, answer(tokens)))
        told = events[-1]["timings"]
        rates.append(round(tokens / (now[0] - began)))
        assert told["predicted_ms"] == pytest.approx((now[0] - began) * 1000, abs=11)
    assert rates == [100, 100, 5, 100, 100, 5], "short answers do not count"


def test_an_unsteady_stand_in_of_llama_cpp_itself(tmp_path: Path) -> None:
    tiny_llama(model := tmp_path / "tiny.gguf")
    with faulty(model, "grey", IK[:5], unsteady=20.0) as (_, url):
        until(lambda: health(url)[0] is Health.SERVING, "the stand-in answers")
        assert "build_info" in found(url, "/props"), "it is llama.cpp all the same"
        result = Benchmark(url, Protocol(max_tokens=16, runs=4, max_runs=4, warmup=0)).run()
    assert result.voids == []
    slow = [one.tok_s for one in result.runs[1::2]]
    assert all(one is not None and one < 22 for one in slow), slow


def test_what_is_refused_is_refused_in_the_engines_own_words(at: Callable[[str], str]) -> None:
    status, data = got(at("sglang"), CHAT, {"model": "x"})
    assert (status, json.loads(data)["object"]) == (400, "error")
    status, data = got(
        at("vllm"), CHAT, {"model": "another", "messages": [{"role": "user", "content": "x"}]}
    )
    assert (status, json.loads(data)["error"]["type"]) == (404, "NotFoundError")
    status, data = got(at("ktransformers"), CHAT, {"messages": [{"role": "user", "content": "x"}]})
    assert (status, "model" in json.loads(data)["detail"]) == (422, True)
    for engine, inner in (("sglang", ()), ("vllm", ("error",))):
        status, data = got(at(engine), PLAIN, {"prompt": "word " * 3000, "max_tokens": 2})
        told = functools.reduce(lambda tree, key: tree[key], inner, json.loads(data))
        assert (status, told["code"], told["param"]) == (400, 400, None)
        assert "context" in told["message"]


def test_a_rate_of_prompts_is_estimated_as_with_the_real_sglang(at: Callable[[str], str]) -> None:
    protocol = Protocol(
        prompts=("Hello",), max_tokens=16, runs=3, max_runs=3, endpoint="completions",
        prompt_lengths=(512,),
    )  # fmt: skip
    result = Benchmark(at("sglang"), protocol).run()
    assert (result.voids, result.model, result.build_info) == ([], "/models/r1", "")
    assert [one.token_source for one in result.runs] == ["usage"] * 3
    (rate,) = result.prompt_rates
    assert (rate.estimated, rate.why) == (True, "")
    assert result.metrics["prompt_tok_s"].estimated
    assert all(one.prompt_tok_s is None for one in result.runs), "it reports no timings"


@pytest.mark.parametrize("engine", [*STARTS, "ik"])
def test_a_benchmark_and_a_proof_work_with_each(at: Callable[[str], str], engine: str) -> None:
    result = Benchmark(at(engine), Protocol(max_tokens=8, runs=2, max_runs=2)).run()
    assert result.voids == []
    assert [one.completion_tokens for one in result.runs] == [8, 8]
    assert complete(at(engine), model=model_of(at(engine))).ok


def test_cached_tokens_are_reported_only_with_the_option() -> None:
    answer = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1,
              "total_tokens": 10, "prompt_tokens_details": {"cached_tokens": 7}}}  # fmt: skip
    for dialect in (SGLANG, VLLM):
        for option, cached in ((False, None), (True, {"cached_tokens": 7})):
            told = Server(dialect, "m", "m", 4096, option).whole(CHAT, answer)
            assert told["usage"]["prompt_tokens_details"] == cached


def test_a_port_that_is_taken_is_said_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        argv = [sys.executable, "-c", SERVE, "none.gguf", *STARTS["sglang"], "--port",
                str(taken.getsockname()[1])]  # fmt: skip
        done = subprocess.run(
            argv, capture_output=True, text=True, env=dict(os.environ), check=False
        )
    assert done.returncode == 1
    assert "Address already in use" in done.stderr


@contextmanager
def faulty(
    model: Path, fault: str, start: tuple[str, ...] = STARTS["sglang"], **more: Any
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A stand-in in which something goes wrong, and its address."""
    told = packed(Settings(fault=fault, soak_tokens=2, **more))
    port = free_port()
    argv = [sys.executable, "-c", SERVE, str(model), *start, "--port", str(port)]
    with (
        model.with_suffix(".fault.log").open("wb") as out,
        running(argv, stdout=out, stderr=out, env={**os.environ, VARIABLE: told}) as child,
    ):
        yield child, f"http://127.0.0.1:{port}"


def test_a_crash_in_a_soak_is_that_of_the_whole_server(tmp_path: Path) -> None:
    tiny_llama(model := tmp_path / "tiny.gguf")
    with faulty(model, "crash") as (child, url):
        until(lambda: health(url, ALIVE)[0] is Health.SERVING, "the stand-in answers")

        def ended() -> bool:
            complete(url, max_tokens=2, timeout_s=5.0)
            return child.poll() is not None

        until(ended, "it dies")
        assert child.returncode == 139


def test_what_never_loads_never_listens(tmp_path: Path) -> None:
    tiny_llama(model := tmp_path / "tiny.gguf")
    log = model.with_suffix(".fault.log")
    with faulty(model, "never-ready") as (child, url):
        until(lambda: "never done" in log.read_text(), "it loads")
        assert health(url)[0] is Health.REFUSED
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0


@pytest.mark.parametrize(
    "engine", ["vllm", *(pytest.param(name, marks=pytest.mark.full) for name in ("sglang", "ik"))]
)
def test_a_garbled_stand_in_is_healthy_by_every_other_sign(engine: str, tmp_path: Path) -> None:
    tiny_llama(tmp_path / "tiny.gguf")
    with serving(tmp_path / "tiny.gguf", engine) as url:
        sane = complete(url, max_tokens=32)
    with serving(tmp_path / "tiny.gguf", engine, "garbled") as url:
        garbled = complete(url, max_tokens=32)
    assert (sane.status, garbled.status) == (200, 200)
    assert sane.ok
    assert sane.garbled is None
    assert not garbled.ok
    assert garbled.garbled is not None
