"""Worlds that earlier versions left, each test its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from console import cli
from tests.compat.world import VERSIONS, Past
from tests.runner.world import Outcome

Read = Callable[..., Outcome]


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """The day of the version that left the worlds of a test."""
    return str(request.param)


@pytest.fixture
def trials(tmp_path: Path, version: str) -> Iterator[Past]:
    """A run that ended with GO, one that the guard ended, and one whose outage a reboot met."""
    with closing(Past(tmp_path / "trials", version, "trials")) as past:
        yield past


@pytest.fixture
def cutover(tmp_path: Path, version: str) -> Iterator[Past]:
    """A run that left its candidate on the production port, and then a reboot."""
    with closing(Past(tmp_path / "cutover", version, "cutover")) as past:
        yield past


@pytest.fixture
def read(trials: Past, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Read:
    """A command that only reads, in this process."""
    monkeypatch.delenv("OMNI_SITE", raising=False)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setenv("COLUMNS", "100")  # what the charts were drawn for; no line is folded
    monkeypatch.setattr("console.frontends.cli.follow.folded", lambda line, width: [line])
    for name, value in trials.env.items():
        if name.startswith(("XDG_", "OMNI_", "HOME", "TZ")):
            monkeypatch.setenv(name, value)

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = cli.main(list(args))
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err)

    return run
