"""`omni-console demo` before it starts anything."""

from pathlib import Path

import pytest

from console.cli import main
from console.common import paths
from console.config.locate import demo_site


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
