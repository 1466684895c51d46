"""A tuning step in a report: its winner as words to paste, the points that none beats, a chart."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from typing import Any

from console.common.redact import HIDDEN
from console.common.text import clean
from console.common.units import number, plural
from console.journal.run_view import RunView
from console.render.report.charts import Chart, file_name
from console.render.report.markdown import block, code, figure, prose, table
from console.render.report.svg import COLOURS, INK, SOFT, Panel, Svg, ticks, x_axis, y_axis

WIDTH, HEIGHT = 800, 420
GIB = 2.0**30
MAX_ROWS = 30
MAX_FAILED = 10
MAX_LINE = 100_000
"""Characters of a command line: one that is cut off cannot be pasted."""
PREFERS = {
    "decode": "generating", "prompt": "reading a prompt", "request": "a whole request",
}  # fmt: skip
FATES = {
    "host": "out of the host's memory", "card": "out of a card's memory", "failed": "failed",
    "unfit": "not started: it cannot fit", "measured": "failed when it was started again",
}  # fmt: skip
Row = dict[str, Any]


def tune_steps(view: RunView) -> list[str]:
    return [step.id for step in view.steps if view.measurement(step.id).tune]


def tune_lines(view: RunView, step: str) -> Iterator[str]:
    """The section of one step."""
    tuning, rows = view.measurement(step).tune, _rows(view.measurement(step).tune)
    yield from (f"## Flags of {prose(tuning.get('of') or '', 60)} (`{clean(step, 60)}`)", "")
    if early := str(tuning.get("early") or ""):
        yield from (f"**Incomplete: {prose(early, 200)}.** What was measured is kept.", "")
    best = next((row for row in rows if row.get("best")), None)
    if best is not None and not early:
        yield from _winner(tuning, best, rows)
    yield from _count(tuning, rows)
    shown = [row for row in rows if row["fate"] == "measured"]
    shown.sort(key=lambda row: (not row.get("front"), -(number(row.get("score")) or 0.0)))
    yield from table(
        ("flags", "tok/s", "starts", "against today", "generating", "prompt", "GPU memory", "RAM",
         "context", ""),
        [_cells(row) for row in shown[:MAX_ROWS]], right=(1, 2, 3, 4, 5, 6, 7, 8),
    )  # fmt: skip
    if len(shown) > MAX_ROWS:
        yield from (f"And {len(shown) - MAX_ROWS} more in `{clean(str(tuning.get('file')))}`.", "")
    yield from _failed([row for row in rows if row["fate"] != "measured" or row.get("why")])


def _rows(tuning: Row) -> list[Row]:
    points = tuning.get("points")
    rows = points if isinstance(points, list) else []
    return [row for row in rows if isinstance(row, dict) and row.get("fate")]


def _winner(tuning: Row, best: Row, rows: list[Row]) -> Iterator[str]:
    """The flags that won, against those of today, and the whole command line."""
    kind = PREFERS.get(str(tuning.get("prefer")), "")
    rate = prose(figure(number(best.get("score")), "tok/s"))
    if best.get("today") and best.get("why"):
        why = prose(best["why"], 200)
        yield f"**Nothing is decided**: the flags as they are failed again ({why})."
    elif best.get("today"):
        yield f"**The flags as they are win**: {rate} ({kind})."
    else:
        against = _gain(best)
        more = f", {against} against today" if against != "–" else ", not compared with today's"
        yield f"**{code(best['changes'])}**: {rate} ({kind}){more}."
    yield ""
    argv = tuning.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, list) else []
    if words:
        hidden = any(HIDDEN in word for word in words)
        more = f" (a secret is shown as {HIDDEN}: fill it in)" if hidden else ""
        line = block([shlex.join(words)], MAX_LINE)
        yield from (f"The whole command line{more}:", "", *line, "")


def _gain(row: Row) -> str:
    """`+57 % (52 % to 61 %)`, by the starts that were made in turns with today's flags."""
    gain = row.get("gain")
    if not isinstance(gain, dict):
        return "–"
    mean, low, high = (number(gain.get(key)) for key in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return "–"
    return f"{mean:+.1%} ({low:+.1%} to {high:+.1%})".replace("%", " %")


def _count(tuning: Row, rows: list[Row]) -> Iterator[str]:
    tried = sum(row["fate"] != "unfit" for row in rows)
    before = int(number(tuning.get("before")) or 0)
    kept = f", {before} of them known from before" if before else ""
    yield (
        f"{tried} of {tuning.get('size')} combinations were tried{kept}, the best in turns with "
        f"today's flags, which alone decides. It stopped because "
        f"{prose(tuning.get('why') or 'it was ended', 200)}."
    )
    depth = int(number(tuning.get("depth")) or 0)
    after = f" after {depth} tokens of context" if depth else ""
    yield (
        f"Answers had {tuning.get('tokens')} tokens{after}. A point is on the *front* if no other "
        "is at least as good in every column and better in one."
    )
    yield ""


def _cells(row: Row) -> list[str]:
    context = number(row.get("context"))
    marks = [
        word for key, word in (("best", "**best**"), ("today", "today"), ("front", "front"))
        if row.get(key)
    ]  # fmt: skip
    marks += [] if row.get("fits", True) else ["takes too much"]
    return [
        code(row["changes"]), figure(number(row.get("score"))),
        str(row.get("starts") or "–"), _gain(row),
        figure(number(row.get("decode"))), figure(number(row.get("prompt"))),
        figure(number(row.get("vram")), "B"), figure(number(row.get("ram")), "B"),
        figure(context) if context else "–", ", ".join(marks),
    ]  # fmt: skip


def _failed(rows: list[Row]) -> Iterator[str]:
    if not rows:
        return
    counts = Counter(str(row["fate"]) for row in rows)
    tally = ", ".join(f"{count} {FATES.get(fate, fate)}" for fate, count in counts.items())
    yield from (f"{plural(len(rows), 'combination')} that cannot be used: {prose(tally)}.", "")
    reasons = [row for row in rows if row.get("why")]
    yield from table(
        ("flags", "what became of it", "why"),
        [[code(row["changes"]), FATES.get(str(row["fate"]), prose(row["fate"], 40)),
          prose(row["why"], 300)] for row in reasons[:MAX_FAILED]],
    )  # fmt: skip


# what the picture is drawn against, most telling first: key, name, unit, size of one unit
_AXES = (
    ("vram", "GPU memory", "GiB", GIB), ("ram", "RAM", "GiB", GIB),
    ("prompt", "reading a prompt", "tok/s", 1.0),
)  # fmt: skip


def tune_chart(view: RunView, step: str) -> Chart | None:
    """The rate of every measured point against its memory; None for fewer than two points."""
    rows = [row for row in _rows(view.measurement(step).tune) if number(row.get("score"))]
    key, name, unit, size = next(
        (axis for axis in _AXES if sum(number(row.get(axis[0])) is not None for row in rows) > 1),
        _AXES[-1],
    )
    points = [
        ((number(row.get(key)) or 0.0) / size, number(row.get("score")) or 0.0, row)
        for row in rows if number(row.get(key)) is not None
    ]  # fmt: skip
    if len(points) < 2:
        return None
    kind = PREFERS.get(str(view.measurement(step).tune.get("prefer")), "")
    about = f"Each dot is a combination of flags: {kind}, against {name}. The line is the front."
    svg = Svg(WIDTH, HEIGHT, f"tok/s of {step}", about)
    x_high = 1.08 * max(x for x, _, _ in points)
    y_high = 1.08 * max(y for _, y, _ in points)
    panel = Panel(64, 84, WIDTH - 64 - 40, HEIGHT - 84 - 56, x_high, y_high)
    y_axis(svg, panel, "tok/s")
    x_axis(svg, panel, [(value, f"{value:g}") for value in ticks(0, x_high)])
    svg.text(panel.right, panel.bottom + 40, f"{name}, {unit}", at="end", colour=SOFT)
    _front(svg, panel, points)
    svg.dots([(panel.x(x), panel.y(y)) for x, y, _ in points], SOFT, 3.5, 0.5)
    marked = [("today", INK), ("best", COLOURS[1])]
    for word, colour in marked:
        for x, y, row in points:
            if row.get(word):
                _mark(svg, panel, (x, y), word, colour)
    return Chart(file_name("tune", step), f"tok/s of {step} against {name}", str(svg))


def _front(svg: Svg, panel: Panel, points: list[tuple[float, float, Row]]) -> None:
    """Steps along the points than which none to the left is faster."""
    best, line = 0.0, list[tuple[float, float]]()
    for x, y, _ in sorted(points, key=lambda point: (point[0], -point[1])):
        if y > best:
            line += [(panel.x(x), panel.y(best))] if line else []
            line.append((panel.x(x), panel.y(y)))
            best = y
    line.append((panel.right, panel.y(best)))
    svg.path(line, COLOURS[0], 1.6)
    svg.dots(line[:-1:2], COLOURS[0], 4, 1.0)


def _mark(svg: Svg, panel: Panel, at: tuple[float, float], word: str, colour: str) -> None:
    x, y = panel.x(at[0]), panel.y(at[1])
    svg.dots([(x, y)], colour, 5.5, 1.0)
    end = x > panel.right - 120
    up = -10 if word == "best" else 18
    svg.text(x + (-8 if end else 8), y + up, f"{word}: {figure(at[1], 'tok/s')}",
             at="end" if end else "start", colour=colour, bold=True)  # fmt: skip
