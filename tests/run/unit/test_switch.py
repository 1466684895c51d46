"""A cutover on a site: its rows in the plan, the relay as a service, what does not fit."""

from __future__ import annotations

import socket

import pytest

from console.run import switch
from console.run.plan import Plan
from console.services import relay
from console.services.base import ProcessSpec
from tests.run.unit.conftest import MakePlan

UP = "{id: up, service: {start: cand}}"
SIDE = "{id: up, service: {start: beside}}"


def cut(more: str = "", to: str = "cand") -> str:
    return f"{{id: cut, cutover: {{to: {to}{more}}}}}"


def rows(plan: Plan) -> list[str]:
    return [("!" if step.baseline_down else "") + step.id for step in plan.steps]


def test_the_way_back_is_a_row_and_ends_the_outage(plan: MakePlan) -> None:
    made = plan(UP, cut(), "{id: note, note: x}")
    assert rows(made) == ["!baseline:stop", "!up", "!cut", "baseline:restore-1", "note", "restore"]


def test_a_candidate_beside_the_baseline_stops_it_at_the_cutover(plan: MakePlan) -> None:
    made = plan(SIDE, cut(to="beside"))
    assert rows(made) == ["up", "!baseline:stop", "!cut", "baseline:restore-1", "restore"]


def test_one_that_stays_keeps_the_outage_and_says_so(plan: MakePlan) -> None:
    made = plan(UP, cut(", then: stay"), "{id: note, note: x}")
    assert rows(made) == ["!baseline:stop", "!up", "!cut", "!note", "restore"]


def test_the_relay_is_a_service_of_the_run(plan: MakePlan) -> None:
    made = plan(UP, cut(", listen: 0.0.0.0"))
    runs = made.services[relay.NAME].runs
    assert isinstance(runs, ProcessSpec)
    port = relay.port_of(made.site.model.baseline.url)
    to = relay.address(made.services["cand"].url)
    assert runs.argv[-3:] == (f"0.0.0.0:{port}", to, "cand")
    assert relay.NAME not in plan(UP).services


def test_what_does_not_fit_the_site(plan: MakePlan) -> None:
    assert switch.misfits(plan(UP, cut())) == []
    [port] = switch.misfits(plan(UP, cut(", port: 9")))
    assert "port 9" in port
    [far] = switch.misfits(plan(UP, cut(", listen: 192.0.2.7")))
    assert "192.0.2.7" in far


@pytest.mark.parametrize(
    ("host", "listen", "warned"), [("0.0.0.0", "", 1), ("127.0.0.1", "", 0), ("0.0.0.0", "::", 0)]
)
def test_clients_of_other_machines_are_thought_of(
    plan: MakePlan, host: str, listen: str, warned: int
) -> None:
    with socket.create_server((host, 0)) as baseline:
        port = baseline.getsockname()[1]
        made = plan(UP, cut(f', listen: "{listen}"' if listen else ""))
        there = made.site.model.baseline.model_copy(update={"url": f"http://127.0.0.1:{port}"})
        made.site.model = made.site.model.model_copy(update={"baseline": there})
        assert len(switch.narrow(made)) == warned
