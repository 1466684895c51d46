"""A mistake is reported where it was made, with what mends it."""

import pytest

from console.checks.lint import yaml_tree
from console.common.errors import InvalidFile
from console.config.yaml import parse

BOOK = "schema: x\nname: y\n"
DEEP = "`steps` is indented deeper than `title` of line 4, which has a value"


def told(text: str) -> tuple[int, int, str, str]:
    with pytest.raises(InvalidFile) as caught:
        parse(text, "x.yaml", "t")
    (one,) = caught.value.problems
    with pytest.raises(yaml_tree.NotYaml) as other:
        yaml_tree.parse(text)
    place = other.value.place
    assert (place.line, place.column) == (one.line, one.column), "both readers say the same place"
    return one.line, one.column, one.what.removeprefix("not YAML: "), one.hint


QUOTES = {
    'title: "t\nphases:\n  - {id: a}\n': (3, 8),
    "title: 't\nphases:\n  - id: a\n": (3, 8),
    'phases:\n  - title: "T\n    steps: []\n': (4, 12),
    'phases:\n  - "x\n  - y\n': (4, 5),
    'title: "t\nsteps:\n  - "b"\nmore: 1\n': (3, 8),
    'run: ["a, b]\nmore: "c"\n': (3, 7),
    'run: {x: "a}\nmore: ["c"]\n': (3, 10),
    '"title: t\nmore: 1\n': (3, 1),
}


@pytest.mark.parametrize("text", QUOTES)
def test_a_quote_that_is_not_closed_is_reported_where_it_opens(text: str) -> None:
    line, column, what, hint = told(BOOK + text)
    assert (line, column) == QUOTES[text]
    sign = "'" if "'" in text else '"'
    assert (what, hint) == (f"a {sign} that is not closed", f"close it with {sign}")


@pytest.mark.parametrize("between", ["", "\n", "\n\n"])
def test_a_key_that_is_too_deep(between: str) -> None:
    text = f"{BOOK}phases:\n  - title: T\n{between}     steps:\n      - {{id: a}}\n"
    line, column, what, hint = told(text)
    assert (line, column) == (5 + between.count("\n"), 6)
    assert what == DEEP
    assert hint == "begin it in column 5, below `title`; or quote the text"


def test_a_key_too_deep_that_has_a_value() -> None:
    assert told(f"{BOOK}  title: t\n")[2:] == (
        "`title` is indented deeper than `name` of line 2, which has a value",
        "begin it in column 1, below `name`; or quote the text",
    )


def test_a_text_with_a_colon_is_still_one() -> None:
    assert told(f"{BOOK}title: a: b\n")[3] == "quote a text that has ': ' in it"
    assert told(f"{BOOK}run:\n  - echo: a: b\n")[3] == "quote a text that has ': ' in it"


def test_a_bracket_that_is_not_closed_is_named() -> None:
    _, _, _, hint = told(f"{BOOK}run: [a, b\nmore: 1\n")
    assert hint.startswith("does the `[` of line 3 end? Else quote a text with commas")


def test_a_key_between_two_indentations() -> None:
    _, _, _, hint = told(f"{BOOK}phases:\n  - title: T\n   steps: []\n")
    assert hint == "align it with the lines above that it belongs to"


def test_quotes_over_several_lines_are_fine() -> None:
    text = 'a: "x: y\n  z"\nb: [\'c\n  d\', "e"]\n'
    assert parse(text, "x.yaml", "t").data["a"] == "x: y z"
    line, column, _, hint = told(f"{text}c: d: e\n")
    assert (line, column, hint) == (5, 5, "quote a text that has ': ' in it")
