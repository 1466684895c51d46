"""Charts: well-formed, the same from the same values, and nothing drawn that was not measured."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.journal.samples import gauges, soak_series
from console.render.report.charts import rolling, thinned, unbroken, window
from console.render.report.document import evidence
from console.render.report.soak import soak_of
from console.render.report.svg import Panel, Svg, seconds_ticks, spread_out, ticks
from tests.ground.harmful import harmful
from tests.run.unit import reported
from tests.run.unit.hostile import BAD, view

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [str(one.text) for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    made = reported.soaked()
    made.header["machine"]["cards"][0]["name"] = BAD
    made.header["targets"][0]["go"] = ">= 20 tok/s"
    run = reported.run_dir(tmp_path, made)
    for chart in evidence(run, made).charts:
        assert [bad for line in texts(chart.svg) for bad in harmful(line)] == []
    for text in (BAD, "</text><script>x</script>", "\ufffe\uffff & < > \"'", "]]>", "\x00"):
        svg = Svg(100, 50, text, text)
        svg.text(1, 2, text)
        root = ElementTree.fromstring(str(svg))
        assert [one.tag for one in root.iter()].count(f"{SVG}text") == 3
        assert f"{SVG}script" not in [one.tag for one in root.iter()]
    assert evidence(run, view(BAD)).charts is not None


def test_torn_and_odd_lines_cost_themselves_only(tmp_path: Path) -> None:
    made = reported.soaked()
    run = reported.run_dir(tmp_path, made)
    known = len(gauges(run))
    with run.gauges.open("a") as file:
        file.write('\n[1]\n{"at": "x"}\n{"at": NaN}\n{"at": 2, "gpu": [], "ram": true}\nx\n')
    assert len(gauges(run)) == known + 1
    path = run.path / "attempts" / "soak.1.soak.jsonl"
    path.write_text('{"t": 1, "ok": true, "tok_s": Infinity}\n{"t": null, "ok": true}\n{"t": 2,')
    series = soak_series(run, soak_of(made, "soak"))
    assert [(r.t, r.tok_s) for r in series.requests] == [(1.0, None)]
    made.soaks["soak"]["file"] = "/etc/passwd"
    assert soak_series(run, soak_of(made, "soak")).requests == []


@given(
    st.floats(-1e6, 1e6), st.floats(1e-3, 1e12), st.integers(2, 12),
)  # fmt: skip
def test_ticks_are_round_inside_and_few(low: float, span: float, most: int) -> None:
    high = low + span
    if high <= low:
        return
    found = ticks(low, high, most)
    slack = (high - low) * 1e-6
    assert len(found) <= most + 1
    assert all(low - slack <= tick <= high + slack for tick in found)
    steps = [b - a for a, b in pairwise(found)]
    if steps:
        mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
        assert min(abs(mantissa - m) for m in (1, 2, 5, 10)) < 1e-3


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_ticks_of_nonsense_are_none(value: float) -> None:
    assert ticks(0, value) in ([0], [])
    assert ticks(value, 1) in ([], [1])


@given(st.floats(0.1, 1e7))
def test_moments_are_in_a_unit_people_count_by(high: float) -> None:
    found = seconds_ticks(high)
    assert 1 <= len(found) <= 9
    assert found[0] == (0.0, "0")
    assert all(t <= high for t, _ in found)
    assert all(label == "0" or re.fullmatch(r"[\d.]+ (s|min|h)", label) for _, label in found)


@given(st.lists(st.floats(0, 100), max_size=8))
def test_labels_keep_apart_and_in_order(wanted: list[float]) -> None:
    placed = spread_out(wanted, 10, 0, 100)
    order = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    for one, two in pairwise(order):
        assert placed[two] - placed[one] >= 10 - 1e-6


def test_a_rolling_median_takes_no_notice_of_one_odd_value() -> None:
    points = [(float(t), 1000.0 if t == 50 else 20.0) for t in range(100)]
    assert {value for _, value in rolling(points, window(len(points)))} == {20.0}


def test_thinning_keeps_every_peak() -> None:
    points = [(float(t), 90.0 if t == 7777 else 1.0) for t in range(20_000)]
    few = thinned(points)
    assert len(few) <= 602
    assert max(few, key=lambda p: p[1]) == (7777.0, 90.0)
    assert few == sorted(few)


def test_a_line_is_broken_where_nothing_was_answered() -> None:
    points = [(float(t), 1.0) for t in (*range(10), *range(40, 50))]
    assert [len(part) for part in unbroken(points, [])] == [10, 10]
    assert [len(part) for part in unbroken(points[:10], [(3.5, 3.6)])] == [4, 6]
    assert unbroken([], []) == []


def test_a_panel_keeps_what_is_outside_at_its_edge() -> None:
    panel = Panel(10, 20, 100, 50, 10, 5)
    assert (panel.x(-5), panel.x(20), panel.y(-1), panel.y(99)) == (10, 110, 70, 20)
    assert Panel(0, 0, 10, 10, 0, 0).x(0) == 0
