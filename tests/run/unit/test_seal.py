"""What is sealed before step 1: protected containers by name and by the id they have now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import EngineError
from console.recovery.rollback import sealed_plan as sealed
from console.runner.prepare import seal
from console.runner.prepare.seal import sealed_plan
from console.runtime.docker import client
from console.runtime.engine_api import NoSuchContainer
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import BASE, META, Bench

ID = "ab" * 32


class Engine:
    """An engine that knows one container."""

    up = True

    def __init__(self, path: str) -> None:
        assert path

    def inspect(self, name: str) -> dict[str, Any]:
        if not self.up:
            raise EngineError("away")
        if name != "qdrant":
            raise NoSuchContainer(name)
        return {"Id": ID}


@pytest.mark.parametrize("up", [True, False])
def test_protected_containers_are_sealed_with_their_ids(
    plan: MakePlan, monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    monkeypatch.setattr(seal, "RawEngine", Engine)
    monkeypatch.setattr(Engine, "up", up)
    made = plan("{id: n, note: x}")
    made.site.model.protected.extend(["gone", "qdrant"])
    ids = (ID,) if up else ()
    assert sealed_plan(made.site, BASE, made).protected == ("gone", "qdrant", *ids)
    assert sealed_plan(made.site, BASE).protected == ("gone", "qdrant"), "no run: nobody is asked"


def test_the_lease_is_sealed(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The warm ladder counts it where nobody else is left."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    bench = Bench(tmp_path, plan("{id: n, note: x}"), monkeypatch)
    bench.context.meta = replace(META, lease_s=90.0)
    seal.seal(bench.context, BASE)
    assert sealed.read(bench.context.run.sealed).lease_s == 90.0
    bench.close()


@pytest.mark.parametrize("rehearsed", [False, True])
def test_the_newest_script_of_a_site_has_a_path_that_can_be_typed(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch, rehearsed: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    bench = Bench(tmp_path, plan("{id: n, note: x}"), monkeypatch)
    bench.context.rehearsal = {"fault": "x"} if rehearsed else {}
    made = seal.seal(bench.context, BASE)
    path = tmp_path / "omni-console" / "rollback" / f"{made.site_name}.sh"
    assert path.exists() is not rehearsed
    if not rehearsed:
        assert path.read_text() == bench.context.run.script.read_text()
        assert path.stat().st_mode & 0o777 == 0o755
    bench.close()


def test_the_grace_is_the_longest_of_the_services(plan: MakePlan) -> None:
    made = plan("{id: n, note: x}")
    known = next(iter(made.services.values()))
    for asked, grace in (([1.0], 1.0), ([1.0, 20.0], 20.0), ([], 10.0)):
        services = {f"s{n}": replace(known, grace_s=g) for n, g in enumerate(asked)}
        assert sealed_plan(made.site, BASE, replace(made, services=services)).grace_s == grace


@pytest.mark.parametrize("known_by", ["socket", "DOCKER_HOST", "site", ""])
@pytest.mark.parametrize("run", [True, False])
def test_an_engine_that_is_known_is_sealed(
    tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch, known_by: str, run: bool
) -> None:
    """Baseline and candidates are processes: a step, or an earlier run, may leave a container."""
    path = tmp_path / "engine.sock"
    monkeypatch.setattr(client, "DEFAULT_HOST", f"unix://{path}")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    made = replace(plan("{id: imp, imports: {image: img, modules: [json]}}"), services={})
    if known_by == "socket":
        path.touch()
    elif known_by == "DOCKER_HOST":
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    elif known_by == "site":
        host = made.site.model.engine.model_copy(update={"host": f"unix://{path}"})
        monkeypatch.setitem(made.site.model.__dict__, "engine", host)
    expected = str(path) if known_by else ""
    base = replace(BASE, kind="process")
    assert sealed_plan(made.site, base, made if run else None).engine.socket == expected
