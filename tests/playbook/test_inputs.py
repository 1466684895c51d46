"""Typed inputs: what is accepted, what is said otherwise, and that a value stays one value."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.common.errors import InvalidFile, UsageError
from console.config.locate import shipped
from console.config.playbook.inputs import Offers, Secret
from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from tests.playbook.conftest import Book, steps_text

NOTE = steps_text("{id: a, note: hi}")


def declared(text: str) -> str:
    return f"inputs: {{v: {{{text}}}}}\n"


def value(book: Book, text: str, given: str | None = None) -> Any:
    return book.load(declared(text) + NOTE, None if given is None else {"v": given}).inputs["v"]


ACCEPTED = [
    ("type: int, default: 8001", None, 8001),
    ("type: int, default: 2000, min: 1024, max: 65535", "1024", 1024),
    ("type: int, required: true, max: 65535", "65535", 65535),
    ("type: int, default: 5", "-3", -3), ("type: float, default: 1", "1.5e2", 150.0),
    ("type: bool, default: false", None, False), ("type: bool, default: false", "true", True),
    ("type: choice, choices: [fast, slow], default: fast", "slow", "slow"),
    ("type: string, default: x, pattern: '[a-z]+'", "abc", "abc"),
    ("type: string, default: ''", None, ""), ("type: duration, default: 15m", "1h30m", "1h30m"),
    ("type: bytes, default: 1GiB", "24GiB", "24GiB"), ("type: path, default: /nvme", None, "/nvme"),
]  # fmt: skip


def test_accepted(book: Book) -> None:
    for declaration, text, expected in ACCEPTED:
        found = value(book, declaration, text)
        assert (found, type(found)) == (expected, type(expected)), declaration


def test_a_path_that_no_system_call_takes_does_not_exist(book: Book) -> None:
    body = declared("type: path, required: true, must_exist: true") + NOTE
    assert len(book.problems(body, {"v": "x" * 5000})) == 1


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


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@example("")
@example("; rm -rf / $(id) `id` $HOME * 'b' \"c\" \\")
@example("--privileged")
@example("${{ inputs.y }}")
@example("${{")
@example("}}")
@example("\x1b]52;c;x\x07\r\n\t")
def test_any_value_stays_one_argv_element(text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        loaded = Book(Path(directory)).load(
            "inputs: {v: {type: string, required: true}, y: {type: string, default: OTHER}}\n"
            + steps_text('{id: a, run: [x, "${{ inputs.v }}", "--x=${{inputs.v}}.", end]}'),
            {"v": text},
        )
    assert next(loaded.steps())[1].run == ["x", text, f"--x={text}.", "end"]


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


WORDS = declared("type: words, default: ''")
FLAGS = r"""-fmoe -mla 3 -ot 'blk\.(3|4)\.ffn_.*_exps=CPU' --note "two words" '$HOME;' """


def test_words_become_as_many_elements_of_a_list(book: Book) -> None:
    """Split as a shell splits them, but nothing in them is expanded."""
    body = WORDS + steps_text("{id: a, run: [x, '${{ inputs.v }}', end]}")
    loaded = book.load(body, {"v": FLAGS})
    assert next(loaded.steps())[1].run == [
        "x", "-fmoe", "-mla", "3", "-ot", r"blk\.(3|4)\.ffn_.*_exps=CPU", "--note", "two words",
        "$HOME;", "end",
    ]  # fmt: skip
    assert next(book.load(body).steps())[1].run == ["x", "end"]


def test_words_are_written_back_as_they_would_be_typed(book: Book) -> None:
    body = WORDS + steps_text("{id: a, run: [x, '${{ inputs.v }}']}")
    loaded = book.load(body, {"v": FLAGS})
    again = book.load(body, {"v": str(loaded.inputs["v"])})
    assert (again.inputs, list(again.steps())) == (loaded.inputs, list(loaded.steps()))


@pytest.mark.parametrize("text", ["-ot 'exps=CPU", 'a "b', "a \\"])
def test_words_that_do_not_end_are_refused_at_their_input(book: Book, text: str) -> None:
    (said,) = book.problems(WORDS + NOTE, {"v": text})
    assert said.startswith("4:")
    assert "words as for a shell" in said
    assert "not closed" in said or "nothing follows" in said


@pytest.mark.parametrize("step", ["run: [x, '--y=${{ inputs.v }}']", "title: '${{ inputs.v }}'",
                                  "env: {A: '${{ inputs.v }}'}"])  # fmt: skip
def test_words_are_nothing_but_elements_of_a_list(book: Book, step: str) -> None:
    rest = "" if step.startswith("run") else ", run: [x]"
    (said,) = book.problems(WORDS + steps_text(f"{{id: a, {step}{rest}}}"), {"v": "a b"})
    assert "words here; expected an element of a list" in said


def test_a_hole_in_an_environment_variable_called_script(book: Book) -> None:
    loaded = book.load(
        declared("type: string, default: x")
        + steps_text("{id: a, run: [y], env: {script: '${{ inputs.v }}'}}")
    )
    assert next(loaded.steps())[1].env == {"script": "x"}


SECRET = declared("type: secret, from: {env: TOKEN_FOR_TESTS}")


HIDDEN = [
    "{id: a, run: [curl, '${{ inputs.v }}']}", "{id: a, run: [curl, 'H: ${{ inputs.v }}']}",
    "{id: a, run: [x], env: {A: 'Bearer ${{ inputs.v }}'}}",
    "{id: a, run: [x], cwd: '${{ inputs.v }}'}", "{id: a, note: '${{ inputs.v }}'}",
    "{id: a, title: '${{ inputs.v }}', note: x}",
    "{id: a, build: {context: x, tag: y, args: {A: '${{ inputs.v }}'}}}",
    "{id: a, check: {output: [x, '${{ inputs.v }}'], matches: y}}",
    "{id: a, approval: {prompt: 'is it ${{ inputs.v }}'}}",
    "{id: a, script: 'echo ${{ inputs.v }}'}",
]  # fmt: skip


def test_a_secret_is_never_in_argv_and_never_inside_text(
    book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_FOR_TESTS", "hunter2-hunter2")
    for step in HIDDEN:
        found = "\n".join(book.problems(SECRET + steps_text(step)))
        assert "a secret" in found or "script body" in found, step
        assert "hunter2" not in found


def test_a_secret_is_a_whole_environment_value(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_FOR_TESTS", "hunter2-hunter2")
    loaded = book.load(SECRET + steps_text("{id: a, run: [x], env: {T: '${{ inputs.v }}'}}"))
    secret = next(loaded.steps())[1].env["T"]
    assert isinstance(secret, Secret)
    assert secret.read() == "hunter2-hunter2"
    assert "hunter2" not in f"{loaded!r} {secret} {loaded.inputs} {loaded.model.model_dump()}"


def test_a_secret_is_not_given_as_an_argument(book: Book) -> None:
    with pytest.raises(UsageError, match="argument") as caught:
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
    from console.common.text import clean

    with pytest.raises(InvalidFile) as caught:
        book.load(declared("type: int, required: true") + NOTE, {"v": "\x1b]52;c;x\x07\u202e"})
    assert all(c.isprintable() for line in caught.value.lines() for c in clean(line))


SITE = """\
schema: omni.site/v1
name: mine
baseline:
  container: base
  url: "http://127.0.0.1:28000"
{more}
"""
FAST = "  reference: {tok_s: 42, tolerance: 0.2}\n"
SPEED = 'type: string, default: ">= 9 tok/s", site_default: ">= ${{ site.least_tok_s }} tok/s"'
ADDRESS = 'type: string, default: "http://x:1", site_default: "${{ site.url }}"'


def offers(tmp_path: Path, more: str = "") -> Offers:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.format(more=more))
    return load_site(path).offers


@pytest.mark.parametrize(
    ("more", "declaration", "expected"),
    [
        ("", ADDRESS, "http://127.0.0.1:28000"),
        ("", 'type: int, default: 8000, site_default: "${{ site.port }}"', 28000),
        ("", 'type: int, required: true, site_default: "${{ site.port }}"', 28000),
        (FAST, SPEED, ">= 33.6 tok/s"),
        ("", SPEED, ">= 9 tok/s"),
        ("defaults: {v: other}", ADDRESS, "other"),
        ("defaults: {v: other, x.v: nearer, y.v: another's}", ADDRESS, "nearer"),
        ("defaults: {v: 7}", "type: int, required: true, max: 9", 7),
        ("protected: [a, b]", 'type: string, site_default: "${{ site.protected }}"', "a b"),
    ],
    ids=["url", "port", "required", "speed", "no reference", "defaults", "this playbook's",
         "required, of the defaults", "protected"],
)  # fmt: skip
def test_the_site_s_value_is_the_default(
    book: Book, tmp_path: Path, more: str, declaration: str, expected: object
) -> None:
    body, known = declared(declaration) + NOTE, offers(tmp_path, more)
    assert book.load(body, offers=known).inputs["v"] == expected
    given = "9" if isinstance(expected, int) else "given"
    assert str(book.load(body, {"v": given}, offers=known).inputs["v"]) == given


def test_a_value_of_the_site_is_checked_like_any_other(book: Book, tmp_path: Path) -> None:
    body, known = (
        declared("type: int, default: 1, max: 9") + NOTE,
        offers(tmp_path, "defaults: {v: 10}"),
    )
    assert book.problems(body, offers=known) == [
        "4:13: input 'v' of the site is 10; expected a whole number of at most 9 "
        "(hint: defaults: or baseline: of the site file)"
    ]
    (said,) = book.problems(declared('type: string, site_default: "${{ site.nme }}"') + NOTE)
    assert "site_default knows no 'site.nme', only site.url, " in said


@pytest.mark.parametrize("name", ["baseline-verify", "reboot-recovery"])
def test_shipped_playbooks_ask_the_site_s_own_baseline(tmp_path: Path, name: str) -> None:
    made = load_playbook(shipped() / f"{name}.yaml", offers=offers(tmp_path, FAST))
    assert made.inputs["url"] == "http://127.0.0.1:28000"
    gates = [one for _, step in made.steps() for one in step.gate or ()]
    (speed,) = (one for one in gates if one.metric == "bench.decode_tok_s")
    assert (str(speed.go), str(speed.no_go)) == (">= 33.6 tok/s", "< 33.6 tok/s")
