"""What the operator is told of a playbook before its run starts: lint findings, and blocking
lessons that the playbook names and yet runs into. An error needs an override with a reason.

Naming a blocker alone is no fault: most trials name what they avoid. A blocker that merely applies
is a hint, because a step's words say little about its model. Named and applying, it repeats a
failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.checks.lint import files, run, yaml_tree
from console.checks.lint.rule import Facts, rules
from console.checks.lint.run import BROKEN, REFUSED
from console.checks.lint.unit import BLOCKER, RANK, Finding, Severity, Unit
from console.common.errors import ConsoleError, Exit, InvalidFile, UsageError
from console.common.text import one_line
from console.config.lessons import registry
from console.config.lessons.registry import Lesson, load_lesson
from console.config.playbook.steps import KINDS
from console.runner.prepare.plan import Plan, input_text

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook

STILL = ("blocked", "deferred", "rejected")
FIX = "say what is different this time; omni-console lessons {} has what happened"


class LintRefused(ConsoleError):
    """Lint errors without an override; nothing was started. `errors` lists them."""

    exit_code = Exit.LINT

    def __init__(self, errors: list[Finding]) -> None:
        super().__init__(
            "lint stops this run",
            "\n".join(f"{error.text}\n  fix: {error.fix}" for error in errors),
            f"fix it, or give a reason: --override {errors[0].rule}=WHY",
        )
        self.errors = errors


def check(
    playbook: Playbook, facts: Facts, overrides: Mapping[str, str], more: Iterable[Finding] = ()
) -> list[Finding]:
    """Open findings of a playbook and the files it builds from; an overridden one is marked.

    `overrides`: rule → reason. `more`: findings from elsewhere. Raises LintRefused with all errors
    that have no override.
    """
    findings = [
        replace(finding, suppressed=f"override: {overrides[finding.rule]}")
        if finding.rule in overrides else finding
        for finding in (*_findings(playbook, facts), *more) if not finding.suppressed
    ]  # fmt: skip
    errors = [
        finding
        for finding in findings
        if finding.severity is Severity.ERROR and not finding.suppressed
    ]
    if errors:
        raise LintRefused(errors)
    return findings


def plan_findings(playbook: Playbook, facts: Facts) -> list[Finding]:
    """What `check` would find, worst first, for a plan to show before a run is refused for it."""
    findings = [finding for finding in _findings(playbook, facts) if not finding.suppressed]
    return sorted(findings, key=lambda finding: (RANK[finding.severity], finding.order))


def overrides_of(pairs: list[str]) -> dict[str, str]:
    """Parse `RULE=reason` arguments. Raises UsageError."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, _, reason = pair.partition("=")
        if name not in (BLOCKER, BROKEN, REFUSED) and name not in rules():
            raise UsageError(
                f"--override {one_line(pair, 60)}", f"no rule is named {one_line(name, 60)}",
                "omni-console lint --rules lists them",
            )  # fmt: skip
        if len(reason.strip()) < 3:
            raise UsageError(
                f"--override {one_line(pair, 60)}", "an override needs a reason",
                f'--override "{name}=why it is right here"',
            )  # fmt: skip
        given[name] = one_line(reason)
    return given


def records(findings: list[Finding]) -> list[dict[str, Any]]:
    """Findings as the journal keeps them."""
    return [
        {
            "place": f"{finding.file}:{finding.line}:{finding.column}",
            "rule": finding.rule,
            "what": finding.what,
            "severity": str(finding.severity),
            "lessons": list(finding.lessons),
            "override": finding.suppressed,
        }
        for finding in findings
    ]


def _findings(playbook: Playbook, facts: Facts) -> Iterator[Finding]:
    given = {name: input_text(value) for name, value in playbook.inputs.items()}
    unit = _unit(playbook.path, playbook.text, given)
    if unit is None:
        return  # the strict reader took it: what is left is only what libyaml reads otherwise
    yield from run.of_unit(unit, facts)
    for file in dict.fromkeys(playbook.base / name for name in unit.files):
        try:
            other = _unit(file, files.read(file), given)
        except files.Unreadable:
            continue  # the step that needs it says so, with its own words
        if other is not None:
            yield from run.of_unit(other, facts)


def _unit(path: Path, text: str, given: Mapping[str, str]) -> Unit | None:
    try:
        return run.unit_of(path, text, given)[0]
    except yaml_tree.NotYaml:
        return None


@dataclass(frozen=True, slots=True)
class Blocker:
    """A lesson that still blocks, the first step that runs into it, and why it applies there."""

    lesson: Lesson
    step: str
    because: str

    @property
    def words(self) -> str:
        """`F-002 is rejected (2026-01-22), and step up goes into it: 6.1 against 10.75 tok/s`."""
        model = self.lesson.model
        since = model.history[-1].date if model.history else model.updated or model.date
        state = f"{model.id} is {model.status} ({since})"
        return f"{state}, and step {self.step} runs into it: {self.because}"


def blockers(made: Plan) -> list[Blocker]:
    """Blockers in the order in which the playbook names them; an unreadable one blocks nothing."""
    return [blocker for lesson in made.playbook.model.lessons for blocker in _of(made, lesson)]


def blocker_findings(made: Plan) -> list[Finding]:
    """The same as lint findings, each where the playbook names it."""
    places = _places(made.playbook.text)
    return [
        Finding(
            str(made.playbook.path),
            *places.get(blocker.lesson.id, (1, 1)),
            BLOCKER,
            Severity.ERROR,
            blocker.words,
            FIX.format(blocker.lesson.id),
            (blocker.lesson.id,),
        )
        for blocker in blockers(made)
    ]


def _of(made: Plan, lesson_id: str) -> Iterator[Blocker]:
    try:
        lesson = load_lesson(registry.files()[lesson_id])
    except (InvalidFile, KeyError):
        return
    if lesson.model.status not in STILL:
        return
    for step in made.steps:
        for words in step.lessons:
            if KINDS[step.kind].acts and words.split()[0] == lesson_id:
                yield Blocker(lesson, step.id, words.rpartition(" – ")[2])
                return


def _places(text: str) -> dict[str, tuple[int, int]]:
    """Id → line and column under `lessons:`."""
    try:
        named = yaml_tree.parse(text).root.get("lessons")
    except yaml_tree.NotYaml:
        return {}
    words = named.words() if named is not None else ()
    return {word.text: (word.place.line, word.place.column) for word in words}
