"""A cutover on a site: the relay as a service, and what does not fit."""

from __future__ import annotations

import socket

import pytest

from console.host.process import ProcessSpec
from console.runner import cutover
from console.runtime import proxy
from tests.run.unit.cases import UP
from tests.run.unit.conftest import MakePlan


def cut(more: str = "") -> str:
    return f"{{id: cut, cutover: {{to: cand{more}}}}}"


def test_the_relay_is_a_service_of_the_run(plan: MakePlan) -> None:
    made = plan(UP, cut(", listen: 0.0.0.0"))
    runs = made.services[proxy.NAME].runs
    assert isinstance(runs, ProcessSpec)
    port = proxy.port_of(made.site.model.baseline.url)
    to = proxy.address(made.services["cand"].url)
    assert runs.argv[-3:] == (f"0.0.0.0:{port}", to, "cand")
    assert proxy.NAME not in plan(UP).services


def test_what_does_not_fit_the_site(plan: MakePlan) -> None:
    assert cutover.misfits(plan(UP, cut())) == []
    [port] = cutover.misfits(plan(UP, cut(", port: 9")))
    assert "port 9" in port
    [far] = cutover.misfits(plan(UP, cut(", listen: 192.0.2.7")))
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
        assert len(cutover.narrow(made)) == warned
