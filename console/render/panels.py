"""The machine as framed panels: one for each card, one for RAM, one for swap, pressure and disks,
each with its figures and its curves over the last minutes. Pure.

A panel is a list of rows of one width. In a window that is too narrow or too low for them the
gauges are plain rows instead, see console.render.gauges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from console.host.gpu.figures import KEPT, GpuReport, GpuSample
from console.host.sample import (
    PRESSURE,
    RAM,
    SPAN_S,
    SWAP,
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
    amount,
    bar,
    curve_rows,
    cut,
    padded,
    pair,
    rate,
    width_of,
)
from console.render.gauges import (
    figures,
    memory_of,
    others_brief,
    short_name,
)

MIN_PANEL = 34
"""Cells of the narrowest panel."""
LABEL = 5
FULL_PRESSURE = 40.0
"""Per cent of memory pressure at the top of its curve: a machine is close to stalled there."""

Panel = Callable[[int, int], list[Row]]
"""Draws one panel of a width, with so many rows inside."""
Curve = tuple[Sequence[float | None], float | None, str, str]
"""Values, the one at the top, the curve's name and its tone."""


def framed(
    title: Row, right: Row, rows: Sequence[Row], width: int, signs: Glyphs, below: str = ""
) -> list[Row]:
    """Rows in a frame with a title at the left and figures at the right of its upper edge, and
    words in its lower one; figures that find no room are left out."""
    inner, dash = width - 4, signs.line
    upper_left, upper_right, lower_left, lower_right = signs.corners
    title = cut(title, inner - 2, signs)
    room = inner - width_of(title) - 1
    figures: Row = ((" ", ""), *right, (" ", "")) if right else ()
    if width_of(figures) > room:
        figures = ()
    line = dash * (room - width_of(figures) + 1)
    first: Row = (
        (f"{upper_left}{dash} ", "dim"), *title,
        (f" {line}"[: room - width_of(figures) + 1], "dim"), *figures, (upper_right, "dim"),
    )  # fmt: skip
    side: Part = (signs.side, "dim")
    body = [(side, (" ", ""), *padded(cut(row, inner, signs), inner), (" ", ""), side)
            for row in rows]  # fmt: skip
    words = f" {below} {dash}" if below else ""
    last = lower_left + dash * (width - 2 - len(words)) + words + lower_right
    return [first, *body, ((last, "dim"),)]


def beside(panels: Sequence[Panel], width: int, inside: int, most: int) -> list[Row]:
    """Panels in as few lines of panels as the width allows, each line as wide as the window; no
    rows if that takes more than `most` rows or the window is too narrow."""
    columns = width // MIN_PANEL
    if not panels or not columns:
        return []
    lines = -(-len(panels) // columns)
    if lines * (inside + 2) > most:
        return []
    columns = -(-len(panels) // lines)
    rows: list[Row] = []
    for begin in range(0, len(panels), columns):
        line = panels[begin : begin + columns]
        edges = [width * n // len(line) for n in range(len(line) + 1)]
        drawn = [panel(b - a, inside) for panel, a, b in zip(line, edges, edges[1:], strict=False)]
        rows += [tuple(part for row in parts for part in row) for parts in zip(*drawn, strict=True)]
    return rows


def machine_panels(
    sample: Sample, history: History, now: float, signs: Glyphs, marks: Marks,
    guard: Callable[[int], Row], *, apart: bool = True,
) -> list[Panel]:  # fmt: skip
    """The panels of a machine; `now` in monotonic seconds, `guard`: what its guard says in so many
    cells. Not `apart`: swap and disks are a line of RAM's panel, and the guard is left out."""

    def card(gpu: GpuSample, report: GpuReport) -> Panel:
        stale = age_words(report.at, now)
        return lambda width, inside: _card(gpu, history, width, inside, stale, signs, marks)

    def brief(width: int) -> Row:
        return others_brief(sample, signs, width)

    report = sample.gpu
    panels = [card(gpu, report) for gpu in report.gpus] if report is not None else []
    if not apart:
        return [*panels, lambda w, n: _ram(sample, history, w, n, now, signs, marks, brief)]
    panels.append(lambda w, inside: _ram(sample, history, w, inside, now, signs, marks, guard))
    panels.append(lambda w, inside: _rest(sample, history, w, inside, now, signs))
    return panels


def _card(
    gpu: GpuSample, history: History, width: int, inside: int, stale: str, signs: Glyphs,
    marks: Marks,
) -> list[Row]:  # fmt: skip
    right: Row = tuple(
        (f"{' ' * bool(number)}{words}{level.mark}", TONES.get(level, ""))
        for number, (_, words, level) in enumerate(figures(gpu, signs))
    )
    if stale:
        right = ((stale, "warn"),)
    label = f"GPU{gpu.index}"
    room = width - 6 - width_of(right) - len(label) - 3
    name = short_name(gpu.name, room).rstrip() if room >= 4 else ""
    title: Row = ((label, "bold"), (f" {name}" if name else "", ""))
    if gpu.dark:
        words = cut(((gpu.why or "no figures", "bad"),), width - 4, signs)
        return framed(title, (), [words, *[()] * (inside - 1)], width, signs)
    filled, cells = share(gpu.used_bytes, gpu.total_bytes), _cells(width)
    curves = [
        (history.curve(figure.kept, cells, gpu.uuid), curve.top(gpu), curve.name, curve.tone)
        for figure in KEPT if (curve := figure.curve)
    ]  # fmt: skip
    level = gpu_levels(gpu)["vram"]
    rows = [
        _bar(filled, memory_of(gpu).strip(), level, width, signs, marks.card(gpu)),
        *_curves(curves, inside - 1, signs),
    ]
    return framed(title, right, _dimmed(rows, stale), width, signs, span_words(cells))


def _ram(
    sample: Sample, history: History, width: int, inside: int, now: float, signs: Glyphs,
    marks: Marks, guard: Callable[[int], Row],
) -> list[Row]:  # fmt: skip
    memory, stale = sample.memory, age_words(sample.at, now)
    if memory is None:
        rows: list[Row] = [((sample.memory_why or "not known", "warn"),), *[()] * (inside - 1)]
        return framed((("RAM", "bold"),), (), rows, width, signs)
    levels, used = memory_levels(memory), memory.total - memory.available
    right: Row = ((stale, "warn"),) if stale else _pressure(memory, levels["pressure"])
    filled, cells = share(used, memory.total), _cells(width)
    words = pair(used, memory.total).strip()
    curves = (
        (history.curve(RAM, cells), memory.total, "used", "accent"),
        (history.curve(PRESSURE, cells), FULL_PRESSURE, "PSI", "second"),
    )
    rows = [
        _bar(filled, words, levels["ram"], width, signs, marks.ram(memory)),
        *_curves(curves, inside - 2, signs),
        guard(width - 4),
    ]
    title: Row = (("RAM", "bold"),)
    return framed(title, right, _dimmed(rows, stale), width, signs, span_words(cells))


def _pressure(memory: MemorySample, level: Level) -> Row:
    some = memory.pressure_some
    words = "n/a" if some is None else f"{some:.1f} %{level.mark}"
    return (("PSI ", "dim"), (words, TONES.get(level, "")))


def _rest(
    sample: Sample, history: History, width: int, inside: int, now: float, signs: Glyphs
) -> list[Row]:
    """Swap, the disks, and why there is no card."""
    memory, stale, rows = sample.memory, age_words(sample.at, now), list[Row]()
    title: Row = (("SWAP", "bold"),)
    right: Row = ()
    if memory is not None and memory.swap_total:
        level = memory_levels(memory)["swap"]
        words = pair(memory.swap_used, memory.swap_total).strip()
        title = (("SWAP ", "bold"), (words + level.mark, TONES.get(level, "")))
        right = _moving(memory)
        curve = (history.curve(SWAP, _cells(width)), memory.swap_total, "used", "accent")
        rows += _curves([curve], max(1, inside - 1 - len(sample.disks)), signs)
    elif memory is not None:
        title = (("SWAP ", "bold"), ("none", "dim"))
    if sample.gpu is not None and not sample.gpu.gpus:
        rows.append((("GPU  ", "dim"), (sample.gpu.trouble or "no NVIDIA card", "warn")))
    for disk in sample.disks:
        label: Part = (f"disk {disk.path}  ", "dim")
        if disk.free is None:
            rows.append((label, (disk.why or "not known", "warn")))
        else:
            level = disk_level(disk)
            free = f"{amount(disk.free)} free {level.mark}".rstrip()
            rows.append((label, (free, TONES.get(level, ""))))
    rows += [()] * (inside - len(rows))
    right = ((stale, "warn"),) if stale else right
    span = span_words(_cells(width)) if memory is not None and memory.swap_total else ""
    return framed(title, right, _dimmed(rows[:inside], stale), width, signs, span)


def _moving(memory: MemorySample) -> Row:
    level = memory_levels(memory)["swap_in"]
    into: Part = (f"in {rate(memory.swap_in_rate)}{level.mark}", TONES.get(level, ""))
    return (into, (f"  out {rate(memory.swap_out_rate)}", ""))


def _cells(width: int) -> int:
    """Cells of a curve inside a panel."""
    return max(1, width - 4 - LABEL - 1)


def _curves(curves: Sequence[Curve], rows: int, signs: Glyphs) -> list[Row]:
    """Curves in so many rows: the last ones are left out, or the first ones are higher."""
    shown = curves[: max(0, rows)]
    drawn: list[Row] = []
    for at, (values, most, label, tone) in enumerate(shown):
        high = rows // len(shown) + (at < rows % len(shown))
        lines = curve_rows(values, most, high, signs)
        words = [""] * (high - 1) + [label]
        drawn += [
            ((line, tone), (f" {word:<{LABEL}}", "dim"))
            for line, word in zip(lines, words, strict=True)
        ]
    return drawn


def _bar(
    filled: float | None, words: str, level: Level, width: int, signs: Glyphs, mark: float | None
) -> Row:
    tone = TONES.get(level, "")
    if filled is None:
        return ((words, "warn"),)
    long = max(4, width - 4 - len(words) - 3)
    return ((bar(filled, long, signs, mark), tone), (f" {words}{level.mark}", tone))


def _dimmed(rows: Sequence[Row], stale: str) -> list[Row]:
    return [tuple((text, "dim") for text, _ in row) if stale else row for row in rows]


def span_words(cells: int) -> str:
    """How long a curve of so many cells reaches back: `last 2 min`."""
    return f"last {cells * SPAN_S / 60:.0f} min"
