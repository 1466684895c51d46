"""Gauges as rows of text: cards, RAM, swap, memory pressure and disks, and where guards act. Pure.

Fields keep their width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from console.host.sample import (
    NO_MARKS,
    DiskSample,
    Level,
    Marks,
    MemorySample,
    Sample,
    Trend,
    disk_level,
    memory_levels,
    share,
)
from console.render.cells import (  # fmt: skip
    Glyphs,
    Part,
    Row,
    age_words,
    aged,
    amount,
    bar,
    cells,
    cut,
    fitted,
    marked,
    pair,
    rate,
    width_of,
)
from console.render.gpu import gpu_brief, gpu_rows, memory_of

GAP = 2
PATH_CELLS = 12
NARROW = 76

NAME, FIGURE = 14, 16
LONGEST, SHORTEST = 40, 8


@dataclass(frozen=True, slots=True)
class Field:
    """One gauge: `row` is of a fixed width, `brief` as short as it can be told."""

    row: Row
    brief: Row
    level: Level = Level.OK


def host_rows(
    sample: Sample, width: int, now: float, signs: Glyphs, marks: Marks = NO_MARKS
) -> list[Row]:
    """As many rows as the fields need at this width, each field where it first finds room."""
    rows: list[list[Part]] = []
    for group in _groups(sample, signs, width, marks):
        for row in rows:
            # a field ends with the place of its mark: one more cell sets them apart
            if width_of(tuple(row)) + 1 + width_of(group) <= width:
                row += [(" ", ""), *group]
                break
        else:
            rows.append(list(group))
    stale = age_words(sample.at, now)
    first = aged(tuple(rows[0]), stale, width, signs)
    return [first, *(aged(tuple(row), "", width, signs) for row in rows[1:])]


def host_brief(sample: Sample, now: float, signs: Glyphs, width: int = 0) -> Row:
    """One row, what is worst first; with a `width`, as many fields as fit."""
    stale = age_words(sample.at, now)
    room = width - len(stale) - 1 if stale else width
    parts: list[Part] = []
    for field in sorted(host_fields(sample, signs), key=lambda one: -max(one.level, Level.OK)):
        gap: Row = ((" " * GAP, ""),) if parts else ()
        if not width or width_of(tuple(parts)) + width_of((*gap, *field.brief)) <= room:
            parts += [*gap, *field.brief]
    if not stale:
        return tuple(parts)
    return (*((text, "dim") for text, _ in parts), (f" {stale}", "warn"))


def host_fields(sample: Sample, signs: Glyphs, marks: Marks = NO_MARKS) -> list[Field]:
    """RAM, pressure, swap, its rates, and the disks."""
    disks = [_disk(disk, signs) for disk in sample.disks]
    if sample.memory is None:
        words = sample.memory_why or "not known"
        row: Row = (("RAM ", "dim"), (words, "warn"))
        return [Field(row, row, Level.UNKNOWN), *disks]
    memory, levels = sample.memory, memory_levels(sample.memory)
    rates = [_rates(memory, levels["swap_in"])] if memory.swap_total else []
    return [
        _ram(memory, levels["ram"], signs, marks), _pressure(memory, levels["pressure"]),
        _swap(memory, levels["swap"]), *rates, *disks,
    ]  # fmt: skip


def _groups(sample: Sample, signs: Glyphs, width: int, marks: Marks) -> list[Row]:
    """What belongs together stays in one row; a narrow screen has no room for the bar."""
    fields = host_fields(sample, signs, marks)
    if sample.memory is None:
        return [field.row for field in fields]
    gap: Part = (" ", "")
    swaps = 1 if sample.memory.swap_total else 0
    ram, pressure, swap, *rest = fields
    rates, disks = rest[:swaps], [field.row for field in rest[swaps:]]
    if width < NARROW:
        moving: list[Row] = [(("SWAP ", "dim"), *field.row) for field in rates]
        return [
            (("RAM ", "dim"), *ram.row[2:], gap, *swap.row, gap, *pressure.row),
            *moving,
            *disks,
        ]
    moves = [part for field in rates for part in (gap, *field.row)]
    return [(*ram.row, gap, *pressure.row), (*swap.row, *moves), *disks]


def _field(name: str, text: str, width: int, level: Level, *, tone: str = "") -> Field:
    figure, mark = marked(text, level)
    label: Part = (f"{name} ", "dim")
    shown = (figure[0], figure[1] or tone)
    space: Part = (" " * max(0, width - cells(text)), "")
    brief = (label, shown, (level.mark, mark[1])) if level.mark else (label, shown)
    return Field((label, shown, mark, space), brief, level)


def _ram(memory: MemorySample, level: Level, signs: Glyphs, marks: Marks) -> Field:
    used = memory.total - memory.available
    words = pair(used, memory.total)
    plain = _field("RAM", words.strip(), 0, level)
    tone = "" if level <= Level.OK else plain.brief[1][1]
    drawn: Part = (bar(share(used, memory.total), 10, signs, marks.ram(memory)) + " ", tone)
    return Field((("RAM  ", "dim"), drawn, *marked(words, level)), plain.brief, level)


def _pressure(memory: MemorySample, level: Level) -> Field:
    some = memory.pressure_some
    if some is None:
        return _field("PSI", "n/a", 7, level, tone="dim")
    return _field("PSI", f"{some:.1f} %", 7, level)


def _swap(memory: MemorySample, level: Level) -> Field:
    if not memory.swap_total:
        return _field("SWAP", "none", 13, Level.OK, tone="dim")
    words = pair(memory.swap_used, memory.swap_total)
    return _field("SWAP", words.strip(), len(words), level)


def _rates(memory: MemorySample, level: Level) -> Field:
    into, out = memory.swap_in_rate, memory.swap_out_rate
    if into is None or out is None:
        return _field("in", "n/a, out n/a", 22, Level.OK, tone="dim")
    first = _field("in", rate(into), 9, level)
    second = _field("out", rate(out), 9, Level.OK)
    return Field((*first.row, *second.row), (*first.brief, (" ", ""), *second.brief), level)


def _disk(disk: DiskSample, signs: Glyphs) -> Field:
    """The end of a path says more than its beginning."""
    path = disk.path
    while cells(path) > PATH_CELLS:
        path = signs.ellipsis + path[2:]
    if disk.free is None or disk.total is None:
        words = fitted(disk.why or "not known", 18, signs.ellipsis).rstrip()
        return _field(f"DISK {path}", words, 13, Level.UNKNOWN, tone="warn")
    return _field(f"DISK {path}", f"{amount(disk.free)} free", 13, disk_level(disk))


def marked_rows(sample: Sample, marks: Marks, width: int, signs: Glyphs) -> list[Row]:
    """Every figure that a guard may watch as a bar of its own, with its mark, its limit and what is
    left to it: a row each for RAM, swap, cards and disks; what is not known is said in words."""
    rows: list[Row] = []

    def add(name: str, used: int | None, total: int | None, mark: float | None, why: str) -> None:
        label = (fitted(name, NAME - 1) + " ", "dim")
        if used is None or not total:
            rows.append((label, (why or "not known", "dim" if why == "none" else "warn")))
        else:
            rows.append((label, *_figure(used, total, mark, width, signs)))

    memory = sample.memory
    if memory is None:
        add("RAM", None, None, None, sample.memory_why)
    else:
        add("RAM", memory.total - memory.available, memory.total, marks.ram(memory), "")
        mark = marks.swap(memory)
        add("swap", memory.swap_used, memory.swap_total, mark, "none")
        if memory.swap_total and mark is None and marks.swap_growth is not None:
            words = f"acts when it grows by {amount(marks.swap_growth)}"
            rows[-1] = (*rows[-1][:-1], (words, ""))
    for gpu in sample.gpu.gpus if sample.gpu is not None else ():
        add(f"GPU{gpu.index}", gpu.used_bytes, gpu.total_bytes, marks.card(gpu), memory_of(gpu))
    for disk in sample.disks:
        used = None if disk.free is None or not disk.total else disk.total - disk.free
        add(f"disk {disk.path}", used, disk.total, marks.disk(disk), disk.why)
    return [cut(row, width, signs) for row in rows]


def _figure(used: int, total: int, mark: float | None, width: int, signs: Glyphs) -> Row:
    long = min(LONGEST, max(SHORTEST, width - NAME - FIGURE - 33))
    figure = fitted(pair(used, total), FIGURE)
    drawn = bar(used / total, long, signs, mark)
    if mark is None:
        words = ("no limit of its own", "dim")
    elif used / total >= mark:
        words = (f"PAST its limit {amount(mark * total)}", "bad")
    else:
        words = (f"acts at {amount(mark * total)}, {amount(mark * total - used)} left", "")
    return ((drawn + " ", ""), (figure + " ", ""), words)


def all_rows(
    sample: Sample, width: int, now: float, signs: Glyphs,
    trends: Mapping[str, Trend], max_rows: int = 0, marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells, cards first, then the host. Where `max_rows` (0: any number) is
    less than that takes, the host goes into one row first, then the cards, then all of it."""
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


def one_row(sample: Sample, now: float, signs: Glyphs) -> Row:
    """Everything in one line, however long."""
    return (*gpu_brief(sample.gpu, now, signs), ("  ", ""), *host_brief(sample, now, signs))
