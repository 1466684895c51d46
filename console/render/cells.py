"""Figures and signs as terminal cells, for the console's strip and `omni-console gauges`.

Rows are made of parts: a text and a tone ("" plain, "dim", "warn", "bad"). A figure keeps its place
and width from tick to tick, so that only changes are redrawn. An unknown figure is a word, never a
zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from unicodedata import combining, east_asian_width

from console.host.sample import Level

Part = tuple[str, str]
Row = tuple[Part, ...]

STALE_S = 3.0
"""A sample older than this is shown with its age."""
GIB = 1024**3
TONES = {Level.WARN: "warn", Level.CRITICAL: "bad"}


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs, legible without colour, each one cell (except `celsius`). The first eight
    are states of a step; `levels` runs from low to high; `mark` stands in a bar where a guard acts,
    `line` in a curve, `up` points at a moment, `down` marks an outage; `done`, `head` and `line`
    make a bar of progress; `corners` and `side` frame a panel, beginning at its upper left."""

    pending: str
    running: str
    succeeded: str
    failed: str
    skipped: str
    cancelled: str
    in_doubt: str
    retry_wait: str
    warned: str
    full: str
    empty: str
    levels: str
    ellipsis: str
    dot: str
    arrow: str
    more: str
    mark: str
    up: str
    down: str
    line: str
    corners: tuple[str, str, str, str]
    side: str
    celsius: str
    done: str
    head: str

    def step(self, state: str) -> str:
        return str(getattr(self, state, " "))


UNICODE = Glyphs(
    pending="·", running="▶", succeeded="✓", failed="✗", skipped="–", cancelled="■",
    in_doubt="?", retry_wait="↻", warned="!", full="█", empty="░", levels="▁▂▃▄▅▆▇█",
    ellipsis="…", dot="●", arrow="▸", more="›", mark="┃", up="▲", down="▼", line="─",
    corners=("╭", "╮", "╰", "╯"), side="│", celsius="°C", done="━", head="╸",
)  # fmt: skip
ASCII = Glyphs(
    pending=".", running=">", succeeded="+", failed="x", skipped="-", cancelled="#",
    in_doubt="?", retry_wait="~", warned="!", full="#", empty=".", levels="_.-=+*%#",
    ellipsis="~", dot="*", arrow=">", more=">", mark="|", up="^", down="v", line="-",
    corners=("+", "+", "+", "+"), side="|", celsius="C", done="=", head=">",
)  # fmt: skip

_current = UNICODE


def use_ascii(wanted: bool) -> None:
    """Choose the set for this process, once, before the first frame."""
    global _current
    _current = ASCII if wanted else UNICODE


def glyphs() -> Glyphs:
    return _current


def cells(text: str) -> int:
    """The number of cells that a terminal uses for this clean text."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def fitted(text: str, width: int, ellipsis: str = "~") -> str:
    """The text in exactly `width` cells: padded at the right, or cut with a sign."""
    if cells(text) > width:
        while text and cells(text) > width - 1:
            text = text[:-1]
        text = text + ellipsis if width > 0 else ""
    return text + " " * (width - cells(text))


def width_of(row: Row) -> int:
    return sum(cells(text) for text, _ in row)


def plain(row: Row) -> str:
    return "".join(text for text, _ in row).rstrip()


def pair(used: int, total: int) -> str:
    """`91.2/95.6 GiB`, `23.1/377 GiB`, `0 B/207 GiB`: the same width for any `used` of one
    `total`."""
    scale, unit = (GIB, "GiB") if total >= GIB else (1024**2, "MiB")
    whole = total / scale
    right = f"{whole:.1f}" if whole < 100 else f"{whole:.0f}"
    left = f"{used / scale:.1f}" if used else "0 B"
    return f"{left:>{len(f'{whole:.1f}')}}/{right} {unit}"


def amount(count: float) -> str:
    """Bytes in at most eight cells: `812 GiB`, `9.4 GiB`, `512 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 999.5 or unit == "TiB":
            return f"{count:.1f} {unit}" if count < 9.95 and unit != "B" else f"{count:.0f} {unit}"
        count /= 1024
    raise AssertionError


def rate(count: float | None) -> str:
    """Bytes a second in at most nine cells."""
    return "n/a" if count is None else f"{amount(count)}/s"


def age_words(at: float, now: float) -> str:
    """`stale 12 s` for a sample older than STALE_S, else nothing."""
    age = now - at
    if age <= STALE_S:
        return ""
    return f"stale {age:.0f} s" if age < 120 else f"stale {age / 60:.0f} min"


def bar(filled: float | None, width: int, signs: Glyphs, mark: float | None) -> str:
    """A share as a bar, full only at 100 %; blank if unknown. `mark`: the share at which a guard
    acts; its cell gets a sign."""
    if filled is None:
        return " " * width
    full = min(width, max(0, int(filled * width)))
    drawn = signs.full * full + signs.empty * (width - full)
    if mark is None or not 0 <= mark <= 1 or not width:
        return drawn
    at = min(width - 1, int(mark * width))
    return drawn[:at] + signs.mark + drawn[at + 1 :]


def curve_line(values: Iterable[float | None], most: float | None, signs: Glyphs) -> str:
    """Values from 0 to `most` as a curve, a cell each; blank where nothing is known. No cell is
    filled, so that curves under each other stay apart."""
    return curve_rows(values, most, 1, signs)[0]


def curve_rows(
    values: Iterable[float | None], most: float | None, rows: int, signs: Glyphs
) -> list[str]:
    """The same as a curve of so many rows, the highest row first."""
    full = len(signs.levels)
    steps = rows * full - 1
    levels = [
        None if value is None or not most else min(steps - 1, max(0, int(value / most * steps)))
        for value in values
    ]
    return [
        "".join(
            " " if level is None or level < below else signs.levels[min(level - below, full - 1)]
            for level in levels
        )
        for below in range((rows - 1) * full, -1, -full)
    ]


def marked(text: str, level: Level) -> list[Part]:
    """A figure and two cells for its mark."""
    return [(text, TONES.get(level, "")), (f"{level.mark:<2}", TONES.get(level, ""))]


def head(why: str) -> str:
    """The words before the colon."""
    return why.partition(":")[0]


def aged(row: Row, stale: str, width: int, signs: Glyphs) -> Row:
    """The row cut to `width`; old figures are dimmed, with their age at the end."""
    room = width - len(stale) - 1 if stale else width
    row = cut(row, room, signs)
    if not stale:
        return row
    return (*((text, "dim") for text, _ in padded(row, room)), (f" {stale}", "warn"))


def padded(row: Row, width: int) -> Row:
    gap = width - width_of(row)
    return (*row, (" " * gap, "")) if gap > 0 else row


def cut(row: Row, width: int, signs: Glyphs) -> Row:
    if width_of(row) <= width:
        return row
    out: list[Part] = []
    for text, tone in row:
        size = cells(text)
        if size >= width:
            out.append((fitted(text, width, signs.ellipsis), tone))
            break
        out.append((text, tone))
        width -= size
    return tuple(out)
