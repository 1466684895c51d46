"""Candidates from compose files, on a real engine with real Compose v2."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import EngineError, ServiceError
from console.host.process import COOKIE
from console.runtime.docker import compose
from console.runtime.docker.compose import (
    PROJECT,
    SERVICE,
    ComposeDriver,
    resolve_container,
    up_argv,
)
from console.runtime.docker.engine_state import labels_of
from console.runtime.spec import (
    OWNER_LABEL,
    ROLE_LABEL,
    RUN_LABEL,
    SERVICE_LABEL,
    ComposeSpec,
    Handle,
)
from tests.licences import CANDIDATE
from tests.runtime.containers import (
    Place,
    also_real,
    only_real,
    service,
    tidy_up,
    unique,
    with_real,
)
from tests.runtime.made_compose import MadeCompose
from tests.waiting import some, until

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
    deploy: {{resources: {{limits: {{memory: 900M}}}}}}
volumes:
  models:
    labels: {{omni.test: "{token}"}}
"""


class Stack:
    """A compose project of the operator's: its file, names, and drivers for its candidate."""

    def __init__(self, place: Place, env: dict[str, str]) -> None:
        self.place, self.client, self.env = place, place.client, env
        self.project, self.name, self.service = unique("stack"), unique("named"), unique("lab")
        self.file = place.folder / "compose.yaml"
        (token,) = place.mine.values()
        names = {"project": self.project, "image": place.image, "token": token, "name": self.name}
        self.file.write_text(FILE.format(**names))

    def edit(self, old: str, new: str) -> None:
        text = self.file.read_text()
        assert old in text
        self.file.write_text(text.replace(old, new))

    def driver(self, site: str = "", **more: Any) -> ComposeDriver:
        usual = {
            "files": (self.file,), "service": "candidate", "profiles": ("lab",),
            "env": (("WORD", "hello"),), "memory_bytes": 64 * 1024 * 1024,
        }  # fmt: skip
        spec = service(self.service, ComposeSpec(**{**usual, **more}))
        return ComposeDriver(
            spec, self.client, self.place.folder / "run", labels=self.place.mine,
            site=site, say=self.place.said.append,
        )  # fmt: skip

    def start(self, **more: Any) -> Handle:
        return self.driver(**more).start(self.place.launch)

    def docker(self, *argv: str) -> None:
        env = {**os.environ, **self.env, "WORD": "x"}
        done = subprocess.run(["docker", *argv], env=env, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr

    def containers(self) -> list[str]:
        ((key, value),) = self.place.mine.items()
        rows = self.client.api.containers(all=True, filters={"label": f"{key}={value}"})
        return sorted(row["Names"][0] for row in rows)


@pytest.fixture
def stack(
    place: Place, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stack]:
    if request.node.callspec.params["client"] == "made":
        run = MadeCompose(request.getfixturevalue("made"))
        monkeypatch.setattr(compose, "_run", run)
        yield Stack(place, {})
        return
    docker_env = request.getfixturevalue("docker_env")
    for key, value in docker_env.items():
        monkeypatch.setenv(key, value)
    made = Stack(place, docker_env)
    yield made
    tidy_up(place.client.api, made.project, made.service)


@also_real
def test_a_candidate_has_limits_labels_and_drags_nothing_along(stack: Stack) -> None:
    driver = stack.driver()
    handle = driver.start(stack.place.launch)
    assert (stack.place.handles, stack.place.states) == ([handle], ["created"])
    assert stack.containers() == [f"/{stack.name}"]
    found = stack.place.look(handle.container)
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
    driver.stop(CANDIDATE, handle, 5)
    assert driver.status(handle).exit_code == 0
    assert driver.find() is None


def test_an_equal_one_is_reused_and_a_changed_one_gets_a_project_of_its_own(stack: Stack) -> None:
    first = stack.start()
    stack.driver().stop(CANDIDATE, first, 5)
    again = stack.driver().start(replace(stack.place.launch, run_id="run-2"))
    assert again.container == first.container
    assert any(stack.name in line for line in stack.place.said)
    stack.driver().stop(CANDIDATE, again, 5)
    stack.edit("echo up", "echo changed")
    changed = stack.start()
    assert changed.container != first.container
    assert changed.name == stack.name
    aside = stack.place.look(first.container)
    assert aside["Name"] == f"/{stack.name}.{first.container[:6]}-1"
    assert not aside["State"]["Running"]


@also_real
def test_arguments_follow_the_words_of_the_services_command(stack: Stack) -> None:
    stack.edit("echo up $$WORD", "echo up $$WORD $$0 $$1")
    handle = stack.start(args=("-ot", r"blk\.3=$HOME 'x'"))
    command = stack.place.look(handle.container)["Config"]["Cmd"]
    assert command[:2] == ["sh", "-c"]
    assert [word.replace("$$", "$") for word in command[3:]] == ["-ot", r"blk\.3=$HOME 'x'"]
    assert stack.driver().find() is None  # one with other arguments is another candidate


def test_arguments_need_a_command_to_follow(stack: Stack) -> None:
    text = stack.file.read_text()
    start = text.index('    command: [sh, -c, "trap')
    stack.file.write_text(text[:start] + text[text.index("\n", start) + 1 :])
    with pytest.raises(ServiceError, match="no command to which"):
        stack.driver(args=("-x",)).resolve()
    assert stack.driver().resolve()


def test_a_changed_one_that_still_runs_is_refused(stack: Stack) -> None:
    stack.edit(f"    container_name: {stack.name}\n", "")
    stack.start()
    stack.edit("echo up", "echo changed")
    with pytest.raises(ServiceError) as caught:
        stack.start()
    assert "omni-console rollback" in caught.value.hint
    assert len(stack.containers()) == 1


@pytest.mark.parametrize("named", [True, False])
def test_one_of_another_site_is_not_taken_over(stack: Stack, named: bool) -> None:
    """While it runs it is refused; stopped, it stays as it is, and ours has a project of its own.
    `named`: the file gives it a name, so that one is moved aside."""
    if not named:
        stack.edit(f"    container_name: {stack.name}\n", "")
    theirs, mine = stack.driver("lab"), stack.driver("mine")
    old = theirs.start(stack.place.launch)
    for call in (mine.find, lambda: mine.start(stack.place.launch)):
        with pytest.raises(ServiceError, match="on the site lab"):
            call()
    assert theirs.find() == old
    theirs.stop(CANDIDATE, old, 5)
    assert mine.find() is None
    new = mine.start(stack.place.launch)
    assert new.container != old.container
    assert labels_of(stack.place.look(new.container))[OWNER_LABEL] == f"{os.getuid()}:mine"
    assert not theirs.status(old).alive
    stack.client.api.remove_container(old.container)
    assert mine.find() == new, "whatever becomes of theirs"


def test_the_operators_own_containers_are_left_alone(stack: Stack) -> None:
    theirs = stack.place.create("true", name=stack.name)
    with pytest.raises(ServiceError):
        stack.start()
    assert stack.place.handles == []
    found = stack.place.look(stack.name)
    assert (found["Id"], found["State"]["Status"]) == (theirs, "created")


@only_real
@pytest.mark.parametrize("network", ["", "networks: {default: {driver: bridge}}\n"])
def test_the_operators_volumes_and_networks_are_shared(stack: Stack, network: str) -> None:
    name = f"{stack.project}_default"
    stack.edit("volumes:\n  models:\n", f"{network}volumes:\n  models:\n")
    stack.docker("compose", "-f", str(stack.file), "up", "-d", "baseline")
    stack.docker("volume", "create", f"{stack.project}_models")
    shared = stack.client.api.inspect_network(name)["Id"]
    if network:  # compose would make a network anew that differs from the file
        stack.edit("driver: bridge", "driver: bridge, attachable: true")
    found = stack.place.look(stack.start().container)
    assert [mount["Name"] for mount in found["Mounts"]] == [f"{stack.project}_models"]
    assert list(found["NetworkSettings"]["Networks"]) == [name]
    assert stack.client.api.inspect_network(name)["Id"] == shared


def test_a_baseline_is_found_by_its_labels(place: Place) -> None:
    """Never one of the console's own, nor a command that compose ran once."""
    client, file = place.client, place.folder / "compose.yaml"
    project, other = unique("stack"), unique("other")

    def make(of: str, at: Path = file, **more: str) -> str:
        marks = {f"{PROJECT}": of, SERVICE: "baseline", f"{PROJECT}.config_files": f"/x,{at}"}
        labels = {**place.mine, **marks, **more}
        made = client.api.create_container(place.image, ["sleep", "60"], labels=labels)
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
    stack.docker(*up_argv((stack.file,), "baseline", "", ())[1:])
    assert resolve_container(stack.client, (stack.file,), "baseline") == before
    assert stack.place.look(some(before))["State"]["Running"]


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
def test_what_is_wrong_with_the_file_is_said(stack: Stack, old: str, new: str, words: str) -> None:
    stack.edit(old, new)
    with pytest.raises(ServiceError, match=words):
        stack.start()
    assert stack.containers() == []


def test_a_missing_image_is_not_pulled(stack: Stack) -> None:
    stack.edit(f"image: {stack.place.image}", "image: registry.invalid/none:1")
    with pytest.raises(ServiceError) as caught:
        stack.start()
    assert caught.value.hint == "docker pull registry.invalid/none:1"


def test_a_variable_that_is_not_set_is_said(stack: Stack) -> None:
    stack.driver(env=()).resolve()
    assert any("$WORD" in line for line in stack.place.said)


@only_real
def test_without_the_plugin(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(stack.place.folder / "empty"))
    with pytest.raises(EngineError) as caught:
        stack.start()
    assert "docker-compose-plugin" in caught.value.hint


def test_compose_carries_the_cookie_of_the_run(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []
    real = compose._run

    def spy(argv: Any, env: Any, what: str, seconds: float) -> tuple[int, bytes, bytes]:
        seen.extend([env.get(COOKIE)] if "up" in argv else [])
        return real(argv, env, what, seconds)

    monkeypatch.setattr(compose, "_run", spy)
    stack.start()
    assert seen == [stack.place.launch.run_id] * 2
