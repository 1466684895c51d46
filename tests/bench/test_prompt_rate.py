"""The prompt rate of servers that report it, and of those that do not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from console.bench.benchmark import Benchmark, Protocol
from console.bench.metrics import PROMPT_ROUNDS
from console.bench.prompt_rate import PromptRate, measure_prompt_rates, prompt_flags
from console.bench.sample import Sample
from tests.bench.embedded import Counter, served
from tests.testbed.models import tiny_llama


class Engine(Counter):
    """A server whose truth is known: seconds before every answer, then tokens of the prompt at a
    rate; the first token takes as long as any."""

    def __init__(self, rate: float, fixed_s: float = 0.3, per_word: float = 1.3) -> None:
        super().__init__(per_word)
        self.rate, self.fixed_s = rate, fixed_s
        self.jitter_s = 0.0
        self.chance = random.Random(7)
        self.most = 10**9

    def __call__(self, prompt: str) -> Sample | None:
        tokens = self.tokens(prompt)
        if tokens > self.most:
            return Sample(error="HTTP 400", void=f"HTTP 400: {tokens} tokens exceed the context")
        late = self.chance.uniform(-self.jitter_s, self.jitter_s)
        return Sample(
            ttft_s=self.fixed_s + tokens / self.rate + late, prompt_tokens=tokens,
            completion_tokens=8,
        )  # fmt: skip


def rates(engine: Engine, *lengths: int) -> list[PromptRate]:
    return measure_prompt_rates(engine, lengths, lambda _: None)


@pytest.mark.parametrize("rate", [18.0, 450.0, 12_000.0])
def test_what_every_request_has_in_common_falls_out(rate: float) -> None:
    engine = Engine(rate)
    found = rates(engine, 2048, 512)
    assert [one.asked for one in found] == [512, 2048]
    for one in found:
        assert one.estimated
        assert one.tokens == pytest.approx(one.asked, rel=0.02), "by the server's own count"
        assert one.rates == [pytest.approx(rate)] * PROMPT_ROUNDS


def test_a_queue_in_front_of_a_fast_server_is_told_from_a_slow_prompt() -> None:
    engine = Engine(20_000.0, fixed_s=0.8)
    engine.jitter_s = 0.05
    short, long = rates(engine, 512, 2048)
    assert (short.rates, short.estimated) == ([], False)
    assert "too quick to tell from a short prompt" in short.why
    assert not long.rates or long.rates[0] == pytest.approx(20_000.0, rel=0.5)
    [flag] = prompt_flags([short])
    assert flag.startswith("no prompt rate at 512 tokens: too quick")


def test_a_prompt_that_does_not_fit_ends_its_length_only() -> None:
    engine = Engine(400.0)
    engine.most = 1000
    short, long = rates(engine, 512, 2048)
    assert short.rates
    assert (long.rates, "exceed the context" in long.why) == ([], True)
    assert sum(tokens > 1000 for tokens in engine.seen) == 1, "it is asked once"


def test_a_server_that_counts_no_prompt_tokens_has_no_rate() -> None:
    [one] = measure_prompt_rates(
        lambda prompt: Sample(ttft_s=0.5, completion_tokens=8), (512,), lambda _: None
    )
    assert one == PromptRate(512, why="the server does not count the tokens of a prompt")


def test_the_servers_own_rate_wins() -> None:
    engine = Engine(400.0)

    def told(prompt: str) -> Sample | None:
        sample = engine(prompt)
        return sample and replace(sample, prompt_tok_s=431.0)

    [one] = measure_prompt_rates(told, (512,), lambda _: None)
    assert (one.rates, one.estimated) == ([431.0] * PROMPT_ROUNDS, False)
    assert prompt_flags([one]) == []


def test_the_end_of_the_time_is_no_rate_of_short_prompts() -> None:
    """What was seen before counts if it is enough; else there is no rate, and it says why."""
    for asked, enough in ((0, False), (1, False), (5, False), (8, True)):
        engine, left = Engine(400.0), [asked]

        def ask(prompt: str, engine: Engine = engine, left: list[int] = left) -> Sample | None:
            left[0] -= 1
            return engine(prompt) if left[0] >= 0 else None

        [one] = measure_prompt_rates(ask, (512,), lambda _: None)
        assert bool(one.rates) is enough
        assert enough or "the time ran out" in one.why


def test_a_disturbed_round_does_not_count_and_the_others_do() -> None:
    engine, calls = Engine(400.0), [0]

    def ask(prompt: str) -> Sample | None:
        calls[0] += 1
        sample = engine(prompt)
        return sample and (
            replace(sample, void="a neighbour computed") if calls[0] == 5 else sample
        )

    [one] = measure_prompt_rates(ask, (512,), lambda _: None)
    assert len(one.rates) == PROMPT_ROUNDS - 1


def test_what_varies_shows_between_the_estimates() -> None:
    engine = Engine(1000.0)
    engine.jitter_s = 0.06
    [one] = rates(engine, 512)
    assert max(one.rates) > 1.05 * min(one.rates)
    [flag] = prompt_flags([one])
    assert "the estimates vary by" in flag


url = served(tiny_llama)


@pytest.mark.alone
def test_a_real_server_reports_it_and_a_context_bounds_it(url: str) -> None:
    protocol = Protocol(max_tokens=8, runs=1, max_runs=1, prompt_lengths=(512, 1024, 8192))
    result = Benchmark(url, protocol).run()
    short, long, longest = result.prompt_rates
    for one in (short, long):
        assert (one.estimated, one.why) == (False, "")
        # its words are chosen by chance, and this model has a token for each letter
        assert one.tokens == pytest.approx(one.asked, rel=0.15)
    assert (longest.rates, bool(longest.why)) == ([], True)
    figure = result.metrics["prompt_tok_s"]
    assert (figure.n, figure.estimated, figure.samples) == (PROMPT_ROUNDS, False, long.rates)
