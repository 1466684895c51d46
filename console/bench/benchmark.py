"""Measures a server: same prompts, one at a time, no cache, warm-up reported apart."""

from __future__ import annotations

import itertools
import json
import math
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from console.bench.client import (
    ChatRequest,
    ClockNs,
    Endpoint,
    OnEvent,
    Waiting,
    endpoint,
    stream_chat,
)
from console.bench.concurrency import Level, Say, measure_level
from console.bench.interference import Surroundings
from console.bench.metrics import (
    LEAST_PROMPT,
    MOST_PROMPT,
    Sample,
    Tokenize,
    measure,
    repeated,
)
from console.bench.prompt_rate import ANSWER, PromptRate, measure_prompt_rates, prompt_flags
from console.bench.sse import SILENCE_S, FailureKind, Reply, json_object
from console.bench.statistics import MetricSummary, cv, describe, finite, summarise
from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.runtime.probe import ProbeError, fetch

PROMPTS = (
    "Explain quantum entanglement in simple terms.",
    "Write a Python function to find prime numbers.",
    "What are the key principles of distributed systems?",
)
ENOUGH_RUNS = 5
MOST_FAILURES = 3
INFO_LIMIT = 2**20
INFO_S = 10.0

Progress = Callable[[int, int, Sample], None]
"""Called after each request with (run, runs planned, sample); run 0 is a warm-up."""

MOST_STREAMS = 64


def run_words(number: int, planned: int) -> str:
    """`run 3/9`; beyond the plan, while results vary, `run 10 (varies)`; 0 is the warm-up."""
    if not number:
        return "warm-up"
    return f"run {number}/{planned}" if number <= planned else f"run {number} (they vary)"


@dataclass(frozen=True, slots=True)
class Protocol:
    """What to send and how often; `timeout_s` bounds one request, `budget_s` all of them. An engine
    that sends nothing for `silence_s` counts as hung and is not asked again.

    After `runs` measured runs it continues, up to `max_runs`, until as many are valid and the
    coefficient of variation of tok_s is at most `cv_target`. Then it measures the prompt rate, with
    prompts of `prompt_lengths` tokens, and `levels` of streams at once. Raises ValueError for
    counts that measure nothing.
    """

    prompts: tuple[str, ...] = PROMPTS
    max_tokens: int = 256
    runs: int = 9
    warmup: int = 1
    cv_target: float = 0.05
    max_runs: int = 12
    seed: int = 42
    timeout_s: float = 600.0
    silence_s: float = SILENCE_S
    budget_s: float = math.inf
    endpoint: Endpoint = "chat"
    prompt_lengths: tuple[int, ...] = ()
    levels: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompts or self.runs < 1 or self.max_tokens < 2 or self.warmup < 0:
            raise ValueError("at least one prompt, one run, two tokens and no negative warm-up")
        if any(not 2 <= streams <= MOST_STREAMS for streams in self.levels):
            raise ValueError(f"2 to {MOST_STREAMS} streams at once")
        if any(not LEAST_PROMPT <= length <= MOST_PROMPT for length in self.prompt_lengths):
            raise ValueError(f"prompts of {LEAST_PROMPT} to {MOST_PROMPT} tokens")


@dataclass(slots=True)
class BenchmarkResult:
    """All figures of one benchmark, as plain data.

    `metrics` is by the names of METRICS; `voids` lists the runs left out; `cold` is the very
    first request, reported apart since it pages the model in (None without a warm-up).
    `started_at` is Unix time, `duration_s` seconds; `context` is what Surroundings.close gives.
    """

    url: str
    model: str = ""
    build_info: str = ""
    started_at: float = 0.0
    duration_s: float = 0.0
    protocol: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, MetricSummary] = field(default_factory=dict)
    runs: list[Sample] = field(default_factory=list)
    voids: list[dict[str, Any]] = field(default_factory=list)
    cold: Sample | None = None
    prompt_rates: list[PromptRate] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)
    transport_retries: int = 0
    flags: list[str] = field(default_factory=list)
    cancelled: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and finite numbers."""
        return asdict(self)


@dataclass
class Benchmark:
    """Measures the server at `url` (with or without /v1), one request at a time; once.

    Server errors never raise: a run that cannot be used is void, with its reason. Three failures in
    a row end the benchmark early, a silence at once; a cancel, or the end of the budget, keeps what
    was measured. `surroundings` judges other activity; `say` is called now and then while several
    streams run, `waiting` hears the events of a single one. Exceptions from `progress` and `say`
    end the benchmark.
    """

    url: str
    protocol: Protocol = Protocol()
    model: str = ""
    clock: Clock = field(default_factory=SystemClock)
    clock_ns: ClockNs = time.perf_counter_ns
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: Progress | None = None
    surroundings: Surroundings | None = None
    say: Say | None = None
    waiting: Waiting | None = None

    def __post_init__(self) -> None:
        protocol = self.protocol
        self._retries: list[int] = []
        self._hangs = False
        self._ends = self.clock.monotonic() + protocol.budget_s
        self._request = ChatRequest(
            "", protocol.max_tokens, protocol.seed, self.model, endpoint=protocol.endpoint
        )
        self._result = BenchmarkResult(one_line(_without_password(self.url)), one_line(self.model))

    def run(self) -> BenchmarkResult:
        around = self.surroundings
        if around is None:
            return self._run()
        around.open()
        try:
            result = self._run()
        finally:
            context = around.close()  # whatever is raised: the watch is a process
        result.context |= context
        result.flags += around.flags()
        return result

    def _run(self) -> BenchmarkResult:
        result, protocol = self._result, self.protocol
        started = self.clock.monotonic()
        result.started_at = self.clock.now()
        result.protocol = _plain(protocol)
        self._identify()
        prompts = itertools.cycle(protocol.prompts)
        for number in range(protocol.warmup):
            sample = self._one(next(prompts))
            if sample is None:
                break
            result.cold = sample if number == 0 else result.cold
            self._report(0, sample)
        # Warm-ups take prompts of their own, so that the measured set is always the same.
        prompts = itertools.cycle(protocol.prompts)
        while not self.cancelled.is_set() and self._left() > 0 and self._wants_more():
            sample = self._one(next(prompts))
            if sample is not None:
                result.runs.append(sample)
                self._report(len(result.runs), sample)
        works = any(not sample.void for sample in result.runs)
        if works and protocol.prompt_lengths:
            say = self.say or (lambda _: None)
            result.prompt_rates = measure_prompt_rates(
                self._prompt_only, protocol.prompt_lengths, say
            )
        for streams in protocol.levels if works else ():
            if not (self.cancelled.is_set() or self._hangs) and self._left() > 0:
                result.levels.append(self._level(streams))
        result.duration_s = self.clock.monotonic() - started
        return self._conclude()

    def _report(self, number: int, sample: Sample) -> None:
        if self.progress is not None:
            self.progress(number, self.protocol.runs, sample)

    def _wants_more(self) -> bool:
        runs, protocol = self._result.runs, self.protocol
        last = runs[-MOST_FAILURES:]
        if self._hangs:
            return False
        if len(last) == MOST_FAILURES and all(sample.error for sample in last):
            return False
        if len(runs) < protocol.runs:
            return True
        rates = finite(sample.tok_s for sample in runs if not sample.void)
        spread = cv(rates)
        steady = spread is not None and spread <= protocol.cv_target
        enough = steady and len(rates) >= protocol.runs
        return len(runs) < protocol.max_runs and len(rates) > 1 and not enough

    def _left(self) -> float:
        """Seconds left of the budget."""
        return self._ends - self.clock.monotonic()

    def _prompt_only(self, prompt: str) -> Sample | None:
        """A prompt whose answer may be short; None when it was cancelled or no time is left."""
        return self._one(prompt, ANSWER, least=1) if self._left() > 0 else None

    def _one(self, prompt: str, max_tokens: int = 0, least: int = 0) -> Sample | None:
        """One request, judged by its surroundings; None when it was cancelled."""
        around = self.surroundings
        before = around.look() if around is not None else None
        if self.waiting is None:
            sample = self._send(prompt, self.cancelled, None, max_tokens, least)
        else:
            with self.waiting as waiting:
                sample = self._send(prompt, self.cancelled, waiting.take, max_tokens, least)
        if around is None or before is None or sample is None:
            return sample
        return around.judge(sample, before, around.look())

    def _send(
        self, prompt: str, cancelled: threading.Event, on_event: OnEvent | None = None,
        max_tokens: int = 0, least: int = 0,
    ) -> Sample | None:  # fmt: skip
        """One request, from any thread; None when it was cancelled, or when one before it has met
        a server that hangs, which ends the benchmark."""
        if cancelled.is_set() or self._hangs:
            return None
        # At the front, since a server reuses the longest common beginning of two prompts.
        request = replace(
            self._request, prompt=f"[{secrets.token_hex(8)}] {prompt}",
            max_tokens=max_tokens or self.protocol.max_tokens,
        )  # fmt: skip
        reply = stream_chat(
            self.url,
            request,
            clock_ns=self.clock_ns,
            timeout_s=max(0.001, min(self.protocol.timeout_s, self._left())),
            silence_s=self.protocol.silence_s,
            cancelled=cancelled,
            on_event=on_event,
        )
        self._retries.append(reply.transport_retries)
        if reply.failure is not None and reply.failure.kind is FailureKind.CANCELLED:
            return None
        if reply.extras_refused:
            self._request = replace(self._request, extras=False)
        if reply.failure is not None and reply.failure.kind is FailureKind.SILENT:
            self._hangs = True
        counts = tokenizer(self.url, reply)
        return measure(reply, request.max_tokens, counts, least_tokens=least)

    def _level(self, streams: int) -> Level:
        """Several streams at once, after and apart from the single one."""
        level = measure_level(
            self._send, self.protocol.prompts, streams, cancelled=self.cancelled, say=self.say
        )
        slots = self._result.context.get("slots")
        if slots is not None and streams > slots:
            room = "1 slot" if slots == 1 else f"{slots} slots"
            level.flags.append(f"{streams} streams on {room}: the others waited")
        return level

    def _identify(self) -> None:
        """Build and model as the server names them; "" for a server that does not."""
        props = fetch_json(self.url, "/props")
        name = model_of(self.url) or _text(props.get("model_alias"))
        self._result.build_info = one_line(_text(props.get("build_info")))
        slots = props.get("total_slots")
        self._result.context["slots"] = slots if type(slots) is int and slots > 0 else None
        if not self._request.model:
            self._request = replace(self._request, model=name)
            self._result.model = one_line(name)

    def _conclude(self) -> BenchmarkResult:
        result, protocol = self._result, self.protocol
        result.cancelled = self.cancelled.is_set()
        result.metrics = summarise(result.runs)
        result.metrics |= self._prompt_metric()
        valid = result.metrics["runs"].n
        result.voids = [
            {"run": number, "reason": sample.void}
            for number, sample in enumerate(result.runs, 1)
            if sample.void
        ]
        result.transport_retries = sum(self._retries)
        flags = repeated(sum(map(bool, self._retries)), len(self._retries))
        flags += [flag for sample in result.runs for flag in sample.flags]
        flags += prompt_flags(result.prompt_rates)
        flags += [flag for level in result.levels for flag in level.flags]
        if valid < ENOUGH_RUNS:
            flags.append(f"{valid} valid runs, at least {ENOUGH_RUNS} are advised")
        spread = result.metrics["tok_s"].cv
        if spread is not None and spread > protocol.cv_target:
            target = f"{protocol.cv_target:.1%}"
            flags.append(f"tok/s varies by {spread:.1%} between runs, the target is {target}")
        if not result.cancelled and len(result.runs) < protocol.runs:
            late = "the time ran out" if self._left() <= 0 else ""
            late = "stopped, as the server hangs" if self._hangs else late
            flags.append(late or f"stopped after {MOST_FAILURES} failures in a row")
        elif self._hangs:
            flags.append("ended after its runs, as the server hangs")
        result.flags = list(dict.fromkeys(flags))
        return result

    def _prompt_metric(self) -> dict[str, MetricSummary]:
        """The prompt rate of the longest prompts that have one, instead of that of the runs."""
        asked = self._result.prompt_rates
        if not asked:
            return {}
        used = next((one for one in reversed(asked) if one.rates), asked[-1])
        found = describe("prompt_tok_s", used.rates)
        return {"prompt_tok_s": replace(found, estimated=used.estimated, why=used.why)}


def fetch_json(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object at `path` of the server (POST with a body); {} for anything else, and if it
    is not complete after INFO_S."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if body is not None else None
    asked = endpoint(url, path)
    try:
        reply = fetch(asked, body=data, timeout_s=INFO_S, limit=INFO_LIMIT, headers=headers)
    except (ProbeError, ValueError):
        return {}
    return (json_object(reply.body) if reply.status == 200 else None) or {}


def model_of(url: str) -> str:
    """The model that the server lists first, as some refuse any other name; "" for none."""
    data = fetch_json(url, "/v1/models").get("data")
    first = data[0] if isinstance(data, list) and data and isinstance(data[0], dict) else {}
    return _text(first.get("id"))


def tokenizer(url: str, reply: Reply) -> Tokenize | None:
    """A function that asks the server for the token count of a reply; None for a failed one."""
    return None if reply.failure else lambda text: tokenize(url, text)


def tokenize(url: str, text: str) -> int | None:
    """Tokens of `text` by the server's /tokenize (llama-server's and vLLM's form), or None."""
    answer = fetch_json(url, "/tokenize", {"content": text, "prompt": text, "add_special": False})
    tokens, count = answer.get("tokens"), answer.get("count")
    if isinstance(tokens, list):
        return len(tokens)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None


def _plain(protocol: Protocol) -> dict[str, Any]:
    """The protocol for a record; without a budget null, since JSON has no infinity."""
    budget = protocol.budget_s if math.isfinite(protocol.budget_s) else None
    return {
        **asdict(protocol), "prompts": list(protocol.prompts), "levels": list(protocol.levels),
        "prompt_lengths": list(protocol.prompt_lengths),
        "budget_s": budget,
    }  # fmt: skip


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"
