"""Lessons read strictly, by line and by id, and as text that keeps to any width and is harmless."""

from __future__ import annotations

from datetime import date

import pytest

from console.common.errors import InvalidFile
from console.config.lessons import registry
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
