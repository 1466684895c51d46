"""`omni-console demo` before it starts anything."""

import io
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.cli import main
from console.common import paths
from console.common.errors import RollbackFailed
from console.config.locate import demo_site
from console.config.site.site import Site, load_site
from console.frontends.cli import demo
from console.host.ports import port_of
from console.recovery.rollback.progress import Result
from console.recovery.rollback.sealed_plan import SealedPlan


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.delenv("OMNI_SITE", raising=False)
    return tmp_path


def test_a_site_of_an_earlier_version_has_no_garbled_candidate(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = demo_site()
    assert site.is_relative_to(home)
    head, _, _ = site.read_text().partition("  garbled:")
    site.write_text(head)
    code = main(["demo", "--candidate", "garbled", "--plain"])
    said = capsys.readouterr().err
    assert code == 2
    assert "the demo has no candidate 'garbled'" in said
    assert "demo --stop removes it" in said
    assert not (paths.demo_dir() / "models").exists(), "nothing was made"


@pytest.mark.parametrize("existed", [False, True])
def test_a_run_that_is_refused_leaves_no_demo_behind(home: Path, existed: bool) -> None:
    """Its site would be taken for the operator's from then on."""
    if existed:
        demo_site()
    assert main(["run", "nothing-of-this-name"]) == 2
    assert paths.demo_dir().is_relative_to(home)
    assert (paths.demo_dir() / "site.yaml").exists() is existed
    assert paths.demo_dir().exists() is existed


def test_two_demos_share_no_port(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidates of the first one are not up yet: what is free now may be theirs."""
    first = load_site(demo_site())
    with socket.create_server(("127.0.0.1", port_of(first.model.baseline.url))):
        monkeypatch.setenv("XDG_STATE_HOME", str(home / "another"))
        second = load_site(demo_site())
    assert not ports(first) & ports(second)


def ports(site: Site) -> set[int]:
    services = [site.baseline_spec(), *site.service_specs().values()]
    return {port_of(spec.url) for spec in services}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_demo_whose_port_is_taken_has_another(
    home: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    taken: list[socket.socket] = []

    def run(plan: SealedPlan) -> Result:
        """The procedure of a demo that another one is faster than, once."""
        if not taken:
            taken.append(socket.create_server(("127.0.0.1", port_of(plan.baseline.url))))
            return Result(serving=False)
        return Result(serving=True)

    site = load_site(demo_site())
    if when == "before":
        taken.append(socket.create_server(("127.0.0.1", port_of(site.model.baseline.url))))
    monkeypatch.setattr(demo, "Procedure", lambda plan: SimpleNamespace(run=lambda: run(plan)))
    other = demo.bring_up(site, io.StringIO())
    assert not ports(other) & ports(site)
    assert load_site(demo_site()).model.baseline.url == other.model.baseline.url, "it is written"
    taken[0].close()


def test_a_baseline_that_does_not_serve_at_its_own_port_keeps_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down = SimpleNamespace(run=lambda: Result(serving=False, detail="it ended"))
    monkeypatch.setattr(demo, "Procedure", lambda plan: down)
    site = load_site(demo_site())
    with pytest.raises(RollbackFailed, match="it ended"):
        demo.bring_up(site, io.StringIO())
    assert load_site(demo_site()).model.baseline.url == site.model.baseline.url
