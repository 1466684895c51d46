"""The quick way through clean() gives what the plain way gives."""

from __future__ import annotations

import re

from hypothesis import example, given, settings
from hypothesis import strategies as st

from console.common.text import clean
from tests.ground.harmful import BIDI, INVISIBLE

ESC = "\x1b"
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
    cut = len(text) > limit * 2
    text = ESCAPES.sub("", text[: limit * 2])
    text = "".join(" " * 4 if c == "\t" else "\ufffd" if ord(c) in BAD else c for c in text)
    text = re.sub(f"({MARKS}{{4}}){MARKS}+", r"\1", text)
    return text[: limit - 1] + "…" if cut or len(text) > limit else text


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
