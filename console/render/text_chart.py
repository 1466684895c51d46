"""A figure over time as rows of text: filled from below, its limit a line, a moment a sign."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from console.common.units import format_bytes
from console.journal.breach import Crossed
from console.render.cells import Glyphs, Row, amount

LABEL = 9
"""Cells of the figures at the left edge."""
MIN_CELLS = 10
FLAT = 0.5
"""A curve that varies by less than this share of its height is scaled to its own range."""
CALM_S = 2.5
"""Seconds between samples at rest: a longer pause is a gap."""
DASH = 6
"""The line of the limit shows through the curve at every sixth cell."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One figure: `points` are (seconds, bytes or None if unknown), oldest first; `top` is the
    height of the chart, `limit` where the guard acts, `below`: it acts under it; `bottom` is not 0
    for an otherwise flat curve; `unit` as in console.recovery.guard.config."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    top: float
    limit: float | None = None
    below: bool = True
    unit: str = "B"
    bottom: float = 0.0


def curve_of(crossing: Crossed, shift: float = 0.0) -> Curve:
    """The curve that made a breach, its times moved by `shift` seconds."""
    points = tuple((at + shift, figure) for at, figure in crossing.points)
    known = [figure for _, figure in points if figure is not None]
    top = 1.1 * max([*known, crossing.level or 0.0, 1.0])
    return Curve(crossing.name, points, top, crossing.level, crossing.below, crossing.unit)


def columns(curve: Curve, begin: float, end: float, width: int) -> list[float | None]:
    """The worst of each span: the least if a guard acts below, else the most; None if unknown. A
    span between two samples repeats the earlier one, for as long as the usual sample interval."""
    spans: list[float | None] = [None] * width
    if end <= begin or not width:
        return spans
    worst = min if curve.below else max
    for at, value in curve.points:
        column = int((at - begin) / (end - begin) * width)
        if value is None or not begin <= at <= end:
            continue
        column = min(column, width - 1)
        before = spans[column]
        spans[column] = value if before is None else worst(before, value)
    return _bridged(spans, curve, (end - begin) / width)


def _bridged(spans: list[float | None], curve: Curve, span_s: float) -> list[float | None]:
    """Fill columns narrower than the sample interval; real gaps stay."""
    times = [at for at, value in curve.points if value is not None]
    steps = sorted(b - a for a, b in pairwise(times))
    pace = steps[len(steps) // 2] if steps else 0.0
    reach = int(max(2 * pace, CALM_S) / span_s) if span_s > 0 else 0
    out, since = list(spans), 0
    for at in range(1, len(out)):
        since = 0 if spans[at] is not None else since + 1
        more = any(span is not None for span in spans[at:])
        if spans[at] is None and since <= reach and more:
            out[at] = out[at - 1]
    return out


def chart(
    curve: Curve, begin: float, end: float, width: int, height: int, signs: Glyphs,
    moment: float | None = None,
) -> list[Row]:  # fmt: skip
    """`height` rows of `width` cells: the curve, its limit as a line, `moment` as a sign under it.

    Unknown spans have a `?` at the bottom: a gap is no zero.
    """
    cells = max(MIN_CELLS, width - LABEL)
    values = columns(curve, begin, end, cells)
    curve, line = _scaled(curve, values), None
    if curve.limit is not None and curve.bottom <= curve.limit <= curve.top:
        line = min(height - 1, int(_share(curve, curve.limit) * height))
    at = _column(moment, begin, end, cells)
    rows = [
        _row(curve, values, level, height, line, signs, at) for level in reversed(range(height))
    ]
    return rows if at is None else [*rows, _pointer(at, cells, signs)]


def _scaled(curve: Curve, values: Sequence[float | None]) -> Curve:
    """The curve scaled from the least to the most of curve and limit, if it would be flat else."""
    known = [figure for figure in (*values, curve.limit) if figure is not None]
    if not known or (span := max(known) - min(known)) >= FLAT * curve.top:
        return curve
    margin = max(0.15 * span, 0.01 * curve.top)
    return replace(curve, bottom=max(0.0, min(known) - margin), top=max(known) + margin)


def _share(curve: Curve, value: float) -> float:
    """A value's height, 0 to 1."""
    return (value - curve.bottom) / (curve.top - curve.bottom)


def _row(
    curve: Curve, values: list[float | None], level: int, height: int, line: int | None,
    signs: Glyphs, moment: int | None,
) -> Row:  # fmt: skip
    steps = len(signs.levels)
    drawn: list[tuple[str, str]] = []
    for number, value in enumerate(values):
        if value is None:
            sign, tone = ("?", "dim") if level == 0 else (" ", "")
        else:
            filled = max(1, round(_share(curve, value) * height * steps)) - level * steps
            tone = "bad" if _passed(curve, value) else "accent"
            if filled >= steps:
                sign = signs.full
            else:
                sign = signs.levels[filled - 1] if filled > 0 else " "
        if sign == " " and number == moment:
            sign, tone = signs.mark, "bad"
        if level == line and (sign == " " or (sign == signs.full and number % DASH == 0)):
            sign, tone = signs.line, "warn"
        drawn.append((sign, tone))
    return (_label(curve, level, height, line), *_joined(drawn))


def _passed(curve: Curve, value: float) -> bool:
    if curve.limit is None:
        return False
    return value < curve.limit if curve.below else value > curve.limit


def _label(curve: Curve, level: int, height: int, line: int | None) -> tuple[str, str]:
    if level == line and curve.limit is not None:
        return f"{_figure(curve, curve.limit):>{LABEL - 1}} ", "warn"
    known = curve.top if level == height - 1 else curve.bottom if level == 0 else None
    words = "" if known is None else _figure(curve, known)
    return f"{words:>{LABEL - 1}} ", "dim"


def _figure(curve: Curve, value: float) -> str:
    """A figure in at most eight cells; to the tenth if the scale does not begin at 0."""
    if not curve.unit.startswith("B"):
        return f"{value:.0f} {curve.unit}".rstrip()
    exact = format_bytes(value) if curve.bottom else ""
    return exact if 0 < len(exact) < LABEL else amount(value)


def _column(moment: float | None, begin: float, end: float, cells: int) -> int | None:
    if moment is None or not begin <= moment <= end or end <= begin:
        return None
    return min(cells - 1, int((moment - begin) / (end - begin) * cells))


def _pointer(at: int, cells: int, signs: Glyphs) -> Row:
    """The sign under the moment of the kill, with its word on the side that has room."""
    words = " killed"
    if at + len(words) < cells:
        return ((" " * (LABEL + at), ""), (signs.up + words, "bad"))
    left = "killed "
    return ((" " * max(0, LABEL + at - len(left)), ""), (left + signs.up, "bad"))


def _joined(parts: Sequence[tuple[str, str]]) -> Row:
    """Merge neighbours of one tone into one part."""
    out: list[tuple[str, str]] = []
    for text, tone in parts:
        if out and out[-1][1] == tone:
            out[-1] = (out[-1][0] + text, tone)
        else:
            out.append((text, tone))
    return tuple(out)
