"""What the engine knows about images; nothing is pulled."""

from __future__ import annotations

import docker
import pytest

from console.common.errors import ServiceError
from console.runtime.docker.client import image_info, require_image


def test_a_local_image(client: docker.DockerClient, image: str) -> None:
    found = image_info(client, image)
    assert found is not None
    assert found.id.startswith("sha256:")
    assert found.os == "linux"
    assert found.architecture
    assert 1_000_000 < found.size_bytes < 100_000_000
    assert found.repo_digests == ()
    assert image_info(client, found.id) == found


def test_an_image_that_is_not_here(client: docker.DockerClient) -> None:
    assert image_info(client, "registry.invalid/none:1") is None
    with pytest.raises(ServiceError) as caught:
        require_image(client, "registry.invalid/none:1")
    assert caught.value.hint == "docker pull registry.invalid/none:1"
