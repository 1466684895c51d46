"""A scripted world of its own for each test."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.journal.run_files import read_view
from console.journal.store import JournalError
from tests.runner.e2e.sites import host_site
from tests.runner.whole.world import ScriptedWorld
from tests.testbed.models import tiny_llama


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with tiny.gguf, whose header is read."""
    directory = tmp_path_factory.mktemp("models")
    tiny_llama(directory / "tiny.gguf")
    return directory


@pytest.fixture
def bare(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedWorld]:
    """A world whose baseline does not run."""
    world = ScriptedWorld(tmp_path, models / "tiny.gguf", monkeypatch)
    world.site.write_text(host_site(world))
    yield world
    world.close()
    for run in world.runs:
        with contextlib.suppress(JournalError):  # a test has taken it away
            assert read_view(run).trouble == [], "a run writes only events of the journal's schema"


@pytest.fixture
def world(bare: ScriptedWorld) -> ScriptedWorld:
    """A world whose baseline, a scripted engine, serves."""
    bare.bring_up()
    return bare
