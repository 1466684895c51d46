"""A whole sample as rows: cards first, then the host; fewer rows where fewer are allowed."""

from __future__ import annotations

from collections.abc import Mapping

from console.host.marks import NO_MARKS, Marks
from console.host.sample import Sample
from console.host.trend import Trend
from console.render.cells import Row, Signs, cut
from console.render.gauges import host_brief, host_rows
from console.render.gpu import gpu_brief, gpu_rows


def all_rows(
    sample: Sample, width: int, now: float, signs: Signs,
    trends: Mapping[str, Trend], max_rows: int = 0, marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells. Where `max_rows` (0: any number) is less than that takes,
    the host goes into one row first, then the cards, then all of it."""
    cards = gpu_rows(sample.gpu, width, now, signs, trends, marks)
    host = host_rows(sample, width, now, signs, marks)
    if not max_rows or len(cards) + len(host) <= max_rows:
        return cards + host
    if len(cards) + 1 <= max_rows:
        return [*cards, host_brief(sample, now, signs, width)]
    if max_rows >= 2:
        return [cut(gpu_brief(sample.gpu, now, signs), width, signs),
                host_brief(sample, now, signs, width)]  # fmt: skip
    return [cut(one_row(sample, now, signs), width, signs)]


def one_row(sample: Sample, now: float, signs: Signs) -> Row:
    """Everything in one line, however long."""
    return (*gpu_brief(sample.gpu, now, signs), ("  ", ""), *host_brief(sample, now, signs))
