"""How busy a model server is with other people's requests, as it says itself, by `/slots` of
llama.cpp or by `/metrics` (llama.cpp, vLLM, SGLang). Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from console.common.text import decode
from console.runtime.probe import ProbeError, at_path, fetch, is_processing

RUNNING = (
    "llamacpp:requests_processing", "llamacpp:requests_deferred", "vllm:num_requests_running",
    "vllm:num_requests_waiting", "sglang:num_running_reqs", "sglang:num_queue_reqs",
)  # fmt: skip
GENERATED = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
TOKENS, SECONDS = "llamacpp:tokens_predicted_total", "llamacpp:tokens_predicted_seconds_total"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`processing` requests now, None where the server does not say; `slots` it has, 0 if unknown.
    `answered`: tokens and seconds of all answers since its start, None if unknown; `generated`:
    their tokens alone, also where they are counted before an answer is whole."""

    processing: int | None = None
    slots: int = 0
    answered: tuple[float, float] | None = None
    generated: float | None = None


def look(url: str, timeout_s: float = 2.0) -> Occupancy:
    """What the server says now. Never raises.

    `/metrics` is asked only where `/slots` says nothing or something is processed: llama.cpp begins
    its averages anew with every question.
    """
    slots = _slots(url, timeout_s)
    processing = sum(map(is_processing, slots)) if slots is not None else None
    if processing == 0:
        return Occupancy(0, len(slots or ()))
    found = _metrics(url, timeout_s)
    running = [found[name] for name in RUNNING if name in found]
    if processing is None and running:
        processing = int(sum(running))
    answered = (found[TOKENS], found[SECONDS]) if TOKENS in found and SECONDS in found else None
    generated = [found[name] for name in (*GENERATED, TOKENS) if name in found]
    return Occupancy(processing, len(slots or ()), answered, sum(generated) if generated else None)


def _slots(url: str, timeout_s: float) -> list[dict[str, Any]] | None:
    try:
        reply = fetch(at_path(url, "/slots"), timeout_s=timeout_s)
        value = json.loads(reply.body) if reply.status == 200 else None
    except (ProbeError, ValueError, RecursionError):
        return None
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict)] or None


def _metrics(url: str, timeout_s: float) -> dict[str, float]:
    """Wanted figures of the text format, summed over their labels; empty without any."""
    try:
        reply = fetch(at_path(url, "/metrics"), timeout_s=timeout_s)
    except ProbeError:
        return {}
    found: dict[str, float] = {}
    for line in decode(reply.body).splitlines() if reply.status == 200 else ():
        name = line.partition(" ")[0].partition("{")[0]
        if name in (*RUNNING, *GENERATED, TOKENS, SECONDS):
            try:
                value = float(line.rpartition(" ")[2])
            except ValueError:
                continue
            if 0 <= value < 1e15:
                found[name] = found.get(name, 0.0) + value
    return found
