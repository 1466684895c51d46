"""Measures one point of a tuning step: a service started with other flags, or llama-bench."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from console.bench.benchmark import PROMPTS, Benchmark, BenchmarkResult, tokenize
from console.bench.benchmark import Protocol as Measuring
from console.bench.growth import context_of
from console.bench.llama_bench import read_figures
from console.bench.metrics import Sample
from console.bench.prompt_rate import prompt
from console.bench.statistics import finite
from console.bench.tune.outcome import Goal, Outcome, Speed
from console.bench.tune.space import Resource
from console.checks.preflight import of_site
from console.checks.preflight.architecture.check import command_of
from console.common.errors import ConsoleError
from console.common.files import append_line
from console.common.text import one_line
from console.config.playbook.steps import Step
from console.config.playbook.tuning_step import TuneStep
from console.host.children import Cancelled
from console.host.process import ProcessSpec
from console.journal.state import Cause
from console.models.sizing.assessment import Verdict
from console.runner.context import Attempt, Context, StepFailed, wait_released
from console.runner.executors import command
from console.runner.executors.service import refuse_answered
from console.runner.executors.soak_monitor import ContainerEyes, ProcessEyes
from console.runner.prepare import tuning
from console.runner.services import refuse_stranger
from console.runtime.docker.client import image_info
from console.runtime.docker.oneoff import remove
from console.runtime.spec import ContainerSpec, Handle, ServiceSpec

SAMPLE_WORDS = 100
USUAL_TOKENS = 130
"""Tokens of so many common words, where a server does not count them."""
KILLED = (-9, 137)
MARK = "--- tune: "
NO_RATE = "the rate that counts was not measured"
_CARD = re.compile(
    r"CUDA error: out of memory|cudaMalloc failed: out of memory|CUDA out of memory"
    r"|OutOfDeviceMemory|failed to allocate (?:CUDA|ROCm|Vulkan|SYCL)\d* ?(?:_\w+)? ?buffer",
    re.IGNORECASE,
)
_HOST = re.compile(
    r"bad_alloc|cannot allocate memory|failed to allocate (?:CPU|CUDA_Host)\w* ?buffer"
    r"|MemoryError|mlock.*failed|OOM|out of memory",
    re.IGNORECASE,
)


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

    def __init__(self, context: Context, asked: TuneStep, attempt: Attempt) -> None:
        self._context, self._asked, self._attempt = context, asked, attempt
        self._services = context.services
        self._goal = goal_of(asked)
        self._name = tuning.name_of(asked)
        self._spec = tuning.resolved(
            self._services.spec(self._name), lambda: self._services.client, context.plan.site
        )
        found = tuning.argv_of(self._spec.runs)
        assert found is not None
        self.base = found
        own = context.plan.site.baseline_spec().runs
        self.written = found
        if self._name == tuning.TUNED and isinstance(own, ProcessSpec):
            self.written = own.argv
        self._services.use(self._spec)  # before anything is stopped under this name
        self._services.stop(self._name, attempt)  # an earlier runner's, with some flags or other
        refuse_answered(context, self._name)

    def setting(self) -> dict[str, Any]:
        runs, asked = self._spec.runs, self._asked
        program: Any = str(replace(self._spec, runs=tuning.with_argv(runs, ())))
        if isinstance(runs, ContainerSpec):
            local = image_info(self._services.client, runs.image)
            program = [program, local.id if local is not None else ""]
        measured = {"prompt": asked.prompt, "depth": asked.depth, "tokens": asked.max_tokens,
                    "model": asked.model}  # fmt: skip
        return {"program": program, "measured": measured, "files": _files(runs, self.base)}

    def measure(self, argv: tuple[str, ...], changes: str) -> Outcome:
        spec = replace(self._spec, runs=tuning.with_argv(self._spec.runs, argv))
        if why := self._unfit(spec):
            return Outcome("unfit", why=why)
        append_line(self._context.run.log(self._name), f"{MARK}{changes}", 0o600)
        self._services.use(spec)
        try:
            handle = self._services.start(self._name, self._attempt)
            self._services.wait(self._name, self._attempt)
            refuse_stranger(self._context, self._name)
            return self._ask(spec, handle)
        except StepFailed as failed:
            if failed.cause in (Cause.TIMEOUT, Cause.PRECONDITION, Cause.GUARD):
                raise
            told = self._services.explain(self._name)
            return self._failed(told or failed)
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
        model = _model(spec)
        if model is None:
            return ""
        lent = command_of(spec, lambda: self._services.client)
        site, services = self._context.plan.site, {self._name: spec}
        try:
            found = of_site.checkpoint(
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
        return found.because if found.verdict is Verdict.NO_GO else ""

    def _ask(self, spec: ServiceSpec, handle: Handle) -> Outcome:
        """Measure the running server, and its memory while it answers."""
        asked, attempt = self._asked, self._attempt
        memory = _Memory(self._context, handle)

        def progress(number: int, planned: int, sample: Sample) -> None:
            attempt.remaining()
            memory.look()

        def say(text: str) -> None:
            attempt.remaining()
            memory.look()

        result = Benchmark(
            spec.url, measuring(asked, spec.url, attempt.remaining()),
            model=self._services.model(self._name, asked.model), clock=self._context.clock,
            cancelled=attempt.cancelled, progress=progress, say=say,
        ).run()  # fmt: skip
        if attempt.cancelled.is_set():
            raise Cancelled(attempt.step)
        attempt.remaining()
        memory.look()
        refuse_stranger(self._context, self._name)
        decode, prompt = _speeds(result)
        found = Outcome("measured", decode, prompt, memory.ram, memory.vram, context_of(spec.url))
        if self._goal.score(found) is not None:
            return found
        if told := self._services.explain(self._name):
            return self._failed(told)
        reasons = [str(void.get("reason", "")) for void in result.voids]
        reasons += [one.why for one in result.prompt_rates if one.why]
        return replace(found, fate="failed", why=one_line("; ".join(reasons[:2]) or NO_RATE))

    def _failed(self, failed: StepFailed) -> Outcome:
        """What became of a point that did not serve, by its cause and its last lines."""
        since = "\n".join(failed.lines).rpartition(MARK)[2]
        return ended(failed.cause, failed.detail, since)


class BenchRig:
    """Runs llama-bench with each command line, on the host or in a container of the step's."""

    def __init__(self, context: Context, step: Step, asked: TuneStep, attempt: Attempt) -> None:
        self._context, self._step, self._asked, self._attempt = context, step, asked, attempt
        self.base = self.written = tuple(asked.bench)

    def setting(self) -> dict[str, Any]:
        where = self._step.where.model_dump_json() if self._step.where is not None else ""
        asked = self._asked
        image = self._step.where.image if self._step.where is not None else ""
        local = image_info(self._context.services.client, image) if image else None
        measured = {"prompt": asked.prompt, "depth": asked.depth, "tokens": asked.max_tokens}
        program = [where, local.id if local is not None else "", dict(self._step.env)]
        return {"program": str(program), "measured": measured, "files": _files(None, self.base)}

    def measure(self, argv: tuple[str, ...], changes: str) -> Outcome:
        asked, attempt = self._asked, self._attempt
        attempt.sink(f"{MARK}{changes}\n".encode())
        more = ("-p", str(asked.prompt), "-n", str(asked.max_tokens), "-r", str(asked.runs),
                "-o", "jsonl", *(("-d", str(asked.depth)) if asked.depth else ()))  # fmt: skip
        step = self._step.model_copy(update={"run": [*argv, *more]})
        code = command.run_step(self._context, step, attempt)
        said = "\n".join(attempt.output()).rpartition(MARK)[2]
        wait_released(self._context, attempt)
        if code != 0:
            cause = Cause.OOM_KILL if code in KILLED else Cause.EXIT_CODE
            last = "; ".join(line for line in said.splitlines()[-3:])
            return ended(cause, f"exit code {code}: {last}", said)
        try:
            found = read_figures(said, "llama-bench")
        except ValueError as error:
            return Outcome("failed", why=one_line(str(error), 300))
        rates = {
            name: tuple(figures.get("samples") or finite([figures.get("value")]))
            for name, figures in found.metrics.items()
        }
        decode, prompt = rates.get("tg_tok_s", ()), rates.get("pp_tok_s", ())
        return Outcome(
            "measured", Speed(decode) if decode else None, Speed(prompt) if prompt else None
        )

    def close(self) -> None:
        """Each command has ended."""


def goal_of(asked: TuneStep) -> Goal:
    return Goal(asked.prefer, asked.prompt, asked.max_tokens, asked.most_ram, asked.most_vram)


def measuring(asked: TuneStep, url: str, left_s: float) -> Measuring:
    """How a server is asked: answers after `depth` tokens, then prompts of a fixed length."""
    lengths = (asked.prompt,) if asked.prefer != "decode" else ()
    return Measuring(
        prompts=(long_prompt(url, asked.depth),) if asked.depth else PROMPTS,
        max_tokens=asked.max_tokens, runs=asked.runs, warmup=1, max_runs=asked.runs + 2,
        timeout_s=left_s, budget_s=left_s, prompt_lengths=lengths,
    )  # fmt: skip


def long_prompt(url: str, tokens: int) -> str:
    """Common words that make about so many tokens, by the server's own count if it has one."""
    chance = random.Random(tokens)
    sample = prompt(SAMPLE_WORDS, chance)
    counted = tokenize(url, sample)
    return prompt(max(1, round(tokens * SAMPLE_WORDS / (counted or USUAL_TOKENS))), chance)


def ended(cause: Cause, detail: str, said: str) -> Outcome:
    """What became of a point by how it ended and by what was `said` since it began: out of the
    card's memory, of the host's, or broken otherwise."""
    fate: Resource | None = None
    if _CARD.search(said):
        fate = "card"
    elif cause is Cause.OOM_KILL or _HOST.search(said) or "SIGKILL" in detail:
        fate = "host"
    line = next((one for one in reversed(said.splitlines()) if _tells(one)), "")
    why = f"{detail}: {line}" if line and line not in detail else detail
    return Outcome(fate or "failed", why=one_line(why, 300))


def _tells(line: str) -> bool:
    return bool(_CARD.search(line) or _HOST.search(line) or "error" in line.lower())


def _speeds(result: BenchmarkResult) -> tuple[Speed | None, Speed | None]:
    found = []
    for name in ("decode_tok_s", "prompt_tok_s"):
        samples = tuple(one for one in result.metrics[name].samples if one > 0)
        found.append(Speed(samples) if samples else None)
    return found[0], found[1]


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


def _most(one: int | None, two: int | None) -> int | None:
    return max((size for size in (one, two) if size is not None), default=None)


def _model(spec: ServiceSpec) -> Path | None:
    """The GGUF file on this machine that a llama.cpp's command line names."""
    words = [*(tuning.argv_of(spec.runs) or ()), ""]
    files = [
        after if name == word else value
        for word, after in pairwise(words)
        for name, _, value in [word.partition("=")] if name in ("-m", "--model")
    ]  # fmt: skip
    given = next((one for one in files if one.endswith(".gguf")), "")  # python has a -m, too
    found = tuning.on_host(spec.runs, given)
    return found if found is not None and found.is_file() else None


def _files(runs: Any, argv: Iterable[str]) -> list[tuple[str, int, int]]:
    """The files that a command line names, by size and time of change: another build or model under
    the same name is another setting."""
    found = []
    for word in argv:
        path = tuning.on_host(runs, word.rpartition("=")[2])
        try:
            if path is not None and path.is_file():
                stat = path.stat()
                found.append((str(path.resolve()), stat.st_size, stat.st_mtime_ns))
        except OSError:
            continue
    return found
