"""Several streams at once: told beside the single one, never in it."""

import threading

import pytest

from console.bench.benchmark import Benchmark, Protocol
from console.bench.client import PROMPTS
from console.bench.concurrency import measure_level
from console.bench.sample import Sample
from tests.bench.scripted import answers, reply, scripted, streams

GOOD = streams(reply(8))


def sample(tokens: int = 10, **values: float | str) -> Sample:
    return Sample(completion_tokens=tokens, **values)  # type: ignore[arg-type]


class Bench:
    """Requests that are answered when all streams have sent one: they are really at once."""

    def __init__(self, streams: int, answer: Sample | None = None) -> None:
        self.barrier = threading.Barrier(streams)
        self.answer = answer or sample(ttft_s=0.5, decode_tok_s=12.0)
        self.prompts: list[str] = []
        self.lock = threading.Lock()

    def send(self, prompt: str, over: threading.Event) -> Sample | None:
        with self.lock:
            self.prompts.append(prompt)
        self.barrier.wait(timeout=30)
        return self.answer


def clock(*moments: float) -> object:
    return iter(moments).__next__


@pytest.mark.parametrize("streams_", [2, 4])
def test_all_streams_together_over_the_whole_time(streams_: int) -> None:
    bench = Bench(streams_)
    level = measure_level(
        bench.send, PROMPTS, streams_, cancelled=threading.Event(),
        monotonic=clock(100.0, 110.0),  # type: ignore[arg-type]
    )  # fmt: skip
    assert (level.streams, level.requests, level.valid) == (streams_, 3 * streams_, 3 * streams_)
    assert level.tok_s == pytest.approx(3 * streams_ * 10 / 10.0)
    assert (level.decode_tok_s, level.ttft_s, level.ttft_max_s) == (12.0, 0.5, 0.5)
    assert sorted(set(bench.prompts)) == sorted(PROMPTS)
    assert [bench.prompts.count(prompt) for prompt in PROMPTS] == [streams_] * 3
    assert level.voids == {}


def test_a_void_request_leaves_no_rate_of_all() -> None:
    """The level was not held: what came of it is no rate of N streams."""
    good, bad = sample(ttft_s=0.5), sample(void="short output")
    turn = iter([good, bad, good, good, good, good])
    lock = threading.Lock()

    def send(prompt: str, over: threading.Event) -> Sample | None:
        with lock:
            return next(turn)

    level = measure_level(send, PROMPTS, 2, cancelled=threading.Event())
    assert (level.requests, level.valid, level.tok_s) == (6, 5, None)
    assert level.voids == {"short output": 1}
    assert level.ttft_s == 0.5


def test_a_long_list_of_prompts_is_sent_in_part() -> None:
    bench = Bench(2)
    many = [f"prompt {n}" for n in range(50)]
    level = measure_level(bench.send, many, 2, cancelled=threading.Event())
    assert level.requests == 6


def test_a_deadline_ends_all_streams_and_is_raised() -> None:
    seen: list[str] = []

    def send(prompt: str, over: threading.Event) -> Sample | None:
        assert over.wait(30)
        return None

    def say(text: str) -> None:
        seen.append(text)
        raise TimeoutError("not done in time")

    with pytest.raises(TimeoutError):
        measure_level(send, PROMPTS, 2, cancelled=threading.Event(), say=say)
    assert len(seen) == 1
    assert not [t for t in threading.enumerate() if t.name.startswith("stream")]


def test_levels_come_after_the_runs_and_never_enter_them() -> None:
    protocol = Protocol(max_tokens=8, runs=2, max_runs=2, warmup=1, levels=(2, 3))
    with scripted(GOOD, documents={"/props": {"total_slots": 2}}) as server:
        result = Benchmark(server.url, protocol).run()
        sent = len(server.requests)
    assert sent == 1 + 2 + 2 * 3 + 3 * 3
    assert [level.streams for level in result.levels] == [2, 3]
    assert [level.valid for level in result.levels] == [6, 9]
    assert (result.metrics["tok_s"].n, result.metrics["runs"].value) == (2, 2)
    assert [flag[:9] for flag in result.flags if "slots" in flag] == ["3 streams"]
    assert len({request["messages"][0]["content"] for request in server.requests}) == sent


def test_no_level_where_not_one_run_was_valid() -> None:
    protocol = Protocol(max_tokens=8, runs=2, max_runs=2, warmup=0, levels=(2,))
    with scripted(answers(500, b"")) as server:
        assert Benchmark(server.url, protocol).run().levels == []
