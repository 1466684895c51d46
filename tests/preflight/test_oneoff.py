"""A container of a moment, in a real engine: what it may, what it may not, and that it goes."""

from __future__ import annotations

import threading
import time

import docker
import pytest

from console.common.errors import EngineError
from console.host.children import Cancelled
from console.runtime.docker import oneoff
from console.runtime.docker.engine_state import labels_of
from console.runtime.docker.oneoff import FILES, Moment, created, run, sweep
from console.runtime.spec import ROLE_LABEL, RUN_LABEL
from tests.preflight.conftest import Labels

pytestmark = pytest.mark.engine


def test_it_has_its_files_and_nothing_of_the_machine(
    client: docker.DockerClient, busy_image: str, mine: Labels
) -> None:
    script = f"""cat {FILES}/a; touch /x 2>&1; touch /tmp/y && echo writable
    ls /sys/class/net; echo "cards:$CUDA_VISIBLE_DEVICES.$NVIDIA_VISIBLE_DEVICES"; exit 3"""
    moment = Moment(busy_image, ("sh", "-c", script), files={"a": b"content\n"}, labels=mine)
    ended = run(client, moment, 30)
    assert ended.code == 3
    text = "\n".join(ended.lines)
    for words in ("content", "Read-only file system", "writable", "lo", "cards:.void"):
        assert words in text
    assert "eth0" not in text


def test_it_is_killed_when_its_time_is_up(
    client: docker.DockerClient, busy_image: str, mine: Labels
) -> None:
    moment = Moment(busy_image, ("sh", "-c", "echo begun; sleep 1000"), labels=mine)
    ended = run(client, moment, 0.3)
    assert ended.code is None


def test_it_ends_with_the_one_who_asked(
    client: docker.DockerClient, busy_image: str, mine: Labels
) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        run(client, Moment(busy_image, ("sleep", "1000"), labels=mine), 60, cancelled=cancelled)


def test_its_limits_are_the_engines(
    client: docker.DockerClient, busy_image: str, mine: Labels
) -> None:
    moment = Moment(busy_image, ("true",), memory=64 << 20, cpus=0.5, labels=mine)
    with created(client, moment) as container:
        found = client.api.inspect_container(container)
    host = found["HostConfig"]
    assert (host["Memory"], host["MemorySwap"]) == (64 << 20, 64 << 20)
    assert (host["NetworkMode"], host["ReadonlyRootfs"]) == ("none", True)
    assert not host["DeviceRequests"]
    assert labels_of(found)[ROLE_LABEL] == "oneoff"


def test_what_cannot_start_is_said_and_gone(
    client: docker.DockerClient, busy_image: str, mine: Labels
) -> None:
    with pytest.raises(EngineError, match="executable file not found"):
        run(client, Moment(busy_image, ("nonesuch",), labels=mine), 5)
    with pytest.raises(EngineError, match="No such image"):
        run(client, Moment("nonesuch:1", ("true",), labels=mine), 5)


def test_what_a_killed_console_left_is_removed_later(
    client: docker.DockerClient, busy_image: str, mine: Labels, ours: str
) -> None:
    labels = {**mine, ROLE_LABEL: "oneoff", RUN_LABEL: ours, "omni.service": ours}
    left = client.api.create_container(busy_image, ["sleep", "9"], labels=labels)["Id"]
    client.api.start(left)
    assert sweep(client) == 0, "another console may be at work with it"
    assert sweep(client, now=time.time() + oneoff.LEFT_S + 60) == 1
    assert client.api.containers(all=True, filters={"label": f"{RUN_LABEL}={ours}"}) == []
