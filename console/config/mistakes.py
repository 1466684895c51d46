"""Where a mistake in YAML was made, which is often not where the parser noticed it, and how to mend
it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_KEY = re.compile(r"\s*(?:- +)*([^\s:#'\"\[{][^:#'\"]*?)$")
"""What stands before the colon of a line that is `key:` or `- key:`."""
_PAIR = re.compile(r"(\s*(?:- +)*)([^\s:#'\"\[{][^:#'\"]*?):\s+\S")

_MEND = (
    (r"\\t|tab", "indent with spaces"),
    (r"character '[>|@`%&*!]'|chomping or|a comment or a line break", 'quote it, like "> 20"'),
    (r"mapping values are not allowed", "quote a text that has ': ' in it"),
    (r"expected ',' or '[}\]]'", "quote a text with commas, brackets or braces in it"),
    (r"expected <block end>", "align it with the lines above that it belongs to"),
    (r"undefined alias|alphabetic or numeric", "quote a text that begins with * or &"),
)
"""The parser's message → what the operator has to do."""


class Mistake(NamedTuple):
    """`line` and `column` count from 1."""

    line: int
    column: int
    what: str
    hint: str


def mistake(text: str, error: Any, last: Any) -> Mistake:
    """What is wrong with a text. `error`: the parser's, with its marks; `last`: the event before,
    None if there was none."""
    what = str(error.problem or error.context or "not YAML")
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Mistake(1, 1, what, _mend(what))
    opened = error.context_mark
    if opened is not None and "quoted scalar" in str(error.context) and "end of" in what:
        return _quote(text, opened.line, opened.column)
    if _is_long_quote(last) and last.end_mark.line == mark.line:
        return _quote(text, last.start_mark.line, last.start_mark.column)
    if (
        "mapping values are not allowed" in what
        and (indent_mistake := _too_deep(text, mark)) is not None
    ):
        return indent_mistake
    hint = _mend(what)
    if opened is not None and "flow" in str(error.context) and opened.line < mark.line:
        sign = text.split("\n")[opened.line][opened.column : opened.column + 1]
        hint = f"does the `{sign}` of line {opened.line + 1} end? Else {hint}"
    return Mistake(mark.line + 1, mark.column + 1, what, hint)


def _mend(what: str) -> str:
    return next((hint for pattern, hint in _MEND if re.search(pattern, what)), "")


def _is_long_quote(event: Any) -> bool:
    """Whether an event is a quoted text over several lines, which may have taken in what follows
    a quote that nobody closed."""
    quoted = getattr(event, "style", None) in ("'", '"')
    return quoted and event.start_mark.line < event.end_mark.line


def _quote(text: str, line: int, column: int) -> Mistake:
    sign = text.split("\n")[line][column : column + 1]
    return Mistake(line + 1, column + 1, f"a {sign} that is not closed", f"close it with {sign}")


def _too_deep(text: str, mark: Any) -> Mistake | None:
    """A key below `key: value` and further right: it is read as more of that value."""
    lines = text.split("\n")
    key = _KEY.fullmatch(lines[mark.line][: mark.column])
    before = mark.line - 1
    while before >= 0 and (not lines[before].strip() or lines[before].lstrip().startswith("#")):
        before -= 1
    above = _PAIR.match(lines[before]) if key is not None and before >= 0 else None
    if key is None or above is None or len(above[1]) >= key.start(1):
        return None
    what = (
        f"`{key[1]}` is indented deeper than `{above[2]}` of line {before + 1}, which has a value"
    )
    hint = f"begin it in column {len(above[1]) + 1}, below `{above[2]}`; or quote the text"
    return Mistake(mark.line + 1, key.start(1) + 1, what, hint)
