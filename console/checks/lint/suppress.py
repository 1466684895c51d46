"""`# omni: ignore RULE LESSON reason`: a finding that somebody has judged, and says why.

On the line itself, or in a comment of its own above it. Without the lesson or the reason it counts
for nothing and is itself found; so is one that nothing needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from console.checks.lint.finding import Finding, Place, Severity
from console.checks.lint.rule import Rule
from console.checks.lint.unit import Comment, Unit

MARK = re.compile(r"#+\s*omni:\s*ignore\b\s*(.*)$", re.IGNORECASE)
FORM = "# omni: ignore RULE LESSON reason"
MOST = 500
"""Suppressions of one file that are looked at."""
BAD, UNUSED = "suppression-without-reason", "suppression-unused"


@dataclass(frozen=True, slots=True)
class Suppression:
    """`lines`: first and last line that it covers."""

    rule: str
    reason: str
    place: Place
    lines: tuple[int, int]


def apply(unit: Unit, found: Iterable[Finding], rules: dict[str, Rule]) -> list[Finding]:
    """Findings with those that are suppressed marked, and what is wrong with suppressions."""
    good: list[Suppression] = []
    out: list[Finding] = []
    for comment in unit.comments:
        mark = MARK.match(comment.text)
        if mark is None or len(good) >= MOST:
            continue
        wrong = _wrong(mark[1], rules)
        if wrong:
            out.append(_finding(unit, comment.place, BAD, Severity.WARNING, wrong))
            continue
        name, lesson, reason = mark[1].split(None, 2)
        lines = _covered(unit, comment)
        good.append(Suppression(name, f"{lesson}: {reason}", comment.place, lines))
    used: set[Suppression] = set()
    for one in found:
        by = next((s for s in good if s.rule == one.rule and _in(one.line, s.lines)), None)
        if by is not None:
            used.add(by)
            one = replace(one, suppressed=by.reason)
        out.append(one)
    for idle in good:
        if idle not in used:
            words = f"nothing here is found by {idle.rule}"
            out.append(_finding(unit, idle.place, UNUSED, Severity.INFO, words))
    return out


def _in(line: int, lines: tuple[int, int]) -> bool:
    return lines[0] <= line <= lines[1]


def _wrong(text: str, rules: dict[str, Rule]) -> str:
    """Why a suppression does not count; "" where it does."""
    words = text.split(None, 2)
    if not words:
        return "a suppression that names no rule"
    rule = rules.get(words[0])
    if rule is None:
        return f"no rule is named {words[0]}"
    if len(words) < 2 or words[1] not in rule.lessons:
        return f"{words[0]} is not suppressed: name its lesson ({' or '.join(rule.lessons)})"
    if len(words) < 3 or len(words[2].strip()) < 3:
        return f"{words[0]} is not suppressed: say why"
    return ""


def _finding(unit: Unit, place: Place, rule: str, severity: Severity, what: str) -> Finding:
    fix = FORM if rule == BAD else "take the comment out"
    return Finding(unit.source.name, place.line, place.column, rule, severity, what, fix)


def _covered(unit: Unit, comment: Comment) -> tuple[int, int]:
    """A comment behind something covers its line; one of its own covers what begins below it."""
    line = comment.place.line
    if not comment.own:
        return line, line
    own = {one.place.line for one in unit.comments if one.own}
    below = line + 1
    while below in own:
        below += 1
    return line, max(_ends(unit, below), default=below)


def _ends(unit: Unit, first: int) -> Iterator[int]:
    return (end for begin, end in unit.spans if begin == first)
