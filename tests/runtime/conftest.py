"""Engines for the service tests: one in this process, and the real one for the same tests."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from console.runtime.docker import client as docker_client
from console.runtime.docker import exec as exec_module
from console.runtime.docker.client import connect
from tests.runtime.containers import ENGINES, Place, Recorder
from tests.runtime.made_engine import IMAGE, MadeEngine, made_engine
from tests.testbed.engine import Engine

TEST_LABEL = "omni.test"


PATIENCE_S = 60.0
"""A machine that is slow for some seconds is no engine that does not answer."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_client, "CONNECT_S", PATIENCE_S)


@pytest.fixture(scope="session")
def real_client(engine: Engine) -> Iterator[docker.DockerClient]:
    with pytest.MonkeyPatch.context() as patch:  # it is made before the other one
        patch.setattr(docker_client, "CONNECT_S", PATIENCE_S)
        made = connect(engine.host)
    yield made
    made.close()


@pytest.fixture
def made() -> Iterator[MadeEngine]:
    with made_engine() as one:
        yield one


@pytest.fixture(params=ENGINES)
def client(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> Iterator[docker.DockerClient]:
    """A client of the engine in this process, and in `make test-all` of a real one as well."""
    if request.param == "real":
        yield request.getfixturevalue("real_client")
        return
    made, read = request.getfixturevalue("made"), exec_module.read_text

    def inside(path: str) -> str:
        """Its processes are in no group that bears a container's id."""
        return read(path) + ("".join(made.containers) if path.endswith("/cgroup") else "")

    monkeypatch.setattr(exec_module, "read_text", inside)
    one = connect(made.host)
    yield one
    one.close()


@pytest.fixture
def image(request: pytest.FixtureRequest, client: docker.DockerClient) -> str:
    """An image that this engine has."""
    real = request.node.callspec.params["client"] == "real"
    return str(request.getfixturevalue("busy_image")) if real else IMAGE


@pytest.fixture
def mine(client: docker.DockerClient) -> Iterator[dict[str, str]]:
    """A label for what a test makes; the containers that bear it are removed after the test."""
    label = {TEST_LABEL: uuid.uuid4().hex}
    yield label
    wanted = {"label": f"{TEST_LABEL}={label[TEST_LABEL]}"}
    for row in client.api.containers(all=True, filters=wanted):
        client.api.remove_container(row["Id"], force=True, v=True)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@pytest.fixture
def place(client: docker.DockerClient, image: str, mine: dict[str, str], tmp_path: Path) -> Place:
    return Place(client, image, mine, tmp_path)
