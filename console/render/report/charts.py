"""The charts of a report: samples against thresholds, a soak over time, memory over the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from urllib.parse import quote

from console.bench.metrics import SPEEDS
from console.common.units import format_bytes, number, plural
from console.config.playbook.threshold import parse_threshold
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from console.journal.samples import Gauge, SoakSeries, soak_series
from console.render.report.benchmarks import BEFORE, benches, names_of, targets
from console.render.report.markdown import figure, prose
from console.render.report.memory import card_names, envelope_of, rise_of, uuid_of
from console.render.report.soak import happened, intervals, soak_of, soak_steps
from console.render.report.svg import (
    BAD,
    BAND,
    COLOURS,
    DASHES,
    GRID,
    INK,
    SOFT,
    Panel,
    Point,
    Svg,
    label_width,
    seconds_ticks,
    spread_out,
    ticks,
    words,
    x_axis,
    y_axis,
)

WIDTH, LEFT, RIGHT = 800, 56, 24
ROW, PANEL = 34, 140
GIB, MIB = 2.0**30, 2.0**20
BOLD = 1.25
MAX_POINTS = 600
MAX_DOTS = 1500
SILENCE, SILENCE_S = 6.0, 3.0
"""A line breaks after a pause of this many usual intervals, and of these seconds."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: `name` is its file's stem, `about` describes it for those who cannot see it."""

    name: str
    about: str
    svg: str

    def link(self, folder: str) -> list[str]:
        """The picture in Markdown, for a text beside `folder`."""
        alt = prose(self.about, 300).replace("[", "(").replace("]", ")")
        return [f"![{alt}]({quote(folder)}/{self.name}.svg)", ""]


def charts(run: RunDir, view: RunView, gauges: Sequence[Gauge]) -> list[Chart]:
    all_charts = [sample_chart(view, scope) for scope in benches(view)]
    for step in soak_steps(view):
        soak = soak_of(view, step)
        series = soak_series(run, soak)
        all_charts += [soak_chart(step, series, soak), soak_memory_chart(step, series)]
    all_charts.append(memory_chart(view, gauges))
    return [chart for chart in all_charts if chart is not None]


def file_name(kind: str, step: str) -> str:
    return f"{kind}-{re.sub(r'[^a-z0-9_-]', '-', step)[:60]}"


def sample_chart(view: RunView, scope: str) -> Chart | None:
    """tok/s of every valid run, candidate and baseline, with the gate's thresholds."""
    metric = next((name for name in SPEEDS if name in view.metrics.get(scope, {})), SPEEDS[0])
    rows = [
        (name, figures, samples)
        for tail, name in names_of(view, scope)
        if (figures := view.metrics[scope + tail].get(metric, {}))
        and (
            samples := [
                x for sample in figures.get("samples") or [] if (x := number(sample)) is not None
            ]
        )
    ]
    if not rows:
        return None
    base = number(view.metrics.get(scope + BEFORE, {}).get(metric, {}).get("value"))
    marks = list(_marks(view, f"{scope}.{metric}", base))
    most = max([x for _, _, samples in rows for x in samples] + [x for x, _ in marks])
    about = "Each dot is a run, the bar their mean."
    about += " Broken lines: the gate's thresholds." if marks else ""
    svg = Svg(WIDTH, 112 + ROW * len(rows), f"{metric} of {scope}, run by run", about)
    edges = ticks(0, most * 1.04)
    panel = Panel(136, 78, WIDTH - 136 - 100, ROW * len(rows), most * 1.04, 1)
    for value in edges:
        svg.line((panel.x(value), panel.top), (panel.x(value), panel.bottom), GRID)
    x_axis(svg, panel, [(value, f"{value:g}") for value in edges])
    svg.text(panel.right + 12, panel.bottom + 18, "tok/s", colour=SOFT)
    for at, (name, figures, samples) in enumerate(rows):
        y, own = panel.top + ROW * at + ROW / 2, at == 0
        middle = number(figures.get("mean")) or sum(samples) / len(samples)
        svg.text(panel.left - 12, y + 4, name, at="end", bold=own)
        svg.rect(panel.x(0), y - 5, panel.x(middle) - panel.x(0), 10, "#c3ccd6")
        svg.dots([(panel.x(v), y) for v in samples], COLOURS[0] if own else SOFT, 3.5, 0.6)
        svg.line((panel.x(middle), y - 9), (panel.x(middle), y + 9), INK, 2)
        svg.text(panel.right + 12, y + 4, figure(middle), colour=INK if own else SOFT, bold=own)
    _thresholds(svg, panel, marks)
    summary = ", ".join(f"{name} {figure(number(f.get('mean')), 'tok/s')}" for name, f, _ in rows)
    return Chart(file_name("samples", scope), f"{metric} of {scope}: {summary}", str(svg))


def _marks(view: RunView, metric: str, base: float | None) -> Iterator[tuple[float, str]]:
    """Thresholds in order: position and name."""
    limits = {}
    for target in targets(view, metric):
        for key, word in (("go", "GO"), ("no_go", "NO-GO")):
            text = str(target.get(key) or "")
            try:
                limit = parse_threshold(text).limit(base, "tok/s") if text else None
            except ValueError:
                continue
            if limit is not None:
                limits[f"{word} {words(text, 40)}"] = limit
    yield from sorted((limit, name) for name, limit in limits.items())


def _thresholds(svg: Svg, panel: Panel, marks: list[tuple[float, str]]) -> None:
    """Upright lines with names above; of two, one is named at the left and one at the right."""
    centres = [panel.x(value) for value, _ in marks]
    widths = [label_width(name) for _, name in marks]
    gap = max(widths, default=0.0) + 10
    places = spread_out(centres, gap, gap / 2, WIDTH - gap / 2)
    aside = len(marks) == 2 and centres[0] > widths[0] and centres[1] + widths[1] < WIDTH
    for at, (_, name) in enumerate(marks):
        x = centres[at]
        svg.line((x, panel.top - 4), (x, panel.bottom), BAD, 1.4, "5 4")
        if aside:
            svg.text(x, panel.top - 10, name, at=("end", "start")[at], colour=BAD)
        else:
            svg.text(places[at], panel.top - 10, name, at="middle", colour=BAD)


def soak_chart(step: str, series: SoakSeries, soak: dict[str, object]) -> Chart | None:
    """Throughput over the soak: dots, rolling median; errors, hangs, restarts marked, gaps grey."""
    rates = [(r.t, r.tok_s) for r in series.requests if not r.error and r.tok_s is not None]
    failed = [r for r in series.requests if r.error]
    gaps = intervals(soak.get("gaps"))
    end = max([series.end, *(b for _, b in gaps)], default=0.0)
    if not series.requests or end <= 0:
        return None
    width = window(len(rates))
    about = f"Dots: tok/s of each request. Line: rolling median of {width} requests."
    about += " ✕: a request that failed." if failed else ""
    about += " Grey: not observed." if gaps else ""
    svg = Svg(WIDTH, 318, f"Throughput over {step}", about)
    most = max([v for _, v in rates], default=1.0) * 1.08
    panel = Panel(LEFT, 88, WIDTH - LEFT - RIGHT, 194, end, most)
    _gaps(svg, panel, gaps)
    y_axis(svg, panel, "tok/s")
    x_axis(svg, panel, seconds_ticks(end))
    stride = max(1, -(-len(rates) // MAX_DOTS))
    svg.dots([(panel.x(t), panel.y(v)) for t, v in rates[::stride]], COLOURS[0], 2, 0.35)
    for part in unbroken(rates, gaps):
        svg.path(thinned([(panel.x(t), panel.y(v)) for t, v in rolling(part, width)]), INK, 2)
    for request in failed[:MAX_DOTS]:
        svg.cross(panel.x(request.t), panel.bottom - 8)
    marks = [(t, "hang") for t, _ in happened(soak.get("hangs"))]
    marks += [(t, "restart") for t, _ in happened(soak.get("restarts"))]
    _moments(svg, panel, sorted(marks)[:40])
    hangs = sum(word == "hang" for _, word in marks)
    summary = f"{plural(len(series.requests), 'request')}, {len(failed)} failed, "
    summary += f"{plural(hangs, 'hang')}, {plural(len(marks) - hangs, 'restart')}"
    return Chart(file_name("soak", step), f"Throughput over {step}: {summary}", str(svg))


def _gaps(svg: Svg, panel: Panel, gaps: list[tuple[float, float]]) -> None:
    for begin, end in gaps:
        left, right = panel.x(begin), panel.x(end)
        svg.rect(left, panel.top, max(1.0, right - left), panel.height, "#d8dde3")
        if right - left > label_width("not observed"):
            svg.text((left + right) / 2, panel.top + 14, "not observed", at="middle", colour=SOFT)


def _moments(svg: Svg, panel: Panel, marks: list[tuple[float, str]]) -> None:
    """Upright lines with a word above, in one of two rows, as far as the words have room."""
    taken = [-1e9, -1e9]
    for at, word in marks:
        x, half = panel.x(at), label_width(word) / 2
        svg.line((x, panel.top - 4), (x, panel.bottom), BAD, 1.4, "2 3" if word == "hang" else "")
        row = next((n for n in (0, 1) if x - half > taken[n] + 6), None)
        if row is not None:
            svg.text(x, panel.top - 10 - 15 * row, word, at="middle", colour=BAD)
            taken[row] = x + half


def window(count: int) -> int:
    """How many requests one point of the rolling median covers: an odd number."""
    return max(5, min(61, count // 30)) | 1


def rolling(points: Sequence[Point], width: int) -> list[Point]:
    """The median of the `width` values around each; fewer at the ends."""
    half, values = width // 2, [value for _, value in points]
    return [
        (t, median(values[max(0, at - half) : at + half + 1])) for at, (t, _) in enumerate(points)
    ]


def unbroken(points: Sequence[Point], gaps: list[tuple[float, float]]) -> list[list[Point]]:
    """The points in pieces, cut where nothing was observed or nothing was answered for long, since
    a line across would be invented."""
    apart = [later[0] - point[0] for point, later in pairwise(points)]
    silence = max(SILENCE_S, SILENCE * median(apart)) if apart else 0.0
    pieces: list[list[Point]] = [[]]
    for point in points:
        last = pieces[-1][-1][0] if pieces[-1] else point[0]
        unseen = any(last <= end and begin <= point[0] for begin, end in gaps)
        if pieces[-1] and (unseen or point[0] - last > silence):
            pieces.append([])
        pieces[-1].append(point)
    return [piece for piece in pieces if piece]


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most as many points as a line needs; the lowest and highest of each group stay, so that no
    peak is lost."""
    if len(points) <= MAX_POINTS:
        return list(points)
    size = -(-len(points) * 2 // MAX_POINTS)
    kept: list[Point] = []
    for at in range(0, len(points), size):
        heap = points[at : at + size]
        kept += sorted({min(heap, key=lambda p: p[1]), max(heap, key=lambda p: p[1])})
    return kept


def soak_memory_chart(step: str, series: SoakSeries) -> Chart | None:
    """The server's memory over the soak, each figure on its own axis: a leak slopes up."""
    lines = [(name, points) for name, points in (("RSS", series.rss), ("VRAM", series.vram))
             if len(points) > 1 and max(v for _, v in points) > 0]  # fmt: skip
    if not lines:
        return None
    title = f"Memory of the server over {step}"
    svg = Svg(WIDTH, 84 + PANEL * len(lines), title, "What its processes held.")
    for at, (name, points) in enumerate(lines):
        top, most = 84 + PANEL * at, max(v for _, v in points) * 1.12
        panel = Panel(LEFT, top, WIDTH - LEFT - 90, PANEL - 50, series.end, most)
        draw_bytes_axis(svg, panel, name)
        x_axis(svg, panel, seconds_ticks(series.end) if at == len(lines) - 1 else [])
        draw_lines(svg, panel, [("", points)])
        svg.text(panel.right + 8, panel.y(points[-1][1]) + 4, format_bytes(points[-1][1]))
    ends = [(name, points[0][1], points[-1][1]) for name, points in lines]
    summary = "; ".join(f"{n} from {format_bytes(a)} to {format_bytes(b)}" for n, a, b in ends)
    return Chart(file_name("soak-memory", step), f"{title}: {summary}", str(svg))


def draw_bytes_axis(svg: Svg, panel: Panel, title: str) -> None:
    """An axis of bytes in the unit that suits its height, named over the panel."""
    unit, size = ("GiB", GIB) if panel.y_high >= GIB else ("MiB", MIB)
    y_axis(svg, panel, "", 5, size)
    svg.text(panel.left + 6, panel.top - 8, f"{title}, {unit}", colour=SOFT)


def draw_lines(svg: Svg, panel: Panel, lines: list[tuple[str, list[Point]]]) -> None:
    """Lines with their names at the right end, told apart by dash and colour."""
    ends = [panel.y(points[-1][1]) for _, points in lines]
    places = spread_out(ends, 15, panel.top, panel.bottom)
    for at, ((name, points), place) in enumerate(zip(lines, places, strict=True)):
        colour, dash = COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)]
        svg.path(thinned([(panel.x(x), panel.y(y)) for x, y in points]), colour, 1.8, dash)
        svg.text(panel.right + 8, place + 4, short_card(name), colour=colour, bold=True)


def short_card(name: str) -> str:
    """A card's name without the words that all card names have."""
    return words(re.sub(r"^(NVIDIA )?(GeForce |Quadro |Tesla )?", "", name), 22)


def memory_chart(view: RunView, gauges: Sequence[Gauge]) -> Chart | None:
    """VRAM by card, RAM and swap over the run, the steps as bands, predictions as broken lines."""
    span = gauges[-1].at - gauges[0].at if gauges else 0.0
    groups = _groups(view, gauges, gauges[0].at) if gauges else []
    if not groups or span <= 0:
        return None
    predicted = _predictions(view, gauges, gauges[0].at)
    about = "In use, baseline included. Bands are the steps of the run."
    about += " Thin broken lines: predicted for the load." if predicted else ""
    svg = Svg(WIDTH, 92 + PANEL * len(groups), "Memory over the run", about)
    names = [short_card(name) for _, lines in groups for name, _ in lines]
    right = min(200.0, max(label_width(name) * BOLD for name in names) + 16)
    frame = Panel(LEFT, 98, WIDTH - LEFT - right, PANEL * len(groups) - 50, span, 1)
    _bands(svg, frame, _spans(gauges, gauges[0].at))
    for at, (title, lines) in enumerate(groups):
        marks = [mark for mark in predicted if mark[0] in dict(lines)]
        values = [v for _, points in lines for _, v in points] + [level for *_, level in marks]
        top, most = frame.top + PANEL * at, max(*values, 1.0) * 1.12
        panel = Panel(LEFT, top, frame.width, PANEL - 50, span, most)
        draw_bytes_axis(svg, panel, title)
        x_axis(svg, panel, seconds_ticks(span) if at == len(groups) - 1 else [])
        draw_lines(svg, panel, lines)
        for _, first, last, level in marks:
            y = panel.y(level)
            svg.line((panel.x(first), y), (panel.x(last), y), INK, 1, "3 4")
            svg.text(panel.x(first) + 4, y - 5, "predicted", size=11)
    summary = "; ".join(f"{name} at most {format_bytes(max(v for _, v in points))}"
                     for _, lines in groups for name, points in lines)  # fmt: skip
    return Chart("memory", f"Memory over the run: {summary}", str(svg))


def _groups(
    view: RunView, gauges: Sequence[Gauge], begin: float
) -> list[tuple[str, list[tuple[str, list[Point]]]]]:
    """Panels from top to bottom, in bytes; swap only if any was ever used."""
    names = card_names(view)
    uuids = dict.fromkeys(uuid for gauge in gauges for uuid in gauge.gpu)
    cards = [
        (names.get(uuid, uuid), [(g.at - begin, g.gpu[uuid]) for g in gauges if uuid in g.gpu])
        for uuid in uuids
    ]
    ram = [(g.at - begin, g.ram) for g in gauges if g.ram is not None]
    swap = [(g.at - begin, g.swap) for g in gauges if g.swap is not None]
    panels = [("VRAM by card", cards[:8])] if cards else []
    if ram:
        panels.append(("RAM", [("RAM", ram)]))
    if any(value > 0 for _, value in swap):
        panels.append(("swap", [("swap", swap)]))
    return panels


def _predictions(
    view: RunView, gauges: Sequence[Gauge], begin: float
) -> list[tuple[str, float, float, float]]:
    """(line, from, to, bytes): the level just before a load plus its prediction."""
    predictions, names = [], card_names(view)
    for step, known in view.measured.items():
        envelope, rise = envelope_of(known.envelope), rise_of(view, step, gauges)
        if envelope is None or rise is None:
            continue
        wanted = [(uuid_of(name, names), size) for name, size in envelope.peak.vram]
        for key, size in [*wanted, ("ram", envelope.peak.ram)]:
            if key in rise.before and size:
                line = "RAM" if key == "ram" else names.get(key, key)
                level = rise.before[key] + size
                predictions.append((line, rise.begin - begin, rise.end - begin, level))
    return predictions


def _spans(gauges: Sequence[Gauge], begin: float) -> list[tuple[str, float, float]]:
    """(step, from, to), one after the other."""
    spans: list[tuple[str, float, float]] = []
    for gauge in gauges:
        at = gauge.at - begin
        if spans:
            spans[-1] = (*spans[-1][:2], at)
        if not spans or spans[-1][0] != gauge.step:
            spans.append((gauge.step, at, at))
    return spans


def _bands(svg: Svg, frame: Panel, spans: list[tuple[str, float, float]]) -> None:
    """Every other step on a grey ground, with its name if there is room."""
    for at, (step, first, last) in enumerate(spans):
        left, right = frame.x(first), frame.x(last)
        if at % 2 == 0:
            svg.rect(left, frame.top - 20, right - left, frame.height + 20, BAND)
        if step and right - left > label_width(step) + 6:
            svg.text((left + right) / 2, frame.top - 24, step, at="middle", colour=SOFT)
