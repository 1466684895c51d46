"""Models written once, and a world of its own for each test."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.e2e.boxes import LABEL, Boxes, boxes
from tests.run.e2e.sites import host_site
from tests.run.e2e.world import World
from tests.testbed.door import door
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_deepseek2, tiny_llama, unknown_architecture


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with tiny.gguf, deepseek2.gguf and unknown.gguf."""
    directory = tmp_path_factory.mktemp("models")
    tiny_llama(directory / "tiny.gguf")
    tiny_deepseek2(directory / "deepseek2.gguf")
    unknown_architecture(directory / "unknown.gguf")
    directory.chmod(0o755)
    return directory


@pytest.fixture
def bare(tmp_path: Path, models: Path) -> Iterator[World]:
    """A world whose baseline does not run."""
    world = World(tmp_path, models / "tiny.gguf")
    world.site.write_text(host_site(world))
    yield world
    world.close()


@pytest.fixture
def world(bare: World) -> World:
    """A world whose baseline, a llama.cpp process, serves."""
    bare.bring_up()
    return bare


@pytest.fixture
def boxed(tmp_path: Path, models: Path, engine: Engine, llama_image: str) -> Iterator[Boxes]:
    """A world of containers, none of which runs yet; its engine is behind a door of its own."""
    world = World(tmp_path, models / "tiny.gguf")
    scope = uuid.uuid4().hex[:10]
    with tempfile.TemporaryDirectory() as short:
        path = Path(short) / "engine.sock"
        with door(path, engine.socket, (LABEL, scope)) as socket:
            yield from boxes(world, engine, llama_image, f"unix://{socket}", scope)


@pytest.fixture
def box(boxed: Boxes) -> Boxes:
    """The baseline, a deepseek2 in a container, serves."""
    boxed.world.site.write_text(boxed.site(container=boxed.base_name))
    boxed.baseline()
    return boxed
