"""Figures of one request, computed from its time stamps; an uncertain figure is None.

A chunk is not a token: servers hold back text and speculate, so tokens are counted by the server or
its tokenizer, never by events.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from console.bench.sse import Event, Reply, Timings
from console.common.text import without_parentheses

Tokenize = Callable[[str], int | None]
"""Text → tokens, or None when the server cannot say."""

NS = 1e9
DISAGREEMENT = 0.05
ENOUGH_TOKENS = 64
LOOSE_TOKENS = 8
"""Tokens without text that every answer may have: those that open and close its parts."""
REPEATED = 0.01
"""Share of all requests that may be sent twice before the transport counts as broken."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One request's figures: seconds, tokens and tok/s; None if unavailable.

    A sample with `void` must not enter any statistic; `error` is set when it also failed.
    """

    ttft_s: float | None = None
    ttfo_s: float | None = None
    e2e_s: float | None = None
    tpot_s: float | None = None
    tok_s: float | None = None
    decode_tok_s: float | None = None
    prompt_tok_s: float | None = None
    server_decode_tok_s: float | None = None
    stall_s: float | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    token_source: str = ""
    first_chunk_tokens: float | None = None
    chunks: int = 0
    transport_retries: int = 0
    swapped_in: int | None = None
    """Bytes, of the whole machine, during the request; None if not observed."""
    major_faults: int | None = None
    error: str = ""
    void: str = ""
    garbled: str = ""
    """Why its text is no answer, in words; such a sample is void."""
    odd: str = ""
    """Weak signs that its text falls apart, in words; they count where most answers have some."""
    finish: str = ""
    """The server's reason for the end of its answer."""
    flags: list[str] = field(default_factory=list)


def measure(
    reply: Reply, max_tokens: int, tokenize: Tokenize | None = None, *, min_tokens: int = 0
) -> Sample:
    """Make a Sample from a Reply; `tokenize` counts tokens if the server did not report them.
    An answer of fewer than `min_tokens` is void; by default one shorter than `max_tokens`."""
    text = [event for event in reply.events if event.is_text]
    flags: list[str] = []
    if reply.extras_refused:
        flags.append("the server refuses cache_prompt and ignore_eos")
    if reply.failure is None and not reply.done:
        flags.append("a stream ended without [DONE]")
    tokens, source = count_tokens(reply, tokenize)
    e2e = _seconds(reply.started_ns, reply.ended_ns)
    server = server_decode_rate(reply.timings)
    has_token_counts = any(event.tokens for event in text) or len(text) == tokens
    begin = (
        tokenize(reply.first_text)
        if tokenize and not has_token_counts and reply.first_text
        else None
    )
    hidden = unseen_tokens(reply, text, tokens, tokenize)
    if hidden and tokens:
        seen = tokens - hidden
        words = f"{hidden} of {tokens} tokens came without text"
        flags.append(f"{words}: the decode rate is that of the {seen} that were seen")
    decode, first = decode_rate(text, (tokens or 0) - hidden, flags, begin)
    decode = _checked(decode, server, flags) if text else None
    size = len(reply.raw_text.encode(errors="replace"))
    if tokens and size and tokens > size:
        # more than one token a byte: invisible ones, or a wrong count
        flags.append(f"decode rate estimated: {tokens} tokens claimed for {size} bytes of text")
    return Sample(
        ttft_s=_first(reply, text),
        ttfo_s=_first(reply, [event for event in text if event.is_answer]),
        e2e_s=e2e,
        tpot_s=1 / decode if decode else None,
        tok_s=tokens / e2e if tokens and e2e else None,
        decode_tok_s=decode,
        prompt_tok_s=prompt_rate(reply),
        server_decode_tok_s=server,
        stall_s=largest_gap(text),
        completion_tokens=tokens,
        prompt_tokens=prompt_tokens(reply),
        token_source=source,
        first_chunk_tokens=first,
        chunks=len(text),
        transport_retries=reply.transport_retries,
        error=str(reply.failure) if reply.failure else "",
        finish=reply.finish_reason,
        void=void_reason(reply, tokens, max_tokens, min_tokens or max_tokens),
        flags=flags,
    )


def count_tokens(reply: Reply, tokenize: Tokenize | None) -> tuple[int | None, str]:
    """Completion tokens and who counted them: usage, else timings, else the tokenizer."""
    if reply.completion_tokens is not None:
        return reply.completion_tokens, "usage"
    if reply.timings is not None and reply.timings.predicted_n is not None:
        return int(reply.timings.predicted_n), "timings"
    if tokenize is not None and reply.raw_text and reply.failure is None:
        counted = tokenize(reply.raw_text)
        if counted is not None:
            return counted, "tokenizer"
    return None, ""


def unseen_tokens(
    reply: Reply, text: list[Event], tokens: int | None, tokenize: Tokenize | None
) -> int:
    """How many of the server's tokens came without text, as thinking that it counts and does not
    show: their time lies before the first text, so they would be too many for the time after it.

    Where events carry a running count, or each token had an event, there are none to look for. Else
    the server's own count of thinking tells, where none was shown, or its tokenizer.
    """
    first = next((event.tokens for event in text if event.at_ns == text[0].at_ns), None)
    if not tokens or not text or first or len(text) >= tokens:
        return 0
    if reply.reasoning_tokens and not reply.reasoning:
        return min(reply.reasoning_tokens, tokens - 1)
    counted = tokenize(reply.raw_text) if tokenize and reply.raw_text else None
    if not counted or tokens - counted <= max(LOOSE_TOKENS, DISAGREEMENT * tokens):
        return 0
    return tokens - counted


def decode_rate(
    text: list[Event], tokens: int | None, flags: list[str], begin: int | None = None
) -> tuple[float | None, float | None]:
    """(N − k) / (t_last − t_first) in tok/s, and k, the tokens that arrived at t_first.

    k = 1 would read 2.4 % high at 4 tokens an event and 13 % at 16 (N = 128). Where events
    carry no running count, k is `begin`, the tokens of the first text by the tokenizer; without
    that it is estimated from N over the number of events, and flagged.
    N is the count at the last text event if that carries one.
    """
    if not text or not tokens:
        return None, None
    together = [event for event in text if event.at_ns == text[0].at_ns]
    first, last = together[-1].tokens or begin, text[-1].tokens
    k = float(first) if first else max(1.0, tokens / len(text)) * len(together)
    n = last if first and last else tokens
    if not first and len(text) != tokens:
        doubt = "" if begin else ", if all tokens came as text"
        flags.append(f"tokens in the first chunk estimated as {k:.3g}{doubt}")
    span = _seconds(text[0].at_ns, text[-1].at_ns)
    if not span or n <= k:
        return None, k
    if tokens < ENOUGH_TOKENS:
        flags.append(f"decode rate over {tokens} tokens only, {ENOUGH_TOKENS} are advised")
    return (n - k) / span, k


def _checked(decode: float | None, server: float | None, flags: list[str]) -> float | None:
    """The decode rate, flagged if the server's own disagrees by more than 5 %.

    No client sees tokens faster than they are made: a higher rate, or all tokens at one moment,
    mean that this process was held up and then found them all at once. The server's own rate
    stands in for it then, so that a busy machine costs no figure. A lower one may be the network.
    """
    if server is None:
        return decode
    if decode is None or decode > server * (1 + DISAGREEMENT):
        flags.append("tokens came in bursts: the decode rate is the server's own")
        return server
    if abs(decode / server - 1) > DISAGREEMENT:
        flags.append(f"decode {decode:.4g} tok/s here, {server:.4g} tok/s by the server's timings")
    return decode


def server_decode_rate(timings: Timings | None) -> float | None:
    """(predicted_n − 1) · 1000 / predicted_ms in tok/s, from llama-server's timings.

    Recomputed, because builds differ in whether their own figure counts the first token.
    """
    if timings is None or not timings.predicted_ms or not timings.predicted_n:
        return None
    rate = (timings.predicted_n - 1) * 1000 / timings.predicted_ms
    return rate if 0 < rate < math.inf else None


def prompt_rate(reply: Reply) -> float | None:
    """prompt_n · 1000 / prompt_ms in tok/s, only if no part of the prompt was cached."""
    timings = reply.timings
    if timings is None or not timings.prompt_n or not timings.prompt_ms:
        return None
    cached = timings.cache_n if timings.cache_n is not None else reply.cached_tokens
    rate = timings.prompt_n * 1000 / timings.prompt_ms
    return rate if cached == 0 and rate < math.inf else None


def largest_gap(text: list[Event]) -> float | None:
    """The longest pause between two text chunks, in seconds; a chunk may hold many tokens."""
    gaps = [b.at_ns - a.at_ns for a, b in itertools.pairwise(text)]
    longest = max(gaps, default=-1)
    return longest / NS if longest >= 0 else None


def prompt_tokens(reply: Reply) -> int | None:
    """Tokens of the prompt by the server's count, in usage or else in timings."""
    timings = reply.timings
    if reply.prompt_tokens is not None or timings is None or timings.prompt_n is None:
        return reply.prompt_tokens
    return int(timings.prompt_n + (timings.cache_n or 0))


def void_reason(reply: Reply, tokens: int | None, max_tokens: int, least: int) -> str:
    """Why the run must not be averaged, or ""."""
    if reply.failure is not None:
        return str(reply.failure)
    if reply.contradiction:
        return f"the server contradicts itself: {reply.contradiction}"
    used, timed = reply.completion_tokens, reply.timings.predicted_n if reply.timings else None
    # more than one token apart: some count the one that ended the text
    if used is not None and timed is not None and abs(used - timed) > 1:
        both = f"usage says {used} tokens, timings say {timed:g}"
        return f"the server contradicts itself: {both}"
    cached = max(
        reply.cached_tokens or 0, int((reply.timings.cache_n if reply.timings else None) or 0)
    )
    if cached:
        return f"{cached} tokens of the prompt came from a cache"
    if tokens is None:
        return "the server does not say how many tokens it generated"
    if tokens > max_tokens:
        return f"the server claims {tokens} tokens, more than the {max_tokens} asked for"
    if tokens < least:
        return f"short output, {tokens} of {max_tokens} tokens"
    if not any(event.is_text for event in reply.events):
        return "no text arrived"
    return ""


def discarded(reasons: Iterable[str]) -> str:
    """Why runs were discarded, the most frequent reasons first."""
    counts = Counter(without_parentheses(reason) for reason in reasons if reason)
    return "; ".join(reason for reason, _ in counts.most_common(2))


def repeated(count: int, request_count: int) -> list[str]:
    """A remark on `count` requests, out of `request_count`, that an empty 400 answered first."""
    if not count:
        return []
    were = "was" if count == 1 else "were"
    flags = [
        f"{count} of {request_count} requests {were} sent twice: the server answered an empty 400"
    ]
    if count > REPEATED * request_count:
        flags.append("the transport is broken: more than 1 % was sent twice")
    return flags


def _first(reply: Reply, events: list[Event]) -> float | None:
    return _seconds(reply.started_ns, events[0].at_ns) if events else None


def _seconds(start_ns: int, end_ns: int) -> float | None:
    """The time between two stamps, None if it is not positive."""
    return (end_ns - start_ns) / NS if end_ns > start_ns else None
