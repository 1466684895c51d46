"""All foreign text passes here: logs, HTTP bodies, command lines, model names, YAML, error strings.

A string that went through `clean()` holds no control byte a terminal could act on, and no secret
that its own text marks as one (`console.common.redact`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from console.common import redact
from console.common.output import UNLIMITED as UNLIMITED  # both belong to text, but load nothing
from console.common.output import columns as columns
from console.common.secrets import lines
from console.common.secrets.bare import ESCAPES

LINE_LIMIT = 4096
"""Characters kept of one line, so that a 100 MB line cannot stall a reader."""
DEEPEST = 12
"""Deepest level kept: no real value is nested deeper."""
EXAMINED = LINE_LIMIT * 2
"""Characters of a line that are looked at, however few are kept: the mark of a secret may lie
behind it (`://user:secret@host`)."""

_C1 = re.compile("[\x90-\x9f]")
_BIDI = (
    "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e"
    "\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_CONTROLS = {
    **dict.fromkeys(range(32), "�"),
    **dict.fromkeys(range(127, 160), "�"),
    **{ord(c): "\ufffd" for c in _BIDI},
    **dict.fromkeys(range(917504, 917632), "�"),  # tag characters
    **dict.fromkeys(range(55296, 57344), "�"),  # lone surrogates
    ord("\t"): "    ",
}
_MARK = "[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff\ufe20-\ufe2f]"
_COMBINING = re.compile(f"({_MARK}{_MARK}{{3}}){_MARK}+")


def clean(text: str, limit: int = LINE_LIMIT) -> str:
    """One harmless line without secrets: escapes removed, control and bidi characters replaced,
    secrets hidden, length clamped.

    `limit` counts characters of the result; a clamped line ends with `…`.
    """
    text, cut = _without_acts(text, max(EXAMINED, limit * 2))
    return _clamped(redact.text(text), limit, cut)


def harmless(text: str, limit: int = LINE_LIMIT) -> str:
    """As `clean`, secrets and all: only for what its own operator types, and for comparing."""
    text, cut = _without_acts(text, limit * 2)
    return _clamped(text, limit, cut)


def _without_acts(text: str, most: int) -> tuple[str, bool]:
    """The first `most` characters without what could act, and whether that was not all."""
    text = text.rstrip("\r\n")
    cut = len(text) > most
    text = text[:most] if cut else text
    # Whatever could act on a terminal or a reader is unprintable to Python, and a scan in C is
    # cheap: an ordinary line passes here untouched.
    if not text.isprintable():
        if "\x1b" in text or (not text.isascii() and _C1.search(text)):
            text = ESCAPES.sub("", text)
        if not text.isprintable():
            text = text.translate(_CONTROLS)
    if not text.isascii():
        text = _COMBINING.sub(r"\1", text)
    return text, cut


def _clamped(text: str, limit: int, cut: bool) -> str:
    return text[: limit - 1] + "…" if cut or len(text) > limit else text


def command(argv: Iterable[str], limit: int = LINE_LIMIT) -> str:
    """A foreign command line as one clean line. It is read word by word first: a secret may have
    spaces in it, which a joined line does not tell from the next word."""
    return one_line(" ".join(redact.argv(argv)), limit)


def shown(argv: Iterable[str]) -> str:
    """A command line as a shell takes it, to be read, not run: the secrets in it are hidden."""
    return shlex.join(redact.argv(argv)).replace(f"'{redact.HIDDEN}'", redact.HIDDEN)


def cleaned(value: Any, depth: int = 0, parent: str = "") -> Any:
    """The same JSON value with every string in it clean, keys too; what a name or a flag of it
    marks as secret is hidden. `parent`: the name that the value has."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        items = value.items() if depth < DEEPEST else ()
        secret = redact.secret_keys(value, parent) if items else ()
        return {
            clean(str(key)): redact.HIDDEN if key in secret else cleaned(item, depth + 1, str(key))
            for key, item in items
        }
    if isinstance(value, list | tuple):
        rows = value if depth < DEEPEST else ()
        words = all(isinstance(row, str) for row in rows)
        return [cleaned(row, depth + 1) for row in (redact.argv(rows) if words else rows)]
    return value


def clean_lines(text: str, limit: int = LINE_LIMIT, most: int = 1000) -> list[str]:
    """Foreign text as at most `most` harmless lines; `\\r` counts as a line end."""
    rows = lines.shown(map(clean, split_lines(text, most)))
    return [_clamped(row, limit, cut=False) for row in rows]


def split_lines(text: str, most: int = 1000) -> list[str]:
    """The first lines of a text as they are; `\\r` counts as a line end."""
    return re.split(r"\r\n|\n|\r", text)[:most]


def folded(line: str, width: int) -> list[str]:
    """A line that is wider than a terminal, broken between its words; what follows begins where the
    line's own text does, behind its first column."""
    if len(line) <= width:
        return [line]
    import textwrap  # only where a line is too long: it costs start-up time

    lead = re.match(r" *(?:\S+  +)?", line)
    indent = lead.end() if lead is not None else 0
    indent = indent if indent < width // 2 else 2
    return textwrap.wrap(
        line, width, subsequent_indent=" " * indent, drop_whitespace=True,
        break_on_hyphens=False, break_long_words=False,
    )  # fmt: skip


def decode(data: bytes) -> str:
    """Bytes as text; invalid UTF-8 becomes U+FFFD. The result is not clean."""
    return data.decode("utf-8", "replace")


def one_line(text: str, limit: int = 200) -> str:
    """Foreign text squeezed into one harmless line, for an error message."""
    return clean(" ".join(text.split()), limit)


def ending(text: str, limit: int = 200) -> str:
    """The end of a foreign text as one harmless line. It is made harmless before it is cut: what
    marks a secret may stand in front of the cut."""
    line = one_line(text, UNLIMITED)
    return line if len(line) <= limit else f"…{line[1 - limit :]}"


def after_cut(text: str) -> str:
    """What is whole of a text whose beginning was not read: its lines but the first, or of its only
    line the words but the first three. The cut may have gone through a secret or through its mark
    (`Authorization: Basic …`), which leaves the secret unmarked."""
    _, _, rest = text.partition("\n")
    return rest if rest.strip() else "".join(text.split(maxsplit=3)[3:])


def one_of(words: list[str]) -> str:
    """`a, b or c`, for the expected form in an error."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def without_parentheses(text: str) -> str:
    """A text without the parentheses at its end: a reason's own figures, which differ from case to
    case, stand in them."""
    head, opened, tail = text.rpartition(" (")
    ends = bool(opened) and tail.find(")") == len(tail) - 1 and "(" not in tail
    return head if ends else text
