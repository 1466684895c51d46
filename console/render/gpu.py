"""GPU reports as rows of text: one card a row, two in a row where there is room."""

from __future__ import annotations

import re
from collections.abc import Mapping

from console.host.sample import (
    NO_MARKS,
    GpuReport,
    GpuSample,
    Level,
    Marks,
    Trend,
    gpu_levels,
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
    fitted,
    head,
    marked,
    padded,
    pair,
    trend_line,
)


def short_name(name: str, width: int) -> str:
    """`NVIDIA RTX PRO 6000 Blackwell …` → `RTX PRO 6000`: whole words, as many as fit."""
    words = re.sub(r"^(NVIDIA\s+)?(GeForce\s+)?", "", name).split()
    out = ""
    for word in words:
        if cells(out) + cells(word) + bool(out) > width:
            break
        out += " " * bool(out) + word
    return fitted(out or name, width)


def trend_value(gpu: GpuSample) -> float | None:
    """What a card's trend is about: utilisation, else memory."""
    known = gpu.utilisation
    return known if known is not None else share(gpu.used_bytes, gpu.total_bytes)


def utilisation(gpu: GpuSample) -> str:
    if gpu.utilisation is not None:
        return f"{gpu.utilisation * 100:.0f} %"
    return "MIG" if gpu.why.startswith("MIG") else "n/a"


def temperature(gpu: GpuSample, signs: Glyphs) -> str:
    return "n/a" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} {signs.celsius}"


def power(gpu: GpuSample) -> str:
    if gpu.power_w is None:
        return "no watts"
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
    return f"{gpu.power_w:.0f}{limit} W"


def memory_of(gpu: GpuSample) -> str:
    """Used and total, or why not, in words."""
    if gpu.used_bytes is not None and gpu.total_bytes is not None:
        return pair(gpu.used_bytes, gpu.total_bytes)
    if gpu.total_bytes is not None:
        return f"?/{amount(gpu.total_bytes)}"
    return head(gpu.why) or "memory n/a"


def dark(gpu: GpuSample) -> bool:
    return all(
        one is None
        for one in (gpu.used_bytes, gpu.utilisation, gpu.temperature_c, gpu.power_w)
    )  # fmt: skip


def gpu_row(
    gpu: GpuSample, width: int, memory: int, signs: Glyphs, trend: Trend | None,
    marks: Marks = NO_MARKS,
) -> Row:  # fmt: skip
    """One card in `width` cells; `memory` is how wide its `used/total` column is.

    As room shrinks the name goes first, then trend, watts and bar.
    """
    label: Part = (f"{f'GPU{gpu.index}':<5}", "dim")
    if dark(gpu):
        name = short_name(gpu.name, 16) + " " if gpu.name and width >= 50 else ""
        room = max(0, width - 5 - cells(name))
        return (label, (name, ""), (fitted(gpu.why or "no figures", room, signs.ellipsis), "bad"))
    levels = gpu_levels(gpu)
    bar_cells, watts, trend_cells, name_cells = _shares(width - memory - 21)
    parts: list[Part] = [label]
    if name_cells:
        parts.append((short_name(gpu.name, name_cells) + " ", ""))
    parts += _memory_parts(gpu, levels["vram"], bar_cells, memory, signs, marks)
    parts.append((f"{utilisation(gpu):>6}", ""))
    parts += marked(f"{temperature(gpu, signs):>6}", levels["temperature"])
    if watts:
        parts.append((f"{power(gpu):>{watts}}", ""))
    if trend_cells:
        parts.append((" " + trend_line(trend, trend_cells, signs), "dim"))
    return tuple(parts)


def _shares(room: int) -> tuple[int, int, int, int]:
    """Cells for bar, watts, trend and name, out of what the figures leave; 0: not shown."""
    watts = 10 if room >= 10 else 0
    room -= watts
    long = min(10, room - 1) if room >= 5 else 0
    room -= long + 1 if long else 0
    trend = min(8, room - 1) if room >= 6 else 0
    room -= trend + 1 if trend else 0
    name = min(28, room - 1) if room >= 9 else 0
    room -= name + 1 if name else 0
    return min(30, long + max(0, room)) if long else 0, watts, trend, name


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
    report: GpuReport | None, width: int, now: float, signs: Glyphs, trends: Mapping[str, Trend],
    marks: Marks = NO_MARKS,
) -> list[Row]:  # fmt: skip
    """All cards: a row each, two in a row from 120 cells on; or why there are none."""
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
        aged(gpu_row(gpu, room, memory, signs, trends.get(gpu.uuid), marks), stale, each, signs)
        for gpu in report.gpus
    ]
    if not two:
        return rows
    rows.append(())
    return [(*padded(a, each), ("  ", ""), *b) for a, b in zip(rows[::2], rows[1::2], strict=False)]


def gpu_brief(report: GpuReport | None, now: float, signs: Glyphs) -> Row:
    """All cards in as few cells as they can be told in."""
    if report is None or report.trouble or not report.gpus:
        return gpu_rows(report, 1000, now, signs, {})[0]
    parts: list[Part] = []
    for gpu in report.gpus:
        levels = gpu_levels(gpu)
        parts.append((f"{'  ' if parts else ''}GPU{gpu.index}", "dim"))
        if dark(gpu):
            parts.append((f" {head(gpu.why) or 'no figures'}", "bad"))
            continue
        for text, level in (
            (memory_of(gpu).strip(), levels["vram"]), (utilisation(gpu), Level.OK),
            (temperature(gpu, signs), levels["temperature"]),
        ):  # fmt: skip
            parts.append((f" {text}{level.mark}", TONES.get(level, "")))
    stale = age_words(report.at, now)
    return tuple([*parts, (f"  {stale}", "warn")] if stale else parts)
