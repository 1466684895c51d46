"""The shipped registry: whole, consistent, and everything that names a lesson names one of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from console.checks.lint.rule import rules
from console.config.lessons import use
from console.config.lessons.registry import Registry

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"\b[FSP]-\d{3}\b")


def test_every_entry_of_the_log_is_there(registry: Registry) -> None:
    wanted = {f"F-{n:03d}" for n in range(1, 28)} | {f"S-{n:03d}" for n in range(1, 15)}
    wanted |= {f"P-{n:03d}" for n in range(1, 6)} | {"F-006B", "A-001", "A-002"}
    wanted |= {f"D-{n:03d}" for n in range(1, 5)}
    assert {one.id for one in registry.lessons} == wanted
    assert registry.problems == ()
    assert not any(one.own for one in registry.lessons)


def named() -> Iterator[tuple[str, str]]:
    """(file, id) of every lesson that the program, its playbooks and its documents name."""
    for room in ("console", "screens", "widgets", "playbooks", "docs"):
        for path in sorted((ROOT / room).rglob("*")):
            if path.suffix in (".py", ".yaml", ".md"):
                for found in NAMED.findall(path.read_text("utf-8")):
                    yield str(path.relative_to(ROOT)), found


def test_every_lesson_that_is_named_exists(registry: Registry) -> None:
    known = {one.id for one in registry.lessons}
    drafts = {"F-028", "S-015", "F-220"}  # the next ones, as examples
    found = list(named())
    assert len({file for file, _ in found}) > 10
    assert {(file, one) for file, one in found if one not in known | drafts} == set()


def test_every_lesson_the_table_names_exists_and_says_why(registry: Registry) -> None:
    rows = [row for row, _ in use._rows()]
    assert {row.lesson for row in rows} <= {one.id for one in registry.lessons}
    assert all(len(row.because) < 100 for row in rows)


def test_the_contradictions_of_the_log_are_told(registry: Registry) -> None:
    told = {
        frozenset((one.id, other))
        for one in registry.lessons
        for contradiction in one.model.contradictions
        for other in contradiction.with_
    }
    for pair in (
        ("F-006", "F-006B"), ("F-006", "S-013"), ("F-025", "S-013"), ("F-018", "D-002"),
        ("F-011", "F-013"), ("F-008", "S-010"), ("F-019", "S-009"), ("F-020", "F-022"),
        ("P-005", "F-022"), ("F-002", "F-024"), ("F-001", "F-027"), ("D-002", "S-003"),
        ("D-003", "F-009"), ("S-001", "S-005"), ("F-014", "D-001"),
    ):  # fmt: skip
        assert frozenset(pair) in told, pair


def test_what_is_blocked_or_deferred_is_looked_at_again(registry: Registry) -> None:
    waiting = [one for one in registry.lessons if one.model.status in ("blocked", "deferred")]
    assert len(waiting) > 3
    assert [one.id for one in waiting if one.model.due is None] == []


def test_rules_and_lessons_name_each_other(registry: Registry) -> None:
    by_rule = {(rule.id, one) for rule in rules().values() for one in rule.lessons}
    by_lesson = {(rule, one.id) for one in registry.lessons for rule in one.model.rules}
    assert len(by_rule) > 20
    assert by_rule ^ by_lesson == set()


def test_what_the_log_calls_blocked_is_blocked(registry: Registry) -> None:
    blocked = {one.id for one in registry.lessons if one.model.status == "blocked"}
    assert blocked == {"F-006", "F-008", "F-018", "F-022", "F-023", "F-026", "D-002"}


def test_no_recheck_is_a_shell_line(registry: Registry) -> None:
    for one in registry.lessons:
        if one.model.recheck is not None:
            assert one.model.recheck.output[0] not in ("sh", "bash", "env", "sudo"), one.id
