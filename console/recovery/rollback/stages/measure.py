"""Stage measure: how fast a baseline that serves is, and whether others used it meanwhile.

A rate that was measured beside requests of others is a bound from below: the server is as fast as
that, or faster. So it clears a server, and degrades none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from console.common.units import plural
from console.host.ports import is_local, lasting_clients
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.sealed_plan import Baseline
from console.recovery.rollback.stages.verify import is_used_silently, try_timeout_s
from console.runtime import occupancy
from console.runtime.answers.completion import Completion, complete, streamed
from console.runtime.answers.degenerate import broken, telling, together
from console.runtime.answers.stream import BREAKS
from console.runtime.occupancy import Occupancy
from console.runtime.probe import Health, busy, health

RUNS = 2
TOKENS = 64
LOOK_S = 1.0
"""How long a server may take, in seconds, to say who uses it."""
NUMBERS = ("no", "one", "two", "three")


@dataclass(frozen=True, slots=True)
class Measured:
    """The speed of a baseline that serves: `tok_s` in tokens a second, None if it is not known.

    `bound`: it did not finish in time, and its rate is below this. `garbled`: why its longer
    answers are none; "" if they are. `beside`: who was answered at the same time, "" for nobody.
    `remark`: what else is to be said of its answers. `broken`: how its streamed answers break, ""
    if they do not. All words are clean.
    """

    tok_s: float | None = None
    degraded: bool = False
    bound: float | None = None
    garbled: str = ""
    beside: str = ""
    remark: str = ""
    broken: str = ""


@dataclass
class Samples:
    """What the answers of one measurement gave: rates in tokens a second, of those that came while
    nobody else was answered, and of those beside others."""

    quiet: list[float] = field(default_factory=list)
    shared: list[float] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    garbled: list[str] = field(default_factory=list)
    odd: list[Completion] = field(default_factory=list)
    """Answers that gave a rate, and have signs that they fall apart."""
    broken: str = ""
    """How its streamed answers break; clean."""
    beside: str = ""
    """Who was answered beside the last sample that was not alone, in words."""

    @property
    def sane(self) -> int:
        return len(self.quiet) + len(self.shared)

    def would_end(self, limit_s: float) -> bool:
        """Whether an answer would be over in half of so many seconds at the rate of the others."""
        return bool(self.quiet) and 2 * TOKENS / max(self.quiet) < limit_s

    @property
    def doubted(self) -> bool:
        """Whether one answer was well and the other was not, so that a third one decides."""
        return len(self.garbled) + len(self.odd) == self.sane - len(self.odd) == 1

    @property
    def fall_apart(self) -> bool:
        """Whether answers of which none is garbled by itself are so together."""
        if not self.odd or len(self.odd) + len(self.garbled) <= self.sane - len(self.odd):
            return False
        return bool(self.garbled) or together([answer.signs for answer in self.odd])

    @property
    def remark(self) -> str:
        """What a reader has to know of answers of which only a minority was garbled."""
        if not self.garbled:
            return ""
        count, of = len(self.garbled), len(self.garbled) + self.sane
        return f"{NUMBERS[count]} of {NUMBERS[of]} answers was garbled: {self.garbled[0]}"


def measure(
    context: RollbackContext, proven_tok_s: float | None = None,
    stranger: Callable[[], str] = lambda: "",
) -> Measured:  # fmt: skip
    """Return the median decode rate of two completions of 64 tokens, the second of them streamed,
    and whether it is degraded: below the reference by more than the tolerance, though nobody else
    was answered.

    If both take longer than they may, that bounds the rate, and `proven_tok_s`, the rate of the few
    tokens of its proof, counts. A baseline that has hung since its proof is waited for only once.
    `stranger` says who has answered instead of it, "" for nobody: then nothing was measured.
    """
    report = context.report
    report.begin("measure")
    samples = _take(context)
    if words := stranger():
        report.failed("measure", f"nothing was measured: {words}")
        return Measured()
    if samples.broken:
        return Measured(broken=samples.broken)
    if samples.fall_apart:
        samples.garbled.insert(0, _fallen(context, samples.odd[-1]))
    if samples.garbled and (samples.fall_apart or len(samples.garbled) >= samples.sane):
        report.failed("measure", f"garbled, {samples.garbled[0]}")
        return Measured(garbled=samples.garbled[0])
    if not samples.sane and not samples.bounds and not (samples.beside and proven_tok_s):
        report.failed("measure", "no rate was measured; the baseline serves, its speed is unknown")
        return Measured(beside=samples.beside)
    plan = context.plan.baseline
    measured = _judged(plan, samples, proven_tok_s)
    words = rate_words(measured, plan.reference_tok_s)
    report.ok("measure", f"DEGRADED: {words}" if measured.degraded else words)
    return measured


def _take(context: RollbackContext) -> Samples:
    """Ask for the completions, and look before and after each who else is answered."""
    plan, report, samples = context.plan.baseline, context.report, Samples()
    runs = RUNS
    while runs > 0:
        runs -= 1
        tries = samples.sane + len(samples.garbled) + len(samples.bounds)
        limit_s = try_timeout_s(plan.completion.timeout_s, tries)
        before = _look(context)
        # the last one as most clients ask for it
        answer = (complete if runs else streamed)(
            plan.url, model=plan.completion.model, prompt=plan.completion.prompt,
            max_tokens=TOKENS, timeout_s=limit_s,
        )  # fmt: skip
        if answer.sends and not runs and samples.would_end(limit_s) and not _beside(before, before):
            words = f"{BREAKS}: whole answers come in time, but this one stops: {answer.detail}"
            answer = replace(answer, breaks=True, detail=words)
        if answer.breaks or answer.dead:
            context.answer, samples.broken = answer, answer.why
            break
        if answer.garbled is not None:
            context.answer = answer
            samples.garbled.append(answer.garbled.words)
        elif broken(answer.signs):
            samples.garbled.append(_fallen(context, answer))
        elif answer.status == 200 and answer.decode_tok_s is not None:
            _keep(samples, answer.decode_tok_s, _beside(before, _look(context)))
            samples.odd += [answer] if telling(answer.signs) else []
        if samples.doubted and not runs:
            runs = 1  # one says this, the other that: a third one decides
        if answer.status == 200 and answer.garbled is None:
            continue
        report.note("measure", answer.detail)
        if _ends(context, samples, answer, limit_s):
            break
    return samples


def _fallen(context: RollbackContext, answer: Completion) -> str:
    """Why an answer is garbled that falls apart; it becomes the one that is told of."""
    context.answer = answer.fallen()
    return context.answer.garbled.words if context.answer.garbled else ""


def _keep(samples: Samples, rate: float, beside: str) -> None:
    (samples.shared if beside else samples.quiet).append(rate)
    samples.beside = beside or samples.beside


def _ends(context: RollbackContext, samples: Samples, answer: Completion, limit_s: float) -> bool:
    """Whether nothing more is asked after a completion that failed or was garbled. One that took
    longer than it may bounds the rate of a server that nobody else uses."""
    plan = context.plan.baseline
    if answer.status == 0 and answer.elapsed_s >= limit_s:
        used = "others use it" if busy(plan.url, clock=context.clock) else ""
        if not used and is_used_silently(plan.url):
            used = "clients are connected, and it does not say for whom it works"
        if used:
            words = "how long it takes says nothing of its speed"
            context.report.note("measure", f"{used}: {words}")
            samples.beside = used
            return True
        samples.bounds.append(TOKENS / limit_s)
    return health(plan.url, plan.ready_path)[0] is Health.UNHEALTHY


@dataclass(frozen=True, slots=True)
class _Look:
    """What the server says of its requests, and how many clients hold connections where it says
    nothing."""

    occupancy: Occupancy
    clients: int


def _look(context: RollbackContext) -> _Look:
    url = context.plan.baseline.url
    server_occupancy = occupancy.look(url, LOOK_S)
    silent = not server_occupancy.known and is_local(url)
    return _Look(server_occupancy, lasting_clients(url, context.clock.sleep) if silent else 0)


def _beside(before: _Look, after: _Look) -> str:
    """Who was answered beside one completion of ours, between two looks; "" for nobody."""
    if words := beside_words(before.occupancy, after.occupancy):
        return words
    clients = max(before.clients, after.clients)
    are = "client is" if clients == 1 else "clients are"
    return f"{clients} {are} connected, and it does not say for whom it works" if clients else ""


def beside_words(before: Occupancy, after: Occupancy) -> str:
    """How many requests were not ours, by what the server itself says before and after one of
    ours; "" for none."""
    # a gauge that is not of this moment may still show the request that has just ended: ours
    ended = 0 if after.live else 1
    count = max((before.processing or 0) - ended, (after.processing or 0) - ended)
    count = max(count, len(after.tasks - before.tasks) - 1)
    return f"{plural(count, 'request')} of others" if count > 0 else ""


def _judged(plan: Baseline, samples: Samples, proven_tok_s: float | None) -> Measured:
    rates = sorted(samples.quiet or samples.shared)
    beside = "" if samples.quiet else samples.beside
    bound = min(samples.bounds, default=None)
    rate = (rates[(len(rates) - 1) // 2] + rates[len(rates) // 2]) / 2 if rates else None
    if rate is not None:
        bound = None
    elif proven_tok_s is not None and (bound is None or proven_tok_s <= bound):
        rate = proven_tok_s
    known = [value for value in (rate, bound) if value is not None]
    degraded = plan.is_below(min(known)) and not beside
    return Measured(rate, degraded, bound, beside=beside, remark=samples.remark)


def rate_words(measured: Measured, reference: float | None) -> str:
    """The rate or its bound, the reference, and what is to be known of both."""
    parts = []
    if measured.tok_s is not None:
        parts.append(f"{measured.tok_s:.2f} tok/s")
    if measured.bound is not None:
        of_proof = " in its proof" if parts else ""
        parts = [f"{word}{of_proof}" for word in parts]
        parts.append(
            f"below {measured.bound:.2f} tok/s, as {TOKENS} tokens took longer than they may"
        )
    parts.append("no reference to compare with" if reference is None else "")
    words = "; ".join(filter(None, parts))
    words = f"{words}, reference {reference:.2f}" if reference is not None else words
    beside = f"measured beside others ({measured.beside})" if measured.beside else ""
    return "; ".join(filter(None, (words, beside, measured.remark)))
