"""Containers of a real engine: made, reused, renamed aside, stopped, never removed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from console.clock import FakeClock
from console.errors import EngineError, ServiceError
from console.services.base import (
    COOKIE,
    ROLE_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    SPEC_LABEL,
    ExistingContainer,
    Mount,
    Status,
)
from console.services.container import ContainerDriver, labels_of
from console.services.docker_client import connect, inspect
from console.services.engine_state import GONE_S
from tests.ports import free_port
from tests.services.containers import (
    Recorder,
    also_real,
    busy,
    only_real,
    service,
    unique,
)
from tests.services.made_engine import IMAGE, MadeEngine, Refused
from tests.waiting import until

MIB = 1024 * 1024


def look(client: docker.DockerClient, container: str) -> dict[str, Any]:
    found = inspect(client, container)
    assert found is not None
    return found


@also_real
def test_a_container_has_every_limit_and_label(
    client: docker.DockerClient,
    image: str,
    mine: dict[str, str],
    recorder: Recorder,
    tmp_path: Path,
) -> None:
    port = free_port()
    runs = busy(
        image,
        memory_bytes=64 * MIB,
        shm_bytes=8 * MIB,
        cpus=0.5,
        pids=77,
        ports=((port, 8080),),
        mounts=(Mount(str(tmp_path), "/data"),),
        env=(("WORD", "value"),),
        workdir="/data",
    )
    name = unique("limits")
    driver = ContainerDriver(service(name, runs), client, labels=mine)
    states: list[str] = []

    def record(handle: Any) -> None:
        recorder.handles.append(handle)
        states.append(look(client, handle.container)["State"]["Status"])

    handle = driver.start(replace(recorder.launch, record=record))
    assert (recorder.handles, states) == ([handle], ["created"]), "recorded before it runs"
    assert (handle.kind, handle.name, len(handle.container)) == ("container", f"omni-{name}", 64)
    found = look(client, handle.container)
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


def test_stop_is_graceful_and_twice_is_fine(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    driver = ContainerDriver(service(unique("graceful"), busy(image)), client, labels=mine)
    handle = driver.start(recorder.launch)
    until(lambda: driver.last_lines(handle, 1) == ["up"], "it has set its trap")
    driver.stop(handle, 10)
    status = driver.status(handle)
    assert (status.alive, status.exit_code) == (False, 0)
    driver.stop(handle, 10)
    assert driver.find() is None
    client.api.remove_container(handle.container)
    driver.stop(handle, 10)
    assert driver.status(handle) == Status(alive=False, detail="the container is gone")


@pytest.mark.parametrize("paused", [False, True])
def test_what_ignores_sigterm_is_killed(
    client: docker.DockerClient,
    image: str,
    mine: dict[str, str],
    recorder: Recorder,
    paused: bool,
) -> None:
    runs = busy(image, "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    driver = ContainerDriver(service(unique("stubborn"), runs), client, labels=mine)
    handle = driver.start(recorder.launch)
    until(lambda: driver.last_lines(handle, 1) == ["up"], "it has set its trap")
    if paused:
        client.api.pause(handle.container)
        assert driver.status(handle).detail == "paused"
    driver.stop(handle, 0 if paused else 0.1)  # whole seconds, rounded up
    status = driver.status(handle)
    assert (status.alive, status.exit_code) == (False, 137)


@only_real
def test_out_of_memory_is_said(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    eats = "x=0123456789abcdef; while :; do x=$x$x; done"
    runs = busy(image, "sh", "-c", eats, memory_bytes=16 * MIB)
    driver = ContainerDriver(service(unique("hungry"), runs), client, labels=mine)
    handle = driver.start(recorder.launch)
    until(lambda: not driver.status(handle).alive, "it has ended")
    status = driver.status(handle)
    assert status.oom_killed
    assert "16.0 MiB" in status.detail


def test_last_lines_are_clean(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    text = r"printf 'one\ntwo \033[2J\033]52;c;QUJD\007x\nthr\377ee\n'; exit 3"
    runs = busy(image, "sh", "-c", text)
    driver = ContainerDriver(service(unique("lines"), runs), client, labels=mine)
    handle = driver.start(recorder.launch)
    until(lambda: not driver.status(handle).alive, "it has ended")
    assert driver.status(handle).exit_code == 3
    assert driver.last_lines(handle, 2) == ["two x", "thr\ufffdee"]
    assert len(driver.last_lines(handle, 9)) == 3
    assert driver.last_lines(handle, 0) == []


def test_an_equal_older_one_is_reused(
    client: docker.DockerClient, image: str, mine: dict[str, str], tmp_path: Path
) -> None:
    spec, said = service(unique("again"), busy(image)), list[str]()
    first = ContainerDriver(spec, client, labels=mine)
    old = first.start(Recorder(tmp_path).launch)
    first.stop(old, 5)
    later = Recorder(tmp_path, "run-2")
    second = ContainerDriver(spec, client, labels=mine, say=said.append)
    assert second.find() is None
    again = second.start(later.launch)
    assert again.container == old.container
    assert later.handles == [again]
    assert second.status(again).alive
    assert "run-1" in said[0]
    assert labels_of(look(client, again.container))[RUN_LABEL] == "run-1"


def test_a_changed_older_one_is_renamed_aside(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    name, said, olds = unique("changed"), list[str](), []
    for pids in (10, 11, 12):
        runs = busy(image, pids=pids, name=f"{name}-c")
        driver = ContainerDriver(service(name, runs), client, labels=mine, say=said.append)
        olds.append(driver.start(recorder.launch))
        driver.stop(olds[-1], 5)
    assert len({old.container for old in olds}) == 3
    names = [look(client, old.container)["Name"].lstrip("/") for old in olds]
    assert names[2] == f"{name}-c"
    assert names[0] == f"{name}-c.{olds[0].container[:6]}-1"
    assert names[1] == f"{name}-c.{olds[1].container[:6]}-1"
    assert [aside in line for aside, line in zip(names, said, strict=False)] == [True] * 2


def test_a_changed_one_that_still_runs_is_refused(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    name = unique("running")
    older = ContainerDriver(service(name, busy(image, pids=10)), client, labels=mine)
    handle = older.start(recorder.launch)
    changed = busy(image, pids=11)
    for runs in (changed, replace(changed, name=unique("elsewhere"))):
        newer = ContainerDriver(service(name, runs), client, labels=mine)
        with pytest.raises(ServiceError) as caught:
            newer.start(recorder.launch)
        assert caught.value.hint == f"docker stop omni-{name}"
    assert older.status(handle).alive
    assert recorder.handles == [handle]


def test_a_foreign_container_is_left_alone(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    name = unique("theirs")
    theirs = client.api.create_container(image, ["sleep", "60"], name=name, labels=mine)
    runs = busy(image, name=name)
    driver = ContainerDriver(service(name, runs), client, labels=mine)
    with pytest.raises(ServiceError) as caught:
        driver.start(recorder.launch)
    assert f"docker rename {name} {name}.old" in caught.value.hint
    assert recorder.handles == []
    assert look(client, name)["Id"] == theirs["Id"]
    assert driver.find() is None
    client.api.start(theirs["Id"])
    assert driver.find() is None


def test_a_taken_port_is_said(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    port = free_port()
    drivers = [
        ContainerDriver(
            service(unique("port"), busy(image, ports=((port, 80),))), client, labels=mine
        )
        for _ in range(2)
    ]
    drivers[0].start(recorder.launch)
    with pytest.raises(EngineError) as caught:
        drivers[1].start(recorder.launch)
    assert str(port) in caught.value.detail
    assert "docker ps" in caught.value.hint


def test_gpus_without_the_toolkit_are_said(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    if "nvidia" in (client.api.info().get("Runtimes") or {}):
        pytest.skip("this engine has the NVIDIA runtime")
    uuids = ("GPU-6f3c1a52-0e7d-4b1c-9a44-96a1c0de6000",)
    for gpus, count, ids in ((("all",), -1, []), (uuids, 0, list(uuids))):
        runs = busy(image, gpus=gpus)
        driver = ContainerDriver(service(unique("gpu"), runs), client, labels=mine)
        with pytest.raises(EngineError):
            driver.start(recorder.launch)
        (asked,) = look(client, recorder.handles[-1].container)["HostConfig"]["DeviceRequests"]
        assert (asked["Count"], asked["DeviceIDs"]) == (count, ids)
        assert asked["Capabilities"] == [["gpu"]]


def test_an_engine_that_refuses_the_oom_score(
    client: docker.DockerClient,
    image: str,
    mine: dict[str, str],
    recorder: Recorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The refusal is real: the kernel's range ends at 1000, and so does the engine's."""
    monkeypatch.setattr("console.services.container.OOM_SCORE", 5000)
    said: list[str] = []
    driver = ContainerDriver(
        service(unique("score"), busy(image)), client, labels=mine, say=said.append
    )
    try:
        handle = driver.start(recorder.launch)
    except EngineError as error:
        pytest.fail(f"no fallback: {error.lines()}")
    assert driver.status(handle).alive
    assert look(client, handle.container)["HostConfig"]["OomScoreAdj"] == 0
    assert any("oom_score_adj" in line for line in said)


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
        driver.stop(handle, 1)
    assert sum(clock.slept) == pytest.approx(GONE_S, abs=0.2)
    client.close()


def test_somebody_elses_container_is_started_and_stopped_only(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    name = unique("baseline")
    driver = ContainerDriver(service("baseline", ExistingContainer(name)), client)
    with pytest.raises(ServiceError):
        driver.start(recorder.launch)
    config = client.api.create_host_config(restart_policy={"Name": "unless-stopped"})
    script = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]
    made = client.api.create_container(image, script, name=name, labels=mine, host_config=config)
    assert driver.find() is None
    handle = driver.start(recorder.launch)
    assert handle.container == made["Id"]
    assert driver.find() == handle
    driver.start(recorder.launch)
    driver.stop(handle, 5)
    assert not driver.status(handle).alive
    assert look(client, name)["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


@only_real
def test_restarts_are_counted(
    client: docker.DockerClient, image: str, mine: dict[str, str], recorder: Recorder
) -> None:
    name = unique("crashing")
    config = client.api.create_host_config(restart_policy={"Name": "always"})
    client.api.create_container(
        image, ["sh", "-c", "exit 9"], name=name, labels=mine, host_config=config
    )
    driver = ContainerDriver(service("crashing", ExistingContainer(name)), client)
    handle = driver.start(recorder.launch)
    until(lambda: driver.status(handle).restarts >= 2)
    seen = until(lambda: s if (s := driver.status(handle)).exit_code is not None else None)
    assert (seen.alive, seen.exit_code) == (True, 9)
