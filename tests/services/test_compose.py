"""Candidates from compose files, on a real engine with real Compose v2."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest

from console.errors import EngineError, ServiceError
from console.services import compose_command
from console.services.base import COOKIE, ROLE_LABEL, RUN_LABEL, SERVICE_LABEL, ComposeSpec
from console.services.compose import PROJECT, SERVICE, ComposeDriver, resolve_container, up_argv
from console.services.container import labels_of
from console.services.docker_client import inspect
from tests.services.containers import (
    Recorder,
    also_real,
    only_real,
    service,
    tidy_up,
    unique,
    with_real,
)
from tests.services.made_compose import MadeCompose
from tests.waiting import until

FILE = """
name: {project}
services:
  baseline:
    image: {image}
    command: [sh, -c, "while :; do sleep 0.1; done"]
    labels: {{omni.test: "{token}"}}
  candidate:
    image: {image}
    command: [sh, -c, "trap 'exit 0' TERM; echo up $$WORD; while :; do sleep 0.1; done"]
    profiles: [lab]
    restart: always
    container_name: {name}
    depends_on: [baseline]
    environment:
      WORD: ${{WORD}}
    volumes: ["models:/models"]
    deploy: {{resources: {{limits: {{memory: 900M, pids: 9}}}}}}
volumes:
  models:
    labels: {{omni.test: "{token}"}}
"""


class Stack:
    """A compose project of the operator's: its file, names, and drivers for its candidate."""

    def __init__(
        self,
        client: docker.DockerClient,
        image: str,
        label: dict[str, str],
        folder: Path,
        env: dict[str, str],
    ) -> None:
        self.client = client
        self.label = label
        self.folder = folder
        self.env = env
        self.project = unique("stack")
        self.name = unique("named")
        self.service = unique("lab")
        self.file = folder / "compose.yaml"
        self.said: list[str] = []
        (token,) = label.values()
        text = FILE.format(project=self.project, image=image, token=token, name=self.name)
        self.file.write_text(text)

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def driver(self, **more: Any) -> ComposeDriver:
        runs = ComposeSpec(
            **{
                "files": (self.file,),
                "service": "candidate",
                "profiles": ("lab",),
                "env": (("WORD", "hello"),),
                "memory_bytes": 64 * 1024 * 1024,
                **more,
            }
        )
        spec = service(self.service, runs)
        return ComposeDriver(
            spec, self.client, self.folder / "run", labels=self.label, say=self.said.append
        )

    def docker(self, *argv: str) -> str:
        done = subprocess.run(
            ["docker", *argv],
            env={**os.environ, **self.env, "WORD": "x"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def containers(self) -> list[str]:
        rows = self.client.api.containers(
            all=True, filters={"label": [f"{key}={value}" for key, value in self.label.items()]}
        )
        return sorted(row["Names"][0] for row in rows)


@pytest.fixture
def stack(
    client: docker.DockerClient,
    image: str,
    mine: dict[str, str],
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stack]:
    if request.node.callspec.params["client"] == "made":
        run = MadeCompose(request.getfixturevalue("made"))
        monkeypatch.setattr(compose_command, "_run", run)
        yield Stack(client, image, mine, tmp_path, {})
        return
    docker_env = request.getfixturevalue("docker_env")
    for key, value in docker_env.items():
        monkeypatch.setenv(key, value)
    made = Stack(client, image, mine, tmp_path, docker_env)
    yield made
    tidy_up(client.api, made.project, made.service)


def look(stack: Stack, container: str) -> dict[str, Any]:
    found = inspect(stack.client, container)
    assert found is not None
    return found


@also_real
def test_a_candidate_has_limits_labels_and_drags_nothing_along(
    stack: Stack, recorder: Recorder
) -> None:
    driver, states = stack.driver(), list[str]()

    def record(handle: Any) -> None:
        recorder.handles.append(handle)
        states.append(look(stack, handle.container)["State"]["Status"])

    handle = driver.start(replace(recorder.launch, record=record))
    assert recorder.handles == [handle]
    assert states == ["created"]
    assert stack.containers() == [f"/{stack.name}"]
    found = look(stack, handle.container)
    host, labels = found["HostConfig"], labels_of(found)
    assert host["Memory"] == host["MemorySwap"] == 64 * 1024 * 1024
    assert host["RestartPolicy"]["Name"] == "no"
    assert (host["OomScoreAdj"], host["PidsLimit"]) == (1000, 4096)
    assert host["LogConfig"]["Config"]["mode"] == "non-blocking"
    assert (labels[ROLE_LABEL], labels[RUN_LABEL]) == ("candidate", "run-1")
    assert labels[SERVICE_LABEL] == stack.service
    project = labels["com.docker.compose.project"]
    assert project.startswith(f"omni-{stack.service}-")
    assert f"{COOKIE}=run-1" in found["Config"]["Env"]
    assert driver.find() == handle
    until(lambda: driver.last_lines(handle, 5) == ["up hello"], "its last lines are there")
    driver.stop(handle, 5)
    assert driver.status(handle).exit_code == 0
    assert driver.find() is None


def test_an_equal_one_is_reused_and_a_changed_one_gets_a_project_of_its_own(
    stack: Stack, recorder: Recorder
) -> None:
    first = stack.driver().start(recorder.launch)
    stack.driver().stop(first, 5)
    again = stack.driver().start(replace(recorder.launch, run_id="run-2"))
    assert again.container == first.container
    assert any(stack.name in line for line in stack.said)
    stack.driver().stop(again, 5)
    stack.edit("echo up", "echo changed")
    changed = stack.driver().start(recorder.launch)
    assert changed.container != first.container
    assert changed.name == stack.name
    assert look(stack, first.container)["Name"] == f"/{stack.name}.{first.container[:6]}-1"
    assert not look(stack, first.container)["State"]["Running"]


def test_a_changed_one_that_still_runs_is_refused(stack: Stack, recorder: Recorder) -> None:
    stack.edit(f"    container_name: {stack.name}\n", "")
    first = stack.driver().start(recorder.launch)
    stack.edit("echo up", "echo changed")
    with pytest.raises(ServiceError) as caught:
        stack.driver().start(recorder.launch)
    assert caught.value.hint == f"docker stop {first.name}"
    assert len(stack.containers()) == 1


def test_the_operators_own_containers_are_left_alone(
    stack: Stack, recorder: Recorder, image: str
) -> None:
    stack.client.api.create_container(image, ["true"], name=stack.name, labels=stack.label)
    theirs = look(stack, stack.name)
    with pytest.raises(ServiceError):
        stack.driver().start(recorder.launch)
    assert recorder.handles == []
    assert look(stack, stack.name)["Id"] == theirs["Id"]
    assert look(stack, stack.name)["State"]["Status"] == "created"


@only_real
@pytest.mark.parametrize("network", ["", "networks: {default: {driver: bridge}}\n"])
def test_the_operators_volumes_and_networks_are_shared(
    stack: Stack, recorder: Recorder, network: str
) -> None:
    stack.edit("volumes:\n  models:\n", f"{network}volumes:\n  models:\n")
    stack.docker("compose", "-f", str(stack.file), "up", "-d", "baseline")
    stack.docker("volume", "create", f"{stack.project}_models")
    shared = look_network(stack, f"{stack.project}_default")
    if network:  # compose would make a network anew that differs from the file
        stack.edit("driver: bridge", "driver: bridge, attachable: true")
    handle = stack.driver().start(recorder.launch)
    found = look(stack, handle.container)
    assert [mount["Name"] for mount in found["Mounts"]] == [f"{stack.project}_models"]
    assert list(found["NetworkSettings"]["Networks"]) == [f"{stack.project}_default"]
    assert look_network(stack, f"{stack.project}_default")["Id"] == shared["Id"]


def look_network(stack: Stack, name: str) -> dict[str, Any]:
    return dict(stack.client.api.inspect_network(name))


def test_a_baseline_is_found_by_its_labels(
    client: docker.DockerClient, image: str, mine: dict[str, str], tmp_path: Path
) -> None:
    """Never one of the console's own, nor a command that compose ran once."""
    file, project, other = tmp_path / "compose.yaml", unique("stack"), unique("other")

    def make(of: str, at: Path = file, **more: str) -> str:
        marks = {f"{PROJECT}": of, SERVICE: "baseline", f"{PROJECT}.config_files": f"/x,{at}"}
        made = client.api.create_container(image, ["sleep", "60"], labels={**mine, **marks, **more})
        return str(made["Id"])

    assert resolve_container(client, (file,), "baseline") is None
    make(other, **{ROLE_LABEL: "candidate"})
    make(other, **{"com.docker.compose.oneoff": "True"})
    make(other, Path("/elsewhere.yaml"))
    assert resolve_container(client, (file,), "baseline") is None
    first = make(project)
    client.api.start(first)
    make(project)
    assert resolve_container(client, (file,), "baseline") == first, "the one that runs"
    assert resolve_container(client, (), "baseline", project) == first
    assert resolve_container(client, (), "baseline", "no-such-project") is None
    assert resolve_container(client, (file,), "another") is None
    make(other)
    with pytest.raises(ServiceError) as caught:
        resolve_container(client, (file,), "baseline")
    assert caught.value.detail == ", ".join(sorted((project, other)))


@only_real
def test_the_fallback_starts_a_baseline_without_recreating_it(stack: Stack) -> None:
    stack.docker("compose", "-f", str(stack.file), "create", "baseline")
    before = resolve_container(stack.client, (stack.file,), "baseline")
    stack.edit('while :; do sleep 0.1; done"]\n    labels', 'sleep 600"]\n    labels')
    stack.docker(*up_argv((stack.file,), "baseline")[1:])
    assert resolve_container(stack.client, (stack.file,), "baseline") == before
    assert before is not None
    assert look(stack, before)["State"]["Running"]


LAB = "profiles: [lab]"


@pytest.mark.parametrize(
    ("client", "old", "new", "words"),
    [
        ("made", "  candidate:", "  other:", "candidate"),
        ("made", LAB, "profiles: [elsewhere]", "candidate"),
        ("made", "services:", "services: [", "expected"),
        with_real(LAB, "profiles: [elsewhere]", "candidate"),
        with_real("container_name", "contaner_name", "contaner_name"),
        with_real("services:", "services: [", "yaml"),
        with_real("restart: always", "image: registry.invalid/none:1", "already"),
    ],
    indirect=["client"],
)
def test_what_is_wrong_with_the_file_is_said(
    stack: Stack, recorder: Recorder, old: str, new: str, words: str
) -> None:
    stack.edit(old, new)
    with pytest.raises(ServiceError, match=words):
        stack.driver().start(recorder.launch)
    assert stack.containers() == []


def test_a_missing_image_is_not_pulled(stack: Stack, recorder: Recorder, image: str) -> None:
    stack.edit(f"image: {image}", "image: registry.invalid/none:1")
    with pytest.raises(ServiceError) as caught:
        stack.driver().start(recorder.launch)
    assert caught.value.hint == "docker pull registry.invalid/none:1"


def test_a_variable_that_is_not_set_is_said(stack: Stack) -> None:
    stack.driver(env=()).resolve()
    assert any("$WORD" in line for line in stack.said)


@only_real
def test_without_the_plugin(
    stack: Stack, recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "empty"))
    with pytest.raises(EngineError) as caught:
        stack.driver().start(recorder.launch)
    assert "docker-compose-plugin" in caught.value.hint


def test_compose_carries_the_cookie_of_the_run(
    stack: Stack, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []
    real = compose_command._run

    def spy(argv: Any, env: Any, what: str, seconds: float) -> tuple[int, bytes, bytes]:
        if "up" in argv:
            seen.append(dict(env))
        return real(argv, env, what, seconds)

    monkeypatch.setattr(compose_command, "_run", spy)
    stack.driver().start(recorder.launch)
    assert [env.get(COOKIE) for env in seen] == [recorder.launch.run_id] * 2


def test_the_override_holds_no_environment_of_the_service(stack: Stack, recorder: Recorder) -> None:
    stack.driver(env=(("WORD", "hf_canary"),)).start(recorder.launch)
    (override,) = (stack.folder / "run").iterdir()
    assert "hf_canary" not in override.read_text()
    assert json.loads(override.read_text())["services"]["candidate"]["restart"] == "no"
