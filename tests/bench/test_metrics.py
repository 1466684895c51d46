"""Figures from synthetic stamps: every number can be worked out by hand; and statistics of small
sets, and of none."""

import json
import math
import random
import statistics as stats
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from console.bench.metrics import PER_SAMPLE
from console.bench.sample import Sample, measure
from console.bench.sse import Event, Failure, FailureKind, Reply, Timings
from console.bench.statistics import cv, describe, interval, mean, median, std, summarise
from tests.waiting import some

MS = 1_000_000
TOKEN_MS = 10
FIRST_MS = 500


def made(
    tokens: int = 128, per_chunk: int = 1, *, counted: bool = True, usage: int | None = -1,
    thoughts: int = 0, **values: Any,
) -> Reply:  # fmt: skip
    """A reply whose tokens are exactly 10 ms apart, the first at 0.5 s.

    A chunk arrives when its last token is there; `counted` events carry the running count, and
    the first `thoughts` chunks are reasoning.
    """
    events = [Event(MS), Event(2 * MS)]
    for number, last in enumerate(range(per_chunk, tokens + 1, per_chunk)):
        at = (FIRST_MS + TOKEN_MS * (last - 1)) * MS
        events.append(Event(at, True, number >= thoughts, last if counted else None))
    end = (FIRST_MS + TOKEN_MS * tokens) * MS
    events.append(Event(end))
    values = {"prompt_tokens": 12, "done": True} | values
    used = tokens if usage == -1 else usage
    return Reply(0, end, tuple(events), "x" * tokens, completion_tokens=used, **values)


def timings(predicted_ms: float = 1270.0, **values: float) -> Timings:
    base: dict[str, float] = {
        "cache_n": 0, "prompt_n": 50, "prompt_ms": 250.0, "predicted_n": 128,
        "predicted_ms": predicted_ms,
    }  # fmt: skip
    return Timings(**(base | values))


def test_every_figure_of_a_plain_reply() -> None:
    sample = measure(made(timings=timings()), 128)
    assert {name: getattr(sample, name) for name in PER_SAMPLE} == pytest.approx({
        "tok_s": 128 / 1.78, "decode_tok_s": 100, "prompt_tok_s": 200, "ttft_s": 0.5,
        "ttfo_s": 0.5, "tpot_s": 0.01, "e2e_s": 1.78, "stall_s": 0.01,
    })  # fmt: skip
    assert sample.server_decode_tok_s == pytest.approx(100)
    assert (sample.completion_tokens, sample.token_source) == (128, "usage")
    assert (sample.void, sample.error, sample.flags) == ("", "", [])


@pytest.mark.parametrize("per_chunk", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("counted", [True, False])
def test_tokens_a_chunk_do_not_bend_the_rate(per_chunk: int, counted: bool) -> None:
    """(N−1)/(t_last−t_first) would read 2.4 % high at 4 tokens a chunk, 13 % at 16."""
    sample = measure(made(128, per_chunk, counted=counted), 128)
    assert sample.decode_tok_s == pytest.approx(100)
    assert sample.first_chunk_tokens == per_chunk
    assert bool(sample.flags) == (not counted and per_chunk > 1)


def hidden(**values: Any) -> Reply:
    """128 tokens of thinking that no text shows, then 128 of text, two a chunk: 100 tok/s."""
    reply = made(128, 2, counted=False, usage=256, **values)
    later = [replace(one, at_ns=one.at_ns + 1280 * MS) for one in reply.events]
    return replace(reply, events=tuple(later), ended_ns=reply.ended_ns + 1280 * MS)


@pytest.mark.parametrize(
    ("reply", "tokenize"),
    [(hidden(), len), (hidden(reasoning_tokens=128), None), (hidden(reasoning_tokens=128), len)],
)
def test_thinking_that_is_counted_and_not_shown_does_not_double_the_rate(
    reply: Reply, tokenize: Callable[[str], int] | None
) -> None:
    sample = measure(reply, 256, tokenize)
    assert sample.decode_tok_s == pytest.approx(100, rel=0.01)
    assert sample.completion_tokens == 256
    assert any(one.startswith("128 of 256 tokens came without text") for one in sample.flags)


def test_whether_all_tokens_came_as_text_is_in_doubt_where_nobody_tells() -> None:
    (flag,) = measure(replace(hidden(), raw_text="word " * 128), 256).flags
    assert flag.endswith("if all tokens came as text")


@pytest.mark.parametrize("reply", [made(256, 4, counted=False), made(256, 4)])
def test_thinking_that_is_shown_is_not_missed(reply: Reply) -> None:
    shown = replace(reply, reasoning="x" * 100, reasoning_tokens=100)
    sample = measure(shown, 256, lambda text: len(text) - 3)
    assert sample.decode_tok_s == pytest.approx(100, rel=0.02)
    assert not any("without text" in one for one in sample.flags)


def test_more_chunks_than_tokens_is_one_token_at_first_and_flagged() -> None:
    sample = measure(made(128, 1, counted=False, usage=100), 100)
    assert sample.first_chunk_tokens == 1
    assert sample.flags


def test_a_single_chunk_has_no_rate() -> None:
    sample = measure(made(64, 64), 64)
    assert (sample.decode_tok_s, sample.tpot_s, sample.stall_s) == (None, None, None)
    assert sample.tok_s is not None


def test_reasoning_starts_ttft_and_the_answer_ttfo() -> None:
    for thoughts, ttfo in ((20, 0.7), (128, None)):
        sample = measure(made(thoughts=thoughts), 128)
        assert [sample.ttft_s, sample.ttfo_s] == pytest.approx([0.5, ttfo])


@pytest.mark.parametrize(
    ("reply", "counted", "source"),
    [
        (made(usage=128, timings=timings(predicted_n=99)), 128, "usage"),
        (made(usage=None, timings=timings()), 128, "timings"),
        (made(usage=None), 777, "tokenizer"),
    ],
)
def test_who_counts_the_tokens(reply: Reply, counted: int, source: str) -> None:
    sample = measure(reply, 128, lambda text: 777)
    assert (sample.completion_tokens, sample.token_source) == (counted, source)


@pytest.mark.parametrize("per_chunk", [1, 4])
def test_chunks_are_never_counted_as_tokens(per_chunk: int) -> None:
    sample = measure(made(128, per_chunk, usage=None, counted=False), 128, lambda text: None)
    assert sample.completion_tokens is None
    assert (sample.tok_s, sample.decode_tok_s, sample.tpot_s) == (None, None, None)
    assert sample.void


def test_a_cached_prompt_is_void_and_has_no_prompt_rate() -> None:
    for reply in (made(timings=timings(cache_n=66, prompt_n=1)), made(cached_tokens=66)):
        sample = measure(reply, 128)
        assert sample.void.startswith("66 ")
        assert sample.prompt_tok_s is None
        assert sample.error == ""


def test_an_unknown_cache_gives_no_prompt_rate() -> None:
    server = Timings(prompt_n=50, prompt_ms=250.0)
    assert measure(made(timings=server), 128).prompt_tok_s is None
    assert measure(made(timings=server, cached_tokens=0), 128).prompt_tok_s == pytest.approx(200)


def test_an_empty_reply_has_no_figures() -> None:
    sample = measure(Reply(failure=Failure(FailureKind.TRANSPORT, "refused")), 128)
    assert [getattr(sample, name) for name in PER_SAMPLE] == [None] * len(PER_SAMPLE)
    assert sample.void


@pytest.mark.parametrize(("factor", "flagged"), [(1.0, False), (0.96, False), (0.93, True)])
def test_a_rate_below_the_servers_is_flagged(factor: float, flagged: bool) -> None:
    sample = measure(made(timings=timings(1270.0 * factor)), 128)
    assert len(sample.flags) == int(flagged)
    assert sample.decode_tok_s == pytest.approx(100)
    assert not sample.void


def together(at_ms: int = 500) -> Reply:
    """A reply whose text arrives at one moment, as a process finds it that was held up."""
    reply = made(timings=timings())
    events = [replace(one, at_ns=at_ms * MS) if one.is_text else one for one in reply.events]
    return replace(reply, events=tuple(events))


@pytest.mark.parametrize("reply", [made(timings=timings(1270.0 * 1.07)), together()])
def test_tokens_in_bursts_have_the_servers_own_rate(reply: Reply) -> None:
    sample = measure(reply, 128)
    assert sample.decode_tok_s == sample.server_decode_tok_s is not None
    assert sample.tpot_s == pytest.approx(1 / sample.decode_tok_s)
    assert sample.flags == ["tokens came in bursts: the decode rate is the server's own"]
    assert sample.tok_s is not None
    assert not sample.void


def test_a_reply_without_text_has_no_rate_whatever_its_timings_say() -> None:
    sample = measure(Reply(timings=timings(), completion_tokens=128), 128)
    assert (sample.decode_tok_s, sample.tpot_s) == (None, None)


@pytest.mark.parametrize("counted", [True, False])
def test_events_that_arrive_together_are_one_arrival(counted: bool) -> None:
    """The first 20 tokens in one read, the rest as they are made."""
    reply = made(128, counted=counted)
    at = (FIRST_MS + TOKEN_MS * 19) * MS
    events = tuple(replace(e, at_ns=max(e.at_ns, at)) if e.is_text else e for e in reply.events)
    sample = measure(replace(reply, events=events), 128)
    assert sample.first_chunk_tokens == 20
    assert sample.decode_tok_s == pytest.approx(100)


def test_all_in_one_read_has_no_rate() -> None:
    reply = made(128)
    events = tuple(replace(event, at_ns=10**9) for event in reply.events)
    assert measure(replace(reply, events=events), 128).decode_tok_s is None


def test_a_stall_is_the_longest_pause_between_chunks() -> None:
    late = Event(9_000 * MS, True, True, 129)
    reply = made()
    events = (*reply.events, late)
    sample = measure(Reply(0, 9_000 * MS, events, "x", completion_tokens=129, done=True), 129)
    assert sample.stall_s == pytest.approx(9.0 - 1.77)


@given(
    stamps=st.lists(st.integers(0, 10**12), max_size=20),
    tokens=st.none() | st.integers(0, 10**9),
    numbers=st.lists(st.none() | st.floats(0, 1e300), min_size=5, max_size=5),
    text=st.booleans(),
)
def test_no_reply_breaks_it_or_leaks_a_nan(
    stamps: list[int], tokens: int | None, numbers: list[float | None], text: bool
) -> None:
    events = tuple(Event(at, text, text, at % 7 or None) for at in stamps)
    reply = Reply(
        10, 5, events, "x", completion_tokens=tokens, timings=Timings(*numbers),
        cached_tokens=tokens,
    )  # fmt: skip
    sample = measure(reply, 64)
    for name in PER_SAMPLE:
        value = getattr(sample, name)
        assert value is None or 0 <= value < math.inf


def test_two_counts_of_the_server_that_disagree_are_void() -> None:
    for timed, void in ((128, False), (127, False), (129, False), (126, True), (130, True)):
        sample = measure(made(timings=timings(predicted_n=timed)), 128)
        assert bool(sample.void) is void, timed


@pytest.mark.parametrize(
    ("text", "flagged"), [("x" * 127, True), ("x" * 128, False), ("é" * 64, False)]
)
def test_more_tokens_than_bytes_make_the_rate_an_estimate(text: str, flagged: bool) -> None:
    sample = measure(replace(made(), raw_text=text), 128)
    assert ["127 bytes" in flag for flag in sample.flags] == [True] * flagged
    assert sample.void == ""


# -- statistics --------------------------------------------------------------------------------


FLOATS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=12)


def test_by_hand() -> None:
    values = [10.0, 11.0, 12.0, 15.0]
    assert (mean(values), median(values)) == (12.0, 11.5)
    assert std(values) == pytest.approx(stats.stdev(values))
    assert cv(values) == pytest.approx(stats.stdev(values) / 12)


def test_nothing_is_none() -> None:
    assert (mean([]), median([]), std([]), cv([]), std([1.0]), cv([0.0, 0.0])) == (None,) * 6


def test_the_headline_is_the_mean_for_tok_s_and_the_median_elsewhere() -> None:
    rate, first = (describe(name, [1.0, 2.0, 9.0]) for name in ("tok_s", "ttft_s"))
    assert (rate.value, rate.headline, first.value, first.headline) == (4.0, "mean", 2.0, "median")


@given(FLOATS)
def test_no_nan_leaks(values: list[float]) -> None:
    summary = describe("decode_tok_s", values)
    json.dumps(asdict(summary), allow_nan=False)
    assert summary.n == sum(map(math.isfinite, values))
    assert summary.n or summary.median is None


def test_void_runs_are_left_out() -> None:
    good = [Sample(tok_s=rate, ttft_s=0.5) for rate in (10.0, 12.0)]
    bad = [Sample(tok_s=999.0, void="cached"), Sample(void="reset", error="transport: reset")]
    metrics = summarise([*good, *bad, bad[0]])
    assert metrics["tok_s"].samples == [10.0, 12.0]
    assert metrics["error_rate"].value == pytest.approx(0.2)
    assert (metrics["runs"].value, metrics["runs"].n) == (2, 2)


def test_no_samples_at_all() -> None:
    metrics = summarise([])
    found = {name: (metric.value, metric.n) for name, metric in metrics.items()}
    assert found == {**dict.fromkeys(metrics, (None, 0)), "runs": (0.0, 0)}


# --- intervals -------------------------------------------------------------------------------

RATES = st.lists(st.floats(0.1, 1e4), min_size=5, max_size=30)


@settings(deadline=None, max_examples=25)
@given(RATES, st.sampled_from(["mean", "median"]))
def test_an_interval_lies_within_the_samples_and_is_the_same_again(
    values: list[float], headline: str
) -> None:
    found = some(interval(values, headline))
    assert min(values) <= found[0] <= found[1] <= max(values)
    assert interval(values, headline) == found


@pytest.mark.parametrize("headline", ["mean", "median"])
@pytest.mark.parametrize("value", [20.1, 1e-9, 7e11, 0.1])
def test_samples_that_agree_make_a_point(value: float, headline: str) -> None:
    """To the last digit: a rounding error must not make a range of it."""
    assert interval([value] * 9, headline) == (value, value)
    assert mean([value] * 9) == value


def test_few_samples_are_their_point() -> None:
    assert interval([1.0, 2.0, 3.0, 6.0], "mean") == (3.0, 3.0)
    assert interval([1.0, 2.0, 3.0, 6.0], "median") == (2.5, 2.5)
    assert interval([], "mean") is None


def test_more_samples_narrow_it() -> None:
    few = some(interval([19.0, 21.0] * 4, "mean"))
    many = some(interval([19.0, 21.0] * 100, "mean"))
    assert many[1] - many[0] < (few[1] - few[0]) / 3


def test_a_ratio() -> None:
    found = interval([20.0] * 9, "mean", [10.0] * 9)
    assert found == (2.0, 2.0)
    wide = some(interval([19.0, 20.0, 21.0] * 3, "mean", [9.0, 10.0, 11.0] * 3))
    assert 1.8 < wide[0] < 2.0 < wide[1] < 2.2
    assert interval([20.0] * 9, "mean", [10.0]) == (2.0, 2.0)
    assert interval([20.0] * 9, "mean", [0.0]) is None
    assert interval([20.0] * 9, "mean", []) is None
    assert interval([20.0] * 9, "mean", [10.0, -1.0, 10.0, 10.0, -90.0]) is None


def test_it_covers_about_as_often_as_it_says() -> None:
    """Of nine samples somewhat less than 95 %, as the percentile method is known to."""
    chance, hits = random.Random(5), 0
    for _ in range(100):
        found = some(interval([chance.gauss(20.0, 0.5) for _ in range(9)], "mean"))
        hits += found[0] <= 20.0 <= found[1]
    assert 82 <= hits <= 98
