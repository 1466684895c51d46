"""What the benchmark says, word for word: `make golden` writes it anew."""

import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.bench.benchmark import Benchmark, BenchmarkResult, Protocol, run_words
from console.bench.client import PROMPTS
from console.bench.concurrency import Level, measure_level
from console.bench.llama_bench import read_figures
from console.bench.sample import Sample, measure, repeated
from console.bench.soak import Look, SoakPlan
from console.bench.soak_stats import Tally
from console.bench.sse import SILENCE_S, Failure, FailureKind, Reply
from console.bench.statistics import summarise
from console.cli import main
from console.frontends.cli import bench
from tests.bench.machine import still
from tests.bench.scripted import answers, delta, reply, scripted, streams
from tests.bench.soaking import HOUR, Server, Turn
from tests.bench.test_bad_input import CASES, TOKENS
from tests.bench.test_llama_bench import ENTRIES, SWEEP, TABLE, array, entry, lines
from tests.bench.test_metrics import made, timings

REPEATED = ((0, 6), (6, 6), (1, 100), (2, 100), (1, 9), (3, 9))
LOAD: dict[str, dict[str, Any]] = {
    "a compiler": {"p300": 1.5}, "compilers that are gone": {"unseen": 8.0},
    "the baseline": {"p200": 3.5}, "an engine and a compiler": {"p400": 0.3, "p300": 2.0},
    "the client": {f"p{os.getpid()}": 0.5}, "little memory": {"pages": 2**18}, "nothing": {},
}  # fmt: skip


def test_what_was_busy_beside_a_run(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    said = {}
    for name, load in LOAD.items():
        host = still(tmp_path)
        host.add(400, "ollama", argv="ollama runner")
        around = host.surroundings()
        void = host.run(around, **load).void
        host.run(around)
        said[name] = [void, *around.flags()]
    assert said == snapshot


def test_why_a_run_is_void(snapshot: SnapshotAssertion) -> None:
    said = {}
    for name, (answer, _) in CASES.items():
        protocol = Protocol(max_tokens=TOKENS, runs=1, max_runs=1, warmup=0)
        with scripted(answer) as server:
            [void] = Benchmark(server.url, protocol).run().voids
        # which of a system call's errors a lost connection ends in is a matter of moments
        said[name] = re.sub(r"(transport|truncated): .*", r"\1: …", void["reason"]) if (
            "reset" in name) else void["reason"]  # fmt: skip
    assert said == snapshot


def test_what_ends_a_benchmark_and_makes_it_doubtful(snapshot: SnapshotAssertion) -> None:
    said: dict[str, Any] = {}
    quick = Protocol(max_tokens=8, runs=4, max_runs=4, warmup=0)
    with scripted(answers(500, b"")) as server:
        result = Benchmark(server.url, quick).run()
        said["failures"] = result.flags
    with scripted(answers(422, b'{"detail":"extra_forbidden"}'), streams(reply(4))) as server:
        flags = Benchmark(server.url, quick).run().flags  # a rate where tokens came one by one
        said["no extras, and short"] = [flag for flag in flags if "rate" not in flag]
    silent = Protocol(max_tokens=8, runs=1, warmup=0, silence_s=0.2)
    with scripted(streams([delta(content="x")], 30.0)) as server:
        [only] = Benchmark(server.url, silent).run().runs
        said["silence"] = only.error
    over = Protocol(max_tokens=8, runs=2, warmup=0, budget_s=0.0)
    with scripted(streams(reply(8))) as server:
        said["no time"] = Benchmark(server.url, over).run().flags
    crowd = Protocol(max_tokens=8, runs=1, max_runs=1, warmup=0, levels=(3,))
    for slots in (1, 2, 3):
        with scripted(streams(reply(8)), documents={"/props": {"total_slots": slots}}) as server:
            [level] = Benchmark(server.url, crowd).run().levels
            said[f"{slots} slots"] = [flag for flag in level.flags if "slot" in flag]
    assert said == snapshot


def test_streams_at_once(snapshot: SnapshotAssertion) -> None:
    cancelled, told = threading.Event(), []

    def send(prompt: str, over: threading.Event) -> Sample | None:
        cancelled.set()
        over.wait(60)
        return None

    level = measure_level(send, PROMPTS, 3, cancelled=cancelled, say=told.append)
    assert [level.requests, level.tok_s, level.flags, told[:1]] == snapshot


def test_what_is_said_of_a_reply(snapshot: SnapshotAssertion) -> None:
    failure = Failure(FailureKind.TRUNCATED, "the end")
    replies = {
        "plain": made(timings=timings()), "timed apart": made(timings=timings(predicted_n=126)),
        "slower": made(timings=timings(1181.0)), "faster": made(timings=timings(1359.0)),
        "estimated": made(128, 4, counted=False), "few": made(32), "cached": made(cached_tokens=66),
        "short": made(100), "long": made(200), "uncounted": made(usage=None, counted=False),
        "failed": made(failure=failure), "not done": made(done=False),
        "no extras": made(extras_refused=True), "nothing": Reply(),
    }  # fmt: skip
    said = {name: measure(one, 128) for name, one in replies.items()}
    assert {name: [one.void, one.error, *one.flags] for name, one in said.items()} == snapshot
    assert [repeated(*counts) for counts in REPEATED] == snapshot


def test_what_is_said_of_a_benchs_output(snapshot: SnapshotAssertion) -> None:
    deep, other = entry(0, 128, [9.0] * 2, n_depth=4096), entry(0, 128, [15.0], n_gpu_layers=10)
    texts = {
        "others": lines(*ENTRIES, deep, other, entry(512, 128, [30.0])),
        "cut": array(*ENTRIES)[:-40], "table": TABLE, "prompt only": lines(ENTRIES[0]),
        "unbelievable": lines(*ENTRIES, entry(0, 64, [-1.0])), "nothing": "", "list": "[\n]\n",
        "both at once": lines(entry(512, 128, [30.0])), "sweep": SWEEP,
        "contradiction": SWEEP.replace("55.38", "99.99"), "no rate": SWEEP.replace("55.38", "-"),
    }  # fmt: skip
    said: dict[str, Any] = {}
    for name, text in texts.items():
        form = "sweep-bench" if "N_KV" in text else "llama-bench"
        try:
            found = read_figures(text, form)
            tests = [metric.get("test", "") for metric in found.metrics.values()]
            said[name] = [found.build, found.model, *tests, *found.flags]
        except ValueError as error:
            said[name] = str(error)
    assert said == snapshot


def _why(tally: Tally) -> dict[str, str]:
    return {name: one["why"] for name, one in tally.figures().items() if "why" in one}


def test_why_a_soak_has_no_figure(snapshot: SnapshotAssertion) -> None:
    short = SoakPlan(30.0)
    anew = Server(look=lambda t: Look(2**30, None, None, {"container": str(t > 1000)}))
    said = {
        "nothing": _why(Tally()), "unseen": _why(Server(look=lambda t: Look()).soak(HOUR)[0]),
        "short": _why(Server().soak(short)[0]), "anew": _why(anew.soak(HOUR)[0]),
        "no answer": _why(Server(lambda number, t: Turn(error="refused")).soak(short)[0]),
    }  # fmt: skip
    void = Server().soak(short)[0].void_figures("it ended early: died")
    assert said | {"void": {name: one["why"] for name, one in void.items()}} == snapshot


def test_what_happened_in_a_soak(snapshot: SnapshotAssertion) -> None:
    muted, first = Turn(mute=40), Turn(mute=0)
    servers = {
        "silence": Server(lambda number, t: muted if number == 50 else Turn()),
        "before a token": Server(lambda number, t: first if number == 2 else Turn()),
        "from the start": Server(lambda number, t: first if number == 1 else Turn()),
        "restarts": Server(look=lambda t: Look(start={"metrics": str(t // 1500), "process": "1"})),
        "crash": Server(look=lambda t: Look(gone="ended by SIGKILL" if t > 100 else "")),
        "drips on": Server(lambda number, t: Turn(9e3, 0.1, 9000) if number == 99 else Turn(20.0)),
        "refuses": Server(lambda number, t: Turn(error="refused", words="no" * 400)),
    }
    said = {}
    for name, server in servers.items():
        tally, end = server.soak(HOUR)
        happened = [one["what"] for one in [*tally.hangs, *tally.restarts]]
        said[name] = [end.value, *happened, tally.last_error, tally.gone, tally.errors]
    assert said == snapshot


def _result() -> BenchmarkResult:
    good = [Sample(tok_s=rate, decode_tok_s=rate + 1, ttft_s=0.5) for rate in (10.0, 10.5, 11.0)]
    result = BenchmarkResult("http://127.0.0.1:8001", runs=good)
    result.metrics = summarise([*good, Sample(void="short output")])
    result.voids = [{"run": 4, "reason": "short output"}]
    result.levels = [
        Level(4, 12, 12, 31.2, 8.1, 0.41, 0.9, 60.0), Level(8, 24, 20, None, 7.0, 0.5, None, 9.0),
        Level(2, 6, 0, None, None, None, None, 1.0),
    ]  # fmt: skip
    result.flags = ["4 valid runs\x1b[2J"]
    return result


def test_the_command(snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str]) -> None:
    bench._print(_result())
    assert capsys.readouterr().out == snapshot
    assert [run_words(number, 9) for number in (0, 3, 9, 10)] == snapshot
    for words in (
        ["--concurrency", "0"], ["--runs", "0"], ["--runs", "3", "--max-runs", "2"],
        ["--timeout", "90"], ["--timeout", "0s"], ["--max-tokens", "1"],
    ):  # fmt: skip
        assert main(["bench", "http://127.0.0.1:1", *words]) == 2
    assert main(["bench", "ftp://\x1b[2Jx"]) == 2
    assert capsys.readouterr().err == snapshot


def test_what_the_operators_script_asks(snapshot: SnapshotAssertion) -> None:
    assert [*PROMPTS, SILENCE_S] == snapshot
