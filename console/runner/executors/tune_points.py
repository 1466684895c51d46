"""Measures one point of a tuning step: a service started with other flags, or llama-bench."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any, Protocol

from console.bench.benchmark import Benchmark, BenchmarkResult, tokenize
from console.bench.benchmark import Protocol as Measuring
from console.bench.client import PROMPTS
from console.bench.llama_bench import read_figures
from console.bench.prompt_rate import prompt
from console.bench.sample import Sample
from console.bench.soak_requests import context_of
from console.bench.statistics import finite
from console.bench.tune.outcome import Fate, Goal, Outcome, Speed, speed
from console.checks.preflight import of_site
from console.checks.preflight.architecture.check import command_of
from console.common.errors import ConsoleError
from console.common.files import append_line
from console.common.logs.cause import ON_CARD, ON_HOST, matching
from console.common.text import one_line
from console.config.playbook.steps import Step
from console.config.playbook.tuning_step import TUNED, TuneStep
from console.host.children import Cancelled
from console.host.memory import oom_kills, oom_kills_since
from console.host.process import ProcessSpec
from console.journal.state import Cause
from console.models.sizing.assessment import Verdict
from console.runner.context import Attempt, Context, StepFailed, wait_released
from console.runner.executors import command
from console.runner.executors.benchmark import surroundings
from console.runner.executors.service import refuse_answered
from console.runner.executors.soak_monitor import ContainerEyes, ProcessEyes
from console.runner.prepare import tuning
from console.runner.services import keep_baseline_down, refuse_stranger
from console.runtime.docker.client import image_info
from console.runtime.docker.oneoff import remove
from console.runtime.spec import ContainerSpec, Handle, ServiceSpec

SAMPLE_WORDS = 100
USUAL_TOKENS = 130
"""Tokens of so many common words, where a server does not count them."""
KILLED = (-9, 137)
LAST_LINES = 20
MARK = "--- tune: "
PATIENCE, MIN_S = 5.0, 60.0
"""A point may take so many times the longest before it, and this at least, seconds."""
NO_RATE = "the rate that counts was not measured"
_CARD, _HOST = (re.compile(words, re.IGNORECASE) for words in (ON_CARD, ON_HOST))


class Rig(Protocol):
    """What measures a command line."""

    base: tuple[str, ...]
    """The command line as it stands."""
    written: tuple[str, ...]
    """The same as the operator wrote it, at its own port."""

    def setting(self) -> dict[str, Any]:
        """What the figures depend on besides the command line, as JSON holds it."""

    def measure(self, argv: tuple[str, ...], changes: str) -> Outcome:
        """Measure it. Raises StepFailed and Cancelled only for what ends the step."""

    def close(self) -> None:
        """Stop what is left, and put back what was changed."""


class ServerRig:
    """Starts the service with each command line, asks it, and stops it again."""

    def __init__(self, context: Context, tune: TuneStep, attempt: Attempt) -> None:
        self._context, self._tune, self._attempt = context, tune, attempt
        attempt.searching = True
        self._services = context.services
        self._goal = goal_of(tune)
        self._changes, self._kills = "", oom_kills()
        self._longest_s = 0.0
        self._name = tune.subject
        self._spec = tuning.resolved(
            self._services.spec(self._name), lambda: self._services.client, context.plan.site
        )
        argv = tuning.argv_of(self._spec.runs)
        assert argv is not None
        self.base = argv
        own = context.plan.site.baseline_spec().runs
        self.written = argv
        if self._name == TUNED and isinstance(own, ProcessSpec):
            self.written = own.argv
        self._services.use(self._spec)  # before anything is stopped under this name
        self._services.stop(self._name, attempt)  # an earlier runner's, with some flags or other
        refuse_answered(context, self._name)

    def setting(self) -> dict[str, Any]:
        runs, tune = self._spec.runs, self._tune
        bare = tuning.with_argv(runs, ())
        bare = replace(bare, ports=()) if isinstance(bare, ContainerSpec) else bare
        program: Any = str(replace(self._spec, url="", runs=bare))
        if isinstance(runs, ContainerSpec):
            local = image_info(self._services.client, runs.image)
            program = [program, local.id if local is not None else ""]
        measured = {"prompt": tune.prompt, "depth": tune.depth, "tokens": tune.max_tokens,
                    "model": tune.model, "prompts": tune.prefer != "decode"}  # fmt: skip
        return {
            "program": program,
            "measured": measured,
            "files": tuning.files_named(runs, self.base, tune.flags),
        }

    def measure(self, argv: tuple[str, ...], changes: str) -> Outcome:
        spec = replace(self._spec, runs=tuning.with_argv(self._spec.runs, argv))
        # today's flags serve, whatever the sum says of them
        why = self._unfit(spec) if argv != self.base else ""
        if why:
            return Outcome("unfit", why=why)
        self._changes, self._kills = changes, oom_kills()
        append_line(self._context.run.log(self._name), f"{MARK}{changes}", 0o600)
        self._services.use(spec)
        if self._context.view.outage:
            keep_baseline_down(self._context, self._attempt, starts=True)
        try:
            handle = self._services.start(self._name, self._attempt)
            self._services.wait(self._name, self._attempt)
            refuse_stranger(self._context, self._name)
            outcome = self._ask(spec, handle)
            if self._context.view.outage and self._services.find("baseline") is not None:
                return Outcome("failed", why="the baseline came back while it was measured")
            return outcome
        except StepFailed as failed:
            if failed.cause in (Cause.TIMEOUT, Cause.PRECONDITION, Cause.GUARD):
                raise
            explanation = self._services.explain(self._name)
            return self._failed(explanation or failed)
        finally:
            self._end()
            wait_released(self._context, self._attempt)

    def close(self) -> None:
        self._end()
        self._services.use(self._spec)

    def _end(self) -> None:
        """Stop the service of a point. Its container goes, too: dozens that differ in a flag would
        only be in the way, and what it said is in the run's log."""
        handle = self._services.handles.get(self._name)
        self._services.stop(self._name)
        if handle is not None and handle.container:
            remove(self._services.client, handle.container)

    def _unfit(self, spec: ServiceSpec) -> str:
        """Why a llama.cpp cannot hold its model with these flags, by what its own build says or by
        our arithmetic; "" if it can, or if it cannot be told."""
        model = tuning.model_of(spec)
        if model is None:
            return ""
        lent = command_of(spec, lambda: self._services.client)
        site, services = self._context.plan.site, {self._name: spec}
        try:
            preflight = of_site.checkpoint(
                site.model,
                str(model),
                kind="",
                engine="",
                args=(),
                ctx=None,
                lent=lent,
                build=lambda: of_site.build_here(
                    site, lambda: self._services.client, self._name, services
                ),
            )
        except ConsoleError:
            return ""
        return preflight.because if preflight.verdict is Verdict.NO_GO else ""

    def _ask(self, spec: ServiceSpec, handle: Handle) -> Outcome:
        """Measure the running server, and its memory while it answers."""
        tune, attempt = self._tune, self._attempt
        memory = _Memory(self._context, handle)

        def progress(number: int, planned: int, sample: Sample) -> None:
            attempt.remaining()
            memory.look()

        def say(text: str) -> None:
            attempt.remaining()
            memory.look()

        def held(words: str) -> None:
            attempt.remaining()
            attempt.say(f"{self._name}: {words}")

        left, begun = attempt.remaining(), self._context.clock.monotonic()
        if self._longest_s:
            left = min(left, max(MIN_S, PATIENCE * self._longest_s))
        result = Benchmark(
            spec.url, measuring(tune, spec.url, left),
            model=self._services.model(self._name, tune.model), clock=self._context.clock,
            cancelled=attempt.cancelled, progress=progress, say=say,
            held=held,
            surroundings=surroundings(self._context, self._name),
        ).run()  # fmt: skip
        if attempt.cancelled.is_set():
            raise Cancelled(attempt.step)
        attempt.remaining()
        if explanation := self._services.explain(self._name):
            return self._failed(explanation)
        memory.look()
        refuse_stranger(self._context, self._name)
        decode, prompt = _speeds(result)
        outcome = Outcome("measured", decode, prompt, memory.ram, memory.vram, context_of(spec.url))
        reasons = [str(void.get("reason", "")) for void in result.voids]
        reasons += [prompt_rate.why for prompt_rate in result.prompt_rates if prompt_rate.why]
        whole = len(result.runs) - len(result.voids) >= tune.runs
        if result.garbled is not None:  # now and then is too often for flags that are to serve
            return replace(
                outcome, fate="failed", decode=None, prompt=None,
                why=one_line(str(result.garbled), 300),
            )  # fmt: skip
        if self._goal.score(outcome) is None or not whole:
            why = "; ".join(dict.fromkeys(reasons)) or NO_RATE
            return replace(outcome, fate="failed", decode=None, prompt=None, why=one_line(why, 300))
        self._longest_s = max(self._longest_s, self._context.clock.monotonic() - begun)
        return outcome

    def _failed(self, failed: StepFailed) -> Outcome:
        """What became of a point that did not serve to the end."""
        return ended(
            failed.cause,
            failed.detail,
            self._since(failed.lines),
            oom=bool(oom_kills_since(self._kills)),
        )

    def _since(self, lines: list[str]) -> list[str]:
        """The lines after this point's own mark in the log."""
        mark = f"{MARK}{self._changes}"
        places = [at for at, line in enumerate(lines) if line == mark]
        return lines[places[-1] + 1 :] if places else lines


class BenchRig:
    """Runs llama-bench with each command line, on the host or in a container of the step's."""

    def __init__(self, context: Context, step: Step, tune: TuneStep, attempt: Attempt) -> None:
        self._context, self._step, self._tune, self._attempt = context, step, tune, attempt
        self.base = self.written = tuple(tune.bench)

    def setting(self) -> dict[str, Any]:
        where = self._step.where.model_dump_json() if self._step.where is not None else ""
        tune = self._tune
        image = self._step.where.image if self._step.where is not None else ""
        local = image_info(self._context.services.client, image) if image else None
        measured = {"prompt": tune.prompt, "depth": tune.depth, "tokens": tune.max_tokens}
        program = [where, local.id if local is not None else "", dict(self._step.env)]
        return {
            "program": str(program),
            "measured": measured,
            "files": tuning.files_named(None, self.base, tune.flags),
        }

    def measure(self, argv: tuple[str, ...], changes: str) -> Outcome:
        tune, attempt = self._tune, self._attempt
        mark, kills = f"{MARK}{changes}", oom_kills()
        attempt.sink(f"{mark}\n".encode())
        more = ("-p", str(tune.prompt), "-n", str(tune.max_tokens), "-r", str(tune.runs),
                "-o", "jsonl", *(("-d", str(tune.depth)) if tune.depth else ()))  # fmt: skip
        step = self._step.model_copy(update={"run": [*argv, *more]})
        code = command.run_step(self._context, step, attempt)
        lines = attempt.output()
        output = lines[max(at for at, line in enumerate(lines) if line == mark) :]
        wait_released(self._context, attempt)
        if code != 0:
            detail = "ended by SIGKILL" if code in KILLED else f"exit code {code}"
            last = "; ".join(output[-3:])
            oom = bool(oom_kills_since(kills))
            return ended(Cause.EXIT_CODE, f"{detail}: {last}", output[-LAST_LINES:], oom=oom)
        try:
            bench_figures = read_figures("\n".join(output), "llama-bench")
        except ValueError as error:
            return Outcome("failed", why=one_line(str(error), 300))
        rates = {
            name: tuple(figures.get("samples") or finite([figures.get("value")]))
            for name, figures in bench_figures.metrics.items()
        }
        decode, prompt = rates.get("tg_tok_s", ()), rates.get("pp_tok_s", ())
        return Outcome(
            "measured", speed(*decode) if decode else None, speed(*prompt) if prompt else None
        )

    def close(self) -> None:
        """Each command has ended."""


def goal_of(tune: TuneStep) -> Goal:
    return Goal(tune.prefer, tune.prompt, tune.max_tokens, tune.most_ram, tune.most_vram)


def measuring(tune: TuneStep, url: str, left_s: float) -> Measuring:
    """How a server is asked: answers after `depth` tokens, then prompts of a fixed length."""
    lengths = (tune.prompt,) if tune.prefer != "decode" else ()
    return Measuring(
        prompts=(long_prompt(url, tune.depth),) if tune.depth else PROMPTS,
        max_tokens=tune.max_tokens, runs=tune.runs, warmup=1, max_runs=tune.runs + 2,
        timeout_s=left_s, budget_s=left_s, prompt_lengths=lengths,
    )  # fmt: skip


def long_prompt(url: str, tokens: int) -> str:
    """Common words that make about so many tokens, by the server's own count if it has one."""
    chance = random.Random(tokens)
    sample = prompt(SAMPLE_WORDS, chance)
    counted = tokenize(url, sample)
    return prompt(max(1, round(tokens * SAMPLE_WORDS / (counted or USUAL_TOKENS))), chance)


def ended(cause: Cause, detail: str, last_lines: list[str], *, oom: bool = False) -> Outcome:
    """What became of a point by how it ended and by the last lines that it `last_lines`: out of the
    card's memory, of the host's, or broken otherwise. `oom`: the kernel has killed something for
    memory since it began; a SIGKILL alone says nothing, as anybody may send one."""
    card, host = ((*[""], *matching(pattern, last_lines))[-1] for pattern in (_CARD, _HOST))
    fate: Fate = "failed"
    if card:
        fate = "card"
    elif host or cause is Cause.OOM_KILL or (oom and "SIGKILL" in detail):
        fate = "host"
    error = next((line for line in reversed(last_lines) if "error" in line.lower()), "")
    line = card or host or error
    why = f"{detail}: {line}" if line and line not in detail else detail
    return Outcome(fate, why=one_line(why, 300))


def _speeds(result: BenchmarkResult) -> tuple[Speed | None, Speed | None]:
    speeds = []
    for name in ("decode_tok_s", "prompt_tok_s"):
        samples = [sample for sample in result.metrics[name].samples if sample > 0]
        speeds.append(speed(*samples) if samples else None)
    return speeds[0], speeds[1]


class _Memory:
    """The most memory that a service had, by looks at it: bytes, None if it cannot be read."""

    def __init__(self, context: Context, handle: Handle) -> None:
        self._context = context
        self._cards = {gpu.uuid for gpu in context.plan.site.model.gpus}
        self._eyes: ProcessEyes | ContainerEyes = ProcessEyes(handle, cookie=context.run.id)
        if handle.container:
            self._eyes = ContainerEyes(context.services.client, handle)
        self.ram: int | None = None
        self.vram: int | None = None

    def look(self) -> None:
        used, _ = self._eyes.look()
        self.ram = _most(self.ram, used.get("rss"))
        report = self._context.peaks.gpu if self._context.peaks is not None else None
        cards = [g for g in report.gpus if g.uuid in self._cards] if report is not None else []
        known = [gpu.used_bytes for gpu in cards if gpu.used_bytes is not None]
        if cards and len(known) == len(cards):
            self.vram = _most(self.vram, sum(known))


def _most(peak: int | None, two: int | None) -> int | None:
    return max((size for size in (peak, two) if size is not None), default=None)
