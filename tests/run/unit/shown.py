"""Texts and pictures in a form in which a difference is small and can be read."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from console.journal.run_view import RunView
from console.render.report.document import evidence, markdown
from tests.run.unit import reported
from tests.run.unit.stories import STORIES


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


def attempts() -> list[tuple[RunView, str]]:
    found = [(reported.no_go(), "rolled_back"), (reported.soaked(), "rolled_back")]
    found += [(STORIES[name](), "failed") for name in (
        "go", "a_step_that_failed", "the_baseline_is_slow", "an_override",
        "a_baseline_that_drifted",
        "go_against_a_baseline_that_has_changed", "go_and_clients_stay_at_the_candidate",
        "an_abort_by_the_operator", "the_baseline_does_not_serve", "a_rehearsal",
    )]  # fmt: skip
    for number, (made, _) in enumerate(found):
        made.run_id, made.created = f"r-{number:04}", made.created + number * 86_400
        made.inputs = {"split": "layer" if number % 2 else "graph", "port": 8001}
    return found[::-1]
