"""What a person is told to change: it has to be what the site file takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.run.promote_text import measured, on_port, site_lines
from console.run.view import RunView
from console.services.base import (
    ComposeSpec,
    ContainerSpec,
    ProcessSpec,
    Ready,
    Runs,
    ServiceSpec,
)
from console.site.load import load_site

URL = "http://127.0.0.1:8000"


def spec(runs: Runs) -> ServiceSpec:
    return ServiceSpec("ik", "http://127.0.0.1:8001", runs, Ready("/ready", 90.0))


def view(rate: float | None = 20.4) -> RunView:
    found = RunView(run_id="r1")
    if rate is not None:
        found.benchmarks["bench"] = {"service": "ik"}
        found.metrics["bench"] = {"tok_s": {"value": rate}}
    return found


@pytest.mark.parametrize(
    "runs",
    [
        ProcessSpec(("serve", "--port", "8001", "-m", 'a "b"'), (("K", "v"),), "/opt/ik"),
        ContainerSpec("ik:sm120", ("--x",)),
        ComposeSpec((Path("/s/omni-stack.yaml"),), "ik", ("phase2",), "omni"),
    ],
)
def test_the_lines_are_a_site_file(tmp_path: Path, runs: Runs) -> None:
    file = tmp_path / "site.yaml"
    head = "schema: omni.site/v1\nname: ws\n"
    file.write_text(head + "\n".join(site_lines(spec(runs), URL, view())) + "\n")
    made = load_site(file)
    base = made.model.baseline
    assert (base.url, base.ready.http, base.ready.timeout) == (URL, "/ready", 90.0)
    assert base.reference is not None
    assert base.reference.tok_s == 20.4
    found = made.baseline_spec().runs
    if isinstance(runs, ProcessSpec):
        argv = tuple("8000" if word == "8001" else word for word in runs.argv)
        assert found == ProcessSpec(argv, runs.env, runs.cwd)
    if isinstance(runs, ComposeSpec):
        assert found == runs
    if isinstance(runs, ContainerSpec):
        assert base.container == "ik-baseline"


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (("s", "--port", "8001"), ("s", "--port", "8000")),
        (("s", "--port=8001"), ("s", "--port=8000")),
        (("s", "0.0.0.0:8001"), ("s", "0.0.0.0:8000")),
        (("s", "--seed", "18001", "80011"), None),
    ],
)
def test_a_port_in_an_argv(argv: tuple[str, ...], found: tuple[str, ...] | None) -> None:
    assert on_port(argv, 8001, 8000) == (found or argv, found is not None)


def test_another_services_figures_are_not_its_own() -> None:
    found = view()
    found.benchmarks["bench"] = {"service": "other"}
    assert measured("ik", found) is None
