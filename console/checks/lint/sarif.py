"""Findings as SARIF 2.1.0 (OASIS), for editors and code hosts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from console.checks.lint.finding import Finding, Severity
from console.checks.lint.rule import Rule, rules
from console.checks.lint.run import BROKEN, CUT
from console.checks.lint.suppress import BAD, UNUSED
from console.common.errors import Problem

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
FORMAT, UNREAD = "format", "unread"
"""Rules of their own: what the strict reader refuses, and what could not be looked at."""


def report(
    version: str, found: Iterable[Finding], problems: Iterable[Problem], refused: Iterable[Problem]
) -> dict[str, Any]:
    """One run of one tool."""
    plain = (FORMAT, UNREAD, BROKEN, CUT, BAD, UNUSED)
    ids = [*rules(), *plain]
    results = [_result(one, ids) for one in found]
    results += [_problem(one, FORMAT, ids) for one in problems]
    results += [_problem(one, UNREAD, ids) for one in refused]
    driver = {
        "name": "omni-console lint", "version": version,
        "rules": [*(_rule(one) for one in rules().values()), *map(_plain, plain)],
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
    }


def _plain(name: str) -> dict[str, Any]:
    level = {CUT: "warning", BAD: "warning", UNUSED: "note"}.get(name, "error")
    return {"id": name, "defaultConfiguration": {"level": level}}


def _result(one: Finding, ids: list[str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ruleId": one.rule,
        "level": LEVEL[one.severity],
        "message": {"text": f"{one.what}. Fix: {one.fix}." if one.fix else f"{one.what}."},
        "locations": [_place(one.file, one.line, one.column)],
    }
    if one.rule in ids:
        made["ruleIndex"] = ids.index(one.rule)
    if one.suppressed:
        made["suppressions"] = [{"kind": "inSource", "justification": one.suppressed}]
    return made


def _problem(one: Problem, rule: str, ids: list[str]) -> dict[str, Any]:
    words = "; expected ".join(filter(None, (one.what, one.expected)))
    return {
        "ruleId": rule, "ruleIndex": ids.index(rule), "level": "error",
        "message": {"text": f"{words} ({one.hint})" if one.hint else words},
        "locations": [_place(one.file, one.line, one.column)],
    }  # fmt: skip


def _place(file: str, line: int, column: int) -> dict[str, Any]:
    path = Path(file)
    uri = path.as_uri() if path.is_absolute() else quote(file, errors="replace")
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if line:
        place["region"] = {"startLine": line, "startColumn": max(1, column)}
    return {"physicalLocation": place}
