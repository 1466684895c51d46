"""A container baseline that was renamed and serves, while another one has its name and is down."""

from types import SimpleNamespace
from typing import Any

import pytest

from console.checks.doctor import baseline
from console.checks.doctor.facts import Check, Level
from console.common.errors import BaselineNotReady
from console.recovery.rollback import observe
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runner.prepare import baseline as prepared
from console.runtime.spec import ExistingContainer

URL = "http://127.0.0.1:9"
OLD: dict[str, Any] = {"Id": "a" * 64, "Name": "/base-old", "State": {"Running": True}}
NEW: dict[str, Any] = {"Id": "b" * 64, "Name": "/base", "State": {"Status": "exited"}}
RENAMED = "its container is named base-old now, and no longer base"


def found(monkeypatch: pytest.MonkeyPatch, named: dict[str, Any]) -> tuple[Level, str, str]:
    plan = SealedPlan("", "", Baseline("baseline", "container", URL, container_name="base"), "s")
    monkeypatch.setattr(baseline, "_plan", lambda _: plan)
    monkeypatch.setattr(observe, "inspected", lambda *_: OLD)
    engine = SimpleNamespace(inspect=lambda _: named, image_exists=lambda _: True)
    facts: Any = SimpleNamespace(engine=lambda: engine, version=dict)
    site: Any = SimpleNamespace(model=SimpleNamespace(baseline=SimpleNamespace(url=URL)))
    finding = baseline._container(
        facts, Check("baseline.service", "service", baseline.service), "base", site
    )
    return finding.level, finding.detail, finding.hint


def test_doctor_names_the_one_that_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    level, words, hint = found(monkeypatch, NEW)
    assert (level, words) == (Level.WARNING, f"{RENAMED}; no run will start")
    assert hint.startswith("another container has that name, and does not run: write that name")


def test_one_of_the_name_that_runs_is_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    up = NEW | {"State": {"Running": True, "Status": "running"}}
    assert RENAMED not in found(monkeypatch, up)[1]


@pytest.mark.parametrize("named", [NEW, None])
def test_a_plan_that_is_made_now_does_not_take_the_one_that_is_down(
    monkeypatch: pytest.MonkeyPatch, named: dict[str, Any] | None
) -> None:
    """A rollback would start it beside the one that serves, and fail; it is known by its id."""
    known = {"base": named, OLD["Id"]: OLD}
    monkeypatch.setattr(prepared, "inspect", lambda _, ref: known[ref])
    client: Any = SimpleNamespace()
    spec: Any = SimpleNamespace(runs=ExistingContainer("base"), url=URL)
    with pytest.raises(BaselineNotReady, match="was renamed") as refused:
        prepared._container(spec, client, OLD["Id"])
    assert "it is base-old now" in str(refused.value)
