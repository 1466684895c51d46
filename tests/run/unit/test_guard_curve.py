"""The curve that crossed, out of a breach as it was written."""

from __future__ import annotations

from typing import Any

import pytest

from console.journal.breach import Crossed, crossed, limit_in
from console.recovery.guard.metrics import FULL, RAM, SWAP

GIB = 1 << 30
ROWS: list[list[Any]] = [[1.0, 9, 0, None], [2.0, 5, 3, 20.0], [3.0, 7, 1, 10.0]]


def found(limit: dict[str, Any], curve: dict[str, Any], **more: Any) -> Crossed | None:
    return crossed({"limit": limit, "curve": curve, "at": 2.0, "window": {"fast": ROWS}, **more})


@pytest.mark.parametrize(
    ("limit", "column", "value", "level", "below"),
    [
        ({"metric": "host.ram_available", "below": 6}, RAM, 5, 6, True),
        ({"metric": "host.time_to_full", "below": 6.0}, RAM, 5.5, None, True),
        ({"metric": "host.swap_used", "above": 2}, SWAP, 3, 2, False),
        ({"metric": "host.swap_growth", "above": 1}, SWAP, 2, 2, False),
        ({"metric": "host.swap_growth", "above": 1}, SWAP, None, None, False),
        ({"metric": "host.swap_free", "below": 4}, SWAP, 2, 1, False),
        ({"metric": "host.pressure", "above": 15.0}, FULL, 20.0, 15.0, False),
    ],
)
def test_where_the_limit_lies_on_a_column(
    limit: dict[str, Any], column: int, value: float | None, level: float | None, below: bool
) -> None:
    curve = found(limit, {"metric": limit["metric"], "column": column}, value=value)
    assert curve is not None
    assert (curve.level, curve.below, curve.column) == (level, below, column)
    assert curve.points[0] == (1.0, ROWS[0][column])


def test_points_end_with_the_figure_that_was_judged() -> None:
    limit = {"metric": "gpu.memory_free", "below": GIB, "of": "min"}
    points = [[1.5, 2 * GIB], [0.5, 3 * GIB], ["x"], None]
    curve = found(limit, {"metric": "gpu.memory_free", "of": "GPU-a", "points": points}, value=7)
    assert curve is not None
    assert (curve.name, curve.unit, curve.level) == ("VRAM free of GPU-a", "B", GIB)
    assert curve.points == ((0.5, 3 * GIB), (1.5, 2 * GIB), (2.0, 7))


@pytest.mark.parametrize(
    "curve",
    [None, {}, {"column": 9}, {"column": True, "points": 3}, {"points": [[1.0, None]]}, "x"],
)
def test_without_figures_there_is_none(curve: Any) -> None:
    assert crossed({"curve": curve, "at": 1.0, "limit": 3}) is None
    assert limit_in({"limit": 3}) is None
