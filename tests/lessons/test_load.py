"""Reading lessons: strictly, by line, and one bad file costs itself alone."""

from __future__ import annotations

from datetime import date

import pytest

from console.errors import InvalidFile
from console.lessons.load import load_lesson, load_registry, titles
from console.lessons.model import due_by
from tests.lessons.conftest import Put


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("colour: red\n", ":8:1: unknown key 'colour'"),
        ("cuase: x\n", "did you mean 'cause'?"),
        ("due: 2026-02-30\n", ":8:6: 'due' is '2026-02-30'; expected a day, like 2026-01-27"),
        ("due: 2027-01-01\n", "what is due needs review"),
        ("links: [{to: F-220, words: x}]\n", "unknown lesson 'F-220' (hint: did you mean F-022?)"),
        ("links: [{to: F-99, words: x}]\n", ":8:"),
        ("contradictions: [{with: [F-900], words: x}]\n", "unknown lesson 'F-900'"),
        ("history: [{date: 2026-11-01, status: open, words: x}]\n", "status is stands"),
        ("history: [{date: 2026-11-02, status: open, words: x}, "
         "{date: 2026-11-01, status: stands, words: x}]\n", "from the oldest to the newest"),
        ("recheck: {output: [x], words: y}\n", "exactly one of matches or not_matches"),
        ("recheck: {output: [x], matches: '(', words: y}\n", "a valid regular expression"),
        ("recheck: {output: [], matches: x, words: y}\n", "at least one"),
        ("recheck: {output: [x], matches: x, words: y, timeout: 2h}\n", "'timeout' is"),
        ("rules: [Not A Rule]\n", ":8:9: "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(put: Put, more: str, what: str) -> None:
    with pytest.raises(InvalidFile) as caught:
        load_lesson(put("F-028", more))
    assert what in caught.value.detail


def test_the_file_is_named_by_the_id(put: Put) -> None:
    path = put("F-028")
    moved = path.rename(path.with_name("F-029.yaml"))
    with pytest.raises(InvalidFile, match="F-029, as the file is named"):
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


@pytest.mark.parametrize(("day", "due"), [("2026-11-21", True), ("2026-11-22", True),
                                          ("2026-11-23", False)])  # fmt: skip
def test_due_by_the_day(put: Put, day: str, due: bool) -> None:
    lesson = load_lesson(put("F-028", f"due: {day}\nreview: look\n"))
    assert due_by(lesson, date(2026, 11, 22)) is due
    assert not due_by(load_lesson(put("F-029")), date(2026, 11, 22))
