"""Lessons read strictly, by line and by id, and as text that keeps to any width and is harmless;
and the shipped registry: whole, consistent, and whatever names a lesson names one of it."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from console.checks.lint.rule import rules
from console.common.errors import InvalidFile
from console.config.lessons import registry, use
from console.config.lessons.registry import Registry, due_by, load_lesson, load_registry, titles
from console.render.lessons import entry, row
from tests.lessons.conftest import Put
from tests.waiting import some


def test_the_file_is_named_by_the_id(put: Put) -> None:
    path = put("F-028")
    moved = path.rename(path.with_name("F-029.yaml"))
    with pytest.raises(InvalidFile, match="F-029"):
        load_lesson(moved)


def test_a_bad_file_hides_no_other(put: Put) -> None:
    put("F-028", status="nonsense")
    put("F-029", title="Good")
    registry = load_registry()
    assert registry.get("F-028") is None
    assert registry.get("F-029") is not None
    assert registry.get("F-001") is not None
    assert [p.line for p in registry.problems] == [5]


def test_ones_own_stands_in_for_a_shipped_one_while_it_can_be_read(put: Put) -> None:
    put("F-018", title="It imports now", status="resolved")
    mine = some(load_registry().get("F-018"))
    assert (mine.own, mine.model.status, mine.model.title) == (True, "resolved", "It imports now")
    put("F-018", status="nonsense")
    shipped = some(load_registry().get("F-018"))
    assert not shipped.own


def test_titles_of_what_there_is(put: Put) -> None:
    put("F-028", title="Mine")
    put("F-029", status="nonsense")
    assert titles(["F-028", "F-029", "F-777"]) == ["F-028 Mine", "F-029", "F-777"]


def test_who_points_at_whom(put: Put) -> None:
    put("F-028", "links: [{to: F-002, words: see}]\n"
        "contradictions: [{with: [F-003, F-028], words: no}]\n")  # fmt: skip
    registry = load_registry()
    assert "F-028" in registry.linking_to("F-002")
    assert ("F-028", "no") in [(o.id, c.words) for o, c in registry.contradicting("F-003")]
    assert registry.contradicting("F-028") == []


def test_due_by_the_day(put: Put) -> None:
    lesson = load_lesson(put("F-028", "due: 2026-11-22\nreview: look\n"))
    assert [due_by(lesson, date(2026, 11, day)) for day in (21, 22, 23)] == [False, True, True]
    assert not due_by(load_lesson(put("F-029")), date(2026, 11, 22))


KNOWN = frozenset({"F-002", "F-022", "F-006B", "S-014"})
TYPED = {
    "F-022": "F-022", "f22": "F-022", "f-22": "F-022", " F022 ": "F-022", "f-6b": "F-006B",
    "A1": "A-001", "x-1": "", "F-1000": "", "F": "", "": "", "F-022 x": "", "fast": "",
}  # fmt: skip
NEAR = {"F-22": "F-022", "f2": "F-002", "F-220": "F-022", "F-099": "", "hello": ""}


def test_an_id_in_any_form() -> None:
    assert {text: registry.typed(text) for text in TYPED} == TYPED


def test_near_misses() -> None:
    assert {text: registry.near(text, KNOWN) for text in NEAR} == NEAR


def test_the_next_free_id() -> None:
    assert [registry.next_free(letter, KNOWN) for letter in "FSP"] == ["F-023", "S-015", "P-001"]
    assert registry.next_free("F", {"F-998"}) == "F-999"
    with pytest.raises(ValueError, match="for F"):
        registry.next_free("F", {"F-999"})


def test_ones_own_are_found_by_their_file_name(put: Put) -> None:
    path = put("F-028")
    (path.parent / "notes.yaml").write_text("x")
    (path.parent / "F-029.txt").write_text("x")
    assert registry.files()["F-028"] == path
    assert {"F-028", "F-001"} <= registry.known()
    assert "F-029" not in registry.known()
    assert registry.is_own(path)
    assert not registry.is_own(registry.files()["F-001"])


TODAY = date(2026, 11, 22)


def test_every_lesson_keeps_to_the_width(registry: Registry) -> None:
    for width in (30, 49, 60, 80, 110):
        for lesson in registry.lessons:
            model = lesson.model
            free = {f"    {one}" for one in (*model.wrong.split("\n"), *model.right.split("\n"))}
            free.add(str(lesson.path))
            lines = [line for line, _ in entry(registry, lesson, width, TODAY)]
            long = [one for one in lines if len(one) > width and one not in free]
            assert long == [], (lesson.id, width)


def test_foreign_text_is_harmless(put: Put) -> None:
    put("F-028", 'notes: ["a\\e[2Jb\\u202e"]\nwrong: "x\\e]52;c;QQ\\ay"\n', title='"\\e[31mred"')
    registry = load_registry()
    lesson = some(registry.get("F-028"))
    lines = [*(line for line, _ in entry(registry, lesson, 60, TODAY)), row(lesson)]
    assert all(line.isprintable() for line in lines)


# -- what ships --------------------------------------------------------------------------------


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
