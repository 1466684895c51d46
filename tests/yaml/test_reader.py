"""Strict YAML 1.2: what it means, what is refused and where; and what is opened as a document."""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.errors import Exit, InvalidFile
from console.common.text import clean
from console.config.yaml import (
    MAX_BYTES,
    MAX_NODES,
    MAX_PROBLEMS,
    Document,
    parse,
    read_text,
    scalar,
)

PLACE = re.compile(r"f\.yaml:[1-9]\d*:[1-9]\d*: .+")


def read(text: str) -> Document:
    document = parse(text, "f.yaml", "the file cannot be used")
    if document.problems:
        raise InvalidFile("the file cannot be used", document.problems)
    return document


def refused(text: str) -> list[str]:
    with pytest.raises(InvalidFile) as caught:
        read(text)
    said = [str(p) for p in caught.value.problems]
    assert [line for line in said if not PLACE.match(line)] == []
    return said


SCALARS = {
    "no": "no", "yes": "yes", "on": "on", "off": "off", "y": "y", "NO": "NO", "22:30": "22:30",
    "1_000": "1_000", "2024-01-01": "2024-01-01", "=": "=", "true": True, "True": True,
    "FALSE": False, "tRUE": "tRUE", "": None, "~": None, "null": None, "NULL": None,
    "nUll": "nUll", "0": 0, "-7": -7, "+7": 7, "0o17": 15, "0x1F": 31, "0b11": "0b11",
    "1.5": 1.5, ".5": 0.5, "5.": 5.0, "1e3": 1000.0, "-1.5e-3": -0.0015, ".inf": ".inf",
    ".nan": ".nan", "inf": "inf", "nan": "nan", "1e999": "1e999", "-1e999": "-1e999",
    "1.2.3": "1.2.3", "24GiB": "24GiB", "٢": "٢", "0x": "0x",
}  # fmt: skip


def typed(values: dict[str, Any]) -> dict[str, Any]:
    return {text: (type(value), value) for text, value in values.items()}


def test_plain_scalars_are_yaml_1_2() -> None:
    assert typed({text: scalar(text) for text in SCALARS}) == typed(SCALARS)
    assert typed({text: read(f"a: {text}").data["a"] for text in SCALARS}) == typed(SCALARS)


@given(st.text(max_size=60))
def test_no_scalar_is_infinite(text: str) -> None:
    value = scalar(text)
    assert not isinstance(value, float) or math.isfinite(value)


def test_a_quoted_scalar_is_text() -> None:
    assert read("a: ['1', \"true\", '', 'no']").data == {"a": ["1", "true", "", "no"]}


def test_a_leading_zero_is_ambiguous() -> None:
    for text in ("010", "-007", "+08", "00"):
        (said,) = refused(f"port: {text}")
        assert said.startswith(f"f.yaml:1:7: {text} ")
        assert read(f"port: '{text}'").data == {"port": text}


def test_keys_are_text() -> None:
    assert read("{1: a, null: b, true: c, no: d}").data == {
        "1": "a", "null": "b", "true": "c", "no": "d",
    }  # fmt: skip


def test_an_empty_document_is_null() -> None:
    for text in ("", "\n\n", "# only a comment\n", "---\n", " \n"):
        document = read(text)
        assert document.data is None
        assert min(document.place(())) >= 1


def test_places_of_values_and_keys() -> None:
    document = read("a: 1\nb:\n  - x\n  - {c: d}\n")
    assert document.places[("a",)] == (1, 4)
    assert document.places[("b", 1, "c")] == (4, 9)
    assert document.keys[("b", 1, "c")] == (4, 6)
    assert document.place(("b", 1, "nothing", 7)) == document.places[("b", 1)]
    problem = document.problem(("b",), "wrong", key=True)
    assert (problem.line, problem.column) == (2, 1)


def test_an_empty_value_is_placed_at_its_key() -> None:
    document = read("a:\n  b:\n\nc: {d: , e: ''}\nf:\n")
    at = [document.places[loc] for loc in (("a", "b"), ("c", "d"), ("c", "e"), ("f",))]
    assert at == [(2, 3), (4, 5), (4, 13), (5, 1)]


def test_the_same_key_in_two_mappings_is_fine() -> None:
    assert read("- {a: 1}\n- {a: 2}\n").data == [{"a": 1}, {"a": 2}]


def test_a_merge_key_is_a_key_like_any_other() -> None:
    """Nothing is merged; the model refuses `<<` as unknown."""
    assert read("a: {<<: {b: 1}, c: 2}").data == {"a": {"<<": {"b": 1}, "c": 2}}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[" * 5000, "nested too deep"), ("{a: " * 5000, "nested too deep"),
        ("- " * 5000, "nested too deep"), ("? " * 5000, "a list or mapping as a key"),
        ("".join(" " * i + "a:\n" for i in range(500)), "nested too deep"),
        ("- a\n" * (MAX_NODES + 1), "too many values"),
        ("".join(f"k{i}: v\n" for i in range(MAX_NODES)), "too many values"),
        ("[" + "a," * 20_000 + "]", "too many values"),
        ("{" + "?," * 9000 + "}", "too many problems"), ("a: 1\n" * 9000, "too many problems"),
        ("'" + "a\n" * 100_000, "not YAML"), ("%" * 200_000, "not YAML"),
    ],
    ids=lambda value: value[:8],
)  # fmt: skip
def test_a_bomb_costs_a_message(text: str, what: str) -> None:
    said = refused(text)
    assert what in said[-1]
    assert len(said) <= MAX_PROBLEMS + 1


def test_as_many_values_and_levels_as_are_allowed() -> None:
    assert len(read("- a\n" * (MAX_NODES - 1)).data) == MAX_NODES - 1
    assert read("[" * 20 + "]" * 20).data is not None


soup = st.text(
    st.one_of(
        st.sampled_from(list("{}[]:,-?&*!|>%@`'\"#\\ \n\t~0aUxu")), st.characters()
    ),
    max_size=120,
)  # fmt: skip


def lines_said(text: str) -> list[str]:
    """What an operator reads about a text; nothing when it is a document."""
    try:
        read(text)
    except InvalidFile as error:
        return [clean(str(problem)) for problem in error.problems] or ["nothing was said"]
    return []


@given(soup)
def test_any_text_is_a_document_or_a_list_of_problems(text: str) -> None:
    assert [line for line in lines_said(text) if not PLACE.match(line) or "\x1b" in line] == []


@given(st.lists(st.sampled_from(["a: 1", "  b: 2", "- c", "  - d", "e:", "? f", ": g", "[", "]"])))
def test_any_lines_are_a_document_or_a_list_of_problems(lines: list[str]) -> None:
    assert [line for line in lines_said("\n".join(lines)) if not PLACE.match(line)] == []


words = st.text(st.one_of(st.characters(categories=["L", "N", "P", "S"]), st.sampled_from(" \n\t")))
plain = st.recursive(
    st.one_of(st.integers(-(10**17), 10**17), st.booleans(), st.none(), words),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=20,
)


@given(plain)
def test_json_is_read_as_what_it_is(data: Any) -> None:
    assert read(json.dumps(data, ensure_ascii=False)).data == data


def test_foreign_words_in_a_message_are_clean_when_printed() -> None:
    (said,) = refused('"\\e]52;c;eA==\\a": 1\n"\\e]52;c;eA==\\a": 2\n')
    assert "\x1b" not in said
    assert "\x07" not in said


ANY_PLACE = re.compile(r"^.+:\d+:\d+: .+", re.DOTALL)


def refused_file(path: Path) -> str:
    with pytest.raises(InvalidFile) as caught:
        read_text(path, "the file cannot be used")
    assert caught.value.exit_code is Exit.USAGE
    (problem,) = caught.value.problems
    assert ANY_PLACE.match(str(problem))
    assert problem.file == str(path)
    return str(problem)


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "f.yaml"
    path.write_bytes(data)
    return path


def test_text_is_read_as_it_stands(tmp_path: Path) -> None:
    assert read_text(write(tmp_path, "a: ünï\r\n".encode()), "t") == "a: ünï\r\n"


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    text = read_text(write(tmp_path, b"\xef\xbb\xbfa: 1\n"), "t")
    document = parse(text, "f", "t")
    assert document.data == {"a": 1}
    assert document.keys[("a",)] == (1, 1)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """Nor waited for: a FIFO nobody writes to, and a link to a device, which is a device."""
    fifo, link, loop = tmp_path / "fifo", tmp_path / "site.yaml", tmp_path / "loop"
    os.mkfifo(fifo)
    link.symlink_to("/dev/zero")
    loop.symlink_to(loop)
    assert "a directory" in refused_file(tmp_path)
    for path in (fifo, link, *map(Path, ("/dev/zero", "/dev/null", "/dev/urandom"))):
        assert "regular file" in refused_file(path)
    for path in (tmp_path / "none", Path(f"{tmp_path}/a\0b"), tmp_path / ("x" * 5000), loop):
        assert "cannot be read" in refused_file(path)


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    assert len(read_text(write(tmp_path, b"#" * MAX_BYTES), "t")) == MAX_BYTES
    assert f"{MAX_BYTES + 1} bytes" in refused_file(write(tmp_path, b"#" * (MAX_BYTES + 1)))


def test_not_utf_8_names_the_line(tmp_path: Path) -> None:
    for data, line in {
        b"a: \xff\n": 1, b"a: 1\nb: 2\nc: \xe9t\xe9\n": 3, b"a: 1\n" * 40 + b"\xc3": 41,
        b"\xff\xfea\x00:\x00": 1, b"ok: 1\n\xed\xa0\x80: half a surrogate pair\n": 2,
    }.items():  # fmt: skip
        path = write(tmp_path, data)
        assert refused_file(path).startswith(f"{path}:{line}:1: not UTF-8")


def test_no_file_is_left_open(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for path in (tmp_path, write(tmp_path, b"\xff"), Path("/dev/zero")):
        refused_file(path)
    assert set(os.listdir("/proc/self/fd")) - before == set()
