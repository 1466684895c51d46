"""Runs lint over files: reads each and applies every rule, with one process per CPU.

A file that cannot be examined is reported, and the others still are. Results keep the files'
order.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from console.checks.lint import dockerfile, files, rule, yaml_files, yaml_tree
from console.checks.lint.commands import Scene, add_script
from console.checks.lint.rule import Facts, findings, rules
from console.checks.lint.unit import (
    RANK,
    Finding,
    Kind,
    Place,
    Severity,
    Source,
    Unit,
    Where,
    whole,
)
from console.common.errors import Problem

MANY = 64
"""Number of files from which on starting processes pays off."""
_MAX_WORKERS, _CHUNK = 8, 8

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

CUT = "text-too-long"
BROKEN = "text-not-readable"
REFUSED = "compose-refuses"
NO_KIND = "neither a playbook, site, lesson, compose file, Dockerfile nor shell script"
SCHEMA_HINT = "a playbook begins with `schema: omni.playbook/v1`"
_SCHEMA = re.compile(r"^schema:\s*['\"]?([\w./-]+)", re.MULTILINE)


def each(work: Callable[[_Item], _Result], items: Sequence[_Item]) -> Iterator[_Result]:
    """Apply `work` to every item. With processes it and its results are pickled; do not use from a
    process with threads, which must not be forked."""
    count = min(len(os.sched_getaffinity(0)), _MAX_WORKERS)
    if len(items) < MANY or count < 2:
        yield from map(work, items)
        return
    import multiprocessing  # three times as slow as a small file is
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor

    yield work(items[0])  # imports what is needed, once for all
    done = 1
    try:
        forked = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(count, forked, _quiet) as workers:
            for result in workers.map(work, items[1:], chunksize=_CHUNK):
                yield result
                done += 1
    except (BrokenExecutor, OSError):  # no room for processes, or one was killed
        yield from map(work, items[done:])


def _quiet() -> None:
    """Ignore Ctrl-C in workers: the waiting process handles it and ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(slots=True)
class Outcome:
    """`findings` are in order, suppressed ones included; `refused` could not be examined; `strict`
    are files with their schemas for the strict reader, which reports in its own words."""

    findings: list[Finding] = field(default_factory=list)
    refused: list[Problem] = field(default_factory=list)
    strict: list[tuple[Path, str]] = field(default_factory=list)
    looked: int = 0

    @property
    def open(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.suppressed]

    def worst(self) -> Severity | None:
        return min((finding.severity for finding in self.open), key=RANK.__getitem__, default=None)


def lint(paths: Iterable[Path], facts: Facts) -> Outcome:
    outcome = Outcome()
    todo: dict[Path, bool] = {}
    for given in paths:
        for path, wrong in _files(given, outcome):
            if wrong:
                outcome.refused.append(Problem(str(path), 0, 0, wrong))
            else:
                todo.setdefault(path, path == given)
    for file_outcome in each(partial(_lint_file, facts), list(todo.items())):
        outcome.findings += file_outcome.findings
        outcome.refused += file_outcome.refused
        outcome.strict += file_outcome.strict
        outcome.looked += file_outcome.looked
    outcome.findings.sort(key=lambda finding: finding.order)
    return outcome


def _files(given: Path, outcome: Outcome) -> Iterator[tuple[Path, str]]:
    if not given.is_dir():
        yield given, ""
        return
    try:
        yield from files.walk(given)
    except files.TooMany as error:
        outcome.refused.append(Problem(str(given), 0, 0, str(error)))


def _lint_file(facts: Facts, item: tuple[Path, bool]) -> Outcome:
    """Lint one file. A named file must be of a known kind; one from a directory may be anything."""
    (path, is_named), outcome = item, Outcome()
    name = str(path)
    try:
        text = files.read(path)
    except files.Unreadable as error:
        return Outcome(refused=[Problem(name, 0, 0, str(error))])
    try:
        unit, schema = unit_of(path, text)
    except yaml_tree.NotYaml as error:
        if is_named:
            written = _SCHEMA.search(text)
            return Outcome(strict=[(path, written[1] if written else "")], looked=1)
        if "services:" in text or "omni." in text:  # a template of another tool is none of ours
            place = error.place
            words = f"not YAML: {error}"
            outcome.refused.append(Problem(name, place.line, place.column, words))
        return outcome
    if schema is not None and (is_named or schema):
        outcome.strict.append((path, schema))
    elif unit is None:
        if is_named:
            hint = SCHEMA_HINT if files.is_yaml(path) else ""
            outcome.refused.append(Problem(name, 0, 0, NO_KIND, hint=hint))
        return outcome
    outcome.looked = 1
    if unit is not None:
        outcome.findings += of_unit(unit, facts)
    return outcome


def unit_of(
    path: Path, text: str, given: Mapping[str, str] | None = None
) -> tuple[Unit | None, str | None]:
    """(unit for the rules, schema if the strict reader must see the file too: "" if only its keys
    identify a playbook). Raises NotYaml."""
    kind = files.kind_by_name(path)
    if kind is None and files.is_yaml(path):
        return _yaml(path, text, given)
    kind = kind or files.kind_by_text(text)
    if kind is None:
        return None, None
    made = Source(path, text, kind)
    return (dockerfile.unit_of(made) if kind is Kind.DOCKERFILE else shell_unit(made)), None


def _yaml(path: Path, text: str, given: Mapping[str, str] | None) -> tuple[Unit | None, str | None]:
    read = yaml_tree.parse(text)
    schema, phases = read.root.text_at("schema"), read.root.get("phases")
    if schema.startswith("omni.playbook/"):
        return yaml_files.playbook_unit(Source(path, text, Kind.PLAYBOOK), read, given), schema
    if schema.startswith("omni."):
        return None, schema
    if yaml_files.looks_like_one(read.root, path.name):
        return yaml_files.compose_unit(Source(path, text, Kind.COMPOSE), read), None
    return None, "" if phases is not None and phases.items is not None else None


def shell_unit(made: Source) -> Unit:
    unit = Unit(made)
    add_script(unit, whole(made.text), Scene(Where.HOST))
    return unit


def of_unit(unit: Unit, facts: Facts) -> list[Finding]:
    """Each finding once, suppressions applied, in order."""
    unique_findings = dict.fromkeys(findings(unit, facts))
    if unit.cut:
        words = "too long: its end is not checked"
        unique_findings[unit.finding(Place(1, 1), CUT, Severity.WARNING, words, "split it")] = None
    for hit in unit.broken:
        fix = "correct it: what follows it may have been misread"
        unique_findings[unit.finding(hit.place, BROKEN, Severity.ERROR, hit.what, fix)] = None
    for hit in unit.refused:
        severity = hit.severity or Severity.ERROR
        unique_findings[unit.finding(hit.place, REFUSED, severity, hit.what, hit.fix)] = None
    return sorted(
        rule.apply_suppressions(unit, unique_findings, rules()), key=lambda finding: finding.order
    )
