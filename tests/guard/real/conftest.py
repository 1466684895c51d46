"""One ssh server and one model for all of these tests; each has a scene of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guard.yard import memory
from tests.guard.yard.scene import SIZE, Scene
from tests.guard.yard.scene import scene as made_scene
from tests.testbed.cache import Unavailable
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.ssh import Ssh, sshd


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    tiny_llama(path)
    path.parent.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    try:
        with sshd(tmp_path_factory.mktemp("sshd")) as made:
            yield made
    except Unavailable as error:
        lacking(PREFIX + error.reason)


@pytest.fixture
def scene(tmp_path: Path, model: Path, ssh: Ssh) -> Iterator[Scene]:
    try:
        memory.require(SIZE)
    except Unavailable as error:
        lacking(PREFIX + error.reason)
    with made_scene(tmp_path, model, ssh) as made:
        yield made
