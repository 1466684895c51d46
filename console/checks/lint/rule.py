"""Lint's rules, the machine facts that they use, and comments that suppress a finding.

A rule is a named fault, the lessons that taught it, or the vendor's page that does, and a function
that finds it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from console.checks.lint.unit import Comment, Finding, Hit, Place, Severity, Unit
from console.common.errors import InvalidFile

if TYPE_CHECKING:
    from console.config.site.site import Site

ERROR, WARNING, INFO = Severity

BLACKWELL = (12, 0)
_ZEN5 = re.compile(r"9\d{3}(?:WX|X|X3D)|9\d{2}5[FP]?")
"""Threadripper 99xxWX/X, Ryzen 9xxx, EPYC 9xx5."""

MODULES = ("build", "engine", "image", "host")
"""Modules of console.checks.lint.rules; rules in other modules are not loaded."""

MARK = re.compile(r"#+\s*omni:\s*ignore\b\s*(.*)$", re.IGNORECASE)
FORM = "# omni: ignore RULE LESSON reason"
MAX_SUPPRESSIONS = 500
"""Suppressions of one file that are considered."""
BAD, UNUSED = "suppression-without-reason", "suppression-unused"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the machine a file is written for: memory of the cards in bytes, their
    compute capabilities, RAM and swap in bytes, the CPU's name and flags; empty or None if the site
    does not say."""

    memory: tuple[int, ...] = ()
    compute: tuple[tuple[int, int], ...] = ()
    ram_bytes: int | None = None
    swap_bytes: int = 0
    cpu: str = ""
    cpu_flags: frozenset[str] = frozenset()

    @property
    def asymmetric(self) -> bool | None:
        """Whether cards differ in size; None if fewer than two are known."""
        if len(self.memory) < 2:
            return None
        return max(self.memory) > 1.1 * min(self.memory)

    @property
    def sm120(self) -> bool | None:
        """Whether a card has compute capability 12.0; None if none is known."""
        return any(capability >= BLACKWELL for capability in self.compute) if self.compute else None

    @property
    def amx(self) -> bool | None:
        """Whether the CPU has AMX for INT8; None if the site names neither flags nor an AMD."""
        if self.cpu_flags:
            return {"amx_tile", "amx_int8"} <= self.cpu_flags
        return False if self.cpu.upper().startswith("AMD") else None

    @property
    def zen5(self) -> bool | None:
        """Whether the CPU is a Zen 5; None if the site does not name it."""
        if not self.cpu:
            return None
        words = self.cpu.upper().replace("-", " ").split()
        return any(map(_ZEN5.fullmatch, words)) and ("AMD" in words or "EPYC" in words)


def facts_of(site: Site) -> Facts:
    """The facts a site file declares; nothing is measured."""
    machine, gpus = site.model.machine, site.model.gpus
    return Facts(
        tuple(gpu.memory for gpu in gpus if gpu.memory is not None),
        tuple(gpu.compute for gpu in gpus if gpu.compute is not None),
        machine.ram, machine.swap or 0, machine.cpu, frozenset(machine.cpu_flags),
    )  # fmt: skip


Check = Callable[[Unit, Facts], Iterable[Hit]]
When = Callable[[Unit, Facts], bool | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """`lessons`: ids of the registry, or the name of the plan that taught it; `page`: the address
    of the vendor's page that says it. `needs`: site facts that it needs to be certain; `when`: the
    files it applies to."""

    id: str
    severity: Severity
    lessons: tuple[str, ...]
    title: str
    why: str
    fix: str
    check: Check
    needs: str = ""
    when: When | None = None
    page: str = ""

    @property
    def cites(self) -> tuple[str, ...]:
        """Its lessons, and the page."""
        return (*self.lessons, *([self.page] if self.page else []))


_RULES: dict[str, Rule] = {}


def rule(
    id: str, severity: Severity, lessons: str = "", *, title: str, why: str, fix: str,
    needs: str = "", when: When | None = None, page: str = "",
) -> Callable[[Check], Check]:  # fmt: skip
    """Register a function as a rule; `lessons` are separated by blanks. Raises ValueError where
    neither a lesson nor a page is cited."""

    def register(check: Check) -> Check:
        if id in _RULES:
            raise ValueError(f"two rules named {id}")
        if not (lessons or page):
            raise ValueError(f"{id} cites neither a lesson nor a vendor's page")
        _RULES[id] = Rule(
            id, severity, tuple(lessons.split()), title, why, fix, check, needs, when, page
        )
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
    for lint_rule in rules().values():
        for hit in (
            lint_rule.check(unit, facts)
            if lint_rule.when is None or lint_rule.when(unit, facts)
            else ()
        ):
            severity, fix = hit.severity or lint_rule.severity, hit.fix or lint_rule.fix
            finding = unit.finding(
                hit.place, lint_rule.id, severity, hit.what, fix, lint_rule.lessons
            )
            overdue = _overdue(lint_rule.lessons, date.today())
            yield replace(finding, overdue=overdue, page=lint_rule.page)


@cache
def _overdue(lessons: tuple[str, ...], today: date) -> tuple[str, ...]:
    """`2026-04-27 (F-024)` for each lesson whose day of review is past: what it says may no longer
    be so."""
    from console.config.lessons import registry  # only a finding needs it, and it takes a while

    files, due = registry.files(), []
    for name in lessons:
        with contextlib.suppress(InvalidFile, KeyError):
            lesson = registry.load_lesson(files[name])
            if registry.due_by(lesson, today):
                due.append(f"{lesson.model.due} ({name})")
    return tuple(due)


@dataclass(frozen=True, slots=True)
class Suppression:
    """`# omni: ignore RULE LESSON reason`: a finding that somebody has judged and explained. It
    stands on the line itself, or in a comment of its own above it. Instead of a lesson it may name
    the page that the rule cites. Without either, or without a reason, it has no effect and is
    reported itself, and so is an unused one. `lines`: the lines that it covers."""

    rule: str
    reason: str
    place: Place
    lines: range


def apply_suppressions(
    unit: Unit, raw_findings: Iterable[Finding], rules: dict[str, Rule]
) -> list[Finding]:
    """Findings, the suppressed ones marked, plus what is wrong with suppressions."""
    good: list[Suppression] = []
    out: list[Finding] = []
    for comment in unit.comments:
        mark = MARK.match(comment.text)
        if mark is None or len(good) >= MAX_SUPPRESSIONS:
            continue
        wrong = _wrong(mark[1], rules)
        if wrong:
            out.append(unit.finding(comment.place, BAD, WARNING, wrong, FORM))
            continue
        name, lesson, reason = mark[1].split(None, 2)
        lines = _covered(unit, comment)
        good.append(Suppression(name, f"{lesson}: {reason}", comment.place, lines))
    used: set[Suppression] = set()
    for finding in raw_findings:
        by = next((s for s in good if s.rule == finding.rule and finding.line in s.lines), None)
        if by is not None:
            used.add(by)
            finding = replace(finding, suppressed=by.reason)
        out.append(finding)
    for idle in good:
        if idle not in used:
            words, fix = f"nothing here is found by {idle.rule}", "remove the comment"
            out.append(unit.finding(idle.place, UNUSED, INFO, words, fix))
    return out


def _wrong(text: str, rules: dict[str, Rule]) -> str:
    """Why a suppression is invalid; "" if it is valid."""
    words = text.split(None, 2)
    if not words:
        return "a suppression that names no rule"
    rule = rules.get(words[0])
    if rule is None:
        return f"no rule is named {words[0]}"
    if len(words) < 2 or words[1] not in rule.cites:
        what = "lesson" if rule.lessons else "page"
        return f"{words[0]} is not suppressed: name its {what} ({' or '.join(rule.cites)})"
    if len(words) < 3 or len(words[2].strip()) < 3:
        return f"{words[0]} is not suppressed: say why"
    return ""


def _covered(unit: Unit, comment: Comment) -> range:
    """Lines that a comment covers: its own line, or, if alone on it, what begins below."""
    line = comment.place.line
    if not comment.own:
        return range(line, line + 1)
    own = {remark.place.line for remark in unit.comments if remark.own}
    below = line + 1
    while below in own:
        below += 1
    last = max((end for begin, end in unit.spans if begin == below), default=below)
    return range(line, last + 1)
