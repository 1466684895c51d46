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

from console.bench.metrics import PROMPT_ROUNDS, Sample
from console.bench.statistics import finite, median, std
from console.common.units import format_number

ANSWER = 8
"""Most tokens of an answer: only its first one counts, and that may be invisible."""
SHORT, MEDIUM = 8, 72
"""Words of the short prompt, and of the one that shows how many tokens a word has."""
NOISE = 3.0
"""A difference below so many standard deviations of the short prompt's time says nothing."""
WORDS = (
    "river window orange market silver garden engine paper winter bridge copper island letter "
    "morning yellow stone forest table music harbor pocket candle thunder village needle ocean "
    "planet ribbon saddle tunnel velvet wagon anchor basket cotton desert feather guitar hammer "
    "jacket kitchen ladder mirror napkin pepper rocket shadow ticket"
)

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
    """Rates for each length in tokens, shortest first; [] when it was cancelled."""
    chance = random.Random(secrets.token_bytes(8))
    per_word, fixed, why = _calibrated(ask, chance)
    if per_word is None:
        return [PromptRate(length, why=why) for length in sorted(lengths)] if why else []
    words = {n: max(MEDIUM, round((n - fixed) / per_word)) for n in sorted(lengths)}
    short: list[Sample] = []
    found: dict[int, list[Sample]] = {length: [] for length in words}
    refused: dict[int, str] = {}
    for turn in range(1, PROMPT_ROUNDS + 1):
        for length in (0, *words):
            if length in refused:
                continue
            if length:
                say(f"prompt of {length} tokens, {turn}/{PROMPT_ROUNDS}")
            sample = ask(prompt(words.get(length, SHORT), chance))
            if sample is None:
                return []
            if _usable(sample):
                (found[length] if length else short).append(sample)
            elif length:
                refused[length] = sample.void or sample.error or "no first token was seen"
    return [
        PromptRate(length, why=refused[length])
        if length in refused
        else _rate(length, those, short)
        for length, those in found.items()
    ]


def _usable(sample: Sample) -> bool:
    return not sample.void and sample.ttft_s is not None and sample.prompt_tokens is not None


def _calibrated(ask: Ask, chance: random.Random) -> tuple[float | None, float, str]:
    """Tokens of a word, tokens of the template around it, and why neither is known."""
    counted = []
    for words in (SHORT, MEDIUM):
        sample = ask(prompt(words, chance))
        if sample is None:
            return None, 0.0, ""
        if sample.prompt_tokens is None:
            return None, 0.0, sample.void or "the server does not count the tokens of a prompt"
        counted.append(sample.prompt_tokens)
    per_word = (counted[1] - counted[0]) / (MEDIUM - SHORT)
    if per_word <= 0:
        return None, 0.0, f"the server counts {counted[1]} tokens in {MEDIUM} words"
    return per_word, counted[0] - SHORT * per_word, ""


def _rate(length: int, those: list[Sample], short: list[Sample]) -> PromptRate:
    """By the server's own figure where every answer has one, else by the difference in time."""
    tokens = round(median([float(one.prompt_tokens or 0) for one in those]) or 0) or None
    told = finite(one.prompt_tok_s for one in those)
    if told and len(told) == len(those):
        return PromptRate(length, tokens, told)
    quick = finite(one.ttft_s for one in short)
    base, base_tokens = median(quick), median([float(one.prompt_tokens or 0) for one in short])
    if base is None or base_tokens is None:
        return PromptRate(length, tokens, why="no short prompt was answered")
    least = NOISE * (std(quick) or 0.0)
    rates = []
    for one in those:
        more_s = (one.ttft_s or 0.0) - base
        more = (one.prompt_tokens or 0) - base_tokens
        if more > 0 and more_s > max(least, 0.0):
            rates.append(more / more_s)
    if len(rates) < len(those):
        spread = format_number(std(quick) or 0.0, "s")
        why = f"too quick to tell from a short prompt, which varies by {spread}"
        return PromptRate(length, tokens, why=why)
    return PromptRate(length, tokens, rates, estimated=True)


def prompt_flags(rates: list[PromptRate]) -> list[str]:
    """Remarks on rates that are estimated, and on lengths without one."""
    flags = []
    for one in rates:
        if one.why:
            flags.append(f"no prompt rate at {one.asked} tokens: {one.why}")
        elif one.estimated:
            flags.append(
                f"prompt rate at {one.tokens} tokens estimated from the time to the first token: "
                "this server does not report it"
            )
    return flags
