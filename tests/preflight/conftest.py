"""Fixtures of the preflight tests: a store of their own, an engine's client, models, images."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from console.runtime.docker import oneoff
from console.runtime.docker.client import connect
from tests.preflight.models import WRITERS
from tests.testbed import python_image
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking

Labels = dict[str, str]


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/omni-console/architectures"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole tiny model of each architecture."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write(folder / f"{name}.gguf") for name, write in WRITERS.items()}


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[docker.DockerClient]:
    made = connect(engine.host)
    yield made
    made.close()


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of this test's own, so that nothing of another session is found by its label."""
    name = f"preflight-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr(oneoff, "RUN", name)
    return name


@pytest.fixture
def mine(client: docker.DockerClient, ours: str) -> Iterator[Labels]:
    """A label for what a test makes; nothing that bears it may be left when the test ends."""
    yield {"omni.test": ours}
    rows = client.api.containers(all=True, filters={"label": f"omni.test={ours}"})
    for row in rows:
        client.api.remove_container(row["Id"], force=True, v=True)
    assert rows == []


@pytest.fixture(scope="session")
def python(engine: Engine) -> str:
    """The tag of an image with Debian's Python."""
    return _had(lambda: python_image.ensure_python_image(engine))


@pytest.fixture(scope="session")
def packages(engine: Engine) -> Callable[[dict[str, bytes]], str]:
    """Makes an image with Python and these files, importable from where they lie."""
    return lambda files: _had(lambda: python_image.ensure_packages_image(engine, files))


@pytest.fixture(scope="session")
def arm(engine: Engine) -> str:
    """The tag of an image for linux/arm64 alone."""
    return _had(lambda: python_image.ensure_arm_image(engine))


def _had(make: Callable[[], str]) -> str:
    try:
        return make()
    except Unavailable as error:
        lacking(PREFIX + error.reason)
