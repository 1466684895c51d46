"""Fixtures of the preflight tests: a store of their own, an engine's client, models, images."""

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from console.runtime.docker import oneoff
from console.runtime.docker.client import connect
from tests.sizing.tiny import MODELS, Model
from tests.testbed import python_image
from tests.testbed.engine import Engine
from tests.testbed.plugin import need

Labels = dict[str, str]
REAL = ("llama", "gemma2", "gemma3", "qwen3moe", "glm4moe", "deepseek2", "deepseek32", "lfm2",
        "qwen3next", "mamba")  # fmt: skip
NO_NAMES = {
    "deepseek3_2": "deepseek2", "deepseek3": "deepseek2", "llama5": "llama", "gptj": "llama",
    "minimax_m3": "qwen3moe",
}  # fmt: skip
"""Names that builds do not load, and of which model the file is a copy."""


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/omni-console/architectures"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models, whole for their architecture: a build refuses one for its name alone."""
    folder = tmp_path_factory.mktemp("models")
    whole = {name: MODELS[name]() for name in REAL} | {
        name: _named(MODELS[like](), name) for name, like in NO_NAMES.items()
    }
    return {name: model.write(folder / f"{name}.gguf") for name, model in whole.items()}


def _named(model: Model, name: str) -> Model:
    before = str(model.metadata["general.architecture"])
    keys = {key.replace(f"{before}.", f"{name}."): one for key, one in model.metadata.items()}
    return Model({**keys, "general.architecture": name}, model.tensors)


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
    return need(lambda: python_image.ensure_python_image(engine))


@pytest.fixture(scope="session")
def packages(engine: Engine) -> Callable[[dict[str, bytes]], str]:
    """Makes an image with Python and these files, importable from where they lie."""
    return lambda files: need(lambda: python_image.ensure_packages_image(engine, files))


@pytest.fixture(scope="session")
def arm(engine: Engine) -> str:
    """The tag of an image for linux/arm64 alone."""
    return need(lambda: python_image.ensure_arm_image(engine))
