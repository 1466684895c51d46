"""`--rehearse` and `--fault` on the command line: what is refused, and with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.cli import main
from console.rehearsal.fault import FAULTS

Caught = pytest.CaptureFixture[str]
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: base, url: "http://127.0.0.1:8000"}
services: {fast: {process: {argv: [x]}, url: "http://127.0.0.1:8001"},
           slow: {process: {argv: [x]}, url: "http://127.0.0.1:8002"}}
"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "OMNI_HOST_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("OMNI_SITE", str(site))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")


@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_cannot_be_rehearsed_is_refused(command: str, capsys: Caught, tmp_path: Path) -> None:
    """An unknown fault with the list of them; a fault of a real run; without Docker."""
    for more, words in (
        (["--rehearse", "--fault", "meteor"], [f"\n  {name} " for name in FAULTS]),
        (["--fault", "slow"], ["--rehearse"]),
        (["--rehearse"], ["nothing.sock"]),
    ):
        assert main([command, "demo", *more]) == 2
        said = capsys.readouterr().err
        assert [word for word in words if word not in said] == []
    assert not (tmp_path / "XDG_STATE_HOME/omni-console/runs").exists()


def test_nothing_to_roll_back_where_no_rehearsal_was(capsys: Caught) -> None:
    assert main(["rollback", "--rehearse"]) == 2
    assert capsys.readouterr().err
