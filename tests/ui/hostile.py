"""Text that wants to act on a terminal, and what of it reached one."""

from __future__ import annotations

import re
import unicodedata

SURE = "\x1b[913;937H\u202e\x9b2J"
"""At the head of every hostile text, so that no cut can leave them out."""
ACTING = (
    "\x1b]52;c;T01OSVBXTg==\x07", "\x1b]8;;http://evil.example/\x1b\\l\x1b]8;;\x1b\\",
    "\x1b]0;owned\x07", "\x1b[2J", "\x1bP1$r0m\x1b\\", "\x1b_Gf=1;AA\x1b\\",
    "\x1b^pm\x1b\\", "\x1bXsos\x1b\\", "\x1bc", "\x1b(0", "\x1b[?1003h", "\x1b[6n", "\x1b[21t",
    "\x9d52;c;QQ==\x9c", "\x90q\x9c", "\x9f\x9e\x98\x85\x84", "\a\b\v\f\x0e\x0f\x7f\x05", "\x1b",
    "\u2066\u2067\u2068\u202a\u202d\u200e\u200f\u061c\u2028\u2029", "\u200b\u2060\ufeff",
    "\U000e0001\U000e0041", "e" + "\u0301" * 200, "\t\t",
)  # fmt: skip
PLAIN = (
    "[/]", "[/red]", "[red]r", "[@click=app.quit]x[/]", "[link=http://evil]y", "[", "漢字漢字",
    "👩‍👩‍👧‍👦🏳️‍🌈", "\\x1b[2J", "${HOME}$(id)`id`", "%s{0}{x!r}", "\x1b[5;58;5;77mX",
)  # fmt: skip
"""Text that only a careless program takes for more; and a colour, which no kind of sequence is."""
PAYLOADS = (*ACTING, *PLAIN)
RAW = b"\x00\x9b31m\x9d52;c;QQ==\x07\xff\xfe\xc3 \xe2\x80 \xed\xa0\x80 \xf0\x9f"
CSI = re.compile(r"\x1b\[([<-?]?)([0-9;:]*)([ -/]*[@-~])")
OTHER = re.compile(r"\x1b(?:\](\d*)[^\x07\x1b]*\x07?|([ -/]*[0-Z\\^-~]))")
FLOOD = re.compile("[\u0300-\u036f]{5}")
BIDI = frozenset("\u061c\u200b\u200e\u200f\u2028\u2029\u2060\ufeff")
TURNS = {"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
FINE = frozenset("\r\n\x1b\a\u200d")
"""Line ends, escapes (looked at apart), the bell of a field that is full, what joins emoji."""


class Words:
    """Foreign text for a named place: a tag to know it by, then payloads, each place others."""

    def __init__(self, hostile: bool) -> None:
        self.hostile = hostile
        self.tags: dict[str, str] = {}

    def __call__(self, place: str, most: int = 0) -> str:
        """One text; `most` characters where what it is put into takes no more."""
        number = len(self.tags)
        tag = self.tags.setdefault(place, f"Zq{number:02d}x")
        if not self.hostile:
            return tag
        at = number * 5 % len(PAYLOADS)
        text = tag + SURE + " ".join(PAYLOADS[at:] + PAYLOADS[:at])
        return text[:most] if most else text

    def data(self, place: str) -> bytes:
        """The same as bytes, with what is no UTF-8 in it."""
        text = self(place).encode()
        return text + RAW if self.hostile else text

    def quoted(self, place: str, most: int = 0) -> str:
        """The same as a YAML string whose escapes say what YAML forbids to be there itself."""
        text = self(place, most).replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'


def acts(sent: bytes) -> set[str]:
    """Every kind of sequence in what was sent: `CSI ?h`, `OSC 52`, `ESC c`."""
    text = sent.decode("utf-8", "surrogateescape")
    kinds = {f"CSI {mark}{final}" for mark, _, final in CSI.findall(text)}
    rest = CSI.sub("", text)
    kinds |= {f"OSC {osc}" if not esc else f"ESC {esc}" for osc, esc in OTHER.findall(rest)}
    return kinds | ({"ESC"} if "\x1b" in OTHER.sub("", rest) else set())


def modes(sent: bytes) -> set[str]:
    """The private modes that were set or reset, and every attribute beyond colours."""
    return {
        f"{mark}{number}{final}"
        for mark, numbers, final in CSI.findall(sent.decode("utf-8", "replace"))
        if mark and final in "hl"
        for number in numbers.split(";")
    }


def unsafe(sent: bytes) -> list[str]:
    """Characters that no terminal should have been sent; lone bytes too."""
    text = OTHER.sub("", CSI.sub("", sent.decode("utf-8", "surrogateescape")))
    return sorted({hex(ord(char)) for char in text if _bad(char)})


def _bad(char: str) -> bool:
    kind = unicodedata.category(char)
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn"):
        return char not in FINE
    return char in BIDI or unicodedata.bidirectional(char) in TURNS
