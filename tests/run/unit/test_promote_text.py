"""What a person is told to change: it has to be what the site file takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config.site.site import load_site
from console.host.process import ProcessSpec
from console.journal.run_view import RunView
from console.runner.promote import measured, on_port
from console.runtime.spec import ComposeSpec, Runs
from tests.run.unit.cases import PROMOTED, promoted

URL = "http://127.0.0.1:8000"


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


@pytest.mark.parametrize("runs", [PROMOTED[0], PROMOTED[2], PROMOTED[4]])
def test_the_lines_are_a_site_file(tmp_path: Path, runs: Runs) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("schema: omni.site/v1\nname: ws\n" + "\n".join(promoted(runs)[0]) + "\n")
    made = load_site(file)
    base = made.model.baseline
    assert (base.url, base.ready.http, base.ready.timeout) == (URL, "/ready", 90.0)
    assert base.reference is not None
    assert base.reference.tok_s == 2.0
    found = made.baseline_spec().runs
    if isinstance(runs, ProcessSpec):
        argv = tuple("8000" if word == "8001" else word for word in runs.argv)
        assert found == ProcessSpec(argv, runs.env, runs.cwd)
    elif isinstance(runs, ComposeSpec):
        assert found == runs
    else:
        assert base.container == "ik-baseline"


def test_another_services_figures_are_not_its_own() -> None:
    rate = {"bench": {"tok_s": {"value": 20.4}}}
    view = RunView("r1", benchmarks={"bench": {"service": "other"}}, metrics=rate)
    assert measured("ik", view) is None
    assert measured("other", view) == 20.4
