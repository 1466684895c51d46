"""`omni-console demo --stop` ends what the demo started, and no stranger that its records name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.config.locate import demo_site
from console.config.site.site import load_site
from console.host import process
from console.host.process import ProcessSpec


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, int]]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path / "host"))
    (tmp_path / "host").mkdir()
    found = process.spawn(ProcessSpec(("sleep", "600")), log=tmp_path / "log", cookie="theirs")
    yield found
    process.stop_group(*found, grace_s=0.0)


def recorded(name: str, who: tuple[int, int]) -> None:
    """A record of the demo's own, as its site file starts the service."""
    site = load_site(demo_site())
    spec = site.baseline_spec() if name == "baseline" else site.service_specs()[name]
    assert isinstance(spec.runs, ProcessSpec)
    process.write_record(paths.records_dir(site.name), name, spec.runs, *who)


@pytest.mark.parametrize("name", ["baseline", "slow"])
def test_a_pid_that_is_used_again_lives_on(server: tuple[int, int], name: str) -> None:
    recorded(name, (server[0], server[1] - 1))
    assert main(["demo", "--stop"]) == 0
    assert process.alive(*server)


def test_the_adopted_baseline_of_another_site_is_named_and_lives_on(
    server: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    process.write_record(paths.records_dir("other"), "baseline", ProcessSpec(("x",)), *server)
    recorded("slow", server)
    assert main(["demo", "--stop"]) != 0
    assert "recorded baseline of site other" in capsys.readouterr().err
    assert process.alive(*server)
