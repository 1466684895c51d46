"""Instructions as BuildKit reads them, and where each of their characters stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.checks.lint.dockerfile import expanded, instructions, json_words, unit_of
from console.checks.lint.unit import Kind, Place, Source, Unit, Where, whole


def unit(text: str) -> Unit:
    return unit_of(Source(Path("Dockerfile"), text, Kind.DOCKERFILE))


def words(text: str) -> list[list[str]]:
    return [[word.text for word in one.words] for one in unit(text).commands]


def test_a_here_document_may_have_a_space_where_its_end_is_there() -> None:
    text = "FROM x\nRUN cat > /x << 'EOF'\nimport y\nEOF\nRUN echo $((1 << N))\nRUN two\n"
    found, _, _ = instructions(text)
    assert [one.keyword for one in found] == ["FROM", "RUN", "RUN", "RUN"]
    assert [len(one.heredocs) for one in found] == [0, 1, 0, 0]


def test_continued_lines_are_one_and_comments_between_them_are_gone() -> None:
    text = "FROM x\nRUN one \\\n  # not this && two \\\n\n  three \\\n  && four\n"
    assert words(text) == [["one", "three"], ["four"]]
    (_, four) = unit(text).commands
    assert four.place == Place(6, 6)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "RUN <<-A\n\tone\n\tA\nRUN three\nCOPY <<B <<C /\ntwo\nB\nfour\nC\nRUN five\n",
            ["one", "three", "five"],
        ),
        ("RUN <<EOF\n#!/usr/bin/env python3\nimport torch\nEOF\n", []),
        ("RUN <<EOF\none\ntwo", ["one", "two"]),
        ('SHELL ["powershell", "-c"]\nRUN Get-Item x | pkill -f y\n', []),
    ],
)
def test_a_here_document_is_a_script_where_a_shell_reads_it(text: str, found: list[str]) -> None:
    assert words(f"FROM x\n{text}") == [[word] for word in found]


def test_another_escape_character_is_honoured() -> None:
    found, _, escape = instructions("# escape=`\nFROM x\nRUN dir `\n  C:\\\nCMD x\n")
    assert escape == "`"
    assert [one.keyword for one in found] == ["FROM", "RUN", "CMD"]
    assert found[1].args.text.split() == ["dir", "C:\\"]


def test_a_here_document_for_a_program_is_what_it_reads() -> None:
    (command,) = unit("FROM x\nRUN python3 - <<EOF\nimport torch\nEOF\n").commands
    assert command.stdin is not None
    assert command.stdin.text == "import torch\n"
    assert command.stdin.at(7) == Place(3, 8)


def test_the_list_form_is_no_shell() -> None:
    (one,) = unit('FROM x\nCMD ["sh", "-x", "a && b", "\\"q\\""]\n').commands
    assert [word.text for word in one.words] == ["sh", "-x", "a && b", '"q"']
    assert one.words[2].place == Place(2, 18)
    assert json_words(whole('["a", 1]')) is None
    assert json_words(whole('["a" "b')) is None


def test_stages_inherit_and_arguments_are_filled_in() -> None:
    text = "ARG V=1\nFROM a:${V} AS one\nRUN apt-get install -y curl\nFROM one\nFROM b:${W:-2}\n"
    stages = unit(text).stages
    assert [(stage.base, stage.roots) for stage in stages] == [
        ("a:1", ()), ("a:1", ("one",)), ("b:2", ()),
    ]  # fmt: skip


def test_a_value_that_doubles_itself_does_not_grow_for_ever() -> None:
    text = "FROM x\n" + "ENV A=ab\n" + "ENV A=$A$A\n" * 60
    assert max(len(one.value) for one in unit(text).variables) <= 4096


def test_flags_and_devices_are_seen() -> None:
    (one,) = unit("FROM x\nRUN --mount=type=cache,target=/c --device=nvidia.com/gpu a b\n").commands
    assert (one.where, one.line, one.wrappers) == (Where.BUILD, "a b", ("device",))


def test_unknown_names_stay_as_they_are_written() -> None:
    assert expanded("$A-${B}-${C:-d}-$", {"A": "1"}) == "1-${B}-d-$"


@given(st.text(alphabet="FROMRUN \\\n\"'[]<EOF#=$a`\t", max_size=300))
def test_no_text_is_too_odd(text: str) -> None:
    lines = text.count("\n") + 1
    for command in unit("FROM x\n" + text).commands:
        assert 1 <= command.place.line <= lines + 1
