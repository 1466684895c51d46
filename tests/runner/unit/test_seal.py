"""Before step 1: what is sealed, protected containers by name and by the id they have now; and
blockers, which are lessons that are named, still block, and bear on a step that acts."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from console.checks.lint.unit import Severity
from console.common import paths
from console.common.errors import EngineError
from console.recovery.rollback import sealed_plan as sealed
from console.runner.prepare import seal
from console.runner.prepare.admission import blocker_findings, blockers
from console.runner.prepare.plan import Plan
from console.runner.prepare.plan_text import as_json, lines
from console.runner.prepare.seal import sealed_plan
from console.runtime import engine_address
from console.runtime.engine_api import NoSuchContainer
from tests.runner.unit.conftest import BASE, META, Bench, MakePlan

ID = "ab" * 32


@pytest.mark.parametrize("up", [True, False])
def test_protected_containers_are_sealed_with_their_ids(
    plan: MakePlan, monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    engine = Mock()
    engine.return_value.inspect.side_effect = (
        [NoSuchContainer("gone"), {"Id": ID}] if up else EngineError("away")
    )
    monkeypatch.setattr(seal, "RawEngine", engine)
    made = plan("{id: n, note: x}")
    made.site.model.protected.extend(["gone", "qdrant"])
    ids = (ID,) if up else ()
    assert sealed_plan(made.site, BASE, made).protected == ("gone", "qdrant", *ids)
    assert sealed_plan(made.site, BASE).protected == ("gone", "qdrant"), "no run: nobody is asked"


@pytest.mark.parametrize("rehearsed", [False, True])
def test_the_newest_script_of_a_site_has_a_path_that_can_be_typed(
    bench: Bench, rehearsed: bool
) -> None:
    bench.context.rehearsal = {"fault": "x"} if rehearsed else {}
    bench.context.meta = replace(META, lease_s=90.0)
    made = seal.seal(bench.context, BASE)
    assert sealed.read(bench.context.run.sealed).lease_s == 90.0, "the warm ladder counts it"
    path = paths.state_dir() / "rollback" / f"{made.site_name}.sh"
    assert path.exists() is not rehearsed
    if not rehearsed:
        run = bench.context.run
        others = path.with_name(f"{made.site_name}.without-python.sh"), run.without_python
        for typed, own in ((path, run.script), others):
            assert typed.read_text().replace(str(others[0]), str(others[1])) == own.read_text()
            assert typed.stat().st_mode & 0o777 == 0o700


def test_the_grace_is_the_longest_of_the_services(plan: MakePlan) -> None:
    made = plan("{id: n, note: x}")
    known = next(iter(made.services.values()))
    for asked, grace in (([1.0], 1.0), ([1.0, 20.0], 20.0), ([], 10.0)):
        services = {f"s{n}": replace(known, grace_s=g) for n, g in enumerate(asked)}
        assert sealed_plan(made.site, BASE, replace(made, services=services)).grace_s == grace


@pytest.mark.parametrize("known_by", ["socket", "DOCKER_HOST", "site", ""])
def test_an_engine_that_is_known_is_sealed(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch, known_by: str
) -> None:
    """Baseline and candidates are processes: a step, or an earlier run, may leave a container."""
    path = tmp_path / "engine.sock"
    monkeypatch.setattr(engine_address, "DEFAULT_HOST", f"unix://{path}")
    monkeypatch.setattr(engine_address, "DEFAULT_SOCKET", str(path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    made = replace(plan("{id: imp, imports: {image: img, modules: [json]}}"), services={})
    if known_by == "socket":
        path.touch()
    elif known_by == "DOCKER_HOST":
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    elif known_by == "site":
        host = made.site.model.engine.model_copy(update={"host": f"unix://{path}"})
        monkeypatch.setitem(made.site.model.__dict__, "engine", host)
    base = replace(BASE, kind="process")
    assert sealed_plan(made.site, base, made).engine.socket == (str(path) if known_by else "")


def test_a_service_that_no_step_names_is_no_candidate(plan: MakePlan) -> None:
    """A playbook with an image as the alternative to a program needs no engine for the program."""
    made = plan("{id: up, service: {start: cand}}", "{id: no, when: false, service: {start: box}}")
    kinds = [one.kind for one in sealed_plan(made.site, BASE, made).candidates]
    assert kinds == ["process", "process"]
    both = plan("{id: up, service: {start: cand}}", "{id: too, service: {start: box}}")
    kinds = [one.kind for one in sealed_plan(both.site, BASE, both).candidates]
    assert kinds == ["process", "process", "container"]


GRAPH = "{id: bench, timeout: 1h, run: [llama-bench, --split-mode, graph]}"


def naming(made: Plan, *lessons: str) -> Plan:
    """The plan as if the playbook named these."""
    book = made.playbook
    text = f"{book.text}lessons: [{', '.join(lessons)}]\n"
    model = book.model.model_copy(update={"lessons": list(lessons)})
    return replace(made, playbook=replace(book, model=model, text=text))


def test_named_blocking_and_gone_into(plan: MakePlan) -> None:
    made = naming(plan(GRAPH), "S-003", "F-024")
    assert [one.lesson.id for one in blockers(made)] == ["F-024"]
    (one,) = blocker_findings(made)
    assert (one.rule, one.severity, one.lessons) == ("known-blocker", Severity.ERROR, ("F-024",))
    assert made.playbook.text.splitlines()[one.line - 1][one.column - 1 :].startswith("F-024")
    assert "step bench" in one.what
    assert len([line for line in lines(made) if one.what in line]) == 1
    assert as_json(made)["blockers"] == [one.what]


def test_what_is_not_asked_about(plan: MakePlan) -> None:
    for step, lessons, borne in (
        ("{id: n, run: [llama-bench, -sm, layer]}", ["F-024"], False),
        (GRAPH, [], True),
        ("{id: clone, run: [git, clone, --depth, 1, x]}", ["F-013"], True),  # settled
        # a step that looks is what a lesson asks for
        ("{id: chain, imports: {image: x, modules: [a]}}", ["F-018"], True),
        (GRAPH, ["F-999"], True),  # it has gone
    ):
        made = naming(plan(step), *lessons)
        assert (bool(made.steps[0].lessons), list(blockers(made))) == (borne, []), step


@pytest.mark.parametrize("rest", ["symptom: x\ncause: y\n", "no lesson"])
def test_a_lesson_of_ones_own_lifts_it(plan: MakePlan, tmp_path: Path, rest: str) -> None:
    own = tmp_path / "CONFIG/omni-console/lessons"
    own.mkdir(parents=True)
    (own / "F-024.yaml").write_text(
        "schema: omni.lesson/v1\nid: F-024\ntitle: it does now\ndate: 2026-11-01\n"
        f"status: resolved\n{rest}"
    )
    assert list(blockers(naming(plan(GRAPH), "F-024"))) == []
