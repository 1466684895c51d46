"""Markdown for a report: foreign text made harmless, tables, and one way to print a figure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from console.common.text import clean
from console.common.units import format_duration
from console.config.playbook.threshold import format_figure
from console.journal.run_view import RunView

# what opens a column, a tag, a link, a code span or bold; a backslash before it would undo ours
_ACTIVE = re.compile(r"(\\*)([|`*]|<(?=[A-Za-z/!?])|(?<=\])\()")


def prose(text: object, limit: int = 600) -> str:
    """Foreign text for a paragraph or a cell: one line in which nothing is Markdown or HTML."""
    return _ACTIVE.sub(r"\1\1\\\2", clean(str(text), limit))


def plain(text: object, limit: int = 600) -> str:
    """Foreign text for a sentence in which only our own backticks are Markdown: see `marked`."""
    return clean(str(text), limit).replace("`", "'")


def given(view: RunView) -> str:
    """`ctx=8192, bar=>= 5 tok/s`: a run's inputs, for a sentence."""
    return ", ".join(f"{plain(name, 40)}={plain(value, 60)}" for name, value in view.inputs.items())


def marked(sentence: str) -> str:
    """A sentence made with `plain` as Markdown: text in backticks becomes code."""
    parts = sentence.split("`")
    return "`".join(part if at % 2 else prose(part, 2000) for at, part in enumerate(parts))


def code(text: object, limit: int = 300) -> str:
    """Foreign text as a code span that is safe in a table."""
    inner = clean(str(text), limit).replace("`", "'").strip() or "–"
    return "`" + re.sub(r"(\\*)\|", r"\1\1\\|", inner) + "`"


def block(lines: Iterable[str], limit: int = 1000) -> list[str]:
    """Foreign lines as an indented block, in which everything is literal."""
    return [f"    {clean(line, limit)}".rstrip() for line in lines]


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> list[str]:
    """A table of cells that are Markdown already, and an empty line; nothing without rows.

    `right`: columns of figures.
    """
    body = [f"| {' | '.join(row)} |" for row in rows]
    if not body:
        return []
    marks = "|".join("---:" if n in right else "---" for n in range(len(head)))
    return [f"| {' | '.join(head)} |", f"|{marks}|", *body, ""]


def figure(value: float | None, unit: str = "", like: str = "") -> str:
    """A measured value with its unit, printed as a gate prints it: `10.75 tok/s`, `412 ms`.

    `like`: a threshold; bytes are printed in the unit it was written in. None is `–`.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–"  # a record may hold anything
    if not math.isfinite(value):
        return "unknown"
    return format_figure(value, clean(unit, 20), like)


def spread(value: float | None, std: float | None, unit: str = "") -> str:
    """`6.10 ± 0.06 tok/s`: one digit of the deviation, and the value no finer than in `figure`."""
    shown = figure(value, unit)
    digits, _, tail = shown.partition(" ")
    known = isinstance(value, int | float) and isinstance(std, int | float)
    if not known or value is None or std is None or not math.isfinite(std) or std < 0:
        return shown
    if not re.fullmatch(r"-?[0-9.]+", digits) or " " in tail or unit.startswith("B"):
        return shown
    scale = 1000.0 if tail == "ms" else 100.0 if unit == "ratio" else 1.0
    places = len(digits.partition(".")[2])
    needed = -math.floor(math.log10(std * scale)) if std else 0
    finest = max(places, 3 - math.floor(math.log10(abs(value * scale) or 1.0)))
    number = f"{float(digits):.{max(places, min(needed, finest))}f}"
    return f"{number} ± {std * scale:.{max(places, needed, 0)}f} {tail}".rstrip()


def change(value: float | None, base: float | None) -> str:
    """`+98.6 %`, or `2.42 x` from double on; `–` if there is nothing to compare with."""
    if value is None or not base or not math.isfinite(value) or not math.isfinite(base):
        return "–"
    if value / base >= 2:
        return f"{value / base:.3g} x"
    return f"{(value - base) / abs(base) * 100:+.1f} %"


def took(seconds: float | None) -> str:
    return format_duration(seconds) if seconds is not None else "–"
