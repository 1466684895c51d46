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
from functools import partial
from typing import Any

from console.bench.answers import Answers, Exchange, Garbage, Kept
from console.bench.beside.users import NOT_SAID, saw_others
from console.bench.client import (
    PROMPTS,
    ChatRequest,
    ClockNs,
    Endpoint,
    OnEvent,
    Waiting,
    endpoint,
    stream_chat,
)
from console.bench.concurrency import Level, Say, measure_level, unmeasured
from console.bench.interference import Look, Surroundings
from console.bench.metrics import MAX_PROMPT, MIN_PROMPT
from console.bench.prompt_rate import ANSWER, PromptRate, measure_prompt_rates, prompt_flags
from console.bench.sample import Sample, Tokenize, measure, repeated
from console.bench.sse import SILENCE_S, FailureKind, Reply, json_object
from console.bench.statistics import MetricSummary, cv, describe, finite, summarise
from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.runtime.answers.sanity import Kind
from console.runtime.probe import ProbeError, fetch

ENOUGH_RUNS = 5
MAX_FAILURES = 3
JUDGED_TOKENS = 48
"""From how many tokens an answer on the nonsense of a broken model shows in most measurements: with
three prompts in 279 of 300 of them, with 32 in none."""
TOO_SHORT = "answers of {} tokens cannot tell sense from nonsense: use 48 or more, or `expect`"
OTHERS_GO_ON = "stopped, as others went on using the servers"
NOBODY_SAYS = f"stopped, as a server {NOT_SAID}"
WAIT_S, WAITS_S, LOOK_S = 60.0, 300.0, 2.0
"""How long one request of ours waits while others are answered, all of them together, and how often
it looks meanwhile."""
INFO_LIMIT = 2**20
INFO_S = 10.0

Progress = Callable[[int, int, Sample], None]
"""Called after each request with (run, runs planned, sample); run 0 is a warm-up."""

MAX_STREAMS = 64


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
    prompts of `prompt_lengths` tokens, and `levels` of streams at once. An answer in which the
    pattern `expect` is not found is garbled. Raises ValueError for counts that measure nothing.
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
    expect: str = ""

    def __post_init__(self) -> None:
        if not self.prompts or self.runs < 1 or self.max_tokens < 2 or self.warmup < 0:
            raise ValueError("at least one prompt, one run, two tokens and no negative warm-up")
        if any(not 2 <= streams <= MAX_STREAMS for streams in self.levels):
            raise ValueError(f"2 to {MAX_STREAMS} streams at once")
        if any(not MIN_PROMPT <= length <= MAX_PROMPT for length in self.prompt_lengths):
            raise ValueError(f"prompts of {MIN_PROMPT} to {MAX_PROMPT} tokens")


@dataclass(slots=True)
class BenchmarkResult:
    """All figures of one benchmark, as plain data.

    `metrics` is by the names of METRICS; `voids` lists the runs left out; `cold` is the very
    first request, reported apart since it pages the model in (None without a warm-up).
    `started_at` is Unix time, `duration_s` seconds; `context` is what Surroundings.close gives.
    `answers` has one for each prompt; `garbled` is None where every answer was sane.
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
    answers: list[Kept] = field(default_factory=list)
    garbled: Garbage | None = None
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
    a row end the benchmark early, and so do three garbled answers of a server that gives few
    others; a silence does at once; a cancel, or the end of the budget, keeps what was measured.
    `surroundings` judges other activity; `say` is called now and then while several streams run,
    `held` while a request of ours waits until those of others are answered, `waiting` hears the
    events of a single one. An exception from `progress`, `say` or `held` ends the benchmark.
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
    held: Say | None = None
    waiting: Waiting | None = None

    def __post_init__(self) -> None:
        protocol = self.protocol
        self._retries: list[int] = []
        self._hangs = False
        self._in_vain, self._may_wait_s, self._busy = 0, WAITS_S, ""
        self._answers = Answers(protocol.expect)
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
            sample = self._take_sample(next(prompts))
            if sample is None:
                break
            result.cold = sample if number == 0 else result.cold
            self._report(0, sample)
        # Warm-ups take prompts of their own, so that the measured set is always the same.
        prompts = itertools.cycle(protocol.prompts)
        while not self.cancelled.is_set() and self._left() > 0 and self._wants_more():
            sample = self._take_sample(next(prompts))
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
        last = runs[-MAX_FAILURES:]
        if self._hangs or self._in_vain >= MAX_FAILURES:
            return False
        if len(last) == MAX_FAILURES and all(sample.error for sample in last):
            return False
        if self._talks_garbage():
            return False
        if len(runs) < protocol.runs:
            return True
        rates = finite(sample.tok_s for sample in runs if not sample.void)
        spread = cv(rates)
        steady = spread is not None and spread <= protocol.cv_target
        enough = steady and len(rates) >= protocol.runs
        return len(runs) < protocol.max_runs and len(rates) > 1 and not enough

    def _talks_garbage(self) -> bool:
        """Whether no more runs are worth their time."""
        last, spoilt = self._result.runs[-MAX_FAILURES:], self._answers.garbage
        in_a_row = len(last) == MAX_FAILURES and all(sample.garbled for sample in last)
        return in_a_row and spoilt is not None and spoilt.mostly

    def _left(self) -> float:
        """Seconds left of the budget."""
        return self._ends - self.clock.monotonic()

    def _prompt_only(self, prompt: str) -> Sample | None:
        """A prompt whose answer may be short; None when it was cancelled or no time is left."""
        return self._take_sample(prompt, ANSWER, least=1) if self._left() > 0 else None

    def _take_sample(self, prompt: str, max_tokens: int = 0, least: int = 0) -> Sample | None:
        """One request, judged by its surroundings; None when it was cancelled."""
        around = self.surroundings
        if around is None:
            exchange = self._ask(prompt, max_tokens, least)
        else:
            before = self._quiet(around)
            if self.cancelled.is_set():
                return None
            if isinstance(before, str):
                return Sample(void=before)
            with around.users.following():
                exchange = self._ask(prompt, max_tokens, least)
            if exchange is not None:
                exchange.sample = around.judge(exchange.sample, before, around.look())
        if exchange is None:
            return None
        if least:  # such an answer is a few tokens, or none
            return exchange.sample
        return self._answers.judge(exchange, lambda: self._ask_freely(exchange.request))

    def _ask(self, prompt: str, max_tokens: int, least: int) -> Exchange | None:
        if self.waiting is None:
            return self._send(prompt, self.cancelled, None, max_tokens, least)
        with self.waiting as waiting:
            return self._send(prompt, self.cancelled, waiting.take, max_tokens, least)

    def _ask_freely(self, request: ChatRequest) -> Reply:
        """The reply to the same request where the model may end its answer."""
        return stream_chat(
            self.url, replace(request, free=True), silence_s=self.protocol.silence_s,
            timeout_s=max(0.001, min(self.protocol.timeout_s, self._left())),
            cancelled=self.cancelled,
        )  # fmt: skip

    def _quiet(self, around: Surroundings) -> Look | str:
        """The machine once nobody else is answered; or why no request is sent, if that took too
        long: it would tell nothing, and hold up whoever uses the server."""
        began, last_reason = self.clock.monotonic(), ""
        patience_s = min(WAIT_S, self._may_wait_s)
        while True:
            before = around.look()
            busy = around.users.busy(before.requests)
            waited_s = self.clock.monotonic() - began
            if not busy or waited_s >= patience_s or self._left() <= 0 or self.cancelled.is_set():
                break
            if self.held is not None and busy != last_reason:
                self.held(f"waits: {busy}")
            last_reason = busy
            self.clock.wait(self.cancelled, LOOK_S)
        if waited_s >= LOOK_S / 2:
            if saw_others(busy or last_reason):
                around.users.waited_s += waited_s
            else:
                around.users.waited_blindly_s += waited_s
            self._may_wait_s -= waited_s
        self._in_vain, self._busy = self._in_vain + 1 if busy else 0, busy
        return f"not sent: {busy}" if busy else before

    def _send(
        self, prompt: str, cancelled: threading.Event, on_event: OnEvent | None = None,
        max_tokens: int = 0, least: int = 0,
    ) -> Exchange | None:  # fmt: skip
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
        sample = measure(reply, request.max_tokens, counts, min_tokens=least)
        return Exchange(prompt, request, reply, sample)

    def _level(self, streams: int) -> Level:
        """Several streams at once, after and apart from the single one."""
        around, sent = self.surroundings, list[Sample]()

        def send(prompt: str, over: threading.Event) -> Sample | None:
            exchange = self._send(prompt, over)
            if exchange is None:
                return None
            sent.append(exchange.sample)
            return self._answers.judge(exchange)

        measure_it = partial(
            measure_level, send, self.protocol.prompts, streams,
            cancelled=self.cancelled, say=self.say,
        )  # fmt: skip
        if around is None:
            level = measure_it()
        elif isinstance(before := self._quiet(around), str):
            level = unmeasured(streams, before)
        else:
            with around.users.following(streams):
                level = measure_it()
            used = around.users.judge(sent, before.requests, around.users.look())
            level = unmeasured(streams, used, len(sent)) if used else level
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
        if self._answers.fall_apart:
            result.runs = [_garbled(sample) for sample in result.runs]
        result.metrics = summarise(result.runs)
        result.metrics |= self._prompt_metric()
        valid = result.metrics["runs"].n
        result.voids = [
            {"run": number, "reason": sample.void}
            for number, sample in enumerate(result.runs, 1)
            if sample.void
        ]
        result.transport_retries = sum(self._retries)
        result.answers, result.garbled = self._answers.kept, self._answers.garbage
        flags = [str(result.garbled)] if result.garbled is not None else []
        flags += repeated(sum(map(bool, self._retries)), len(self._retries))
        flags += [flag for sample in result.runs for flag in sample.flags]
        flags += prompt_flags(result.prompt_rates)
        flags += [flag for level in result.levels for flag in level.flags]
        short = protocol.max_tokens < JUDGED_TOKENS and not protocol.expect
        if short and valid and result.garbled is None:
            flags.append(TOO_SHORT.format(protocol.max_tokens))
        if valid < ENOUGH_RUNS:
            flags.append(f"{valid} valid runs, at least {ENOUGH_RUNS} are advised")
        spread = result.metrics["tok_s"].cv
        if spread is not None and spread > protocol.cv_target:
            target = f"{protocol.cv_target:.1%}"
            flags.append(f"tok/s varies by {spread:.1%} between runs, the target is {target}")
        if self._in_vain >= MAX_FAILURES:
            flags.append(OTHERS_GO_ON if saw_others(self._busy) else NOBODY_SAYS)
        elif not result.cancelled and len(result.runs) < protocol.runs:
            late = "the time ran out" if self._left() <= 0 else ""
            late = "stopped, as the server hangs" if self._hangs else late
            late = "stopped, as it answers garbage" if self._talks_garbage() else late
            flags.append(late or f"stopped after {MAX_FAILURES} failures in a row")
        elif self._hangs:
            flags.append("ended after its runs, as the server hangs")
        result.flags = list(dict.fromkeys(flags))
        return result

    def _prompt_metric(self) -> dict[str, MetricSummary]:
        """The prompt rate of the longest prompts that have one, instead of that of the runs."""
        prompt_rates = self._result.prompt_rates
        if not prompt_rates:
            return {}
        used = next((rate for rate in reversed(prompt_rates) if rate.rates), prompt_rates[-1])
        summary = describe("prompt_tok_s", used.rates)
        return {"prompt_tok_s": replace(summary, estimated=used.estimated, why=used.why)}


def fetch_json(url: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object at `path` of the server (POST with a body); {} for anything else, and if it
    is not complete after INFO_S."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if body is not None else None
    full_url = endpoint(url, path)
    try:
        reply = fetch(full_url, body=data, timeout_s=INFO_S, limit=INFO_LIMIT, headers=headers)
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


def _garbled(sample: Sample) -> Sample:
    """A sample of a measurement in which weak signs are strong."""
    if sample.void or not sample.odd:
        return sample
    return replace(sample, void=f"garbled: {Kind.DEGENERATE}", garbled=sample.odd)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _without_password(url: str) -> str:
    scheme, mark, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"
