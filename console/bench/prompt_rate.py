"""The prompt processing rate, measured with prompts of a fixed length.

llama.cpp reports how long a prompt took. No other engine does, so there the rate is estimated from
outside: each round sends a very short prompt and one of every length, and the rate is the
difference in tokens over the difference in time to the first token. What both have in common falls
out of it: the network, the queue, the chat template, and the first token itself.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from console.bench.metrics import PROMPT_ROUNDS
from console.bench.sample import Sample
from console.bench.statistics import cv, finite, median, std
from console.common.units import format_number

ANSWER = 8
"""Most tokens of an answer: only its first one counts, and that may be invisible."""
SHORT, MEDIUM = 8, 72
"""Words of the short prompt, and of the one that shows how many tokens a word has."""
ENOUGH = 3
"""Fewer good rounds give no rate: one that a neighbour disturbed does not count."""
MIN_PER_WORD = 0.5
"""A server that counts fewer tokens in a common word does not count them."""
OUT_OF_TIME = "the time ran out, it was cancelled, or the server hangs"
NOISE = 3.0
"""A difference below so many standard deviations of the short prompt's time says nothing."""
WORDS = (
    "river window orange market silver garden engine paper winter bridge copper island letter "
    "morning yellow stone forest table music harbor pocket candle thunder village needle ocean "
    "planet ribbon saddle tunnel velvet wagon anchor basket cotton desert feather guitar hammer "
    "jacket kitchen ladder mirror napkin pepper rocket shadow ticket"
)

_Pair = tuple[Sample, Sample]
"""A short prompt and a long one, sent one after the other."""
Ask = Callable[[str], Sample | None]
"""Send one prompt for an answer of at most ANSWER tokens; None when it was cancelled."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PromptRate:
    """What prompts of about `asked` tokens showed: `tokens` by the server's own count, rates in
    tok/s. `estimated`: from times to the first token, not by the server. `why`: why there is no
    rate."""

    asked: int
    tokens: int | None = None
    rates: list[float] = field(default_factory=list)
    estimated: bool = False
    why: str = ""


def prompt(words: int, chance: random.Random) -> str:
    """So many common words in a random order: nothing of it is in any cache."""
    return " ".join(chance.choices(WORDS.split(), k=words))


def measure_prompt_rates(ask: Ask, lengths: tuple[int, ...], say: Say) -> list[PromptRate]:
    """Rates for each length in tokens, shortest first; each says why it has none. What was seen
    before a cancel or the end of the time counts, if it is enough."""
    chance = random.Random(secrets.token_bytes(8))
    per_word, fixed, why = _calibrated(ask, chance)
    if per_word is None:
        return [PromptRate(length, why=why) for length in sorted(lengths)]
    words = {n: max(MEDIUM, round((n - fixed) / per_word)) for n in sorted(lengths)}
    pairs: dict[int, list[_Pair]] = {length: [] for length in words}
    trouble: dict[int, str] = {}
    refused: set[int] = set()
    for turn in range(1, PROMPT_ROUNDS + 1):
        for length in words.keys() - refused:
            say(f"prompt of {length} tokens, {turn}/{PROMPT_ROUNDS}")
            short, long = ask(prompt(SHORT, chance)), ask(prompt(words[length], chance))
            if short is None or long is None:
                trouble.update(dict.fromkeys(words.keys() - refused, OUT_OF_TIME))
                return [_rate(size, pairs[size], trouble.get(size, "")) for size in pairs]
            if _usable(short) and _usable(long):
                pairs[length].append((short, long))
            else:
                bad = long if not _usable(long) else short
                trouble[length] = bad.void or bad.error or "no first token was seen"
                refused |= {length} if bad.error else set()
    return [_rate(size, pairs[size], trouble.get(size, "")) for size in pairs]


def _usable(sample: Sample) -> bool:
    return not sample.void and sample.ttft_s is not None and sample.prompt_tokens is not None


def _calibrated(ask: Ask, chance: random.Random) -> tuple[float | None, float, str]:
    """Tokens of a word, tokens of the template around it, and why neither is known."""
    counted = []
    for words in (SHORT, MEDIUM):
        sample = ask(prompt(words, chance))
        if sample is None:
            return None, 0.0, OUT_OF_TIME
        if sample.prompt_tokens is None:
            return None, 0.0, sample.void or "the server does not count the tokens of a prompt"
        counted.append(sample.prompt_tokens)
    per_word = (counted[1] - counted[0]) / (MEDIUM - SHORT)
    if per_word < MIN_PER_WORD:
        return None, 0.0, f"the server counts {counted[1]} tokens in {MEDIUM} words"
    return per_word, counted[0] - SHORT * per_word, ""


def _rate(length: int, pairs: list[_Pair], why: str) -> PromptRate:
    """By the server's own figure where every answer has one, else by the differences in time; each
    with its own short prompt, so that what varies shows between the rates."""
    those = [long for _, long in pairs]
    tokens = round(median([float(sample.prompt_tokens or 0) for sample in those]) or 0) or None
    if len(pairs) < ENOUGH:
        return PromptRate(length, tokens, why=why or "too few prompts were answered")
    server_rates = finite(sample.prompt_tok_s for sample in those)
    if len(server_rates) == len(those):
        return PromptRate(length, tokens, server_rates)
    spread = std(finite(short.ttft_s for short, _ in pairs)) or 0.0
    rates = []
    for short, long in pairs:
        more_s = (long.ttft_s or 0.0) - (short.ttft_s or 0.0)
        more = (long.prompt_tokens or 0) - (short.prompt_tokens or 0)
        if more > 0 and more_s > NOISE * spread and more_s > 0:
            rates.append(more / more_s)
    if len(rates) < len(pairs):
        varies = format_number(spread, "s")
        words = f"too quick to tell from a short prompt, which varies by {varies}"
        return PromptRate(length, tokens, why=words)
    return PromptRate(length, tokens, rates, estimated=True)


def prompt_flags(rates: list[PromptRate]) -> list[str]:
    """Remarks on rates that are estimated, and on lengths without one."""
    flags = []
    for rate in rates:
        if rate.why:
            flags.append(f"no prompt rate at {rate.asked} tokens: {rate.why}")
        elif rate.estimated:
            varies = (cv(rate.rates) or 0.0) * 100
            flags.append(
                f"prompt rate at {rate.tokens} tokens estimated from the time to the first token, "
                f"as this server does not report it; the estimates vary by {varies:.0f} %"
            )
    return flags
