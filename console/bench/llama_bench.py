"""Reads the output of llama-bench and ik_llama's llama-sweep-bench for a gate.

Both print results among log lines, so every line that cannot belong to a result is skipped. Only
complete results count; truncated or implausible ones are left out and reported. The first entry of
a kind gives the figure; entries at other depths or settings are shown beside it, never mixed in.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from console.bench.metrics import MAX_SAMPLES
from console.bench.statistics import mean, std
from console.common.text import one_line
from console.common.units import format_number

Form = Literal["llama-bench", "sweep-bench"]
Kind = Literal["tg", "pp", "both"]
"""Generating, reading a prompt, or both in one test."""
KINDS: tuple[Kind, ...] = ("tg", "pp")
UNIT = "tok/s"
AGREE = 0.05
"""Tolerance between a printed rate and the one worked out from the figures beside it."""
MAX_FLAGS = 20
_RESULTS = frozenset(
    {"samples_ns", "samples_ts", "avg_ns", "avg_ts", "stddev_ns", "stddev_ts", "test_time", "test"}
)
_JSON_LINE = re.compile(r'\s*(?:["{]|\[\s*\{|(?:[\[\]}]|-?\d[\d.eE+-]*),?\s*$)')
_OPENED = re.compile(r"^\s*\[\s*(?:\{|$)", re.MULTILINE)
_CLOSED = re.compile(r"(?:^|\})\s*\]\s*$", re.MULTILINE)
_NEXT = re.compile(r"\s*,\s*(?=\{)")
_TEST = re.compile(
    r"(?:(?P<both>pp\d+ *\+ *tg\d+)|(?P<pp>pp\d+)|(?P<tg>tg\d+(?: *@ *pp\d+)?))(?: *@ *d\d+)?"
)
"""The name of a test: `pp512`, `tg128 @ d4096`, `pp512+tg128` (-pg), and of ik_llama.cpp
`tg64@pp8192` (-gp), the rate of generating after a prompt, whose time is not counted."""
_BUILD = re.compile(r"^build: ([0-9a-z]+) \((\d+)\)\s*$", re.MULTILINE)
_NAMES = {"model": "model_type"}
"""Columns of the table that the JSON calls differently."""
_RATE = re.compile(r"(\d+(?:\.\d+)?) *± *(\d+(?:\.\d+)?|nan|-nan)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One test, `samples` in tok/s. llama-bench's table omits samples: its mean is then the only
    one."""

    kind: Kind
    name: str
    samples: tuple[float, ...]
    std: float | None = None
    settings: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class Figures:
    """`metrics` as a gate reads them (tg_tok_s, pp_tok_s), made of the `entries`; `flags`: remarks
    on them."""

    entries: list[Entry] = field(default_factory=list)
    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    build: str = ""
    model: str = ""


def read_figures(text: str, form: Form) -> Figures:
    """The figures in a command's output. Raises ValueError when it holds no usable result."""
    figures = Figures()
    (_of_llama_bench if form == "llama-bench" else _of_sweep)(text, figures)
    if not any(entry.kind != "both" for entry in figures.entries):
        words = f"; {figures.flags[0]}" if figures.flags else ""
        expected = "-o json, -o jsonl or its table" if form == "llama-bench" else "its table"
        raise ValueError(f"no result of {form} in the output ({expected}){words}")
    for kind in KINDS:
        same = [entry for entry in figures.entries if entry.kind == kind]
        figures.metrics[f"{kind}_tok_s"] = _metric(same[0] if same else None)
        if not same:
            figures.flags.append(f"nothing measured {kind}: {kind}_tok_s has no figure")
        figures.flags += [_beside(entry, same[0]) for entry in same[1:]]
    figures.flags += [_beside(entry, None) for entry in figures.entries if entry.kind == "both"]
    more = len(figures.flags) - MAX_FLAGS
    if more > 0:
        figures.flags[MAX_FLAGS:] = [f"and {more} more"]
    return figures


def _metric(entry: Entry | None) -> dict[str, Any]:
    if entry is None:
        return {"value": None, "unit": UNIT, "n": 0}
    count = len(entry.samples)
    metric: dict[str, Any] = {
        "value": mean(entry.samples), "unit": UNIT, "n": count, "headline": "mean",
        "mean": mean(entry.samples), "std": std(entry.samples) if count > 1 else entry.std,
        "test": entry.name,
    }  # fmt: skip
    if 1 < count <= MAX_SAMPLES:
        metric["samples"] = list(entry.samples)
    return metric


def _beside(entry: Entry, first: Entry | None) -> str:
    """`tg128 @ d4096: 18.2 tok/s`, with the settings that differ."""
    value = mean(entry.samples)
    other = dict(entry.settings)
    differs = [
        f"{key} {one_line(str(other.get(key)), 60)}"
        for key, was in (first.settings if first else ())
        if key in other and other[key] != was
    ]
    more = f" ({', '.join(differs[:3])})" if differs else ""
    return f"also measured: {entry.name}{more}: {format_number(value or 0.0, UNIT)}"


def _of_llama_bench(text: str, figures: Figures) -> None:
    objects, broken = _objects(text)
    for record in objects:
        if "n_gen" not in record or "n_prompt" not in record:
            continue
        entry = _entry(record)
        if entry is None:
            figures.flags.append("an implausible entry was left out")
            continue
        figures.entries.append(entry)
        build = f"{record.get('build_number', '')}-{record.get('build_commit', '')}".strip("-")
        figures.build = figures.build or one_line(build, 80)
        figures.model = figures.model or one_line(str(record.get("model_type") or ""), 120)
    if figures.entries or objects:
        if broken or (_OPENED.search(text) and not _CLOSED.search(text)):
            whole = f"{len(figures.entries)} complete entries count"
            figures.flags.insert(0, f"the output was cut off: {whole}")
        return
    figures.entries = list(_table(text))
    if figures.entries:
        figures.flags.append("from the table, which omits single samples: n is 1")
        model = dict(figures.entries[0].settings).get("model_type")
        figures.model = one_line(str(model or ""), 120)
        if (build_match := _BUILD.search(text)) is not None:
            figures.build = one_line(f"{build_match[2]}-{build_match[1]}", 80)


def _objects(text: str) -> tuple[list[dict[str, Any]], int]:
    """Every complete JSON object at the start of a line, alone or in a list, and the number of
    incomplete ones."""
    kept = "\n".join(line for line in text.splitlines() if _JSON_LINE.match(line))
    decoder, objects, broken, at = json.JSONDecoder(), [], 0, 0
    first = re.finditer(r"^\s*(?:\[\s*)?\{", kept, re.MULTILINE)
    for start in [match.end() - 1 for match in first]:
        begin: int | None = start if start >= at else None
        while begin is not None:
            try:
                value, at = decoder.raw_decode(kept, begin)
            except (ValueError, RecursionError):
                head = kept[begin : begin + 4000]
                broken += '"n_' in head or '"build' in head[:200]
                break
            objects.append(value)
            more = _NEXT.match(kept, at)
            begin = more.end() if more else None
    return objects, broken


def _entry(record: dict[str, Any]) -> Entry | None:
    """An entry of llama-bench; None if its numbers are invalid or contradict each other."""
    prompt, gen, depth = (_count(record.get(key, 0)) for key in ("n_prompt", "n_gen", "n_depth"))
    if prompt is None or gen is None or depth is None or prompt + gen == 0:
        return None
    average = _rate(record.get("avg_ts"))
    given = record.get("samples_ts")
    samples = [_rate(value) for value in given] if isinstance(given, list) else [average]
    good = tuple(value for value in samples if value is not None)
    middle = mean(good)
    if middle is None or len(good) < len(samples):
        return None
    if average is None or abs(middle / average - 1) > AGREE:
        return None
    after = isinstance(record.get("test"), str) and record["test"] == f"tg{gen}@pp{prompt}"
    name = "+".join(f"{word}{count}" for word, count in (("pp", prompt), ("tg", gen)) if count)
    name = (record["test"] if after else name) + (f" @ d{depth}" if depth else "")
    kind: Kind = "tg" if after else "both" if prompt and gen else "tg" if gen else "pp"
    settings = tuple((key, value) for key, value in record.items() if key not in _RESULTS)
    return Entry(kind, name, good, _rate(record.get("stddev_ts")), settings)


def _table(text: str) -> Iterator[Entry]:
    """Rows `| … | pp512 | 100.00 ± 0.50 |` of the table that llama-bench prints by itself."""
    names: list[str] = []
    for cells in _cells(text):
        if len(cells) < 3:
            continue
        if cells[-2:] == ["test", "t/s"]:
            names = [_NAMES.get(name, name) for name in cells[:-2]]
        test, rate = _TEST.fullmatch(cells[-2]), _RATE.fullmatch(cells[-1])
        value = _rate(float(rate[1])) if rate else None
        if test is None or rate is None or value is None:
            continue
        spread = None if "nan" in rate[2] else float(rate[2])
        known = names if len(names) == len(cells) - 2 else map(str, range(len(cells) - 2))
        settings = tuple(zip(known, cells, strict=False))
        kind: Kind = "both" if test["both"] else "pp" if test["pp"] else "tg"
        yield Entry(kind, one_line(cells[-2], 40), (value,), spread, settings)


def _cells(text: str) -> Iterator[list[str]]:
    for line in map(str.strip, text.splitlines()):
        if line.startswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


_COLUMNS = {
    "PP": "pp", "TG": "tg", "N_KV": "n_kv", "T_PP s": "t_pp", "S_PP t/s": "speed_pp",
    "T_TG s": "t_tg", "S_TG t/s": "speed_tg",
}  # fmt: skip


def _of_sweep(text: str, figures: Figures) -> None:
    rows = [*_sweep_rows(text), *(record for record in _objects(text)[0] if "speed_tg" in record)]
    for row in rows:
        depth = _count(row.get("n_kv"))
        for kind in KINDS:
            count, speed = _count(row.get(kind)), _rate(row.get(f"speed_{kind}"))
            took = _rate(row.get(f"t_{kind}"))
            if depth is None or not count or speed is None or took is None:
                figures.flags.append("an implausible row was left out")
                continue
            # times are printed with three decimals
            if abs(count / took - speed) > speed * AGREE + count * 0.0005 / took**2:
                figures.flags.append("a row whose rate and time contradict each other was left out")
                continue
            name = f"{kind}{count} at N_KV {depth}"
            figures.entries.append(Entry(kind, name, (speed,)))


def _sweep_rows(text: str) -> Iterator[dict[str, Any]]:
    """The rows under the header, by its names: later versions add columns."""
    columns: list[str] = []
    for cells in _cells(text):
        if _COLUMNS.keys() <= set(cells):
            columns = cells
        elif columns and len(cells) == len(columns) and not set("".join(cells)) <= set("-: "):
            named = zip(columns, cells, strict=True)
            yield {_COLUMNS[name]: _parsed(cell) for name, cell in named if name in _COLUMNS}


def _parsed(cell: str) -> float | int | None:
    if re.fullmatch(r"[0-9]{1,12}", cell):
        return int(cell)
    return float(cell) if re.fullmatch(r"[0-9]{1,12}\.[0-9]{1,12}", cell) else None


def _count(value: object) -> int | None:
    """A whole number from 0; neither JSON's `true` nor a string is one."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 10**9:
        return None
    return value


def _rate(value: object) -> float | None:
    """A number above zero and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value) if abs(value) < 1e12 else math.inf
    return number if 0 < number < math.inf else None
