"""Several streams at once: a server's figures under load, reported beside those of one stream.

Each of N streams sends the same prompts one after another, starting at a different one, so that all
N are busy nearly to the end. The figures are never mixed with a single stream's, and no gate reads
them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from console.bench.sample import Sample
from console.bench.statistics import finite, median

PROMPTS_A_STREAM = 3
POLL_S = 0.2
CLIENT_BUSY = 0.8

Send = Callable[[str, threading.Event], Sample | None]
"""One request, from any thread; None when it was cancelled."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Level:
    """The result of `streams` parallel requests, `requests` in all; seconds and tok/s.

    `tok_s` is all streams together: every completion token over the time from the first request to
    the last answer. It is None if a request was void, because the level was not held then. The
    others are of one stream: medians, and the longest wait for a first token.
    """

    streams: int
    requests: int
    valid: int
    tok_s: float | None
    decode_tok_s: float | None
    ttft_s: float | None
    ttft_max_s: float | None
    duration_s: float
    voids: dict[str, int] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)


def measure_level(
    send: Send,
    prompts: Sequence[str],
    streams: int,
    *,
    cancelled: threading.Event,
    say: Say | None = None,
    monotonic: Callable[[], float] = time.perf_counter,
) -> Level:
    """Send all requests of one level; an exception from `say` (a deadline) ends the streams and is
    raised. At most three prompts a stream: 64 streams of a long list would take all day."""
    each = min(len(prompts), PROMPTS_A_STREAM)
    over = threading.Event()
    begun, cpu = monotonic(), time.process_time()

    def stream(number: int) -> list[Sample]:
        stream_samples = []
        for step in range(each):
            if over.is_set():
                break
            sample = send(prompts[(number + step) % len(prompts)], over)
            if sample is not None:
                stream_samples.append(sample)
        return stream_samples

    with ThreadPoolExecutor(streams, "stream") as pool:
        futures = [pool.submit(stream, number) for number in range(streams)]
        try:
            while left := wait(futures, POLL_S).not_done:
                if cancelled.is_set():
                    over.set()
                if say is not None:
                    say(f"{streams} streams at once: {len(left)} go on")
        finally:
            over.set()
    took = max(monotonic() - begun, 1e-9)
    samples = [sample for future in futures for sample in future.result()]
    busy = (time.process_time() - cpu) / took
    return _level(samples, streams, streams * each, took, busy)


def unmeasured(streams: int, why: str, requests: int = 0) -> Level:
    """A level without figures, and why it has none."""
    return Level(
        streams, requests, 0, None, None, None, None, 0.0, {why: requests} if requests else {},
        [f"{streams} streams: {why}"],
    )  # fmt: skip


def _level(samples: list[Sample], streams: int, planned: int, took: float, busy: float) -> Level:
    good = [sample for sample in samples if not sample.void]
    flags = []
    if len(samples) < planned:
        flags.append(f"{streams} streams: ended early, {len(samples)} of {planned} requests")
    if busy > CLIENT_BUSY:
        flags.append(f"{streams} streams: this client took {busy:.1f} cores, and may be what held")
    whole = len(good) == planned
    tokens = sum(sample.completion_tokens or 0 for sample in good)
    firsts = finite(sample.ttft_s for sample in good)
    return Level(
        streams=streams,
        requests=len(samples),
        valid=len(good),
        tok_s=tokens / took if whole and tokens else None,
        decode_tok_s=median(finite(sample.decode_tok_s for sample in good)),
        ttft_s=median(firsts),
        ttft_max_s=max(firsts, default=None),
        duration_s=took,
        voids=dict(Counter(sample.void for sample in samples if sample.void)),
        flags=flags,
    )
