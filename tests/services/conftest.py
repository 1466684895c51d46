"""Fixtures of the service tests that need a real engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import docker
import pytest

from console.services.docker_client import connect
from tests.testbed.engine import Engine

TEST_LABEL = "omni.test"


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[docker.DockerClient]:
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
