"""Every figure that a guard may watch as a bar of its own, with its mark, its limit and what is
left to it. Pure."""

from __future__ import annotations

from console.host.marks import Marks
from console.host.sample import Sample
from console.render.cells import Row, Signs, amount, bar, cut, fitted, pair
from console.render.gpu import memory_of

NAME, FIGURE = 14, 16
LONGEST, SHORTEST = 40, 8


def marked_rows(sample: Sample, marks: Marks, width: int, signs: Signs) -> list[Row]:
    """A row each for RAM, swap, cards and disks; what is not known is said in words."""
    rows: list[Row] = []
    memory = sample.memory
    if memory is None:
        rows.append((_name("RAM"), (sample.memory_why or "not known", "warn")))
    else:
        used = memory.total - memory.available
        rows.append(_row("RAM", used, memory.total, marks.ram(memory), width, signs))
        if memory.swap_total:
            share = marks.swap(memory)
            row = _row("swap", memory.swap_used, memory.swap_total, share, width, signs)
            if share is None and marks.swap_growth is not None:
                row = (*row[:-1], (f"acts when it grows by {amount(marks.swap_growth)}", ""))
            rows.append(row)
        else:
            rows.append((_name("swap"), ("none", "dim")))
    for gpu in sample.gpu.gpus if sample.gpu is not None else ():
        name = f"GPU{gpu.index}"
        if gpu.used_bytes is None or not gpu.total_bytes:
            rows.append((_name(name), (memory_of(gpu), "warn")))
            continue
        rows.append(_row(name, gpu.used_bytes, gpu.total_bytes, marks.card(gpu), width, signs))
    for disk in sample.disks:
        name = f"disk {disk.path}"
        if disk.free is None or not disk.total:
            rows.append((_name(name), (disk.why or "not known", "warn")))
            continue
        used = disk.total - disk.free
        rows.append(_row(name, used, disk.total, marks.disk(disk), width, signs))
    return [cut(row, width, signs) for row in rows]


def _name(name: str) -> tuple[str, str]:
    return fitted(name, NAME - 1) + " ", "dim"


def _row(name: str, used: int, total: int, mark: float | None, width: int, signs: Signs) -> Row:
    long = min(LONGEST, max(SHORTEST, width - NAME - FIGURE - 33))
    figure = fitted(pair(used, total), FIGURE)
    drawn = bar(used / total, long, signs, mark)
    if mark is None:
        words = ("no limit of its own", "dim")
    elif used / total >= mark:
        words = (f"PAST its limit {amount(mark * total)}", "bad")
    else:
        words = (f"acts at {amount(mark * total)}, {amount(mark * total - used)} left", "")
    return (_name(name), (drawn + " ", ""), (figure + " ", ""), words)
