"""YAML with places: every character of a value is found where the file has it."""

from __future__ import annotations

import pytest

from console.checks.lint.unit import Place
from console.checks.lint.yaml_tree import parse

TEXT = """\
# top # not two
a: &anchor   # behind
  plain: one two
  quoted: 'it is # no comment'
  escaped: "a\\tb"
  literal: |-
    first

      second # of the text
  folded: >
    three
    four
b:
  <<: *anchor
  plain: other
list: [x, "y z"]
"""


def test_merged_and_anchored_values_are_there() -> None:
    root = parse(TEXT).root
    assert root.said("b", "plain") == "other"
    assert root.said("b", "quoted") == "it is # no comment"
    assert root.get("b", "nothing", "below") is None


@pytest.mark.parametrize(
    ("key", "word", "place"),
    [
        ("plain", "two", Place(3, 14)),
        ("quoted", "no", Place(4, 20)),
        ("literal", "second", Place(9, 7)),
        ("folded", "four", Place(12, 5)),
        ("escaped", "b", Place(5, 12)),
    ],
)
def test_a_word_in_a_value_stands_where_it_is_written(key: str, word: str, place: Place) -> None:
    node = parse(TEXT).root.get("a", key)
    assert node is not None
    assert node.inner is not None
    assert node.inner.at(node.inner.text.index(word)) == place


def test_comments_are_those_that_are_no_part_of_a_value() -> None:
    found = [(one.text, one.place, one.own) for one in parse(TEXT).comments]
    assert found == [("# top # not two", Place(1, 1), True), ("# behind", Place(2, 14), False)]


def test_a_bomb_of_aliases_is_no_bomb() -> None:
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    assert parse("\n".join(rows)).root.get("a39") is not None
