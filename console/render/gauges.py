"""Gauges as rows of text: cards, RAM, swap, memory pressure and disks, and where guards act. Pure.

Fields keep their width. One card per row, or two in a wide row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import accumulate

from console.host.gpu.figures import FIGURES, USED, UTILISATION, Figure, GpuReport, GpuSample
from console.host.sample import (
    NO_MARKS,
    RAM,
    DiskSample,
    History,
    Level,
    Marks,
    MemorySample,
    Sample,
    disk_level,
    gpu_levels,
    memory_levels,
    share,
)
from console.render.cells import (
    TONES,
    Glyphs,
    Part,
    Row,
    age_words,
    aged,
    amount,
    bar,
    cells,
    curve_line,
    cut,
    fitted,
    head,
    marked,
    padded,
    pair,
    rate,
    width_of,
)

GAP = 2
PATH_CELLS = 12
TREND = 8
"""Cells of a curve at the end of a row."""
NARROW = 76


@dataclass(frozen=True, slots=True)
class Field:
    """One gauge: `row` has a fixed width, `brief` is as short as possible."""

    row: Row
    brief: Row
    level: Level = Level.OK


def host_rows(
    sample: Sample, width: int, now: float, signs: Glyphs, history: History,
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """As few rows as the fields need at this width; each goes into the first row with room. RAM's
    row ends with its curve, below those of the cards."""
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
    first = aged(_with_curve(tuple(rows[0]), sample, width, history, signs), stale, width, signs)
    return [first, *(aged(tuple(row), "", width, signs) for row in rows[1:])]


def _with_curve(row: Row, sample: Sample, width: int, history: History, signs: Glyphs) -> Row:
    gap = width - TREND - width_of(row)
    if sample.memory is None or gap < 1:
        return row
    drawn = curve_line(history.curve(RAM, TREND), sample.memory.total, signs)
    return (*row, (" " * gap + drawn, "dim")) if drawn.strip() else row


def host_brief(sample: Sample, now: float, signs: Glyphs, width: int = 0) -> Row:
    """One row, the worst first; with a `width`, as many fields as fit."""
    stale = age_words(sample.at, now)
    room = width - len(stale) - 1 if stale else width
    parts: list[Part] = []
    for field in sorted(
        host_fields(sample, signs), key=lambda host_field: -max(host_field.level, Level.OK)
    ):
        gap: Row = ((" " * GAP, ""),) if parts else ()
        if not width or width_of(tuple(parts)) + width_of((*gap, *field.brief)) <= room:
            parts += [*gap, *field.brief]
    if not stale:
        return tuple(parts)
    return (*((text, "dim") for text, _ in parts), (f" {stale}", "warn"))


def others_brief(sample: Sample, signs: Glyphs, width: int) -> Row:
    """Swap, the disks and what is swapped in and out, in one row: as many as fit."""
    swaps, rest = [], host_fields(sample, signs)[1:]
    if sample.memory is not None:
        swaps, rest = rest[1:2], rest[2:]
        moving = 1 if sample.memory.swap_total else 0
        rest = [*rest[moving:], *rest[:moving]]
    parts: list[Part] = []
    for field in (*swaps, *rest):
        gap: Row = ((" " * GAP, ""),) if parts else ()
        if width_of((*parts, *gap, *field.brief)) <= width:
            parts += [*gap, *field.brief]
    return tuple(parts)


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
    """Fields that share a row; a narrow screen has no room for the bar."""
    fields = host_fields(sample, signs, marks)
    if sample.memory is None:
        return [field.row for field in fields]
    gap: Part = (" ", "")
    swaps = 1 if sample.memory.swap_total else 0
    ram, pressure, swap, *rest = fields
    rates, disks = rest[:swaps], [field.row for field in rest[swaps:]]
    if width < NARROW:
        moving: list[Row] = [(("SWAP ", "dim"), *field.row) for field in rates]
        first = (("RAM ", "dim"), *ram.row[2:], gap, *swap.row, gap, *pressure.row)
        return [first, *moving, *disks]
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
    """A disk's field; a long path is shortened to its end, which tells more."""
    path = disk.path
    while cells(path) > PATH_CELLS:
        path = signs.ellipsis + path[2:]
    if disk.free is None or disk.total is None:
        words = fitted(disk.why or "not known", 18, signs.ellipsis).rstrip()
        return _field(f"DISK {path}", words, 13, Level.UNKNOWN, tone="warn")
    return _field(f"DISK {path}", f"{amount(disk.free)} free", 13, disk_level(disk))


def all_rows(
    sample: Sample, width: int, now: float, signs: Glyphs,
    history: History, max_rows: int = 0, marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """Every gauge in `width` cells, cards first, then the host. If that takes more than `max_rows`
    (0: no limit), the host is put into one row, then the cards, then everything."""
    cards = gpu_rows(sample.gpu, width, now, signs, history, marks)
    host = host_rows(sample, width, now, signs, history, marks)
    if not max_rows or len(cards) + len(host) <= max_rows:
        return cards + host
    if len(cards) + 1 <= max_rows:
        return [*cards, host_brief(sample, now, signs, width)]
    if max_rows >= 2:
        return [cut(gpu_brief(sample.gpu, now, signs, width), width, signs),
                host_brief(sample, now, signs, width)]  # fmt: skip
    return [cut(one_row(sample, now, signs), width, signs)]


def one_row(sample: Sample, now: float, signs: Glyphs) -> Row:
    """Everything in one line, however long."""
    return (*gpu_brief(sample.gpu, now, signs), ("  ", ""), *host_brief(sample, now, signs))


def short_name(name: str, width: int) -> str:
    """`NVIDIA RTX PRO 6000 Blackwell …` → `RTX PRO 6000`: whole words, as many as fit."""
    words = re.sub(r"^(NVIDIA\s+)?(GeForce\s+)?", "", name).split()
    out = ""
    for word in words:
        if cells(out) + cells(word) + bool(out) > width:
            break
        out += " " * bool(out) + word
    return fitted(out or name, width)


def trend(gpu: GpuSample, history: History, width: int, signs: Glyphs) -> str:
    """A card's curve: its utilisation, or its memory where it does not say."""
    figure = USED if gpu.utilisation is None else UTILISATION
    top = figure.curve.top(gpu) if figure.curve else None
    return curve_line(history.curve(figure.kept, width, gpu.uuid), top, signs)


def figures(gpu: GpuSample, signs: Glyphs) -> list[tuple[Figure, str, Level]]:
    """The figures of a card beside its memory, in words, each with how bad it is."""
    levels = gpu_levels(gpu)
    return [
        (figure, figure.text(gpu).replace("°C", signs.celsius), levels.get(figure.name, Level.OK))
        for figure in FIGURES if figure.cells
    ]  # fmt: skip


def memory_of(gpu: GpuSample) -> str:
    """Used and total memory, or why they are unknown, in words."""
    if gpu.used_bytes is not None and gpu.total_bytes is not None:
        return pair(gpu.used_bytes, gpu.total_bytes)
    if gpu.total_bytes is not None:
        return f"?/{amount(gpu.total_bytes)}"
    return head(gpu.why) or "memory n/a"


def gpu_row(
    gpu: GpuSample, width: int, memory: int, signs: Glyphs, history: History, marks: Marks
) -> Row:
    """One card in `width` cells; `memory` is how wide its `used/total` column is.

    As room shrinks, the name is dropped first, then trend, the figures that give way and bar.
    """
    label: Part = (f"{f'GPU{gpu.index}':<5}", "dim")
    if gpu.dark:
        name = short_name(gpu.name, 16) + " " if gpu.name and width >= 50 else ""
        room = max(0, width - 5 - cells(name))
        return (label, (name, ""), (fitted(gpu.why or "no figures", room, signs.ellipsis), "bad"))
    shown = figures(gpu, signs)
    fixed = sum(_cells(figure) for figure, _, _ in shown if not figure.gives_way)
    bar_cells, given, trend_cells, name_cells = _shares(
        width - memory - 7 - fixed, [_cells(figure) for figure, _, _ in shown if figure.gives_way]
    )
    parts: list[Part] = [label]
    if name_cells:
        parts.append((short_name(gpu.name, name_cells) + " ", ""))
    parts += _memory_parts(gpu, gpu_levels(gpu)["vram"], bar_cells, memory, signs, marks)
    for figure, words, level in shown:
        if figure.gives_way and not given:
            continue
        given -= figure.gives_way
        text = f"{words:>{figure.cells}}"
        parts += marked(text, level) if figure.limits else [(text, "")]
    if trend_cells:
        parts.append((" " + trend(gpu, history, trend_cells, signs), "dim"))
    return tuple(parts)


def _cells(figure: Figure) -> int:
    """Cells of a figure in a row, with its mark."""
    return figure.cells + 2 * bool(figure.limits)


def _shares(room: int, giving_way: list[int]) -> tuple[int, int, int, int]:
    """Cells for the bar, how many of the figures that give way are shown, and cells for trend and
    name, out of what the other figures leave; 0: not shown."""
    given = sum(room >= total for total in accumulate(giving_way))
    room -= sum(giving_way[:given])
    long = min(10, room - 1) if room >= 5 else 0
    room -= long + 1 if long else 0
    curve = min(TREND, room - 1) if room >= 6 else 0
    room -= curve + 1 if curve else 0
    name = min(28, room - 1) if room >= 9 else 0
    room -= name + 1 if name else 0
    return min(30, long + max(0, room)) if long else 0, given, curve, name


def _memory_parts(
    gpu: GpuSample, level: Level, long: int, memory: int, signs: Glyphs, marks: Marks
) -> list[Part]:
    filled = share(gpu.used_bytes, gpu.total_bytes)
    if filled is None:
        words = fitted(memory_of(gpu), memory + 2 + (long + 1 if long else 0) - 1, signs.ellipsis)
        return [(words + " ", "warn" if gpu.why else "dim")]
    drawn = []
    if long:
        drawn.append((bar(filled, long, signs, marks.card(gpu)) + " ", TONES.get(level, "")))
    return drawn + marked(f"{memory_of(gpu):>{memory}}", level)


def gpu_rows(
    report: GpuReport | None, width: int, now: float, signs: Glyphs, history: History,
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """All cards: a row each, or two per row from 120 cells on; or why there are none."""
    if report is None:
        return [(("GPU  ", "dim"), ("asking NVML", "dim"))]
    stale = age_words(report.at, now)
    if report.trouble or not report.gpus:
        words = report.trouble or "no NVIDIA card"
        return [aged((("GPU  ", "dim"), (words, "warn")), stale, width, signs)]
    two = width >= 120 and len(report.gpus) > 1
    each = (width - 2) // 2 if two else width
    pairs = (pair(gpu.total_bytes, gpu.total_bytes) for gpu in report.gpus if gpu.total_bytes)
    memory = max(map(len, pairs), default=13)  # cells for the widest `used/total`
    room = each - len(stale) - 1 if stale else each
    rows = [
        aged(gpu_row(gpu, room, memory, signs, history, marks), stale, each, signs)
        for gpu in report.gpus
    ]
    if not two:
        return rows
    rows.append(())
    return [(*padded(a, each), ("  ", ""), *b) for a, b in zip(rows[::2], rows[1::2], strict=False)]


def gpu_brief(report: GpuReport | None, now: float, signs: Glyphs, width: int = 0) -> Row:
    """All cards in as few cells as possible. With a `width` that is too small for all of it, what
    is no reason to worry goes first: the last of the brief figures, at the end memory."""
    if report is None or report.trouble or not report.gpus:
        return gpu_rows(report, 1000, now, signs, History())[0]
    stale = age_words(report.at, now)
    row: Row = ()
    for kept in reversed(range(2 + max(figure.brief for figure in FIGURES))):
        parts = [part for gpu in report.gpus for part in _card_brief(gpu, kept, signs)]
        row = tuple([*parts, (f" {stale}", "warn")] if stale else parts[:-1])
        if not width or width_of(row) <= width:
            break
    return row


def _card_brief(gpu: GpuSample, kept: int, signs: Glyphs) -> list[Part]:
    """One card with its `kept` most important figures, and each other one that is a warning."""
    label: Part = (f"GPU{gpu.index}", "dim")
    if gpu.dark:
        return [label, (f" {head(gpu.why) or 'no figures'}", "bad"), ("  ", "")]
    rest = [(f.brief, text, level) for f, text, level in figures(gpu, signs) if f.brief]
    parts = [
        (f" {text}{level.mark}", TONES.get(level, ""))
        for rank, text, level in ((0, memory_of(gpu).strip(), gpu_levels(gpu)["vram"]), *rest)
        if rank < kept or level in TONES
    ]
    return [label, *parts, ("  ", "")]
