"""A contract step in a report: what is different from the baseline, a row for each fact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.common.text import clean
from console.common.units import number, plural
from console.journal.run_view import RunView
from console.render.report.markdown import code, prose, table

MAX_ROWS = 40


def contract_steps(view: RunView) -> list[str]:
    return [step.id for step in view.steps if view.measurement(step.id).contract]


def contract_lines(view: RunView, step: str) -> Iterator[str]:
    """The section of one step."""
    contract = view.measurement(step).contract
    yield from (f"## Answers of {prose(contract.get('of') or '', 60)} (`{clean(step, 60)}`)", "")
    count = plural(int(number(contract.get("compared")) or 0), "case")
    against = prose(contract.get("against") or "the baseline", 200)
    yield from (
        f"Against {against}, in {count}: **{prose(contract.get('words') or '', 400)}**.",
        "",
    )
    for key, words in (
        ("noisy", "The baseline differs from itself in"),
        ("own_noise", "It differs from itself in"),
        ("apart", "Asked of one of them only:"),
    ):
        names = contract.get(key)
        if isinstance(names, list) and names:
            yield from (f"{words} {prose(', '.join(map(str, names)), 400)}.", "")
    changes = contract.get("changes")
    rows = [row for row in changes if isinstance(row, dict)] if isinstance(changes, list) else []
    yield from table(("case", "fact", "before", "now"), [_cells(row) for row in rows[:MAX_ROWS]])
    every = int(number(contract.get("all")) or len(rows))
    if every > MAX_ROWS:
        file = clean(str(contract.get("file")))
        yield from (f"And {every - MAX_ROWS} more; every answer is in `{file}`.", "")


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        code(row.get("case", ""), 60),
        prose(row.get("fact", ""), 60),
        code(row.get("before", ""), 160),
        code(row.get("after", ""), 160),
    ]
