"""The guard in reports: what was breached, the curve, what was killed, what to do next."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from console.journal.store import Event
from console.run.guard_curve import limit_in
from console.run.report import Evidence, as_json, markdown
from console.run.report_guard import guard_chart, guard_lines, lowest, window
from console.run.report_lessons import lessons
from console.run.report_next import next_steps
from console.run.view import RunView, fold

GIB = 1 << 30
AT = 1_790_000_000.0
BREACH: dict[str, Any] = {
    "at": AT, "cause": "guard",
    "reasons": ["RAM available 1.9 GiB, limit 2.0 GiB", "full in 2.1 s"],
    "limit": {"metric": "host.ram_available", "below": 2 * GIB, "source": "playbook, line 6"},
    "killed": [{"name": "cand", "kind": "process", "rung": "SIGKILL", "write_s": 0.018,
                "empty_s": 0.22}],
    "curve": {"metric": "host.ram_available", "of": "", "column": 1}, "gap_s": 0.25,
    "window": {"fast": [[AT - 90 + t, (20 - 0.2 * min(t, 90)) * GIB, 0, 0.0] for t in range(95)]},
}  # fmt: skip
WORDS = "RAM available 1.9 GiB, limit 2.0 GiB"


def run(*guards: dict[str, Any], state: str = "rolled_back", restore: bool = True) -> RunView:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("run.created", {"run_id": "r-1", "title": "The [trial]", "steps": []}),
        ("outage", {"down": True}),
        *(("guard", one) for one in guards),
    ]
    if restore:
        rows.append(("outage", {"down": False, "restore_s": 7.4}))
    rows.append(("run.state", {"state": "running"}))
    rows.append(("run.state", {"state": state, "reason": "guard"}))
    return fold(Event(n + 1, AT + n, kind, "", 0, data) for n, (kind, data) in enumerate(rows))


def breached(**changes: Any) -> RunView:
    return run({"kind": "breach", "words": WORDS, **BREACH, **changes})


def section(view: RunView) -> str:
    return "\n".join(guard_lines(view, {}))


def test_a_run_whose_guard_said_nothing_has_no_section() -> None:
    assert section(run()) == ""
    assert section(run({"kind": "watching", "words": "x"})) == ""
    assert guard_chart(run()) is None


def test_what_happened_is_said_in_order() -> None:
    text = section(breached())
    told = [
        "## Guard", "**The guard stopped the load** at", WORDS, "- full in 2.1 s",
        "- the limit: RAM available below 2.0 GiB: kills the load, rolls back (playbook, line 6)",
        "- killed cand (process) by SIGKILL 18 ms after the sample that showed it, gone after 220",
        "- nobody had looked for 0.25 s before the sample that showed it",
        "- the least RAM available that was seen: 2.0 GiB",
        "- the baseline served again 7.40 s after its restore began",
    ]  # fmt: skip
    places = [text.find(one) for one in told]
    assert -1 not in places, text
    assert places == sorted(places)
    assert text.count(WORDS) == 1


def test_memory_that_did_not_come_back_is_said() -> None:
    words = "1.0 GiB of what was there before is still missing: 3.0 GiB of RAM available"
    view = breached()
    assert "missing" not in section(view)
    line = {"rung": "memory", "state": "failed", "detail": words}
    view.rungs += [{"rung": "memory", "state": "begin"}, line]
    assert f"- {words}" in section(view).splitlines()


def test_warnings_and_a_new_sentinel_are_a_table() -> None:
    text = section(run({"kind": "warn", "words": "full in 28 s | soon"},
                       {"kind": "restarted", "words": "it was gone"}))  # fmt: skip
    assert "| WARNS |" in text
    assert "| NEW |" in text
    assert "stopped the load" not in text


def test_many_warnings_are_cut() -> None:
    text = section(run(*({"kind": "warn", "words": f"w{n}"} for n in range(100))))
    assert "60 more of these are in the journal." in text


def test_a_lease_is_no_load_that_was_stopped() -> None:
    view = breached(cause="lease", limit={}, killed=[])
    assert "**The lease ran out** at" in section(view)
    assert any("--lease" in line for line in next_steps(view))
    assert lessons(view) == []


def test_an_outage_that_lasts_is_said() -> None:
    view = run({"kind": "breach", "words": WORDS, **BREACH}, state="rollback_failed", restore=False)
    assert "the baseline does not serve yet" in section(view)


def test_the_chart_has_curve_limit_and_kill() -> None:
    chart = guard_chart(breached())
    assert chart is not None
    ElementTree.fromstring(chart.svg)
    assert "limit 2.0 GiB" in chart.svg
    assert ">kill<" in chart.svg
    assert "swap used" not in chart.svg, "none was used"
    assert chart.about.endswith("RAM available fell to 2.0 GiB in 1 min 30 s")
    assert "![" in markdown(breached(), Evidence(charts=[chart]), "report")


def test_the_chart_shows_swap_where_some_was_used() -> None:
    rows = [[AT - 9 + t, 8 * GIB, t * GIB, None] for t in range(10)]
    chart = guard_chart(breached(window={"fast": rows}))
    assert chart is not None
    assert "swap used" in chart.svg


@pytest.mark.parametrize("found", [None, {}, {"fast": []}, {"fast": [[1, 2]]}, {"fast": [["x"]]}])
def test_without_a_curve_there_is_no_chart(found: object) -> None:
    view = breached(window=found)
    assert guard_chart(view) is None
    assert "## Guard" in section(view)


def test_the_service_that_was_the_cause_is_drawn() -> None:
    limit = {"metric": "service.ram_used", "above": 4 * GIB, "of": "cand", "source": "x"}
    points = [[AT - 3 + t, t * 2 * GIB] for t in range(4)]
    curve = {"metric": "service.ram_used", "of": "cand", "points": points}
    killed = [{**BREACH["killed"][0], "held": {"ram": 6.0 * GIB, "swap": 0, "age_s": 0.02}}]
    view = breached(limit=limit, curve=curve, killed=killed)
    chart = guard_chart(view)
    assert chart is not None
    assert chart.about == "Memory before the guard acted: RAM of cand rose to 6.0 GiB"
    assert "limit 4.0 GiB" in chart.svg
    assert "RAM available" not in chart.svg
    assert "cand (process), held 6.0 GiB, by SIGKILL 18 ms after" in section(view)
    without = guard_chart(breached(limit=limit, curve={}))
    assert without is not None
    assert "RAM available" in without.svg
    assert "limit" not in without.about


def test_swap_is_drawn_with_its_limit_where_it_crossed() -> None:
    rows = [[AT - 9 + t, 8 * GIB, t * GIB, None] for t in range(10)]
    limit = {"metric": "host.swap_growth", "above": 5 * GIB}
    curve = {"metric": "host.swap_growth", "of": "", "column": 2}
    chart = guard_chart(breached(limit=limit, curve=curve, value=6 * GIB, window={"fast": rows}))
    assert chart is not None
    assert chart.about.endswith("swap used rose to 9.0 GiB")
    assert "limit 8.0 GiB" in chart.svg, "9 GiB are used, 6 of them since: 5 lie at 8"
    assert "RAM available" not in chart.svg


def test_pressure_and_lines_of_a_log_are_no_bytes() -> None:
    rows = [[AT - 9 + t, 8 * GIB, 0, t * 5.0] for t in range(10)]
    limit = {"metric": "host.pressure", "above": 30.0}
    curve = {"metric": "host.pressure", "of": "", "column": 3}
    chart = guard_chart(breached(limit=limit, curve=curve, window={"fast": rows}))
    assert chart is not None
    ElementTree.fromstring(chart.svg)
    assert chart.about.endswith("all tasks waiting for memory rose to 45 %")
    assert "limit 30 %" in chart.svg
    limit = {"log": "cand", "matches": "CUDA", "count": 3}
    curve = {"log": "cand", "of": "cand", "points": [[AT - 2, 0], [AT - 1, 2]]}
    chart = guard_chart(breached(limit=limit, curve=curve, value=3))
    assert chart is not None
    assert chart.about.endswith("lines in the log of cand rose to 3")
    assert "limit 3<" in chart.svg


def test_times_of_another_clock_end_with_the_kill() -> None:
    view = breached(window={"fast": [[AT + 5e6 + t, GIB, 0, 0] for t in range(3)]})
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


def test_the_hint_comes_first_and_the_lesson_names_the_cause() -> None:
    view = breached()
    assert next_steps(view)[0].startswith("The guard stopped the load: RAM available 1.9 GiB")
    (lesson,) = lessons(view)
    assert "the guard killed cand and the baseline came back" in lesson
    assert "Least RAM available: 2.0 GiB." in lesson


def test_what_the_guard_stopped_is_not_to_be_run_again_as_it_is() -> None:
    assert not any("run the playbook again when" in line for line in next_steps(breached()))
    stopped = run(state="rolled_back")
    assert any("run the playbook again when" in line for line in next_steps(stopped))


def test_a_program_reads_all_of_it() -> None:
    (one,) = as_json(breached())["guards"]
    assert (one["kind"], one["cause"], one["killed"][0]["empty_s"]) == ("breach", "guard", 0.22)
