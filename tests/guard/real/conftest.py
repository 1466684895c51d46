"""One ssh server and one model for all of these tests; each has a scene of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.guard.yard import memory
from tests.guard.yard.engine import own_engine
from tests.guard.yard.scene import SIZE, Scene
from tests.guard.yard.scene import scene as made_scene
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.ssh import Ssh, sshd


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny_llama(path)
    path.parent.chmod(0o755)
    return path


@contextmanager
def required() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        lacking(PREFIX + error.reason)


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    with required(), sshd(tmp_path_factory.mktemp("sshd")) as made:
        yield made


@pytest.fixture(scope="module")
def own() -> Iterator[tuple[Engine, int]]:
    """An engine for these tests alone, and its pid."""
    with required(), own_engine() as made:
        yield made


@pytest.fixture
def scene(tmp_path: Path, model: Path, ssh: Ssh) -> Iterator[Scene]:
    with required():
        memory.require(SIZE)
    with made_scene(tmp_path, model, ssh) as made:
        yield made
