"""A soak as a conversation that fills the context as far as asked, and then begins anew."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from console.bench.client import PROMPTS
from console.bench.sample import Sample
from console.bench.soak_requests import REQUESTS, Asker, Growth, context_of
from console.bench.soak_stats import Tally
from tests.bench.embedded import Counter, served
from tests.bench.scripted import reply, scripted, streams
from tests.bench.soaking import HOUR, Server, Turn
from tests.testbed.models import tiny_llama
from tests.waiting import LIMIT_S

LIMIT, ANSWER, HAIKU = 7372, 100, "Write a haiku"


def conversation(
    growth: Growth, requests: int, per_word: float = 1.3, questions: tuple[str, ...] = (HAIKU,)
) -> tuple[list[str], list[int]]:
    """The prompts of a soak, and what a server counts of each."""
    server, last = Counter(per_word), None
    prompts = []
    for number in range(requests):
        prompts.append(growth.next(questions[number % len(questions)], last))
        last = Sample(prompt_tokens=server.tokens(prompts[-1]))
    return prompts, server.seen


@pytest.mark.parametrize("per_word", [0.7, 1.3, 7.5, 14.0])
def test_it_fills_what_was_asked_and_never_more_whatever_a_word_is(per_word: float) -> None:
    _, sizes = conversation(Growth(LIMIT, ANSWER), 4 * REQUESTS, per_word)
    assert 0.9 * (LIMIT - ANSWER) < max(sizes) <= LIMIT - ANSWER
    starts = [n for n, size in enumerate(sizes) if n and size < sizes[n - 1]]
    assert 2 <= len(starts) <= 4, "it begins anew"
    assert starts[0] <= 1.5 * REQUESTS


@pytest.mark.parametrize("template", [0, 40, 300])
@pytest.mark.parametrize("limit", [460, 1843, 7372, 118_000])
def test_a_chat_template_is_no_part_of_what_a_word_costs(template: int, limit: int) -> None:
    """As of real models: the first prompt is mostly its template and our nonce."""
    growth, last, sizes = Growth(limit, ANSWER), None, []
    for number in range(REQUESTS + 6):
        text = growth.next(PROMPTS[number % len(PROMPTS)], last)
        sizes.append(round(1.3 * len(text.split())) + template + 14)
        last = Sample(prompt_tokens=sizes[-1])
    assert 0.85 * (limit - ANSWER) < max(sizes) <= limit - ANSWER


def test_a_prompt_repeats_the_one_before_it_so_that_a_cache_helps() -> None:
    prompts, _ = conversation(Growth(LIMIT, ANSWER), REQUESTS // 2)
    for before, after in pairwise(prompts):
        assert after.startswith(before)


def test_a_failed_request_begins_another_conversation() -> None:
    growth = Growth(LIMIT, ANSWER)
    prompts, _ = conversation(growth, 5)
    anew = growth.next("Hello", None)
    assert anew.split()[1:] == ["Hello"]
    assert anew.split()[0] != prompts[-1].split()[0], "with a nonce of its own"


def test_where_nothing_is_counted_it_fills_most_of_it_and_stays_below() -> None:
    growth = Growth(LIMIT, ANSWER)
    words = [len(growth.next("Hello", Sample()).split()) for _ in range(3 * REQUESTS)]
    assert 0.7 * LIMIT < max(words) * 1.3 < LIMIT


LONG = " ".join(["What is said here takes more than a step of the conversation."] * 60)


@pytest.mark.parametrize("questions", [(LONG,), (LONG, "Hello"), ("Hello", LONG, HAIKU)])
def test_a_question_longer_than_a_step_does_not_lead_beyond_the_limit(
    questions: tuple[str, ...],
) -> None:
    _, sizes = conversation(Growth(LIMIT, ANSWER), 4 * REQUESTS, 1.3, questions)
    assert 0.8 * (LIMIT - ANSWER) < max(sizes) <= LIMIT - ANSWER


def test_a_question_without_spaces_is_no_single_word() -> None:
    """Each sign of it is a token or two; four of them follow each other between common words."""
    question, growth, last = "日本語で長い話を" * 60, Growth(LIMIT, ANSWER), None
    sizes = []
    for _ in range(3 * REQUESTS):
        text = growth.next(question, last)
        wide = sum(not sign.isascii() for sign in text)
        sizes.append(round(1.2 * wide + 1.3 * len(text.split())) + 11)
        last = Sample(prompt_tokens=sizes[-1])
    assert 0.7 * (LIMIT - ANSWER) < max(sizes) <= LIMIT - ANSWER


@pytest.mark.parametrize(
    ("documents", "size"),
    [
        ({"/props": {"default_generation_settings": {"n_ctx": 8192}}}, 8192),
        ({"/v1/models": {"data": [{"id": "r1", "max_model_len": 32768}]}}, 32768),
        ({"/v1/models": {"data": [{"id": "r1", "name": "r1"}]}}, None),
        ({"/v1/models": {"data": [None]}, "/props": {"default_generation_settings": []}}, None),
        ({"/v1/models": {"data": [{"max_model_len": True}]}}, None),
        ({"/v1/models": {"data": [{"max_model_len": 32768.0}]}}, 32768),
        ({"/v1/models": {"data": [{"max_model_len": "32768"}]}}, 32768),
        ({"/v1/models": {"data": [{"max_model_len": "many"}]}}, None),
        ({"/v1/models": {"data": [{"max_model_len": 0.5}]}}, None),
        ({"/v1/models": {"data": [{"max_model_len": "9" * 99}]}}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_servers_own_context(documents: dict[str, Any], size: int | None) -> None:
    with scripted(streams(reply(1)), documents=documents) as server:
        assert context_of(server.url) == size


url = served(tiny_llama)


@pytest.mark.alone
def test_a_real_servers_context_is_filled_and_its_rates_count(url: str) -> None:
    size = context_of(url)
    assert size == 4096
    asker = Asker(url, 8, growth=Growth(int(0.9 * size), 8))
    sizes = []
    for _ in range(REQUESTS + 10):
        out = asker("Hello")
        assert out.ended.wait(LIMIT_S)
        answer = out.answer()
        assert (answer.error, answer.void) == ("", ""), "what was cached is no reason"
        sizes.append(answer.sample.prompt_tokens or 0)
    assert 0.8 * size < max(sizes) <= 0.9 * size
    assert sizes[-1] < max(sizes), "another conversation"


def test_the_peak_is_a_figure_of_every_soak() -> None:
    server = Server(turn=lambda number, t: Turn(context=100 * (number % 50)))
    tally, _ = server.soak(HOUR)
    peak = tally.figures()["context_peak"]
    assert (peak["value"], peak["unit"], peak["n"]) == (4900, "count", len(tally.requests))
    again = Tally()
    for line in server.lines:
        again.take(line)
    assert again.figures()["context_peak"] == peak, "the lines say it again"


def test_where_no_tokens_are_counted_the_peak_is_unknown() -> None:
    tally, _ = Server().soak(replace(HOUR, duration_s=60.0))
    peak = tally.figures()["context_peak"]
    assert (peak["value"], peak["n"]) == (None, 0)
    assert "does not count" in peak["why"]
