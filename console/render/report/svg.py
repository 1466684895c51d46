"""A small SVG writer for a report's charts: axes with units, lines, dots, bands. Deterministic.

White ground and dark ink, legible on a dark page too; lines differ by dash as well as by colour, so
that they can be told apart in grey. All text is cleaned and escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from console.common.text import clean

INK, SOFT, GRID, BAND, BAD = "#1f2328", "#59636e", "#e4e7eb", "#f4f5f7", "#b42318"
COLOURS = ("#0b4f8a", "#b35c00", "#3f7d20", "#7a3e9d")
DASHES = ("", "7 3", "2 3", "9 3 2 3")
FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif"
EDGE = 16
CHARACTER = 6.4
"""Pixels of a character at 12 px: a generous average, since nothing here can measure one."""
_NO_XML = dict.fromkeys((0xFFFE, 0xFFFF), "�")
Point = tuple[float, float]


def words(text: str, limit: int = 120) -> str:
    """Foreign text reduced to what XML may hold, not yet escaped."""
    return clean(text, limit).translate(_NO_XML)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values (1, 2 or 5 times a power of ten) from `low` to `high`, at most `most`."""
    if not (math.isfinite(low) and math.isfinite(high)) or high <= low:
        return [low] if math.isfinite(low) else []
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + n) * step, 12) for n in range(count + 1)]


def seconds_ticks(high: float) -> list[tuple[float, str]]:
    """Times from 0 to `high` seconds, in the unit people count it by."""
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200)
    step = next((s for s in steps if high / s <= 8), math.ceil(high / 8 / 86400) * 86400)
    size, unit = (3600, "h") if high >= 7200 else (60, "min") if high >= 120 else (1, "s")
    times = [n * step for n in range(int(high // step) + 1)]
    return [(float(t), f"{t / size:g} {unit}" if t else "0") for t in times]


@dataclass(frozen=True, slots=True)
class Panel:
    """A plot's place in pixels, and the values at its right and upper edge: it begins at 0."""

    left: float
    top: float
    width: float
    height: float
    x_high: float
    y_high: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, value: float) -> float:
        """The pixel of a value, inside the panel."""
        share = value / (self.x_high or 1.0)
        return self.left + min(1.0, max(0.0, share)) * self.width

    def y(self, value: float) -> float:
        share = value / (self.y_high or 1.0)
        return self.bottom - min(1.0, max(0.0, share)) * self.height


class Svg:
    """One picture, with its title and description at the top; later elements cover earlier ones."""

    def __init__(self, width: int, height: int, title: str, text: str) -> None:
        self.width, self.height, self.title, self.about = width, height, title, text
        self._parts: list[str] = []
        self.rect(0, 0, width, height, "#ffffff")
        self.text(EDGE, 22, title, size=14, bold=True)
        self.text(EDGE, 40, text, colour=SOFT)

    def rect(self, x: float, y: float, width: float, height: float, fill: str) -> None:
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
            f'fill="{fill}"/>'
        )

    def line(
        self, start: Point, two: Point, colour: str, width: float = 1.0, dash: str = ""
    ) -> None:
        self.path([start, two], colour, width, dash)

    def path(
        self, points: Sequence[Point], colour: str, width: float = 1.6, dash: str = ""
    ) -> None:
        if len(points) < 2:
            return
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        line = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-linejoin="round"{dashed}/>'
        )

    def dots(self, points: Iterable[Point], colour: str, radius: float, solid: float) -> None:
        for x, y in points:
            self._parts.append(
                f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{radius:g}" fill="{colour}" '
                f'fill-opacity="{solid:g}"/>'
            )

    def cross(self, x: float, y: float) -> None:
        for high in (4, -4):
            self.line((x - 4, y - high), (x + 4, y + high), BAD, 2.0)

    def text(
        self, x: float, y: float, text: str, *, at: str = "start", size: int = 12,
        colour: str = INK, bold: bool = False,
    ) -> None:  # fmt: skip
        """Write a text; `at`: which part of it is at `x`: start, middle or end."""
        weight = ' font-weight="600"' if bold else ""
        anchor = f' text-anchor="{at}"' if at != "start" else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{size}" fill="{colour}"{anchor}{weight}>'
            f"{escape(words(text), quote=False)}</text>"
        )

    def __str__(self) -> str:
        title = words(self.title, 200)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'viewBox="0 0 {self.width} {self.height}" role="img" aria-label="{escape(title)}" '
            f'font-family="{FONT}">\n<title>{escape(title, quote=False)}</title>\n'
            f"<desc>{escape(words(self.about, 400), quote=False)}</desc>\n"
            + "\n".join(self._parts)
            + "\n</svg>\n"
        )


def y_axis(svg: Svg, panel: Panel, unit: str, most: int = 6, size: float = 1.0) -> None:
    """Lines across at round values, their numbers at the left, the unit above them. `size`: the
    value of one unit."""
    for value in ticks(0, panel.y_high / size, most):
        y = panel.y(value * size)
        svg.line((panel.left, y), (panel.right, y), GRID)
        svg.text(panel.left - 8, y + 4, f"{value:g}", at="end", colour=SOFT)
    if unit:
        svg.text(panel.left - 8, panel.top - 10, unit, at="end", colour=SOFT)


def x_axis(svg: Svg, panel: Panel, marks: Iterable[tuple[float, str]]) -> None:
    svg.line((panel.left, panel.bottom), (panel.right, panel.bottom), SOFT)
    for value, label in marks:
        x = panel.x(value)
        svg.line((x, panel.bottom), (x, panel.bottom + 4), SOFT)
        svg.text(x, panel.bottom + 18, label, at="middle", colour=SOFT)


def spread_out(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near `wanted`, at least `gap` apart, between `low` and `high`."""
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    placed, last = list(wanted), low - gap
    for n in order:
        placed[n] = last = max(wanted[n], last + gap)
    ceiling = high
    for n in reversed(order):
        placed[n] = min(placed[n], ceiling)
        ceiling = placed[n] - gap
    return placed


def label_width(text: str) -> float:
    """Pixels that a label of 12 px may take."""
    return len(words(text)) * CHARACTER


def _n(value: float) -> str:
    """A pixel, to a tenth: deterministic, and with no more digits than can be seen."""
    return f"{value:.1f}".removesuffix(".0") if math.isfinite(value) else "0"
