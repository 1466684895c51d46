"""The plan: the baseline's outages, restores and measurements are rows of their own.

What each row says it does is in test_words.
"""

from __future__ import annotations

import pytest

from console.common.errors import InvalidFile
from console.runner.prepare.plan import make_plan
from console.runner.prepare.plan_text import lines
from tests.run.unit.cases import BENCH, BESIDE, DOWN, NOTE, UP
from tests.run.unit.conftest import MakePlan

AGAIN = "{id: bench2, benchmark: {service: cand, against: baseline}}"
ROWS = {
    (NOTE,): "note",
    (BESIDE, NOTE): "up note restore",
    ("{id: up, service: {start: kept}}",): "up restore",
    # a gate or a failure may end the run before the step that stops it
    (BESIDE, "{id: d, service: {stop: beside}}"): "up d restore",
    (NOTE, UP, "{id: z, note: hi}"): "note !baseline:stop !up !z restore",
    ("{id: up, service: {start: big}}",): "!baseline:stop !up restore",
    ("{id: w, service: {wait: cand}}",): "w",
    ("{id: up, when: false, service: {start: cand}}", NOTE): "up note",
    (UP, "{id: b, benchmark: {service: cand}}"): "!baseline:stop !up !b restore",
    (UP, BENCH, AGAIN): (
        "baseline:measure !baseline:stop !up !bench !bench2 restore baseline:measure-again"
    ),
    (BESIDE, BENCH, AGAIN): "up baseline:measure bench bench2 restore baseline:measure-again",
    (UP, DOWN, NOTE): "!baseline:stop !up !down baseline:restore-1 note restore",
    (
        *(UP, BENCH, DOWN, NOTE, "{id: up2, service: {start: other}}"),
        *("{id: down2, service: {stop: other}}", "{id: up3, service: {start: cand}}"),
    ): (
        "baseline:measure !baseline:stop !up !bench !down baseline:restore-1 "
        "note !baseline:stop-2 !up2 !down2 baseline:restore-2 "
        "!baseline:stop-3 !up3 restore baseline:measure-again"
    ),
    (UP, "{id: cut, cutover: {to: cand}}", NOTE): (
        "!baseline:stop !up !cut baseline:restore-1 note restore"
    ),
    (BESIDE, "{id: cut, cutover: {to: beside}}"): (
        "up !baseline:stop !cut baseline:restore-1 restore"
    ),
    (UP, "{id: cut, cutover: {to: cand, then: stay}}", NOTE): (
        "!baseline:stop !up !cut !note restore"
    ),
}
"""Ids in order; `!` where the baseline is down."""


@pytest.mark.parametrize("steps", ROWS, ids=range(len(ROWS)))
def test_rows(plan: MakePlan, steps: tuple[str, ...]) -> None:
    made = plan(*steps)
    rows = [("!" if step.baseline_down else "") + step.id for step in made.steps]
    assert " ".join(rows) == ROWS[steps]
    assert made.takes_down is ("!" in ROWS[steps])
    for step in made.steps:
        if step.id.startswith("baseline:"):
            name = step.id.partition("-")[0]
            assert step.kind == ("restore" if name == "baseline:restore" else name)


def test_rows_of_the_plan_s_own(plan: MakePlan) -> None:
    made = plan(UP, BENCH, final="{id: report, report: {}}", restore_s=74.0)
    assert [step.id for step in made.steps][-3:] == ["restore", "baseline:measure-again", "report"]
    assert (made.at("report").final, made.at("report").phase) == (True, "Finally")
    stop, restore = made.at("baseline:stop"), made.at("restore")
    assert (stop.implicit, stop.step, stop.kind) == (True, None, "baseline:stop")
    assert (restore.implicit, restore.takes_s, restore.phase) == (True, 74.0, "Restore")


def test_every_step_has_a_finite_limit(plan: MakePlan) -> None:
    made = plan(UP, BENCH, NOTE, "{id: g, gate: [{metric: bench.tok_s, go: '>= 20'}]}")
    assert all(0 < step.limit_s < 7 * 86400 for step in made.steps)
    assert plan("{id: up, service: {start: box}}").at("up").limit_s == 7260.0, "as the service may"


def test_titles(plan: MakePlan) -> None:
    titles = {
        "note: ''": "",
        'note: "\\n first\\nsecond"': "first",
        "run: [a, b c]": "a 'b c'",
        f"run: [{'x' * 100}]": "x" * 70,
        "title: Mine, note: x": "Mine",
        "service: {wait: cand}": "wait cand",
        "build: {context: x, tag: y}": "Build an image",
    }
    assert {step: plan(f"{{id: s, {step}}}").at("s").title for step in titles} == titles


def test_what_is_printed_is_clean(plan: MakePlan) -> None:
    made = plan('{id: s, title: "\\e[31mred\\u202e", run: [echo, "\\e]52;c;x\\a", "a\\nb"]}')
    assert [line for line in lines(made) if not all(c.isprintable() for c in line)] == []


def test_a_container_that_is_never_stopped_is_no_candidate(plan: MakePlan) -> None:
    made = plan(NOTE)
    site, book = made.site, made.playbook
    site.model.protected.append("mine")
    assert make_plan(book, site).steps == made.steps
    site.model.protected.append("omni-box")
    with pytest.raises(InvalidFile) as caught:
        make_plan(book, site)
    (problem,) = caught.value.problems
    assert book.text.splitlines()[problem.line - 1] == "  box:"
    assert "omni-box" in problem.what
