"""A rule: a fault with a name, the lessons it was learnt from, and a function that looks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from console.checks.lint.facts import Facts
from console.checks.lint.finding import Finding, Hit, Severity
from console.checks.lint.unit import Unit

Check = Callable[[Unit, Facts], Iterable[Hit]]

MODULES = ("build", "gpu", "engine", "image", "health", "download", "host")
"""Modules of console.checks.lint.rules; a rule that stands in none of them does not exist."""


@dataclass(frozen=True, slots=True)
class Rule:
    """`lessons`: ids of the registry, or the name of the plan that taught it. `needs`: what the
    site has to say before it can speak with certainty."""

    id: str
    severity: Severity
    lessons: tuple[str, ...]
    title: str
    why: str
    fix: str
    check: Check
    needs: str = ""


_RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: Severity, lessons: str, *, title: str, why: str, fix: str, needs: str = ""
) -> Callable[[Check], Check]:
    """Put a function into the table of rules; `lessons` are separated by blanks."""

    def register(check: Check) -> Check:
        if id in _RULES:
            raise ValueError(f"two rules named {id}")
        _RULES[id] = Rule(id, severity, tuple(lessons.split()), title, why, fix, check, needs)
        return check

    return register


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its id, in the order of ids."""
    for module in MODULES:
        import_module(f"console.checks.lint.rules.{module}")
    return dict(sorted(_RULES.items()))


def findings(unit: Unit, facts: Facts) -> Iterator[Finding]:
    """What every rule finds in one file, in no order."""
    for one in rules().values():
        for hit in one.check(unit, facts):
            yield Finding(
                unit.source.name, hit.place.line, hit.place.column, one.id,
                hit.severity or one.severity, hit.what, hit.fix or one.fix, one.lessons,
            )  # fmt: skip
