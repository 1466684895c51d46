"""Files → findings. A file that cannot be looked at is said, and the next one is looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from console.errors import Problem
from console.lint import compose, dockerfile, playbook, source, suppress, tree, walk
from console.lint.collect import Scene, add_script
from console.lint.facts import Facts
from console.lint.finding import RANK, Finding, Severity
from console.lint.rule import findings, rules
from console.lint.snippet import whole
from console.lint.unit import Kind, Source, Unit, Where

CUT = "text-too-long"


@dataclass(slots=True)
class Outcome:
    """`findings` are in order, suppressed ones included; `refused` could not be looked at;
    `playbooks` are for the strict reader, which reports in its own words."""

    findings: list[Finding] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    strict: list[Path] = field(default_factory=list)
    looked: int = 0

    @property
    def open(self) -> list[Finding]:
        return [one for one in self.findings if not one.suppressed]

    def worst(self) -> Severity | None:
        return min((one.severity for one in self.open), key=RANK.__getitem__, default=None)


def lint(paths: Iterable[Path], facts: Facts) -> Outcome:
    """Everything under some paths."""
    outcome = Outcome()
    seen: set[Path] = set()
    for given in paths:
        for path, wrong in _files(given, outcome):
            if wrong:
                outcome.refused.append(Problem(str(path), 0, 0, wrong))
            elif path not in seen:
                seen.add(path)
                _one(path, facts, outcome, asked=path == given)
    outcome.findings.sort(key=lambda one: one.order)
    return outcome


def _files(given: Path, outcome: Outcome) -> Iterator[tuple[Path, str]]:
    if not given.is_dir():
        yield given, ""
        return
    try:
        yield from walk.files(given)
    except walk.TooMany as error:
        outcome.refused.append(Problem(str(given), 0, 0, str(error)))


def _one(path: Path, facts: Facts, outcome: Outcome, *, asked: bool) -> None:
    """`asked`: the file was named, and has to be of a kind; in a directory it may be anything."""
    name = str(path)
    try:
        text = source.read(path)
    except source.Unreadable as error:
        outcome.refused.append(Problem(name, 0, 0, str(error)))
        return
    try:
        unit, strict = unit_of(path, name, text)
    except tree.NotYaml as error:
        if asked:
            outcome.strict.append(path)
            outcome.looked += 1
        elif "services:" in text or "omni." in text:  # a template of another tool is none of ours
            outcome.refused.append(
                Problem(name, error.place.line, error.place.column, f"not YAML: {error}")
            )
        return
    if strict or (unit is None and asked and source.is_yaml(path)):
        outcome.strict.append(path)
    elif unit is None:
        if asked:
            words = "neither a playbook, site, lesson, compose file, Dockerfile nor shell script"
            outcome.refused.append(Problem(name, 0, 0, words))
        return
    outcome.looked += 1
    if unit is not None:
        outcome.findings += of_unit(unit, facts)


def unit_of(
    path: Path, name: str, text: str, given: Mapping[str, str] | None = None
) -> tuple[Unit | None, bool]:
    """(what rules look at, whether the strict reader has to see it too). Raises NotYaml."""
    kind = source.kind_by_name(path)
    if kind is None and source.is_yaml(path):
        return _yaml(path, name, text, given)
    kind = kind or source.kind_by_text(text)
    if kind is None:
        return None, False
    made = Source(name, text, kind, path)
    return (dockerfile.unit_of(made) if kind is Kind.DOCKERFILE else shell_unit(made)), False


def _yaml(
    path: Path, name: str, text: str, given: Mapping[str, str] | None
) -> tuple[Unit | None, bool]:
    read = tree.parse(text)
    schema = read.root.said("schema")
    if schema.startswith("omni.playbook/"):
        return playbook.unit_of(Source(name, text, Kind.PLAYBOOK, path), read, given), True
    if schema.startswith(("omni.site/", "omni.lesson/")):
        return None, True
    if compose.looks_like_one(read.root):
        return compose.unit_of(Source(name, text, Kind.COMPOSE, path), read), False
    return None, False


def shell_unit(made: Source) -> Unit:
    unit = Unit(made)
    add_script(unit, whole(made.text), Scene(Where.HOST))
    return unit


def of_unit(unit: Unit, facts: Facts) -> list[Finding]:
    """Each finding once, suppressions applied, in order."""
    found = dict.fromkeys(findings(unit, facts))
    if unit.cut:
        words = "too long: the end of it is not looked at"
        found[Finding(unit.source.name, 1, 1, CUT, Severity.WARNING, words, "split it")] = None
    return sorted(suppress.apply(unit, found, rules()), key=lambda one: one.order)
