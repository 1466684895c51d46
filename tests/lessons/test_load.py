"""Reading lessons: strictly, by line, and one bad file costs itself alone."""

from __future__ import annotations

from datetime import date

import pytest

from console.common.errors import InvalidFile
from console.config.lessons.registry import due_by, load_lesson, load_registry, titles
from tests.lessons.conftest import Put


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
    mine = load_registry().get("F-018")
    assert mine is not None
    assert (mine.own, mine.model.status, mine.model.title) == (True, "resolved", "It imports now")
    put("F-018", status="nonsense")
    shipped = load_registry().get("F-018")
    assert shipped is not None
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
