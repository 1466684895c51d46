"""The plan: the baseline's outages, restores and measurements are rows of their own."""

from __future__ import annotations

import pytest

from console.errors import InvalidFile
from console.run.plan import Plan, make_plan
from console.run.plan_text import lines
from tests.run.unit.conftest import MakePlan

UP, DOWN = "{id: up, service: {start: cand}}", "{id: down, service: {stop: cand}}"
BENCH = "{id: bench, benchmark: {service: cand, against: baseline}}"
NOTE = "{id: note, note: hi}"


def rows(plan: Plan) -> list[str]:
    """Ids in order; `!` where the baseline is down."""
    return [("!" if step.baseline_down else "") + step.id for step in plan.steps]


def test_no_service_no_outage(plan: MakePlan) -> None:
    made = plan(NOTE)
    assert rows(made) == ["note"]
    assert made.takes_down is False


def test_a_service_beside_the_baseline_is_stopped_at_the_end(plan: MakePlan) -> None:
    made = plan("{id: up, service: {start: beside}}", NOTE)
    assert rows(made) == ["up", "note", "restore"]
    assert made.takes_down is False
    assert "beside" in made.at("restore").effects[0]


def test_a_service_that_is_kept_is_not_stopped(plan: MakePlan) -> None:
    made = plan("{id: up, service: {start: kept}}")
    assert "stop" not in made.at("restore").effects[0]


def test_a_service_that_is_stopped_is_still_looked_for_at_the_end(plan: MakePlan) -> None:
    """A gate or a failure may end the run before the step that stops it."""
    made = plan("{id: up, service: {start: beside}}", "{id: d, service: {stop: beside}}")
    assert rows(made) == ["up", "d", "restore"]


def test_an_exclusive_service_takes_the_baseline_down_first(plan: MakePlan) -> None:
    made = plan(NOTE, UP, "{id: after, note: hi}", restore_s=74.0)
    assert rows(made) == ["note", "!baseline:stop", "!up", "!after", "restore"]
    stop = made.at("baseline:stop")
    assert "1 min 14 s" in stop.effects[0]
    assert (stop.implicit, stop.step, stop.kind) == (True, None, "baseline:stop")
    restore = made.at("restore")
    assert (restore.implicit, restore.takes_s, restore.phase) == (True, 74.0, "Restore")
    assert made.takes_down is True


def test_a_comparison_is_measured_before_the_outage_and_after_the_restore(
    plan: MakePlan,
) -> None:
    assert rows(plan(UP, BENCH)) == [
        "baseline:measure", "!baseline:stop", "!up", "!bench", "restore",
        "baseline:measure-again",
    ]  # fmt: skip


def test_without_an_outage_the_baseline_is_measured_beside_the_candidate(plan: MakePlan) -> None:
    made = plan(
        "{id: up, service: {start: beside}}",
        "{id: b, benchmark: {service: beside, against: baseline}}",
        "{id: c, benchmark: {service: beside, against: baseline}}",
    )
    assert rows(made) == ["up", "baseline:measure", "b", "c", "restore", "baseline:measure-again"]


def test_nothing_is_measured_that_nobody_compares(plan: MakePlan) -> None:
    made = plan(UP, "{id: b, benchmark: {service: cand}}")
    assert rows(made) == ["!baseline:stop", "!up", "!b", "restore"]


def test_stopping_the_candidate_brings_the_baseline_back_at_once(plan: MakePlan) -> None:
    made = plan(UP, DOWN, NOTE, restore_s=5.0)
    shown = ["!baseline:stop", "!up", "!down", "baseline:restore-1", "note", "restore"]
    assert rows(made) == shown
    assert made.at("baseline:restore-1").kind == "restore"


def test_several_outages(plan: MakePlan) -> None:
    made = plan(
        UP, BENCH, DOWN, NOTE,
        "{id: up2, service: {start: other}}", "{id: down2, service: {stop: other}}",
        "{id: up3, service: {start: cand}}",
    )  # fmt: skip
    assert rows(made) == [
        "baseline:measure", "!baseline:stop", "!up", "!bench", "!down", "baseline:restore-1",
        "note", "!baseline:stop-2", "!up2", "!down2", "baseline:restore-2",
        "!baseline:stop-3", "!up3", "restore", "baseline:measure-again",
    ]  # fmt: skip
    assert {s.kind for s in made.steps if s.id.startswith("baseline:stop")} == {"baseline:stop"}
    assert len({s.id for s in made.steps}) == len(made.steps)


def test_an_exclusive_service_of_the_site_counts_too(plan: MakePlan) -> None:
    assert rows(plan("{id: up, service: {start: big}}")) == ["!baseline:stop", "!up", "restore"]


def test_waiting_for_a_service_takes_nothing_down(plan: MakePlan) -> None:
    assert rows(plan("{id: w, service: {wait: cand}}")) == ["w"]


def test_a_step_that_is_not_applicable_takes_nothing_down(plan: MakePlan) -> None:
    made = plan("{id: up, when: false, service: {start: cand}}", NOTE)
    assert rows(made) == ["up", "note"]


def test_finally_comes_last_and_the_baseline_is_back_by_then(plan: MakePlan) -> None:
    made = plan(UP, BENCH, final="{id: report, report: {}}")
    assert rows(made)[-3:] == ["restore", "baseline:measure-again", "report"]
    assert (made.at("report").final, made.at("report").phase) == (True, "Finally")


def test_every_step_has_a_finite_limit(plan: MakePlan) -> None:
    made = plan(UP, BENCH, NOTE, "{id: g, gate: [{metric: bench.tok_s, go: '>= 20'}]}")
    assert all(0 < step.limit_s < 7 * 86400 for step in made.steps)


def test_a_start_may_take_as_long_as_the_service_may(plan: MakePlan) -> None:
    assert plan("{id: up, service: {start: box}}").at("up").limit_s == 7260.0


def test_titles(plan: MakePlan) -> None:
    titles = {
        "note: ''": "", "note: first": "first", 'note: "\\n first\\nsecond"': "first",
        "approval: {prompt: ''}": "", "manual: {do: ''}": "", "run: [a, b c]": "a 'b c'",
        f"run: [{'x' * 100}]": "x" * 70, "title: Mine, note: x": "Mine",
        "service: {wait: cand}": "wait cand", "build: {context: x, tag: y}": "Build an image",
    }  # fmt: skip
    assert {step: plan(f"{{id: s, {step}}}").at("s").title for step in titles} == titles


def test_what_is_printed_is_clean(plan: MakePlan) -> None:
    made = plan('{id: s, title: "\\e[31mred\\u202e", run: [echo, "\\e]52;c;x\\a", "a\\nb"]}')
    assert [line for line in lines(made) if not all(c.isprintable() for c in line)] == []


@pytest.mark.parametrize("taken", ["omni-box", "mine"])
def test_a_container_that_is_never_stopped_is_no_candidate(plan: MakePlan, taken: str) -> None:
    made = plan(NOTE)
    site, book = made.site, made.playbook
    site.model.protected.append(taken)
    if taken == "mine":
        assert make_plan(book, site).steps == made.steps
        return
    with pytest.raises(InvalidFile) as caught:
        make_plan(book, site)
    (problem,) = caught.value.problems
    assert book.text.splitlines()[problem.line - 1] == "  box:"
    assert "omni-box" in problem.what
