"""Texts and pictures in a form in which a difference is small and can be read."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from console.run.report import evidence, markdown
from console.run.view import RunView
from tests.run.unit import reported


def whole(made: RunView, place: Path) -> str:
    """The report with all that lies beside the journal."""
    return markdown(made, evidence(reported.run_dir(place, made), made), "report")


def changes(before: str, after: str) -> str:
    """The lines of a text that are not in another."""
    rows = difflib.unified_diff(before.split("\n"), after.split("\n"), n=0, lineterm="")
    return "\n".join(row for row in rows if not row.startswith(("---", "+++", "@@")))


NUMBER = re.compile(r"(?<=[\" ,])-?[\d.]+(?=[\" ,])")
USUAL = (' fill="none"', ' stroke-linejoin="round"', 'x="#" y="#" ')
"""What (nearly) every element has is not worth showing."""


def drawn(svg: str) -> list[str]:
    """A picture, one line for elements that differ in nothing but numbers: these are added up."""
    found: list[tuple[str, int, list[float]]] = []
    for line in svg.split("\n"):
        head, close, text = line.partition(">")
        numbers, shape = [float(one) for one in NUMBER.findall(head)], NUMBER.sub("#", head)
        if len(pairs := re.findall(r"(-?[\d.]+),(-?[\d.]+)", head)) > 2:
            numbers = [sum(float(x) for x, _ in pairs), sum(float(y) for _, y in pairs)]
            shape = re.sub(r'points="[^"]*"', f'points="{len(pairs)}"', shape)
        for usual in USUAL:
            shape = shape.replace(usual, "")
        shape += close + text.removesuffix("</text>")
        if found and found[-1][0] == shape:
            _, count, sums = found[-1]
            numbers = [a + b for a, b in zip(sums, numbers, strict=True)]
            found[-1] = (shape, count + 1, numbers)
        else:
            found.append((shape, 1, numbers))
    return [
        f"{n if n > 1 else ''}{shape} {' '.join(f'{x:.6g}' for x in sums)}"
        for shape, n, sums in found
    ]
