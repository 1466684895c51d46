"""Machines that rules are asked about, and files as text."""

from __future__ import annotations

from pathlib import Path

from console.checks.lint.rule import Facts
from console.checks.lint.run import of_unit, unit_of
from console.checks.lint.unit import Finding

GIB = 1 << 30
UNEQUAL = Facts(
    (96 * GIB, 32 * GIB), ((12, 0), (12, 0)), 377 * GIB, 207 * GIB,
    "AMD Ryzen Threadripper PRO 9995WX",
)  # fmt: skip
EQUAL = Facts((80 * GIB, 80 * GIB), ((9, 0), (9, 0)), 2048 * GIB, 0, "Intel Xeon w9-3495X")
NOTHING = Facts()


def found(name: str, text: str, facts: Facts = UNEQUAL) -> list[Finding]:
    """What lint says of a text in a file of that name; the file is not on any disk."""
    unit, _ = unit_of(Path(name), text)
    assert unit is not None, name
    return of_unit(unit, facts)


def said(name: str, text: str, facts: Facts = UNEQUAL) -> list[tuple[str, str, int, int]]:
    """(rule, severity, line, column) of each open finding."""
    return [
        (one.rule, str(one.severity), one.line, one.column)
        for one in found(name, text, facts)
        if not one.suppressed
    ]
