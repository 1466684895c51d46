"""Fixtures of the service tests that need a real engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import docker
import pytest

from console.services import docker_client
from console.services.docker_client import connect
from tests.testbed.engine import Engine

TEST_LABEL = "omni.test"


PATIENCE_S = 60.0
"""A machine that is slow for some seconds is no engine that does not answer."""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_client, "CONNECT_S", PATIENCE_S)


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[docker.DockerClient]:
    with pytest.MonkeyPatch.context() as patch:  # it is made before the other one
        patch.setattr(docker_client, "CONNECT_S", PATIENCE_S)
        made = connect(engine.host)
    yield made
    made.close()


@pytest.fixture
def mine(client: docker.DockerClient) -> Iterator[dict[str, str]]:
    """A label for what a test makes; the containers that bear it are removed after the test."""
    label = {TEST_LABEL: uuid.uuid4().hex}
    yield label
    wanted = {"label": f"{TEST_LABEL}={label[TEST_LABEL]}"}
    for row in client.api.containers(all=True, filters=wanted):
        client.api.remove_container(row["Id"], force=True, v=True)
