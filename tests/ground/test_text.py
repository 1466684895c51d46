"""Foreign text: nothing that goes through clean() can act on a terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from console.common.text import LINE_LIMIT, clean, clean_lines, decode, one_line, one_of
from tests.ground.harmful import BIDI, INVISIBLE, harmful

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"

nasty = st.text(
    st.one_of(
        st.characters(),
        st.characters(max_codepoint=0x9F),
        st.sampled_from([*BIDI, *INVISIBLE, ESC, BEL, "[", "]", "0", ";", "m", "\\", "\u0301"]),
        st.characters(min_codepoint=0xE0000, max_codepoint=0xE007F, exclude_categories=[]),
        st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF, categories=["Cs"]),
    ),
    max_size=200,
)


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


def test_raw_c1_bytes_are_not_utf_8_and_lose_their_meaning() -> None:
    for raw in (b"\x9b31mred", b"\x9d0;t\x07", b"\x90q\x9c", b"\xff\xfe\x1b[1m"):
        assert harmful(clean(decode(raw))) == []


def test_c1_in_utf_8() -> None:
    for code in range(0x80, 0xA0):
        text = clean(decode(b"a" + chr(code).encode() + b"b"))
        assert (harmful(text), text[0]) == ([], "a"), code


@given(nasty, st.integers(min_value=1, max_value=300))
def test_the_result_is_harmless_and_within_the_limit(text: str, limit: int) -> None:
    result = clean(text, limit)
    assert harmful(result) == []
    assert len(result) <= limit


@given(nasty, st.integers(min_value=1, max_value=300))
def test_cleaning_twice_changes_nothing(text: str, limit: int) -> None:
    once = clean(text, limit)
    assert clean(once, limit) == once


@given(st.text(st.characters(categories=["L", "N", "P", "S"]), max_size=100))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert clean(text) == text


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


@given(nasty)
def test_no_line_is_harmful(text: str) -> None:
    assert [c for line in clean_lines(text) for c in harmful(line)] == []


def test_one_line_squeezes_white_space() -> None:
    assert one_line(" a\n\n  b\tc \r\n") == "a b c"
    assert one_line("word " * 100, 20) == "word word word word…"
    assert harmful(one_line("a\x1b[31m\nb\u202e")) == []


def test_one_of() -> None:
    assert [one_of(["a", "b", "c"][:n]) for n in (1, 2, 3)] == ["a", "a or b", "a, b or c"]
