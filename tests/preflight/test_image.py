"""Images in a real engine: there or not, and for which machine."""

from __future__ import annotations

import docker
import pytest

from console.checks.preflight.image import check_image, engine_platform, look
from console.common.errors import Level
from tests.testbed.engine import Engine

pytestmark = pytest.mark.engine


def test_an_image_that_is_here(client: docker.DockerClient, llama_image: str) -> None:
    (found,) = check_image(client, llama_image)
    assert found.level is Level.OK
    assert engine_platform(client) in found.words


def test_an_image_for_another_machine_only(client: docker.DockerClient, arm: str) -> None:
    image = look(client, arm)
    assert image is not None
    assert image.platform == "linux/arm64"
    (found,) = check_image(client, arm)
    assert (found.level, found.lessons) == (Level.FAIL, ("F-006",))
    assert engine_platform(client) in found.words
    assert "docker manifest inspect" in found.hint


def test_an_image_that_is_not_here(client: docker.DockerClient) -> None:
    (found,) = check_image(client, "omni-test/nonesuch:1")
    assert (found.level, found.hint) == (Level.FAIL, "docker pull omni-test/nonesuch:1")
    (odd,) = check_image(client, "a\x1b[31m b")
    assert odd.level is Level.UNKNOWN
    assert odd.text.isprintable()


def test_what_an_image_runs(engine: Engine, client: docker.DockerClient, arm: str) -> None:
    image = look(client, arm)
    assert image is not None
    assert image.argv() == ["/bin/server"]
    assert image.argv(command=("-m", "x")) == ["/bin/server", "-m", "x"]
    assert image.argv(("sh",)) == ["sh"]
    assert image.cuda is None
    made = engine.run("create", "--label", "omni.test=image", "-e", "CUDA_VERSION=12.8.0", arm)
    try:
        engine.run("commit", made.strip(), "omni-test/cuda:1")
        known = look(client, "omni-test/cuda:1")
    finally:
        engine.run("rm", made.strip())
        engine.run("rmi", "omni-test/cuda:1")
    assert known is not None
    assert known.cuda == (12, 8)
