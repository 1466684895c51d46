"""`contract`: a server's answers against the baseline's, which are sealed while that serves."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.bench.contract.ask import Case
from console.bench.contract.compare import Comparison, compare
from console.bench.contract.fingerprint import CaseAnswers, Fingerprint, read_fingerprint, take
from console.bench.metrics import CONTRACT_METRICS
from console.common import paths
from console.common.errors import ConsoleError, ServiceError, UsageError
from console.common.files import write_atomically
from console.common.progress import Figures
from console.common.text import one_line
from console.common.units import plural
from console.config.contract import contract_cases
from console.config.playbook.measuring_steps import ContractStep
from console.host.children import Cancelled
from console.journal import events
from console.journal.state import Cause
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.benchmark import engine
from console.runner.executors.command import run_well
from console.runner.prepare.plan import PlannedStep
from console.runner.prepare.tuning import argv_of, files_named
from console.runner.services import refuse_stranger

POLL_S = 0.05
MAX_ROWS = 200
"""Changes in the journal; the file beside the attempt's log has every answer."""


def seal_baseline(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Ask the baseline whatever the contracts of this run need and is not sealed yet."""
    steps = [step.contract for _, step in context.plan.playbook.steps() if step.when]
    wanted = [contract for contract in steps if contract is not None and contract.of_baseline]
    cases = [*{case.id: case for contract in wanted for case in _cases(context, contract)}.values()]
    repeat = max(contract.repeat for contract in wanted)
    path = _sealed_path(context)
    try:
        known = read_fingerprint(path)
    except UsageError:  # the first time, or no longer to be read
        known = Fingerprint()
    lacking = [
        case for case in cases
        if known.lacks([case]) or len(known.cases[case.id].answers) < repeat
    ]  # fmt: skip
    now = _answered_now(context, known.of(cases), cases, repeat, attempt)
    if lacking:
        fingerprint = _taken(context, "baseline", "", lacking, repeat, attempt)
        refuse_stranger(context, "baseline")
        known = replace(fingerprint, cases={**known.cases, **fingerprint.cases})
    if now:
        known = replace(known, cases={**known.cases, **now})
    if lacking or now:
        _write(path, known)
    mine = known.of(cases)
    _write(_of_run(context), mine)
    noise = len(mine.unsteady)
    count = len(lacking) + len(now)
    summary = f"{plural(count, 'case')} asked" if count else "sealed before, nothing asked"
    return Done(f"{summary}; the baseline differs from itself in {noise} of {len(mine.cases)}")


def _answered_now(
    context: Context, known: Fingerprint, cases: Sequence[Case], repeat: int, attempt: Attempt
) -> dict[str, CaseAnswers]:
    """What the baseline answers now to cases that it had left without an answer when it was sealed:
    it may have been ill at that moment. One that it never answers is no failure; it is compared as
    such."""
    silent = [case for case in cases if case.id in known.cases and known.cases[case.id].untold]
    if not silent:
        return {}
    try:
        fingerprint = _taken(context, "baseline", "", silent, repeat, attempt)
    except StepFailed:
        return {}
    refuse_stranger(context, "baseline")
    return {
        name: case_answers
        for name, case_answers in fingerprint.cases.items()
        if not case_answers.untold
    }


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Ask, compare, run the suite. What is different is a matter of a gate; only a suite that ends
    with another code than 0 fails the step."""
    contract = planned.section(ContractStep)
    url = contract.url or context.services.spec(contract.service).url
    started = contract.service in ("", "baseline") or context.services.find(contract.service)
    if not started:
        raise StepFailed(Cause.PRECONDITION, f"{contract.service} has not been started, or died")
    outcomes = [_compared(context, contract, attempt)] if contract.asks else []
    if contract.suite:
        run_well(context, planned.written, attempt, {"OMNI_URL": url})
        outcomes.append(Done("the suite ended with 0"))
    return Done(
        "; ".join(outcome.detail for outcome in outcomes),
        warned=any(outcome.warned for outcome in outcomes),
    )


def _compared(context: Context, contract: ContractStep, attempt: Attempt) -> Done:
    cases = _cases(context, contract)
    before = _before(context, contract)
    server = contract.service, contract.url or ""
    after = _taken(context, *server, cases, contract.repeat, attempt, contract.model)
    if contract.service:
        refuse_stranger(context, contract.service)
    comparison = compare(before.of(cases), after)
    _record(context, contract, after, comparison, attempt)
    if not (comparison.compared or comparison.untold):
        raise StepFailed(Cause.OUTPUT_INVALID, comparison.words())
    return Done(comparison.words(), warned=not comparison.same)


def _before(context: Context, contract: ContractStep) -> Fingerprint:
    """What the server is compared with. Raises StepFailed."""
    try:
        path = _of_run(context) if contract.of_baseline else context.path(contract.against)
        return read_fingerprint(path)
    except UsageError as error:
        why = "the baseline was not asked in this run" if contract.of_baseline else str(error)
        raise StepFailed(Cause.PRECONDITION, why) from error


def _cases(context: Context, contract: ContractStep) -> Sequence[Case]:
    """Ours, and the operator's own. Raises StepFailed for a file that cannot be used."""
    try:
        return contract_cases(context.path(contract.cases) if contract.cases else None)
    except ConsoleError as error:
        raise StepFailed(Cause.PRECONDITION, str(error)) from error


def _taken(
    context: Context, service: str, url: str, cases: Sequence[Case], repeat: int, attempt: Attempt,
    model: str = "",
) -> Fingerprint:  # fmt: skip
    """The fingerprint of a server, asked in a thread of its own, so that a cancel does not wait for
    an answer. Raises StepFailed if the server does not answer, and Cancelled."""
    where = url or context.services.spec(service).url
    name = context.services.model(service, model)
    over = threading.Event()
    progress: list[tuple[int, int, str]] = []
    made: list[Fingerprint | Exception] = []

    def say(number: int, of: int, case: str) -> None:
        if over.is_set():
            raise Cancelled(attempt.step)
        progress[:] = [(number, of, case)]

    def work() -> None:
        try:
            made.append(
                take(where, cases, repeat=repeat, model=name, say=say, now=context.clock.now)
            )
        except Exception as error:  # handed over whole to the thread that waits
            made.append(error)

    thread = threading.Thread(target=work, name="contract", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            for number, of, case in progress:
                words = f"{service or one_line(where, 80)}: case {case}"
                attempt.say(words, Figures(number, of, "request"))
            attempt.pause(POLL_S)
    finally:
        over.set()
    [outcome] = made
    if isinstance(outcome, ServiceError):
        failed = StepFailed(Cause.OUTPUT_INVALID, str(outcome))
        raise (context.services.explain(service) if service else None) or failed from outcome
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _record(
    context: Context,
    contract: ContractStep,
    after: Fingerprint,
    comparison: Comparison,
    attempt: Attempt,
) -> None:
    """Figures and changes in the journal, every answer in a file beside the attempt's log."""
    path = attempt.path.with_name(f"{attempt.step}.{attempt.number}.contract.json")
    _write(path, after)
    metrics: dict[str, dict[str, Any]] = {
        name: {"value": value, "n": n, "unit": CONTRACT_METRICS[name].unit}
        for name, (value, n) in comparison.metrics().items()
    }
    body = comparison.to_json()
    contract_facts = {
        "of": contract.service or one_line(contract.url or "", 200), "words": body["words"],
        "against": "the baseline" if contract.of_baseline else one_line(contract.against, 200),
        "compared": comparison.compared, "noisy": body["noisy"], "own_noise": body["own_noise"],
        "apart": body["apart"], "changes": body["changes"][:MAX_ROWS],
        "all": len(comparison.changes), "file": str(path),
    }  # fmt: skip
    context.record(
        events.Metrics(scope=attempt.step, metrics=metrics, contract=contract_facts),
        attempt.step, attempt.number,
    )  # fmt: skip


def _of_run(context: Context) -> Path:
    """The baseline's fingerprint as this run compares with it."""
    return context.run.attempt_log("baseline", 0).with_name("baseline.contract.json")


def _sealed_path(context: Context) -> Path:
    """Where the fingerprint of this very baseline is sealed: another model file, build, image or
    command line has another one."""
    site = context.plan.site
    facts, runs = engine(context, "baseline").facts, site.baseline_spec().runs
    argv = [str(word) for word in facts.get("argv") or argv_of(runs) or ()]
    models = [str(site.base / model) for model in site.model.baseline.models]
    files = files_named(runs, [*argv, *models], {})
    key = json.dumps([argv, facts.get("image_id"), files], sort_keys=True)
    name = hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()[:16]
    return paths.records_dir(site.name) / "contract" / f"{name}.json"


def _write(path: Path, fingerprint: Fingerprint) -> None:
    """Write a fingerprint for this user alone. Raises StepFailed."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps(fingerprint.to_json()) + "\n", 0o600)
    except OSError as error:
        why = f"{path}: {error.strerror}"
        raise StepFailed(Cause.START_ERROR, f"the answers cannot be kept: {why}") from error
