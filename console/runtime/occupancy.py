"""How busy a model server is with requests, as it says itself: by `/slots` of llama.cpp, or by the
`/metrics` of llama.cpp, vLLM, SGLang and what follows their names. Standard library only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from console.common.text import decode
from console.runtime.probe import ProbeError, at_path, fetch, is_processing

VLLM_LIKE = ("vllm", "aphrodite", "lmdeploy")
RUNNING = frozenset({
    "llamacpp_requests_processing", "llamacpp_requests_deferred",
    "sglang_num_running_reqs", "sglang_num_queue_reqs", "tgi_batch_current_size", "tgi_queue_size",
    *(f"{name}_num_requests_{state}" for name in VLLM_LIKE for state in ("running", "waiting")),
})  # fmt: skip
GENERATED = frozenset({
    "sglang_generation_tokens_total", "tgi_request_generated_tokens_sum",
    *(f"{name}_generation_tokens_total" for name in VLLM_LIKE),
})  # fmt: skip
PROMPTED = frozenset({
    "llamacpp_prompt_tokens_total", "sglang_prompt_tokens_total", "tgi_request_input_length_sum",
    *(f"{name}_prompt_tokens_total" for name in VLLM_LIKE),
})  # fmt: skip
TOKENS, SECONDS = "llamacpp_tokens_predicted_total", "llamacpp_tokens_predicted_seconds_total"
WANTED = RUNNING | GENERATED | PROMPTED | {TOKENS, SECONDS}
RAY = "ray_"
"""What Ray puts before the names of the engine that it runs."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """`processing` requests now, None where the server does not say; `slots` it has, 0 if unknown.
    `answered`: tokens and seconds of all answers since its start, None if unknown; `generated`:
    their tokens alone, also where they are counted before an answer is whole; `prompted`: tokens of
    prompts that it has read. `tasks`: (slot, number of its newest request). `live`: `processing` is
    of this moment; a gauge of /metrics may be as old as SGLang's half minute. `why`: why the
    requests are not known. `refused`: nobody listens there."""

    processing: int | None = None
    slots: int = 0
    answered: tuple[float, float] | None = None
    generated: float | None = None
    prompted: float | None = None
    tasks: frozenset[tuple[int, int]] = frozenset()
    live: bool = False
    why: str = ""
    refused: bool = False

    @property
    def known(self) -> bool:
        return self.processing is not None


def look(url: str, timeout_s: float = 2.0, *, counters: bool = False) -> Occupancy:
    """What the server says now. Never raises.

    `/metrics` is asked only where `/slots` says nothing or something is processed, or for the
    `counters`: llama.cpp begins its averages anew with every question.
    """
    slots, why = _slots(url, timeout_s)
    tasks = frozenset(_tasks(slots or ()))
    processing = sum(map(is_processing, slots)) if slots is not None else None
    if processing == 0 and not counters:
        return Occupancy(0, len(slots or ()), tasks=tasks, live=True)
    if why == REFUSED:
        return Occupancy(why=why, refused=True)
    metrics, trouble = _metrics(url, timeout_s)
    running = [metrics[name] for name in RUNNING if name in metrics]
    if processing is None and running:
        processing = int(sum(running))
    answered = (
        (metrics[TOKENS], metrics[SECONDS]) if TOKENS in metrics and SECONDS in metrics else None
    )
    generated = [metrics[name] for name in (*GENERATED, TOKENS) if name in metrics]
    prompted = [metrics[name] for name in PROMPTED if name in metrics]
    return Occupancy(
        processing, len(slots or ()), answered,
        sum(generated) if generated else None, sum(prompted) if prompted else None,
        tasks, slots is not None, "" if processing is not None else f"{why}, {trouble}",
    )  # fmt: skip


REFUSED = "connection refused"


def _slots(url: str, timeout_s: float) -> tuple[list[dict[str, Any]] | None, str]:
    """The slots, or None and why not."""
    try:
        reply = fetch(at_path(url, "/slots"), timeout_s=timeout_s)
        if reply.status != 200:
            return None, f"/slots says HTTP {reply.status}"
        value = json.loads(reply.body)
    except ProbeError as error:
        return None, REFUSED if error.kind == "refused" else f"/slots: {error.title}"
    except (ValueError, RecursionError):
        return None, "/slots is no JSON"
    rows = value if isinstance(value, list) else []
    slots = [row for row in rows if isinstance(row, dict)]
    return slots or None, "" if slots else "/slots lists none"


def _tasks(slots: Any) -> list[tuple[int, int]]:
    """(slot, its newest request) of the slots that tell; older builds of llama.cpp and
    ik_llama.cpp call it `task_id`, and -1 is none."""
    tasks = []
    for number, slot in enumerate(slots):
        task = slot.get("id_task", slot.get("task_id"))
        if type(task) is int and task >= 0:
            tasks.append((number, task))
    return tasks


def _metrics(url: str, timeout_s: float) -> tuple[dict[str, float], str]:
    """Wanted figures of the text format, summed over their labels; and if there are none, why."""
    try:
        reply = fetch(at_path(url, "/metrics"), timeout_s=timeout_s)
    except ProbeError as error:
        return {}, f"/metrics: {error.title}"
    if reply.status != 200:
        return {}, f"/metrics says HTTP {reply.status}"
    metrics: dict[str, float] = {}
    for line in decode(reply.body).splitlines():
        name = line.partition(" ")[0].partition("{")[0].replace(":", "_").removeprefix(RAY)
        if name in WANTED:
            try:
                value = float(line.rpartition("}")[2].split()[0 if "}" in line else 1])
            except (ValueError, IndexError):
                continue
            if 0 <= value < 1e15:
                metrics[name] = metrics.get(name, 0.0) + value
    return metrics, "/metrics does not name the requests"
