"""Typed inputs: what is accepted, what is said otherwise, and that a value stays one value."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import InvalidFile, UsageError
from console.playbook.inputs import Secret
from tests.playbook.book import Book, steps_text

NOTE = steps_text("{id: a, note: hi}")
HOSTILE = [
    "", " ", "a b", "; rm -rf /", "$(id)", "`id`", "$HOME", "*", "a'b", 'a"b', "a\\b", "a\nb",
    "--privileged", "-rf", "&& x", "| x", "> /etc/passwd", "${{ inputs.y }}", "${{", "}}", "%s",
    "\t", "ünï 漢字 🚀", "\x1b]52;c;x\x07", "a\rb", "#", "!", "{}", "~", "0", "no",
]  # fmt: skip


def declared(text: str) -> str:
    return f"inputs: {{v: {{{text}}}}}\n"


def value(book: Book, text: str, given: str | None = None) -> Any:
    return book.load(declared(text) + NOTE, None if given is None else {"v": given}).inputs["v"]


@pytest.mark.parametrize(
    ("declaration", "given", "expected"),
    [
        ("type: int, default: 8001", None, 8001),
        ("type: int, default: 2000, min: 1024, max: 65535", "1024", 1024),
        ("type: int, required: true, max: 65535", "65535", 65535),
        ("type: int, default: 5", "-3", -3),
        ("type: float, default: 1", "1.5e2", 150.0),
        ("type: bool, default: false", None, False),
        ("type: bool, default: false", "true", True),
        ("type: choice, choices: [fast, slow], default: fast", "slow", "slow"),
        ("type: string, default: x, pattern: '[a-z]+'", "abc", "abc"),
        ("type: string, default: ''", None, ""),
        ("type: duration, default: 15m", "1h30m", "1h30m"),
        ("type: bytes, default: 1GiB", "24GiB", "24GiB"),
        ("type: path, default: /nvme", None, "/nvme"),
    ],
)
def test_accepted(book: Book, declaration: str, given: str | None, expected: Any) -> None:
    found = value(book, declaration, given)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("declaration", "given", "said"),
    [
        ("type: int, required: true, min: 1024", "1023", "a whole number of at least 1024"),
        ("type: int, required: true, max: 1048576", "1048577", "a whole number of at most 1048576"),
        ("type: float, required: true, max: 0.5", "0.6", "a number of at most 0.5"),
        ("type: int, required: true", "", "a whole number"),
        ("type: int, required: true", "1.5", "a whole number"),
        ("type: int, required: true", "1e3", "a whole number"),
        ("type: int, required: true", "010", "a whole number"),
        ("type: int, required: true", " 5", "a whole number"),
        ("type: int, required: true", "٥", "a whole number"),
        ("type: int, required: true", "9" * 50, "a whole number"),
        ("type: int, required: true", "0x10", "a whole number"),
        ("type: float, required: true", "nan", "a number"),
        ("type: float, required: true", "inf", "a number"),
        ("type: float, required: true", "1e999", "a number"),
        ("type: bool, required: true", "yes", "true or false"),
        ("type: bool, required: true", "True", "true or false"),
        ("type: bool, required: true", "1", "true or false"),
        ("type: choice, required: true, choices: [a, b]", "c", "one of a, b"),
        ("type: string, required: true, pattern: '[a-z]+'", "abc\n", "text matching [a-z]+"),
        ("type: string, required: true, pattern: '[a-z]+'", "x; rm", "text matching [a-z]+"),
        ("type: string, required: true", "a\0b", "text without a NUL byte"),
        ("type: string, required: true", "a\udcff", "text without half a surrogate pair"),
        ("type: path, required: true", "a\0b", "text without a NUL byte"),
        ("type: path, required: true, must_exist: true", "none", "a path that exists"),
        ("type: path, required: true, must_exist: true", "x" * 5000, "a path that exists"),
        ("type: duration, required: true", "15", "a duration with a unit"),
        ("type: bytes, required: true", "24", "bytes with a unit"),
    ],
)
def test_refused_on_the_command_line(book: Book, declaration: str, given: str, said: str) -> None:
    (problem,) = book.problems(declared(declaration) + NOTE, {"v": given})
    assert problem.startswith("4:13: input 'v' given is ")
    assert f"expected {said}" in problem


@pytest.mark.parametrize(
    ("declaration", "said"),
    [
        ("type: int, default: '5x'", "input 'v' default is '5x'; expected a whole number"),
        ("type: int, default: true", "input 'v' default is True; expected a whole number"),
        ("type: int, default: 1.0", "expected a whole number"),
        ("type: string, default: 5", "expected text; put it in quotes"),
        ("type: string, default: no, pattern: yes", "expected text matching yes"),
        ("type: int", "input 'v' has no default; expected a default, or required: true"),
        ("type: int, required: true", "input 'v' has no value"),
        ("type: choice, default: a", "a choice input needs choices"),
        ("type: date, default: a", "'type' is 'date'"),
        ("type: string, default: a, choices: [b]", "choices belongs to inputs of type choice"),
        ("type: string, default: a, min: 1", "min belongs to inputs of type int or float"),
        ("type: int, default: 1, pattern: x", "pattern belongs to inputs of type string, path"),
        ("type: string, default: a, must_exist: true", "must_exist belongs to inputs of type path"),
        ("type: string, from: {env: X}", "from belongs to inputs of type secret"),
        ("type: string, default: a, pattern: '('", "a valid regular expression"),
        ("type: string, default: a, requird: true", "did you mean 'required'?"),
        ("type: secret", "a secret input needs from"),
        ("type: secret, from: {}", "a secret comes from exactly one of env or file"),
        ("type: secret, from: {env: A, file: b}", "exactly one of env or file"),
        ("type: secret, from: {env: A}, default: hunter22", "a secret input has no default"),
    ],
)
def test_refused_in_the_file(book: Book, declaration: str, said: str) -> None:
    found = book.problems(declared(declaration) + NOTE)
    assert [line for line in found if said in line] != [], found


def test_paths_are_the_playbooks(book: Book) -> None:
    (book.path.parent / "models").mkdir()
    found = value(book, "type: path, default: models, must_exist: true")
    assert found == str(book.path.parent / "models")
    assert value(book, "type: path, default: models", "/else/where") == "/else/where"


def test_a_home_directory_of_nobody_is_a_name_like_any_other(book: Book) -> None:
    found = value(book, "type: path, default: x", "~no-such-user-here/x")
    assert found == str(book.path.parent / "~no-such-user-here/x")


def test_planning_takes_inputs_without_a_value_and_paths_that_are_not_there(book: Book) -> None:
    body = declared("type: path, default: none, must_exist: true") + NOTE
    planned = book.load(body, planning=True)
    assert planned.inputs["v"] == str(book.path.parent / "none")
    book.load(declared("type: int, required: true") + NOTE, planning=True)


@pytest.mark.parametrize("text", [t for t in HOSTILE if "\0" not in t])
def test_a_value_stays_one_argv_element(book: Book, text: str) -> None:
    loaded = book.load(
        "inputs: {v: {type: string, required: true}, y: {type: string, default: OTHER}}\n"
        + steps_text('{id: a, run: [echo, "${{ inputs.v }}", "--x=${{inputs.v}}.", end]}'),
        {"v": text},
    )
    assert next(loaded.steps())[1].run == ["echo", text, f"--x={text}.", "end"]


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_value_stays_one_argv_element(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        loaded = Book(Path(directory)).load(
            "inputs: {v: {type: string, required: true}}\n"
            + steps_text('{id: a, run: [x, "${{ inputs.v }}", "${{ inputs.v }}"]}'),
            {"v": text},
        )
    assert next(loaded.steps())[1].run == ["x", text, text]


def test_a_hole_takes_the_type_of_its_input(book: Book) -> None:
    loaded = book.load(
        """\
        inputs:
          n: {type: int, default: 5}
          w: {type: bool, default: false}
          p: {type: int, default: 8001}
        services: {cand: {process: {argv: [x]}, url: "http://127.0.0.1:${{ inputs.p }}"}}
        phases:
        - title: p
          steps:
          - {id: a, benchmark: {service: cand, runs: "${{ inputs.n }}"}}
          - {id: b, when: "${{inputs.w}}", run: [x, "${{ inputs.n }}", "w=${{ inputs.w }}"]}
        """
    )
    first, second = (step for _, step in loaded.steps())
    assert first.benchmark.runs == 5
    assert (second.when, second.run) == (False, ["x", "5", "w=false"])
    assert loaded.services()["cand"].url == "http://127.0.0.1:8001"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{id: a, run: ['${{ inputs.nope }}']}", "unknown name 'inputs.nope'"),
        ("{id: a, run: ['${{ nope }}']}", "unknown name 'nope'"),
        ("{id: a, run: ['${{ inputs.v']}", "an unclosed ${{"),
        ("{id: a, script: 'echo ${{ inputs.v }}'}", "${{ inside a script body"),
        ("{id: a, script: 'echo ${{'}", "${{ inside a script body"),
        ("{id: a, run: [x], env: {'${{ inputs.v }}': y}}", "${{ in a key"),
    ],
)
def test_holes_that_are_refused(book: Book, step: str, said: str) -> None:
    found = book.problems(declared("type: string, default: x") + steps_text(step))
    assert [line for line in found if said in line] != [], found


def test_a_hole_in_an_environment_variable_called_script(book: Book) -> None:
    loaded = book.load(
        declared("type: string, default: x")
        + steps_text("{id: a, run: [y], env: {script: '${{ inputs.v }}'}}")
    )
    assert next(loaded.steps())[1].env == {"script": "x"}


SECRET = declared("type: secret, from: {env: TOKEN_FOR_TESTS}")


@pytest.mark.parametrize(
    "step",
    [
        "{id: a, run: [curl, '${{ inputs.v }}']}",
        "{id: a, run: [curl, 'H: ${{ inputs.v }}']}",
        "{id: a, run: [x], env: {A: 'Bearer ${{ inputs.v }}'}}",
        "{id: a, run: [x], cwd: '${{ inputs.v }}'}",
        "{id: a, note: '${{ inputs.v }}'}",
        "{id: a, title: '${{ inputs.v }}', note: x}",
        "{id: a, build: {context: x, tag: y, args: {A: '${{ inputs.v }}'}}}",
        "{id: a, check: {output: [x, '${{ inputs.v }}'], matches: y}}",
        "{id: a, approval: {prompt: 'is it ${{ inputs.v }}'}}",
        "{id: a, script: 'echo ${{ inputs.v }}'}",
    ],
)
def test_a_secret_is_never_in_argv_and_never_inside_text(
    book: Book, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_FOR_TESTS", "hunter2-hunter2")
    found = "\n".join(book.problems(SECRET + steps_text(step)))
    assert "a secret" in found or "script body" in found
    assert "hunter2" not in found


def test_a_secret_is_a_whole_environment_value(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_FOR_TESTS", "hunter2-hunter2")
    loaded = book.load(SECRET + steps_text("{id: a, run: [x], env: {T: '${{ inputs.v }}'}}"))
    secret = next(loaded.steps())[1].env["T"]
    assert isinstance(secret, Secret)
    assert secret.read() == "hunter2-hunter2"
    assert "hunter2" not in f"{loaded!r} {secret} {loaded.inputs} {loaded.model.model_dump()}"


def test_a_secret_is_not_given_as_an_argument(book: Book) -> None:
    with pytest.raises(UsageError, match="never given as an argument") as caught:
        book.load(SECRET + NOTE, {"v": "hunter2-hunter2"})
    assert "hunter2" not in "\n".join(caught.value.lines())


def test_a_secret_file_is_the_playbooks(book: Book) -> None:
    (book.path.parent / "token").write_text("from-a-file-12\n")
    loaded = book.load(declared("type: secret, from: {file: token}") + NOTE)
    assert loaded.secrets["v"].read() == "from-a-file-12"


@pytest.mark.parametrize("content", [None, b"short", b"\xff\xfe\xff\xfe\xff"])
def test_a_secret_that_cannot_be_used_says_which(book: Book, content: bytes | None) -> None:
    path = book.path.parent / "token"
    if content is not None:
        path.write_bytes(content)
    loaded = book.load(declared("type: secret, from: {file: token}") + NOTE)
    with pytest.raises(ValueError, match=f"file {path}"):
        loaded.secrets["v"].read()


def test_hostile_values_come_with_their_place_and_clean(book: Book) -> None:
    from console.text import clean

    with pytest.raises(InvalidFile) as caught:
        book.load(declared("type: int, required: true") + NOTE, {"v": "\x1b]52;c;x\x07\u202e"})
    assert all(c.isprintable() for line in caught.value.lines() for c in clean(line))
