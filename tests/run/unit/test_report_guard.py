"""The guard in reports: what was breached, the curve, what was killed, what to do next."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from console.run.guard_curve import limit_in
from console.run.report import Evidence, as_json, markdown
from console.run.report_guard import guard_chart, guard_lines, lowest, window
from console.run.view import RunView
from tests.run.unit.breaches import BREACHES, breached

GIB = 1 << 30


def section(view: RunView) -> str:
    return "\n".join(guard_lines(view, {}))


def test_every_chart_is_well_formed() -> None:
    drawn = {name: guard_chart(made) for name, made in BREACHES.items()}
    for chart in drawn.values():
        if chart is not None:
            ElementTree.fromstring(chart.svg)
    assert {name for name, chart in drawn.items() if chart is None} == {
        "nothing was said", "it only watched", "warnings and a new sentinel", "many warnings",
        "no curve", "no sentinel any more",
    }  # fmt: skip


def test_the_chart_shows_swap_only_where_some_was_used() -> None:
    found = {}
    for name in ("memory ran out", "swap beside RAM"):
        chart = guard_chart(BREACHES[name])
        assert chart is not None
        found[name] = "swap used" in chart.svg
    assert found == {"memory ran out": False, "swap beside RAM": True}


def test_the_link_of_a_chart_stands_in_the_report() -> None:
    chart = guard_chart(breached())
    assert chart is not None
    assert "](report/guard.svg)" in markdown(breached(), Evidence(charts=[chart]), "report")


@pytest.mark.parametrize("found", [None, {}, {"fast": []}, {"fast": [[1, 2]]}, {"fast": [["x"]]}])
def test_without_a_curve_there_is_no_chart(found: object) -> None:
    view = breached(window=found)
    assert guard_chart(view) is None
    assert "## Guard" in section(view)


def test_times_of_another_clock_end_with_the_kill() -> None:
    view = breached(window={"fast": [[1.795e9 + t, GIB, 0, 0] for t in range(3)]})
    assert view.breach is not None
    assert [t for t, *_ in window(view.breach)] == [-2.0, -1.0, 0.0]
    assert lowest(view.breach) == GIB


@pytest.mark.parametrize("limit", [None, {}, {"metric": "x"}, [], {"metric": "host.pressure"}])
def test_a_limit_that_is_none_is_left_out(limit: object) -> None:
    view = breached(limit=limit)
    assert view.breach is not None
    assert limit_in(view.breach.data) is None
    assert "the limit:" not in section(view)


def test_foreign_words_are_no_markdown() -> None:
    view = breached(killed=[{"name": "[x](http://e) <b>", "rung": "`a`"}], reasons=["<i>"])
    assert "[x](http://e)" not in section(view)
    assert " <b>" not in section(view), "escaped"


def test_a_program_reads_all_of_it() -> None:
    (one,) = as_json(breached())["guards"]
    assert (one["kind"], one["cause"], one["killed"][0]["empty_s"]) == ("breach", "guard", 0.22)
