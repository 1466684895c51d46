"""Tables whose header names a secret: the values stand in the rows below, in the same column.

Columns are parted by bars, tabs, commas or two spaces. `console.common.secrets.lines` keeps what a
header says from row to row.
"""

from __future__ import annotations

from typing import NamedTuple

from console.common.patterns import lazy
from console.common.secrets.names import is_plainly, names

MAX_HEADER = 240
"""Characters of a line that may be a header: one tells no more than names."""
_BARS = "|│┃║"
_PARTS = {
    "|": lazy(rf"[^{_BARS}]+"),
    "\t": lazy(r"[^\t]+"),
    ",": lazy(r"\"(?:[^\"]|\"\")*\"|[^,]+"),
    " ": lazy(r"\S+(?: \S+)*"),
    "A": lazy(r"\S+"),
}
_HEAD = lazy(r"[\"'*]{0,2}(?P<name>[A-Za-z#%][\w#%./()@-]*(?: [\w#%./()@-]+){0,4})[\"'*]{0,2}")
_CAPITALS = lazy(r"[A-Z][A-Z0-9_-]{0,30}(?: [A-Z][A-Z0-9_-]{0,30}){1,9}")
"""A header of words in capitals (`NAME API_KEY`), with one space between."""
_SECRETS = (
    "oken", "OKEN", "assw", "ASSW", "assphrase", "ecret", "ECRET", " key", " KEY", "_key", "_KEY",
    "-key", "Key", "redential",
)  # fmt: skip
_ANYBODYS = frozenset({
    "key", "auth", "pass", "pat", "sas", "sig", "signature", "session", "session_id", "sid",
})  # fmt: skip
"""Names of columns that are seldom a secret's: a test passes, a table has keys."""


class Column(NamedTuple):
    """Where a secret's values stand: how columns are parted, which one of how many it is, and the
    character at which its name begins; `weak`: only what looks made by a machine is one."""

    sign: str
    place: int
    width: int
    at: int
    weak: bool


def may_head(line: str) -> bool:
    """Whether a line may be such a header; a quick look for every line of a log."""
    parted = "  " in line or "\t" in line or ("," in line and " " not in line) or line.isupper()
    if not parted or "=" in line or ": " in line or len(line) > MAX_HEADER:
        return False
    return any(map(line.__contains__, _SECRETS))


def is_row(line: str) -> bool:
    """Whether a line begins with the side of a table."""
    return line.lstrip()[:1] in tuple(_BARS)


def of_header(line: str) -> tuple[Column, ...]:
    """The columns of secrets that a header names; none if the line is no header."""
    if len(line) > MAX_HEADER or not any(map(line.__contains__, _SECRETS)):
        return ()
    sign = _sign(line)
    cells = _cells(line, sign) if sign else []
    heads = [_HEAD.fullmatch(line[start:end]) for start, end in cells]
    if len(cells) < 2 or not all(heads):
        return ()
    columns = list[Column]()
    for place, head in enumerate(heads):
        name = head["name"].replace(" ", "_") if head else ""
        if name.lower() not in _ANYBODYS and names(name, "Xx1Xx1Xx1Xx1"):
            weak = sign == "A" or name.lower() == "token" or not is_plainly(name)
            columns.append(Column(sign, place, len(cells), cells[place][0], weak))
    return tuple(columns)


def cell_of(row: str, column: Column) -> tuple[int, int] | None:
    """Where a row has what belongs to the column; None if it is no row of its table."""
    cells = _cells(row, column.sign)
    if len(cells) == column.width:
        return cells[column.place]
    if column.sign != " ":
        return None
    return next((span for span in cells if span[0] <= column.at < span[1]), None)


def _sign(line: str) -> str:
    if any(bar in line for bar in _BARS):
        return "|"
    if "\t" in line:
        return "\t"
    if "," in line and " " not in line:
        return ","
    if "  " in line:
        return " "
    return "A" if _CAPITALS.fullmatch(line) else ""


def _cells(line: str, sign: str) -> list[tuple[int, int]]:
    """Where the words of each column stand, without the blanks around them."""
    begin, end = 0, len(line)
    if sign == "|":  # the sides of the table are no columns
        bare = line.strip()
        begin = line.index(bare) + (bare[:1] in tuple(_BARS)) if bare else 0
        end = len(line.rstrip()) - (bare[-1:] in tuple(_BARS))
    spans = list[tuple[int, int]]()
    for part in _PARTS[sign].finditer(line, begin, max(begin, end)):
        words = part[0].strip()
        start = part.start() + part[0].index(words)
        spans.append((start, start + len(words)))
    return spans
