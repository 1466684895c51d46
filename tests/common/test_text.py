"""Foreign text: nothing that goes through clean() can act on a terminal."""

import os
import pty
import re
import sys
import termios

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from console.common import redact
from console.common.files import end_of, in_memory
from console.common.text import (
    EXAMINED,
    LINE_LIMIT,
    UNLIMITED,
    after_cut,
    clean,
    clean_lines,
    columns,
    decode,
    ending,
    one_line,
    one_of,
)
from tests.common.harmful import BIDI, INVISIBLE, harmful

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"

pieces = st.one_of(
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
    st.text(st.characters(max_codepoint=0x9F), max_size=8),
    st.text(st.characters(), max_size=8),
    st.text(st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp", "Zs", "Mn", "Me"]), max_size=8),
    st.text(st.sampled_from("\u0301\u20dd\ufe20\u0483"), max_size=12),
    st.sampled_from([
        "\t", "\r", "\n", "\r\n", ESC, ESC + "[", ESC + "]52;c;", ESC + "P", ESC + "\\", ESC + "(0",
        ESC + "[31m", ESC + "[!p", "\x07", "\x9b", "\x9b31m", "\x9d0;t", "\x90q", "\x98", "\x9c",
        "\x9e", "\x9f", *BIDI, *INVISIBLE, "\U000e0041", "\ud800", "\xa0", "\xad", "\u3000",
    ]),
)  # fmt: skip
lines = st.lists(pieces, max_size=12).map("".join)


CLEAN = {
    "plain text, ünïcode 漢字 🚀": "plain text, ünïcode 漢字 🚀",
    f"a{ESC}]52;c;ZXZpbA=={BEL}b": "ab",
    f"a{ESC}]52;c;ZXZpbA=={ST}b": "ab",
    f"a{ESC}]0;title{BEL}b": "ab",
    f"{ESC}]8;;http://evil{ST}link{ESC}]8;;{ST}": "link",
    f"{ESC}[31;1mred{ESC}[0m": "red",
    f"{ESC}[2J{ESC}[H{ESC}[?1049hx": "x",
    f"{ESC}[>4;2m{ESC}[6n{ESC}[!py": "y",
    f"a{ESC}P+q544e{ST}b": "ab",
    f"a{ESC}_Gf=100;AAAA{ST}b": "ab",
    f"a{ESC}^private{ST}b{ESC}Xstart{ST}c": "abc",
    "a\x9b31mb": "ab",
    "a\x9d52;c;eA==\x9cb": "ab",
    "a\x9d0;t\x07b": "ab",
    "a\x90q#0\x9cb": "ab",
    f"a{ESC}cb": "ab",
    f"a{ESC}(0b": "ab",
    f"a{ESC}": "a",
    f"{ESC}{ESC}[1m{ESC}x": "",
    f"a{ESC}[31": "a",
    f"a{ESC}]0;never ends": "a",
    "a\x80\x85\x8e\x9cb": "a����b",
    "a\x00b": "a�b",
    "a\x08\x7fb": "a��b",
    "50%\r100%": "50%�100%",
    "line\r\n": "line",
    "one\ntwo": "one�two",
    "a\tb": "a    b",
    "abc\u202ecod.exe": "abc�cod.exe",
    "a\u2066b\u2069c": "a�b�c",
    "a\U000e0041\U000e007fb": "a��b",
    "a\ud800b\udfff": "a�b�",
    "zero\u200bwidth\ufeff": "zero�width�",
    "e\u0301": "e\u0301",
    "e" + "\u0301" * 1000 + "x": "e" + "\u0301" * 4 + "x",
    "e" + "\u20dd\ufe20" * 500: "e" + "\u20dd\ufe20" * 2,
    "": "",
}


def test_clean() -> None:
    assert {foreign: clean(foreign) for foreign in CLEAN} == CLEAN


@given(lines, st.integers(min_value=1, max_value=300))
def test_the_result_is_harmless_and_within_the_limit(text: str, limit: int) -> None:
    result = clean(text, limit)
    assert harmful(result) == []
    assert len(result) <= limit


@given(lines, st.integers(min_value=1, max_value=300))
def test_cleaning_twice_changes_nothing(text: str, limit: int) -> None:
    once = clean(text, limit)
    assert clean(once, limit) == once


@given(st.binary(max_size=300))
def test_any_bytes_become_harmless_text(data: bytes) -> None:
    assert harmful(clean(decode(data))) == []


def test_ten_megabytes_of_anything_are_a_line() -> None:
    for start in (f"{ESC}]52;c;", f"{ESC}P", f"{ESC}[", "\x9d", ESC, "e\u0301", "\t", "\u202e"):
        for body in ("A", "\u0301", "0;", ESC, "\x9b"):
            assert len(clean(start + body * 10_000_000)) <= LINE_LIMIT


def test_a_clamped_line_says_so() -> None:
    assert clean("x" * 50, 10) == "x" * 9 + "…"
    assert clean("x" * 10, 10) == "x" * 10
    assert clean("\t" * 10, 10) == " " * 9 + "…"
    assert clean(f"{ESC}]0;" + "x" * 100_000, 10) == "…"


def test_lines_end_at_any_line_end_and_are_counted() -> None:
    assert clean_lines("a\r\nb\rc\nd") == ["a", "b", "c", "d"]
    assert clean_lines("x\n" * 50, most=3) == ["x", "x", "x"]
    assert clean_lines("y" * 50, limit=5) == ["yyyy…"]
    assert clean_lines("10%\r20%\x1b[K\r30%") == ["10%", "20%", "30%"]


@given(lines)
def test_no_line_is_harmful(text: str) -> None:
    assert [c for line in clean_lines(text) for c in harmful(line)] == []


def test_one_line_squeezes_white_space() -> None:
    assert one_line(" a\n\n  b\tc \r\n") == "a b c"
    assert one_line("word " * 100, 20) == "word word word word…"
    assert harmful(one_line("a\x1b[31m\nb\u202e")) == []


def test_one_of() -> None:
    assert [one_of(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["a", "a or b", "a, b or c"]


ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
MARKS = "[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff\ufe20-\ufe2f]"
BAD = {*range(32), *range(127, 160), *range(0xE0000, 0xE0080), *range(0xD800, 0xE000)}
BAD |= {ord(c) for c in BIDI + INVISIBLE}
LONG = 0x4000


def plainly(text: str, limit: int) -> str:
    """What clean() promises, one rule after the other and nothing left out."""
    text = text.rstrip("\r\n")
    cut = len(text) > max(EXAMINED, limit * 2)
    text = ESCAPES.sub("", text[: max(EXAMINED, limit * 2)])
    text = "".join(" " * 4 if c == "\t" else "\ufffd" if ord(c) in BAD else c for c in text)
    text = redact.text(re.sub(f"({MARKS}{{4}}){MARKS}+", r"\1", text))
    return text[: limit - 1] + "…" if cut or len(text) > limit else text


@settings(max_examples=500)
@given(lines, st.one_of(st.integers(min_value=1, max_value=60), st.just(4096)))
@example("\x1b]0;never ends", 4096)
@example("a\x85", 4096)
def test_the_quick_way_and_the_plain_way_agree(text: str, limit: int) -> None:
    assert clean(text, limit) == plainly(text, limit)


def test_every_character_goes_the_same_way() -> None:
    """One by one where one of a hundred is not harmless: those alone could hide one another."""
    for start in range(0, 0x110000, 128):
        whole = "".join(map(chr, range(start, start + 128)))
        alike = clean(whole, LONG) == whole == plainly(whole, LONG)
        texts = [] if alike else [f"a{code}b" for code in whole]
        assert [ascii(one) for one in texts if clean(one, LONG) != plainly(one, LONG)] == []


def test_an_ordinary_line_is_not_copied() -> None:
    """What passes untouched costs a scan and nothing more."""
    line = "INFO 11-05 12:00:00 " + "x" * 100
    assert clean(line) is line


def test_how_wide_a_line_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has its width, a pipe none, and COLUMNS comes before both."""
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = pty.openpty()
    reading, writing = os.pipe()
    with os.fdopen(ours), os.fdopen(theirs, "w") as terminal, os.fdopen(reading), \
         os.fdopen(writing, "w") as pipe:  # fmt: skip
        termios.tcsetwinsize(terminal, (24, 132))
        assert (columns(terminal), columns(pipe), columns(pipe, 100)) == (132, UNLIMITED, 100)
        termios.tcsetwinsize(terminal, (0, 0))
        assert columns(terminal) == 80, "a terminal that does not say"
        for given, wide in (("70", 70), ("0", UNLIMITED), ("wide", UNLIMITED), ("", UNLIMITED)):
            monkeypatch.setenv("COLUMNS", given)
            assert columns(pipe) == wide, given
    assert columns(pipe) == UNLIMITED, "a closed file"
    assert columns(sys.stdin) == UNLIMITED


@pytest.mark.parametrize(
    ("text", "kept"),
    [("ret --api-key s3cret\nwhole line\n", "whole line\n"), ("s3cret and more words", "words"),
     ("tion: Basic s3cret and more", "and more"), ("s3cret\n", ""), ("", "")],
)  # fmt: skip
def test_what_a_cut_went_through_is_not_kept(text: str, kept: str) -> None:
    assert after_cut(text) == kept


def test_the_end_of_a_text_is_made_clean_before_it_is_cut() -> None:
    for length in range(10, 40):
        assert "s3cret" not in ending("llama-server --api-key s3cret --port 1", length)
        assert len(ending("x" * 50, length)) == length
    assert ending("a \n b") == "a b"


def test_the_end_of_a_file_begins_with_a_whole_line_or_word() -> None:
    with in_memory() as file:
        file.write(b"llama-server --api-key s3cret one two three\n")
        for most in range(1, 30):
            assert "s3" not in end_of(file, most)
        assert end_of(file, 1000).startswith("llama-server")
