"""Lint's findings as text, JSON and SARIF 2.1.0 (OASIS), and its rules as a document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from console.checks.lint.rule import BAD, FORM, UNUSED, Rule, rules
from console.checks.lint.run import BROKEN, CUT, REFUSED
from console.checks.lint.unit import BLOCKER, Finding, Severity
from console.common.errors import Problem
from console.common.text import clean
from console.common.units import plural

NOT_RULES = (
    ("F-005", "more models than memory", "a sum over services: `check checkpoint`, guards"),
    ("F-006B", "a Node version of a command line tool", "playbooks do not use it"),
    ("F-007", "httpx.AsyncClient against llama.cpp", "in Python programs, which are not read"),
    ("S-002", "the CPU executor", "a configuration that works, not a fault"),
    ("S-004", "an internal network", "a configuration that works, not a fault"),
    ("S-005", "NPS1 in the BIOS", "a fact of the machine: `check host` and a `host` step"),
    ("S-006", "a field of a graph's state", "in Python programs, which are not read"),
    ("S-007", "an allow-list of another tool", "not on this machine"),
    ("S-008", "CUDA 12.8, nightly wheels, full clone", "the other side of F-012, F-001, F-013"),
    ("S-009", "swap for large operations", "a remedy; guards judge what it does"),
    ("S-011", "a container that was renamed", "history, no text to find"),
    ("S-014", "20 tok/s on two equal cards", "an expectation, not a fault"),
    ("P-001 … P-004", "what was replaced by what", "decisions, no text to find"),
)  # fmt: skip
"""Lessons that no file can show, and why."""

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
FORMAT, UNREAD = "format", "unread"
"""Rules of its own: what the strict reader refuses, and unreadable files."""


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    """Each finding with its fix; the reason for a rule where it first appears."""
    explained_rules: set[str] = set()
    for finding in findings:
        yield clean(finding.text, 1000)
        rule = rules().get(finding.rule)
        if rule is not None and finding.rule not in explained_rules:
            yield clean(f"    {rule.why}", 1000)
        explained_rules.add(finding.rule)
        if finding.fix:
            yield clean(f"    fix: {finding.fix}", 1000)


def as_json(finding: Finding) -> dict[str, Any]:
    rule = rules().get(finding.rule)
    return {
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "rule": finding.rule,
        "severity": str(finding.severity),
        "lessons": list(finding.lessons),
        "what": finding.what,
        "why": rule.why if rule is not None else "",
        "fix": finding.fix,
        "suppressed": finding.suppressed,
        "overdue": list(finding.overdue),
        **({"page": finding.page} if finding.page else {}),
    }


def rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "rule": rule.id, "severity": str(rule.severity), "lessons": list(rule.lessons),
        "title": rule.title, "why": rule.why, "fix": rule.fix, "needs": rule.needs,
        **({"page": rule.page} if rule.page else {}),
    }  # fmt: skip


def count(findings: list[Finding]) -> str:
    """`2 errors, 1 warning, 3 infos; 1 suppressed`."""
    still = [finding for finding in findings if not finding.suppressed]
    counts = {
        severity: sum(finding.severity is severity for finding in still) for severity in Severity
    }
    parts = [plural(n, severity) for severity, n in counts.items() if n]
    summary = ", ".join(parts) or "no problems"
    silent = len(findings) - len(still)
    return f"{summary}; {silent} suppressed" if silent else summary


def document() -> str:
    """docs/reference/lint.md, made from the rules themselves."""
    table = (f"| {lesson} | {what} | {why} |" for lesson, what, why in NOT_RULES)
    return "\n".join([*_HEAD, "", *_rules(), *_TAIL, *table, ""])


_HEAD = f"""\
# Lint

<!-- omni-console lint --rules prints this page -->

`omni-console lint PATH…` reads playbooks, Dockerfiles, compose files and shell scripts, and looks
for faults that the lessons registry knows. In a directory it recognises YAML by its content,
Dockerfiles and scripts by their names; a script that you name is also known by its first line.
Every text is parsed: shell in RUN, CMD, `script:`, `command:` and health checks as well as in
files, and what `sh -c`, `docker exec` and ssh carry. Links are not followed. A file that cannot be
read, or that you name and lint does not know, is reported (exit code 2), and the rest is checked.
What no builder and no shell accepts is an error of its own (`{BROKEN}`): an unknown instruction,
half a list, a quote or an `if` that does not end. Shell is checked with `bash -n`. What `docker
compose` refuses of a file is one as well (`{REFUSED}`): a key that is written twice or that the
Compose Specification does not have, a value of another kind, a size or a port that is none, a
service, a volume, a network or a file that is named and not there, a circle. Of a file that is one
layer of several, and of one with an override beside it, only what stands in it is judged.

Errors and warnings end with exit code 9; info alone does not. `--json` prints one object, `--sarif`
SARIF 2.1.0. Facts about the machine come from the site file: without one, a rule that needs them is
silent, unless it says otherwise.

`omni-console run` lints the playbook, and the Dockerfiles, compose files and scripts that it names
or its steps run. An error stops the run, unless `--override RULE=reason` is given. The reason is
kept with the run and appears in its report; the console asks for it. Warnings are printed.

A run also asks about known blockers: lessons that the playbook names, that are still blocked,
deferred or rejected, and that apply to a step that acts. `--override {BLOCKER}=reason` runs it all
the same. The plan shows them from the start ([lessons.md](lessons.md)).

## In place

    {FORM}

on the line, or in a comment above the line, instruction or value. LESSON is one that the rule
cites, or the address of the page that it cites. Without it or without the reason, the comment has
no effect (`{BAD}`, warning); one that suppresses nothing is reported, too (`{UNUSED}`, info).

## Rules
""".splitlines()

_TAIL = [
    "## Not rules",
    "",
    "Lessons that no rule can find in a text:",
    "",
    "| lesson | what | why not |",
    "|---|---|---|",
]


def _rules() -> Iterator[str]:
    for rule in rules().values():
        about = f"{rule.title} ({rule.severity}; {', '.join(rule.cites)})."
        yield from (f"### {rule.id}", "", about, "", rule.why, "")
        if rule.needs:
            yield from (f"Needs: {rule.needs}.", "")
        yield from (f"Fix: {rule.fix}.", "")


def sarif(
    version: str,
    findings: Iterable[Finding],
    problems: Iterable[Problem],
    refused: Iterable[Problem],
) -> dict[str, Any]:
    """One run of one tool, as editors and code hosts read it."""
    plain = (FORMAT, UNREAD, BROKEN, REFUSED, CUT, BAD, UNUSED)
    ids = [*rules(), *plain]
    results = [_result(finding, ids) for finding in findings]
    results += [_problem(problem, FORMAT, ids) for problem in problems]
    results += [_problem(problem, UNREAD, ids) for problem in refused]
    driver = {
        "name": "omni-console lint", "version": version,
        "rules": [*(_rule(rule) for rule in rules().values()), *map(_plain, plain)],
    }  # fmt: skip
    run = {
        "tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results,
    }  # fmt: skip
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": f"{rule.title}."},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Fix: {rule.fix}."},
        "defaultConfiguration": {"level": LEVEL[rule.severity]},
        "properties": {"tags": list(rule.lessons)},
        **({"helpUri": rule.page} if rule.page else {}),
    }


def _plain(name: str) -> dict[str, Any]:
    level = {CUT: "warning", BAD: "warning", UNUSED: "note"}.get(name, "error")
    return {"id": name, "defaultConfiguration": {"level": level}}


def _result(finding: Finding, ids: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": LEVEL[finding.severity],
        "message": {"text": _message(finding)},
        "locations": [_place(finding.file, finding.line, finding.column)],
    }
    if finding.rule in ids:
        made["ruleIndex"] = ids.index(finding.rule)
    if finding.suppressed:
        made["suppressions"] = [{"kind": "inSource", "justification": finding.suppressed}]
    return made


def _message(finding: Finding) -> str:
    parts = [finding.what, f"Fix: {finding.fix}" if finding.fix else ""]
    parts += [f"To be reviewed since {', '.join(finding.overdue)}"] if finding.overdue else []
    return " ".join(f"{part}." for part in parts if part)


def _problem(problem: Problem, rule: str, ids: list[str]) -> dict[str, Any]:
    words = "; expected ".join(filter(None, (problem.what, problem.expected)))
    return {
        "ruleId": rule, "ruleIndex": ids.index(rule), "level": "error",
        "message": {"text": f"{words} ({problem.hint})" if problem.hint else words},
        "locations": [_place(problem.file, problem.line, problem.column)],
    }  # fmt: skip


def _place(file: str, line: int, column: int) -> dict[str, Any]:
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(file, errors="replace")
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        place["region"] = {"startLine": line, "startColumn": max(1, column)}
    return {"physicalLocation": place}
