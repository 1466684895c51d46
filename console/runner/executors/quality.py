"""`quality`: a model against the baseline's by llama-perplexity, or the answers to small tasks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from console.bench.metrics import TASK_METRICS
from console.bench.perplexity import TOOL, complaint, is_whole, read_figures, read_sealed, scored
from console.bench.statistics import wilson
from console.checks.preflight.image import look
from console.common import paths, redact
from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import format_number, plural
from console.config.playbook.measuring_steps import QualityStep
from console.config.tasks import TaskModel, load_tasks
from console.host.process import ProcessSpec
from console.journal import events
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed, wait_released
from console.runner.executors import command
from console.runner.executors.tune_points import KILLED, LAST_LINES
from console.runner.prepare import quality, tuning
from console.runner.prepare.plan import PlannedStep
from console.runner.prepare.quality import Trial
from console.runner.services import refuse_stranger
from console.runtime.answers.completion import complete
from console.runtime.docker.exec import run_oneoff
from console.runtime.spec import ContainerSpec, Launch, Mount, ServiceSpec

ANSWER_S = 300.0
"""The longest that one task may take."""
MAX_ROWS = 200
"""Tasks in the journal, the wrong ones first."""
TRIES = 5
"""How often a comparison is made whose last lines the tool does not print."""


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Compare, record and say the figures. Raises StepFailed where nothing was compared."""
    step = planned.section(QualityStep)
    if step.tasks:
        return _Tasks(context, step, attempt).run()
    name = step.service
    if not step.beside and name != "baseline" and context.services.find(name) is not None:
        what = f"{name} is up, and {TOOL} loads the models itself: stop it before this step"
        raise StepFailed(Cause.PRECONDITION, what)
    site, folder = context.plan.site, context.plan.playbook.base
    spec = quality.service_of(step, context.plan.services, site)
    try:
        made = quality.trial(step, spec, site, folder)
    except ValueError as error:
        raise StepFailed(Cause.PRECONDITION, str(error)) from error
    for _, what, _, hint, _ in quality.unready(step, spec, site, context.plan.playbook):
        raise StepFailed(Cause.PRECONDITION, f"{what}; {hint}".removesuffix("; "))
    return _Comparison(context, attempt, spec, made).run()


class _Comparison:
    """One comparison: the log-probabilities of the baseline's model, then the candidate's."""

    def __init__(self, context: Context, attempt: Attempt, spec: ServiceSpec, made: Trial) -> None:
        self._context, self._attempt, self._spec = context, attempt, spec
        self._maker = spec
        if made.builds:
            site, services = context.plan.site, context.services
            self._maker = tuning.resolved(site.baseline_spec(), lambda: services.client, site)
            made = quality.made_by(made, self._maker)
        # a tag may be another build by now
        image = look(context.services.client, made.image) if made.image else None
        self._made = made if image is None else replace(made, image=image.id)
        self._sealed = self._made.sealed

    def run(self) -> Done:
        made = self._made
        before = read_sealed(self._sealed) is not None
        if not before:
            self._seal()
        sealed = read_sealed(self._sealed)
        assert sealed is not None
        self._attempt.count(Figures(1, 2, "model"))
        self._attempt.say(f"comparing {made.model.name}", always=True)
        output, code, argv = self._run(made.model, self._sealed)
        for again in range(2, TRIES + 1):
            if code or complaint(output) or is_whole(output):
                break
            words = f"{TOOL} ended before it had printed all; comparing again, {again} of {TRIES}"
            self._attempt.say(words, always=True)
            output, code, argv = self._run(made.model, self._sealed)
        try:
            metrics = read_figures(output, scored(sealed.chunks, sealed.ctx))
        except ValueError as error:
            raise self._failed(code, str(error), output) from error
        quality = {
            "of": self._spec.name, "model": str(made.model), "base": str(made.base),
            "text": str(made.text), "chunks": sealed.chunks, "ctx": sealed.ctx,
            "asked": made.chunks, "file": str(self._sealed), "before": before,
            "builds": made.builds, "argv": redact.argv(argv),
        }  # fmt: skip
        self._context.record(
            events.Metrics(scope=self._attempt.step, metrics=metrics, quality=quality),
            self._attempt.step, self._attempt.number,
        )  # fmt: skip
        figures = {name: float(metric["value"]) for name, metric in metrics.items()}
        short = sealed.chunks < made.chunks
        few = f"; the text has only {sealed.chunks} of {made.chunks} chunks" if short else ""
        return Done(
            f"mean KLD {format_number(figures['mean_kld'])}, same top token "
            f"{format_number(figures['top1_agreement'], 'ratio')}, PPL ratio "
            f"{format_number(figures['ppl_ratio'])}{few}",
            warned=short,
        )

    def _seal(self) -> None:
        """Write the log-probabilities of the baseline's model, whole or not at all. Raises
        StepFailed."""
        part = self._sealed.with_suffix(f".{os.getpid()}.part")
        paths.make(part.parent)
        for left in part.parent.glob("*.part"):  # of a runner that was killed: a user has one
            with contextlib.suppress(OSError):
                left.unlink()
        self._attempt.count(Figures(0, 2, "model"))
        self._attempt.say(f"log-probabilities of {self._made.base.name}", always=True)
        try:
            output, code, _ = self._run(self._made.base, part, base=True)
            if code or read_sealed(part) is None:
                why = complaint(output) or f"{TOOL} wrote no whole file of log-probabilities"
                raise self._failed(code, why, output)
            os.replace(part, self._sealed)
        finally:
            with contextlib.suppress(OSError):
                part.unlink()

    def _failed(self, code: int, why: str, output: Sequence[str]) -> StepFailed:
        cause = Cause.EXIT_CODE if code else Cause.OUTPUT_INVALID
        ended = f"exit code {code}: " if code else ""
        ended = "ended by SIGKILL: " if code in KILLED else ended
        lines = list(output[-LAST_LINES:])
        return StepFailed(cause, f"{ended}{why}", exit_code=code or None, lines=lines)

    def _run(
        self, model: Path, sealed: Path, *, base: bool = False
    ) -> tuple[list[str], int, list[str]]:
        """Run the tool on a model where its build is; its lines, exit code and command line."""
        made = self._made
        mark = f"--- quality: {model.name}"
        self._attempt.sink(f"\n{mark}\n".encode())  # the last line may have no end
        runs = (self._maker if base else self._spec).runs
        if isinstance(runs, ContainerSpec):
            code, argv = self._in_image(runs, model, sealed, base=base)
        else:
            program = made.base_program if base else made.program
            argv = self._argv(program, str(model), str(sealed), base=base)
            env = dict(runs.env) if isinstance(runs, ProcessSpec) else {}
            cwd = (runs.cwd if isinstance(runs, ProcessSpec) else "") or self._folder
            within = (runs.within,) if isinstance(runs, ProcessSpec) else ()
            code = command.run_host(self._context, argv, env, cwd, self._attempt, *within)
        wait_released(self._context, self._attempt)
        lines = self._attempt.output()
        return lines[max(at for at, line in enumerate(lines) if line == mark) + 1 :], code, argv

    @property
    def _folder(self) -> str:
        return str(self._context.plan.playbook.base)

    def _argv(
        self, program: Sequence[str], model: str, sealed: str, text: str = "", *, base: bool
    ) -> list[str]:
        made = self._made
        if base:
            return [*program, *quality.base_arguments(made, model, text or str(made.text), sealed)]
        return [*program, *quality.arguments(made, model, sealed)]

    def _in_image(
        self, runs: ContainerSpec, model: Path, sealed: Path, *, base: bool
    ) -> tuple[int, list[str]]:
        """Run it in a container like the service's, with its mounts, cards and limits."""
        client = self._context.services.client
        program = self._made.base_program if base else self._made.program
        if not program:
            image = look(client, runs.image)
            words = image.argv(runs.entrypoint, runs.command) if image is not None else []
            program = quality.program_of(words) or (TOOL,)
        kept = f"{quality.INSIDE}/sealed"
        inner, of_model = quality.placed(runs, model, "model")
        text, of_text = quality.placed(runs, self._made.text, "text")
        argv = self._argv(program, inner, f"{kept}/{sealed.name}", text, base=base)
        more = [Mount(str(sealed.parent), kept, not base), of_model, of_text if base else None]
        spec = replace(
            runs, entrypoint=tuple(argv[:1]), command=tuple(argv[1:]), name="",
            mounts=(*runs.mounts, *(mount for mount in more if mount is not None)),
        )  # fmt: skip
        context, attempt = self._context, self._attempt
        code = run_oneoff(
            client, spec, service=attempt.step,
            launch=Launch(context.run.id, attempt.path, context.alive, context.plan.site.name),
            timeout_s=attempt.remaining(), cancelled=attempt.cancelled, sink=attempt.hear,
            say=partial(attempt.say, always=True),
        )  # fmt: skip
        return code, argv


class _Tasks:
    """Asks a service small tasks whose answer is known."""

    def __init__(self, context: Context, step: QualityStep, attempt: Attempt) -> None:
        self._context, self._step, self._attempt = context, step, attempt

    def run(self) -> Done:
        """Ask each task once. Raises StepFailed where a request fails: a share of the rest would
        say nothing."""
        context, step, attempt = self._context, self._step, self._attempt
        name = step.service
        if name != "baseline" and context.services.find(name) is None:
            raise StepFailed(Cause.PRECONDITION, f"{name} has not been started, or died")
        tasks = load_tasks(context.path(step.tasks))
        rows: list[dict[str, Any]] = []
        for number, task in enumerate(tasks):
            progress = Figures(number, len(tasks), "task")
            attempt.say(f"{name}: {plural(_right(rows), 'right answer')} so far", progress)
            rows.append(self._row(task))
        refuse_stranger(context, name)
        right, count = _right(rows), len(rows)
        low, high = wilson(right, count)
        share = right / count
        figure = {"value": share, "unit": TASK_METRICS["correct"].unit, "n": count, "low": low,
                  "high": high}  # fmt: skip
        shown = sorted(rows, key=lambda row: bool(row["right"]))[:MAX_ROWS]
        quality = {"of": name, "file": str(context.path(step.tasks)), "tasks": shown}
        context.record(
            events.Metrics(scope=attempt.step, metrics={"correct": figure}, quality=quality),
            attempt.step, attempt.number,
        )  # fmt: skip
        percent = format_number(share, "ratio")
        return Done(f"{right} of {plural(count, 'task')} right, {percent}")

    def _row(self, task: TaskModel) -> dict[str, Any]:
        context, attempt = self._context, self._attempt
        spec = context.services.spec(self._step.service)
        done = complete(
            spec.url, model=context.services.model(self._step.service, ""), prompt=task.ask,
            max_tokens=task.max_tokens, timeout_s=min(ANSWER_S, attempt.remaining()), nonce=False,
        )  # fmt: skip
        attempt.remaining()
        if not done.ok:
            explanation = context.services.explain(self._step.service)
            failed = StepFailed(Cause.OUTPUT_INVALID, f"{one_line(task.ask, 80)}: {done.detail}")
            raise explanation or failed
        right = task.is_answer(done.answer)
        if task.matches is not None:
            right = attempt.find(task.matches, [done.answer])[0] is not None
        return {"ask": one_line(task.ask, 200), "said": one_line(done.answer, 200), "right": right}


def _right(rows: Sequence[dict[str, Any]]) -> int:
    return sum(bool(row["right"]) for row in rows)
