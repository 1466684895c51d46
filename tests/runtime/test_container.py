"""Containers of a real engine: made, reused, renamed aside, stopped, never removed."""

import os
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from console.common.errors import EngineError, ServiceError
from console.host.memory import KILL_WAIT_S
from console.host.process import COOKIE
from console.runtime.docker.client import connect, image_info, require_image
from console.runtime.docker.container import ContainerDriver
from console.runtime.docker.engine_state import labels_of
from console.runtime.spec import (
    OWNER_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    SPEC_LABEL,
    ContainerSpec,
    ExistingContainer,
    Mount,
    Status,
)
from tests.clock import FakeClock
from tests.licences import CANDIDATE
from tests.ports import free_port
from tests.runtime.containers import (
    FOREVER,
    Place,
    Recorder,
    also_real,
    busy,
    only_real,
    service,
    unique,
)
from tests.runtime.made_engine import IMAGE, MadeEngine, Refused
from tests.waiting import some, until

MIB = 1024 * 1024


@also_real
def test_a_container_has_every_limit_and_label(place: Place, tmp_path: Path) -> None:
    port, name = free_port(), unique("limits")
    runs = busy(
        place.image, memory_bytes=64 * MIB, shm_bytes=8 * MIB, cpus=0.5, pids=77,
        ports=((port, 8080),), mounts=(Mount(str(tmp_path), "/data"),), env=(("WORD", "value"),),
        workdir="/data",
    )  # fmt: skip
    driver = place.driver(name, runs)
    handle = driver.start(place.launch)
    assert (place.handles, place.states) == ([handle], ["created"]), "recorded before it runs"
    assert (handle.kind, handle.name, len(handle.container)) == ("container", f"omni-{name}", 64)
    found = place.look(handle.container)
    host, config = found["HostConfig"], found["Config"]
    assert host["Memory"] == host["MemorySwap"] == 64 * MIB
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["OomScoreAdj"], host["PidsLimit"], host["Init"]) == (1000, 77, True)
    assert (host["ShmSize"], host["NanoCpus"]) == (8 * MIB, 500_000_000)
    assert host["PortBindings"]["8080/tcp"] == [{"HostIp": "127.0.0.1", "HostPort": str(port)}]
    assert host["LogConfig"]["Config"]["mode"] == "non-blocking"
    assert host["LogConfig"]["Config"]["max-size"] == "50m"
    assert not host["Privileged"]
    assert not host["CapAdd"]
    assert host["Mounts"][0] | {"ReadOnly": True} == host["Mounts"][0]
    assert {f"{COOKIE}=run-1", "WORD=value"} <= set(config["Env"])
    labels = config["Labels"]
    assert (labels[ROLE_LABEL], labels[RUN_LABEL]) == ("candidate", "run-1")
    assert labels[SERVICE_LABEL] == name
    assert len(labels[SPEC_LABEL]) == 64
    assert driver.status(handle).alive
    assert driver.find() == handle


def test_stop_is_graceful_and_twice_is_fine(place: Place) -> None:
    driver = place.driver(unique("graceful"), busy(place.image))
    handle = driver.start(place.launch)
    until(lambda: driver.last_lines(handle, 1) == ["up"], "it has set its trap")
    driver.stop(CANDIDATE, handle, 10)
    status = driver.status(handle)
    assert (status.alive, status.exit_code) == (False, 0)
    driver.stop(CANDIDATE, handle, 10)
    assert driver.find() is None
    place.client.api.remove_container(handle.container)
    driver.stop(CANDIDATE, handle, 10)
    assert driver.status(handle) == Status(alive=False, detail="the container is gone")


@pytest.mark.parametrize("paused", [False, True])
def test_what_ignores_sigterm_is_killed(place: Place, paused: bool) -> None:
    driver = place.shell("trap '' TERM; echo up; while :; do sleep 0.1; done")
    handle = driver.start(place.launch)
    until(lambda: driver.last_lines(handle, 1) == ["up"], "it has set its trap")
    if paused:
        place.client.api.pause(handle.container)
        assert driver.status(handle).detail == "paused"
    driver.stop(CANDIDATE, handle, 0 if paused else 0.1)  # whole seconds, rounded up
    status = driver.status(handle)
    assert (status.alive, status.exit_code) == (False, 137)


@only_real
def test_out_of_memory_is_said(place: Place) -> None:
    driver = place.shell("x=0123456789abcdef; while :; do x=$x$x; done", memory_bytes=16 * MIB)
    handle = driver.start(place.launch)
    until(lambda: not driver.status(handle).alive, "it has ended")
    status = driver.status(handle)
    assert status.oom_killed
    assert "16.0 MiB" in status.detail


def test_last_lines_are_clean(place: Place) -> None:
    driver = place.shell(r"printf 'one\ntwo \033[2J\033]52;c;QUJD\007x\nthr\377ee\n'; exit 3")
    handle = driver.start(place.launch)
    until(lambda: not driver.status(handle).alive, "it has ended")
    assert driver.status(handle).exit_code == 3
    assert driver.last_lines(handle, 2) == ["two x", "thr\ufffdee"]
    assert len(driver.last_lines(handle, 9)) == 3
    assert driver.last_lines(handle, 0) == []


def test_an_equal_older_one_is_reused(place: Place, tmp_path: Path) -> None:
    name, later = unique("again"), Recorder(tmp_path, "run-2")
    first, second = (place.driver(name, busy(place.image)) for _ in range(2))
    old = first.start(place.launch)
    first.stop(CANDIDATE, old, 5)
    assert second.find() is None
    again = second.start(later.launch)
    assert again.container == old.container
    assert later.handles == [again]
    assert second.status(again).alive
    assert "run-1" in place.said[0]
    assert labels_of(place.look(again.container))[RUN_LABEL] == "run-1"


def test_a_changed_older_one_is_renamed_aside(place: Place) -> None:
    name, olds = unique("changed"), []
    for pids in (10, 11, 12):
        driver = place.driver(name, busy(place.image, pids=pids, name=f"{name}-c"))
        olds.append(driver.start(place.launch))
        driver.stop(CANDIDATE, olds[-1], 5)
    assert len({old.container for old in olds}) == 3
    names = [place.look(old.container)["Name"].lstrip("/") for old in olds]
    assert names[2] == f"{name}-c"
    assert names[:2] == [f"{name}-c.{old.container[:6]}-1" for old in olds[:2]]
    assert [aside in line for aside, line in zip(names, place.said, strict=False)] == [True] * 2


def test_a_changed_one_that_still_runs_is_refused(place: Place) -> None:
    name = unique("running")
    older = place.driver(name, busy(place.image, pids=10))
    handle = older.start(place.launch)
    changed = busy(place.image, pids=11)
    for runs in (changed, replace(changed, name=unique("elsewhere"))):
        newer = place.driver(name, runs)
        with pytest.raises(ServiceError) as caught:
            newer.start(place.launch)
        assert "omni-console rollback" in caught.value.hint
    assert older.status(handle).alive
    assert place.handles == [handle]


def test_a_foreign_container_is_left_alone(place: Place) -> None:
    name = unique("theirs")
    theirs = place.create("sleep", "60", name=name)
    driver = place.driver(name, busy(place.image, name=name))
    with pytest.raises(ServiceError) as caught:
        driver.start(place.launch)
    assert f"docker rename {name} {name}.old" in caught.value.hint
    assert place.handles == []
    assert place.look(name)["Id"] == theirs
    assert driver.find() is None
    place.client.api.start(theirs)
    assert driver.find() is None


def test_one_that_runs_for_another_site_is_neither_taken_over_nor_stopped(place: Place) -> None:
    """From the same specification, from another, and under another name."""
    name = unique("shared")
    theirs = place.driver(name, busy(place.image), site="lab")
    handle = theirs.start(place.launch)
    assert labels_of(place.look(handle.container))[OWNER_LABEL] == f"{os.getuid()}:lab"
    same, other = (busy(place.image, pids=pids) for pids in (ContainerSpec("").pids, 11))
    for runs in (same, other, replace(other, name=unique("elsewhere"))):
        mine = place.driver(name, runs, site="mine")
        if not runs.name:
            with pytest.raises(ServiceError, match=f"uid {os.getuid()} on the site lab"):
                mine.find()
        with pytest.raises(ServiceError, match=f"uid {os.getuid()} on the site lab") as caught:
            mine.start(place.launch)
        assert "omni-console rollback" in caught.value.hint
    assert theirs.find() == handle
    assert place.handles == [handle]


def test_a_stopped_one_of_another_site_is_moved_aside(place: Place) -> None:
    """Though it was made from the same specification: its site's rollback would end it."""
    name = unique("shared")
    theirs, mine = (place.driver(name, busy(place.image), site=site) for site in ("lab", "mine"))
    old = theirs.start(place.launch)
    theirs.stop(CANDIDATE, old, 5)
    assert mine.find() is None
    new = mine.start(place.launch)
    assert new.container != old.container
    assert place.look(old.container)["Name"] == f"/omni-{name}.{old.container[:6]}-1"
    assert mine.find() == new


def test_what_another_users_label_says_is_clean(place: Place) -> None:
    name = unique("dirty")
    labels = {**place.mine, ROLE_LABEL: "candidate", OWNER_LABEL: "7\x1b[2J:a\nb\x1b]0;x\x07"}
    made = place.client.api.create_container(
        place.image, list(FOREVER), name=f"omni-{name}", labels=labels
    )
    place.client.api.start(made["Id"])
    with pytest.raises(ServiceError) as caught:
        place.driver(name, busy(place.image), site="mine").find()
    assert "uid 7 on the site a b" in caught.value.title
    assert caught.value.title.isprintable()


def test_a_taken_port_is_said(place: Place) -> None:
    port = free_port()
    first, second = (place.shell("sleep 600", ports=((port, 80),)) for _ in range(2))
    first.start(place.launch)
    with pytest.raises(EngineError) as caught:
        second.start(place.launch)
    assert str(port) in caught.value.detail
    assert "docker ps" in caught.value.hint


def test_gpus_without_the_toolkit_are_said(place: Place) -> None:
    if "nvidia" in (place.client.api.info().get("Runtimes") or {}):
        pytest.skip("this engine has the NVIDIA runtime")
    uuids = ("GPU-6f3c1a52-0e7d-4b1c-9a44-96a1c0de6000",)
    for gpus, count, ids in ((("all",), -1, []), (uuids, 0, list(uuids))):
        runs = busy(place.image, gpus=gpus)
        driver = place.driver(unique("gpu"), runs)
        with pytest.raises(EngineError):
            driver.start(place.launch)
        (asked,) = place.look(place.handles[-1].container)["HostConfig"]["DeviceRequests"]
        assert (asked["Count"], asked["DeviceIDs"]) == (count, ids)
        assert asked["Capabilities"] == [["gpu"]]


@pytest.mark.parametrize("client", ["made"], indirect=True)
def test_a_limit_that_the_engine_discards_is_said(place: Place, made: MadeEngine) -> None:
    """A rootless engine without control groups, on a machine that has version 1."""
    made.warnings = ["Your kernel does not support memory limit capabilities. Discarded."]
    place.shell("exit 0").start(place.launch)
    assert any("memory limit" in line for line in place.said)


def test_an_old_podman_is_not_used(made: MadeEngine) -> None:
    made.version["Components"] = [{"Name": "Podman Engine", "Version": "4.9.4"}]
    with pytest.raises(EngineError) as caught:
        connect(made.host)
    assert "Podman 4.9.4" in caught.value.title


@pytest.mark.parametrize("client", ["made"], indirect=True)
@pytest.mark.parametrize("gpus", [("all",), ("GPU-6f3c", "GPU-0e7d")])
def test_podman_is_asked_for_cards_as_it_knows_them(
    place: Place, made: MadeEngine, gpus: tuple[str, ...]
) -> None:
    """Asked as Docker is, it starts the container without any: the model would fill RAM."""
    made.version["Components"] = [{"Name": "Podman Engine", "Version": "5.8.6"}]
    with pytest.raises(EngineError):
        place.driver(unique("gpu"), busy(place.image, gpus=gpus)).start(place.launch)
    (asked,) = place.look(place.handles[-1].container)["HostConfig"]["DeviceRequests"]
    assert (asked["Driver"], asked["DeviceIDs"]) == ("cdi", [f"nvidia.com/gpu={x}" for x in gpus])


def test_an_engine_that_refuses_the_oom_score(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal is real: the kernel's range ends at 1000, and so does the engine's."""
    monkeypatch.setattr("console.runtime.docker.container.OOM_SCORE", 5000)
    driver = place.driver(unique("score"), busy(place.image))
    handle = driver.start(place.launch)
    assert driver.status(handle).alive
    assert place.look(handle.container)["HostConfig"]["OomScoreAdj"] == 0
    assert any("oom_score_adj" in line for line in place.said)


def test_one_that_was_made_before_its_score_was_refused_is_moved_aside(
    made: MadeEngine, recorder: Recorder
) -> None:
    """Some engines find out only when the kernel is asked."""

    def refuse(call: str) -> None:
        if call.endswith("/start"):
            made.answer = lambda call: None
            raise Refused(500, "write /proc/self/oom_score_adj: permission denied")

    made.answer = refuse
    client = connect(made.host)
    handle = ContainerDriver(service("score", busy(IMAGE)), client).start(recorder.launch)
    client.close()
    first, second = recorder.handles
    assert (second, made.find("omni-score").id) == (handle, handle.container)
    assert made.find(first.container).name == f"omni-score.{first.container[:6]}-1"


def test_one_that_outlives_its_kill_is_an_error_after_a_while(
    made: MadeEngine, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, clock = connect(made.host), FakeClock()
    driver = ContainerDriver(service("stuck", busy(IMAGE)), client, clock=clock)
    handle = driver.start(recorder.launch)
    for verb in ("_stop", "_kill"):
        monkeypatch.setattr(made, verb, lambda one, query: (204, None))
    with pytest.raises(ServiceError):
        driver.stop(CANDIDATE, handle, 1)
    assert sum(clock.slept) == pytest.approx(KILL_WAIT_S, abs=0.2)
    client.close()


def test_somebody_elses_container_is_started_and_stopped_only(place: Place) -> None:
    name = unique("baseline")
    driver = place.driver("baseline", ExistingContainer(name))
    with pytest.raises(ServiceError):
        driver.start(place.launch)
    made = place.create(*FOREVER, name=name, policy="unless-stopped")
    assert driver.find() is None
    handle = driver.start(place.launch)
    assert handle.container == made
    assert driver.find() == handle
    driver.start(place.launch)
    driver.stop(CANDIDATE, handle, 5)
    assert not driver.status(handle).alive
    assert place.look(name)["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


def test_a_local_image(client: docker.DockerClient, image: str) -> None:
    found = some(image_info(client, image))
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
