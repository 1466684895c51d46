"""Runs all checks at the same time, each with its own deadline, so that none blocks another."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial

from console.checks.doctor import baseline, guard, machine, reach, runtime, user
from console.checks.doctor.facts import Answer, Check, Facts, Finding, Level, begun
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.common.units import plural

DEADLINE_S = 3.0
"""Seconds for one check; all together take little more, whatever hangs."""

CHECKS: tuple[Check, ...] = (
    *user.CHECKS, *reach.CHECKS, *machine.CHECKS, *machine.DECLARED_CHECKS,
    *runtime.PREFLIGHT_CHECKS, *runtime.GPU_CHECKS, *guard.CHECKS,
    *runtime.CHECKS, *baseline.CHECKS, *user.OWN_CHECKS,
)  # fmt: skip
"""All checks, in the order of the page."""
HANGS = {
    "gpu": "a driver that hangs usually needs a reboot; dmesg tells more",
    "engine": "is dockerd frozen? `docker ps` shows whether it answers",
    "machine": "a dead mount? `findmnt -t nfs,nfs4,cifs,fuse` lists what can hang",
}
"""Hints for groups of checks that do not answer."""


def run(site_given: str | None = None) -> list[Finding]:
    """Every finding in the order of the page; takes about DEADLINE_S at most, never raises."""
    return [finding for answer in in_order(iterate(site_given)) for finding in answer.findings]


def iterate(
    site_given: str | None = None,
    *,
    checks: Sequence[Check] = CHECKS,
    facts: Facts | None = None,
    deadline_s: float = DEADLINE_S,
) -> Iterator[Answer]:
    """Yield answers as they come, one per check; a check past its deadline gets a "no answer".

    Its daemon thread is abandoned, and whatever it still finds is dropped.
    """
    shared = facts or Facts(site_given)
    until = time.monotonic() + deadline_s
    waiting = {
        begun(check.id, partial(_look, check, shared)): position
        for position, check in enumerate(checks)
    }
    while waiting:
        done, _ = wait(waiting, max(0.0, until - time.monotonic()), FIRST_COMPLETED)
        if not done:
            break
        for future in done:
            position = waiting.pop(future)
            yield Answer(position, checks[position], future.result())
    causes = {
        group: _cause(group, shared) for group in {_group(checks[at]) for at in waiting.values()}
    }
    for position in waiting.values():
        check = checks[position]
        words = f"this check was not over within {deadline_s:g} s"
        hint = causes[_group(check)] or _load() or HANGS.get(_group(check), "")
        yield Answer(position, check, (check.finding(check.silent, words, hint),))


def _group(check: Check) -> str:
    return check.id.partition(".")[0]


def _cause(group: str, facts: Facts) -> str:
    """What is known to keep a check of engine or baseline from its end; "" for nothing."""
    if group == "engine" and facts.engine_is_silent():
        return HANGS[group]
    if group != "baseline":
        return ""
    known = []
    if facts.engine_is_silent() and facts.engine_need() is Level.FAILED:
        known.append(f"the container engine does not answer: {HANGS['engine']}")
    with contextlib.suppress(ConsoleError, OSError):
        known.append(baseline.at_work(facts))
    return "; ".join(filter(None, known))


def _load() -> str:
    """What to do where nothing may hang at all: there is more to do than the processors can."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load <= processors:
        return ""
    many = plural(processors, "processor")
    return f"the load average is {load:.0f} on {many}: it may only be slow; try again"


def in_order(answers: Iterable[Answer]) -> Iterator[Answer]:
    """The same answers in the order of the page, each as soon as those before it exist."""
    early: dict[int, Answer] = {}
    following = 0
    for answer in answers:
        early[answer.position] = answer
        while following in early:
            yield early.pop(following)
            following += 1


def _look(check: Check, facts: Facts) -> tuple[Finding, ...]:
    """A check's findings; an exception becomes a finding too."""
    findings: list[Finding] = []
    try:
        findings.extend(check.look(facts, check))
    except ConsoleError as error:
        findings.append(check.finding(check.silent, str(error), error.hint))
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        findings.append(check.finding(check.silent, f"{where}{error.strerror or error}"))
    except Exception as error:  # a broken check must not take the page along
        words = f"this check broke: {type(error).__name__}: {error}"
        findings.append(check.finding(check.silent, one_line(words)))
    return tuple(findings)


def counts(findings: Iterable[Finding]) -> tuple[int, int]:
    """How many checks failed, and how many warn."""
    levels = [finding.level for finding in findings]
    return levels.count(Level.FAILED), levels.count(Level.WARNING)
