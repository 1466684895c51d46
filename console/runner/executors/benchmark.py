"""`benchmark`: measure an endpoint, and the baseline the same way while it is up."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from console.bench.benchmark import Benchmark, BenchmarkResult, Protocol, run_words
from console.bench.beside.users import Users, WatchedServer
from console.bench.beside.who import is_here
from console.bench.client import PROMPTS, Waiting
from console.bench.interference import Engine, Surroundings
from console.bench.metrics import MAX_SAMPLES, PER_SAMPLE, PROMPT_ROUNDS
from console.bench.sample import Sample, discarded
from console.common import redact
from console.common.errors import ConsoleError
from console.common.progress import Figures
from console.common.text import clean, decode, one_line
from console.common.units import format_number, plural
from console.config.playbook.measuring_steps import BenchmarkStep
from console.config.playbook.verdict import Verdict
from console.host.children import Cancelled
from console.journal import events
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed, baseline_measured
from console.runner.executors.gate import evidence_hash, outcome_name
from console.runner.fault import point
from console.runner.prepare.plan import BASELINE_AGAIN, PlannedStep
from console.runner.services import refuse_stranger
from console.runtime import proxy
from console.runtime.docker.client import image_info, inspect
from console.runtime.spec import Handle

MAX_WORDS = 400


def surroundings(context: Context, service: str) -> Surroundings:
    """The benchmarked service, and the other running servers, which should be idle; each as host
    processes."""
    others = [engine(context, name) for name in beside(context, service)]
    return Surroundings(engine(context, service), others)


def beside(context: Context, service: str) -> list[str]:
    """The other servers of the run. While clients of the baseline reach a service, the two and the
    relay are one: what the one is asked, the other answers."""
    cut = context.view.cutover.service
    same = {"baseline", cut} if cut and service in ("baseline", cut) else set()
    return sorted(({"baseline"} | set(context.services.handles)) - {service, proxy.NAME} - same)


def users_of(context: Context, service: str) -> Users:
    """Who else uses a service of the run, and the others."""
    others = (
        WatchedServer(name, context.services.spec(name).url) for name in beside(context, service)
    )
    return Users(WatchedServer(service, context.services.spec(service).url), list(others))


def engine(context: Context, name: str) -> Engine:
    """What is known of a service of the run; never raises for what is unknown."""
    return replace(_engine(context, name), url=context.services.spec(name).url)


def _engine(context: Context, name: str) -> Engine:
    try:
        # not `find`: that forgets a service that has died, and with it why
        handle = context.services.handles.get(name) or context.services.driver(name).find()
        if handle is None:
            return Engine(name)
        if handle.container:
            return _of_container(context, name, handle)
    except ConsoleError:
        return Engine(name)
    line = _read(Path(f"/proc/{handle.pid}/cmdline")).rstrip("\0")
    return Engine(name, handle.pid, {"argv": public(line.split("\0"))} if line else {})


def _of_container(context: Context, name: str, handle: Handle) -> Engine:
    client = context.services.client
    container = inspect(client, handle.container) or {}
    image = str(container.get("Image") or "")
    facts: dict[str, Any] = {
        "argv": public([str(container.get("Path") or ""), *map(str, container.get("Args") or [])]),
        "image": one_line(str((container.get("Config") or {}).get("Image") or "")),
        "image_id": one_line(image),
    }
    local = image_info(client, image) if image else None
    if local is not None:
        facts["repo_digests"] = list(local.repo_digests)
    pid = int((container.get("State") or {}).get("Pid") or 0)
    return Engine(name, pid if is_here(pid, handle.container) else 0, facts)


def public(argv: list[str]) -> list[str]:
    """An argv safe to keep: cleaned, and without the values of flags that name secrets."""
    return [clean(word) for word in redact.argv(argv[:MAX_WORDS])]


def _read(path: Path) -> str:
    try:
        return decode(path.read_bytes())
    except OSError:
        return ""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Measure the service. A server that answers garbage gets a NO-GO of the step's own, whatever
    the gates after it ask for. Raises StepFailed when not one run is valid otherwise."""
    bench = planned.section(BenchmarkStep)
    service = bench.service
    if service != "baseline" and context.services.find(service) is None:
        raise StepFailed(Cause.PRECONDITION, f"{service} has not been started, or died")
    result = _measure(context, service, bench, attempt)
    try:
        refuse_stranger(context, service)
        _keep(context, service, result, attempt, planned.id)
        if service == "baseline":
            baseline_measured(context, attempt, result)
        if result.garbled is not None and result.garbled.mostly:
            return refused(context, planned, attempt, f"{service}: {result.garbled}")
        return _concluded(result)
    except StepFailed as failed:
        raise context.services.explain(service) or failed from failed


def measure_baseline(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Measure the baseline once for each different protocol that is compared with it.

    After its restore only one stream is sent, to see whether it drifted.
    """
    done: dict[str, BenchmarkResult] = {}
    again = planned.id == BASELINE_AGAIN
    details: list[Done] = []
    for _, step in context.plan.playbook.steps():
        bench = step.benchmark
        if bench is None or bench.against != "baseline":
            continue
        if again:
            bench = bench.model_copy(update={"concurrency": [], "prompt_lengths": []})
        key = bench.model_dump_json(exclude={"service", "model"})
        if key not in done:
            done[key] = _measure(context, "baseline", bench, attempt)
        scope = f"{step.id}.baseline{'-after' if again else ''}"
        _keep(context, "baseline", done[key], attempt, scope)
        baseline_measured(context, attempt, done[key])
        details.append(_concluded(done[key]))
    worst = [detail for detail in details if detail.warned] or details
    return worst[-1] if worst else Done()


def _measure(
    context: Context, service: str, bench: BenchmarkStep, attempt: Attempt
) -> BenchmarkResult:
    spec = context.services.spec(service)
    protocol = Protocol(
        prompts=tuple(bench.prompts) or PROMPTS,
        max_tokens=bench.max_tokens,
        runs=bench.runs,
        warmup=bench.warmup,
        max_runs=bench.runs_at_most,
        cv_target=bench.cv,
        timeout_s=attempt.remaining(),
        budget_s=attempt.remaining(),
        silence_s=bench.silence,
        endpoint=bench.endpoint,
        prompt_lengths=tuple(bench.prompt_lengths),
        levels=tuple(bench.concurrency),
        expect=bench.expect or "",
    )

    def progress(number: int, planned: int, sample: Sample) -> None:
        point("in_benchmark", attempt.step)
        attempt.remaining()
        rate = f"{sample.tok_s:.1f} tok/s" if sample.tok_s is not None else ""
        what = f"discarded: {sample.void}" if sample.void else rate
        run, most = run_words(number, planned), planned if number <= planned else bench.runs_at_most
        run_progress = Figures(number, max(most, number), "run")
        figures = {"tok_s": sample.tok_s, "ttft_s": sample.ttft_s, "void": sample.void}
        run_figures = figures if number else None  # a warm-up, run 0, counts nowhere
        attempt.say(f"{service}: {run} {what}", run_progress, always=not number, run=run_figures)

    parts: dict[str, None] = {}

    def say(text: str) -> None:
        attempt.remaining()
        parts[text.partition(":")[0]] = None
        of = PROMPT_ROUNDS * len(bench.prompt_lengths) + len(bench.concurrency)
        attempt.say(f"{service}: {text}", Figures(min(len(parts), of) - 1, of, "part"))

    def held(words: str) -> None:
        attempt.remaining()
        attempt.say(f"{service}: {words}")

    # a candidate's model name means nothing to the baseline
    model = context.services.model(service, bench.model if service == bench.service else "")
    result = Benchmark(
        spec.url, protocol, model=model, clock=context.clock, cancelled=attempt.cancelled,
        progress=progress, say=say, held=held, surroundings=surroundings(context, service),
        waiting=Waiting(lambda silent: attempt.say(f"{service}: no token for {silent:.0f} s")),
    ).run()  # fmt: skip
    if attempt.cancelled.is_set():
        raise Cancelled(attempt.step)
    attempt.remaining()
    return result


def refused(context: Context, planned: PlannedStep, attempt: Attempt, words: str) -> Done:
    """Record the NO-GO of a step whose server answers garbage, as a gate records its verdict."""
    why = one_line(words, 400)
    row = {"metric": f"{planned.id}.answers", "verdict": str(Verdict.NO_GO), "why": why}
    context.record(
        events.Verdict(
            verdict=str(Verdict.NO_GO), criteria=[row],
            outcome=outcome_name(planned.written, Verdict.NO_GO),
            evidence=evidence_hash(context.view),
        ), planned.id, attempt.number,
    )  # fmt: skip
    return Done(why, warned=True)


def _keep(
    context: Context, service: str, result: BenchmarkResult, attempt: Attempt, scope: str
) -> None:
    """Record the figures in the journal, and all samples in a file beside the attempt's log."""
    path = attempt.path.with_name(f"{scope}.{attempt.number}.benchmark.json")
    path.write_text(json.dumps(result.to_json(), indent=1) + "\n")
    metrics: dict[str, Any] = {}
    for name, summary in result.metrics.items():
        figures = asdict(summary)
        samples = figures.pop("samples")
        if name in PER_SAMPLE and len(samples) <= MAX_SAMPLES:
            figures["samples"] = samples
        # what counts every run leaves none out, and prompts of a fixed length are no runs
        of_runs = name in PER_SAMPLE and not (name == "prompt_tok_s" and result.prompt_rates)
        metrics[name] = {**figures, "void": len(result.voids) if of_runs else 0}
    benchmark = {
        "service": service,
        "model": result.model, "build": result.build_info, "flags": result.flags,
        "voids": result.voids[:20], "duration_s": result.duration_s, "file": str(path),
        "url": result.url, "context": result.context, "started_at": result.started_at,
        "protocol": {k: v for k, v in result.protocol.items() if k != "prompts"},
        "cold": asdict(result.cold) if result.cold is not None else None,
        "levels": [asdict(level) for level in result.levels],
        "prompt_rates": [asdict(prompt_rate) for prompt_rate in result.prompt_rates],
        "transport_retries": result.transport_retries,
        "answers": [asdict(answer) for answer in result.answers],
        "garbled": None if result.garbled is None else str(result.garbled),
    }  # fmt: skip
    context.record(
        events.Metrics(scope=scope, metrics=metrics, benchmark=benchmark),
        attempt.step, attempt.number,
    )  # fmt: skip


def _concluded(result: BenchmarkResult) -> Done:
    """How a benchmark went. Raises StepFailed where its figures are none."""
    if result.garbled is not None and result.garbled.mostly:
        raise StepFailed(Cause.OUTPUT_INVALID, str(result.garbled))
    tok_s = result.metrics["tok_s"]
    planned = int(result.protocol.get("runs", 0))
    reasons = [str(void_run.get("reason", "")) for void_run in result.voids]
    if not tok_s.n or len(result.runs) < planned:
        # figures of a server that died on the way are kept, but no gate may call them GO
        what = f"ended early: {tok_s.n} of {planned} runs" if tok_s.n else "no run was valid"
        why = f": {discarded(reasons)}" if reasons else ""
        raise StepFailed(Cause.OUTPUT_INVALID, what + why, lines=sorted(set(reasons))[:5])
    spread = f" ± {_digits(tok_s.std, 2)}" if tok_s.std is not None else ""
    rate = f"{_digits(tok_s.mean or 0.0, 3)}{spread} tok/s"
    twice = f", {result.transport_retries} requests sent twice" if result.transport_retries else ""
    void = ""
    if result.voids:
        void = f", {len(result.voids)} discarded: {discarded(reasons)}"
    spoilt = f"; {result.garbled}" if result.garbled is not None else ""
    words = f"{rate}, {plural(tok_s.n, 'valid run')}{twice}{void}{spoilt}"
    return Done(words, warned=bool(result.voids or spoilt))


def _digits(value: float, count: int) -> str:
    """A figure with that many significant digits, never with an exponent."""
    return format_number(float(f"{value:.{count}g}"))
