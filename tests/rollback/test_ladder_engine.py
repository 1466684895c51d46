"""The rollback of containers: on an engine in this process, and on a real one with llama.cpp."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from console.host.ports import port_of
from console.recovery.rollback import live, observe, procedure, standby
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.live import Live
from console.recovery.rollback.look import container_state
from console.recovery.rollback.progress import PROGRESS_FILE, Follower, Line, size_of
from console.recovery.rollback.script import write
from console.recovery.rollback.sealed_plan import Baseline, Candidate, EngineAddress, SealedPlan
from console.recovery.rollback.stages import start, verify
from console.runtime.answers.completion import Completion
from console.runtime.engine_api import COMPOSE_PROJECT, COMPOSE_SERVICE, ONE_OFF, RawEngine
from tests.ports import free_port
from tests.rollback.conftest import DASH, RollsBack, standin
from tests.runtime.made_engine import IMAGE, MadeEngine, made_engine
from tests.testbed.door import door
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_llama
from tests.waiting import until

_REAL = (pytest.mark.engine, pytest.mark.alone)
KINDS = ["made", pytest.param("real", marks=[*_REAL, pytest.mark.full])]
only_real = pytest.mark.parametrize("yard", KINDS[1:], indirect=True)


def server(base: Baseline) -> list[str]:
    return list(standin(int(base.url.rpartition(":")[2])).argv)


@dataclass
class Yard(RollsBack):
    """An engine with a stopped baseline container and running candidates."""

    engine: Engine | MadeEngine
    raw: RawEngine
    plan: SealedPlan
    label: str
    image: str
    create: Callable[[str, list[str], dict[str, str]], str]
    """Creates a container from its name, its command and its labels; returns its id."""
    lines: list[Line] = field(default_factory=list)

    def candidate(self, role: str = "candidate", command: str = "sleep 600", **more: str) -> str:
        labels = {"omni.role": role} if role else {}
        name = f"cand-{uuid.uuid4().hex[:8]}"
        identity = self.create(name, ["sh", "-c", command], labels | more)
        self.raw.start(identity)
        return identity

    def up(self, identity: str) -> bool:
        return bool(self.raw.inspect(identity)["State"]["Running"])

    def name(self, identity: str) -> str:
        return str(self.raw.inspect(identity)["Name"]).lstrip("/")

    def record(self, name: str, container: str) -> None:
        path = self.plan.rollback_dir / live.LIVE
        live.append(path, Live("container", name, container=container))

    def create_baseline(self, name: str) -> str:
        """Create a llama.cpp container at a port of this machine, or its stand-in process."""
        port = self.plan.baseline.url.rpartition(":")[2]
        if isinstance(self.engine, MadeEngine):
            return self.create(name, list(standin(int(port)).argv), {})
        models = str(Path(self.plan.run_dir) / "models")
        return self.engine.run(
            "create", "--name", name, "--label", self.label,
            "-p", f"127.0.0.1:{port}:8080", "-v", f"{models}:/models:ro",
            self.image, "llama-server", "-m", "/models/tiny.gguf",
            "--host", "0.0.0.0", "--port", "8080", "-c", "512", "-t", "1",
        ).strip()  # fmt: skip

    def remove(self, identity: str) -> None:
        if isinstance(self.engine, MadeEngine):
            self.engine.route("DELETE", f"/containers/{identity}", {}, None)
        else:
            self.engine.run("rm", identity)


@contextmanager
def in_this_process(path: Path, stack: ExitStack) -> Iterator[Yard]:
    engine = stack.enter_context(made_engine())
    plan = sealed_for(path, EngineAddress(engine.path, engine.host))
    yield Yard(engine, RawEngine(engine.path, 60.0), plan, "", IMAGE, engine.make)


@contextmanager
def on_a_real_one(request: pytest.FixtureRequest, path: Path, stack: ExitStack) -> Iterator[Yard]:
    engine, busy = (request.getfixturevalue(name) for name in ("engine", "busy_image"))
    scope = uuid.uuid4().hex
    label = f"omni.test={scope}"
    (path / "models").mkdir()
    tiny_llama(path / "models" / "tiny.gguf")
    through = stack.enter_context(door(path / "s", engine.socket, ("omni.test", scope)))
    address = EngineAddress(through, f"unix://{through}", engine.docker_config)

    def create(name: str, argv: list[str], labels: dict[str, str]) -> str:
        marks = [word for key, value in labels.items() for word in ("--label", f"{key}={value}")]
        words = ["create", "--init", "--name", name, "--label", label, *marks, busy, *argv]
        return str(engine.run(*words).strip())

    raw, image = RawEngine(engine.socket, 60.0), request.getfixturevalue("llama_image")
    try:
        yield Yard(engine, raw, sealed_for(path, address), label, image, create)
    finally:
        if ids := engine.run("ps", "-aq", "--filter", f"label={label}").split():
            engine.run("rm", "-f", "-v", *ids)


def sealed_for(path: Path, engine: EngineAddress) -> SealedPlan:
    url, name = f"http://127.0.0.1:{free_port()}", f"base-{uuid.uuid4().hex[:8]}"
    base = Baseline("baseline", "container", url, ready_timeout_s=60.0, container_name=name)
    return SealedPlan(
        run_id=name, run_dir=str(path), baseline=base, engine=engine,
        memory_file=str(path / "restore.json"), grace_s=3.0,
    )  # fmt: skip


@pytest.fixture(params=KINDS)
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        real = request.param == "real"
        make = on_a_real_one(request, tmp_path, stack) if real else in_this_process(tmp_path, stack)
        made = stack.enter_context(make)
        base = made.plan.baseline
        identity = made.create_baseline(base.container_name)
        made.plan = replace(made.plan, baseline=replace(base, container_id=identity))
        sealed.write(made.plan, made.plan.rollback_dir / sealed.PLAN)
        yield made


@pytest.mark.parametrize("yard", ["made", pytest.param("real", marks=_REAL)], indirect=True)
def test_stops_candidates_of_every_source_and_restores(yard: Yard) -> None:
    labelled, oneoff = yard.candidate(), yard.candidate("oneoff")
    recorded, bystander = yard.candidate(""), yard.candidate("")
    yard.record("cand", recorded)
    yard.record("baseline", yard.plan.baseline.container_id)
    result = yard.roll_back()
    assert result.serving, yard.lines
    assert result.restore_s is not None
    assert result.tok_s is not None
    assert result.tok_s > 0
    assert not any(yard.up(one) for one in (labelled, oneoff, recorded))
    assert yard.up(bystander)
    assert yard.up(yard.plan.baseline.container_id)
    started = yard.raw.inspect(yard.plan.baseline.container_id)["State"]["StartedAt"]
    assert yard.roll_back().nothing_to_do
    assert yard.raw.inspect(yard.plan.baseline.container_id)["State"]["StartedAt"] == started


@pytest.mark.parametrize("yard", ["made"], indirect=True)
@pytest.mark.parametrize("state", [{"Restarting": True, "Pid": 0}, {"Paused": True}, {"Pid": 0}])
def test_a_container_that_cannot_answer_is_not_what_answers(
    yard: Yard, state: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.roll_back()
    assert yard.roll_back().nothing_to_do
    yard.plan = replace(yard.plan, baseline=replace(yard.plan.baseline, ready_timeout_s=1.0))
    inspect = RawEngine.inspect

    def inspected(self: RawEngine, name: str) -> dict[str, Any]:
        found = inspect(self, name)
        return {**found, "State": {**found["State"], **state}}

    monkeypatch.setattr(RawEngine, "inspect", inspected)
    assert not yard.roll_back().serving, yard.lines


@pytest.mark.parametrize("yard", ["made"], indirect=True)
def test_a_container_that_was_started_anew_during_its_proof_is_proven_anew(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.roll_back()
    inspect, ask = RawEngine.inspect, verify._ask_proof
    life = ["first"]

    def asked(*arguments: Any) -> Completion:
        life[:] = ["second"]
        return ask(*arguments)

    def inspected(self: RawEngine, name: str) -> dict[str, Any]:
        found = inspect(self, name)
        if name == yard.plan.baseline.container_name:  # whose name it is, is asked once more
            return found
        return {**found, "State": {**found["State"], "StartedAt": life[0]}}

    monkeypatch.setattr(observe.Observed, "is_ours", lambda *_: True)
    monkeypatch.setattr(RawEngine, "inspect", inspected)
    monkeypatch.setattr(verify, "_ask_proof", asked)
    result = yard.roll_back()
    assert result.serving, yard.lines
    assert any("restarted during its proof" in one for one in yard.said("completion", "note"))


@only_real
@pytest.mark.parametrize("by", ["ladder", "script", "command"])
def test_a_container_with_the_labels_of_its_image_is_no_candidate(
    yard: Yard, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker commit` of a candidate keeps them; what somebody runs of that image is his own."""
    assert isinstance(yard.engine, Engine)
    image = f"{yard.plan.run_id}:good"
    candidate = yard.candidate()
    yard.engine.run("commit", candidate, image)
    try:
        name = f"prod-{yard.plan.run_id}"
        theirs = yard.engine.run("run", "-d", "--name", name, "--label", yard.label, image).strip()
        if by == "command":
            monkeypatch.setattr(procedure, "engine_of", lambda *_: None)
        if by == "script":
            env = {**os.environ, "DOCKER_HOST": yard.engine.host}
            script = [str(DASH), str(write.write(yard.plan, yard.plan.rollback_dir))]
            done = subprocess.run(script, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
        else:
            assert yard.roll_back().serving, yard.lines
            assert any("are those of its image" in words for words in yard.said("stop", "note"))
        assert (yard.up(candidate), yard.up(theirs)) == (False, True)
    finally:
        yard.engine.run("rm", "-f", name)
        yard.engine.run("rmi", image)


def test_candidate_that_ignores_the_signal_is_killed(yard: Yard) -> None:
    yard.plan = replace(yard.plan, grace_s=1.0)
    stubborn = yard.candidate(command="trap '' TERM; while :; do sleep 1; done")
    assert yard.roll_back().serving
    assert not yard.up(stubborn)


@only_real
def test_a_candidate_in_a_container_has_its_grace(yard: Yard, busy_image: str) -> None:
    """Root finds its processes by the run's cookie, but the fence must not take them for strays."""
    body = "trap 'trap \"\" TERM; sleep 5; exit 5' TERM; while :; do sleep 0.1; done"
    yard.plan = replace(yard.plan, grace_s=20.0)
    assert isinstance(yard.engine, Engine)
    slow = yard.engine.run(
        "run", "-d", "--init", "--label", yard.label, "--label", "omni.role=candidate",
        "--env", f"OMNI_RUN={yard.plan.run_id}", busy_image, "sh", "-c", body,
    ).strip()  # fmt: skip
    assert yard.roll_back().serving
    assert yard.raw.inspect(slow)["State"]["ExitCode"] == 5


def test_protected_and_baseline_keep_running_even_with_the_label(yard: Yard) -> None:
    protected = yard.candidate()
    yard.plan = replace(yard.plan, protected=(yard.name(protected),))
    assert yard.roll_back().serving
    assert yard.up(protected)


def test_container_gone_goes_by_name(yard: Yard) -> None:
    base = yard.plan.baseline
    yard.remove(base.container_id)
    fresh = yard.create_baseline(base.container_name)
    assert yard.roll_back().serving
    assert yard.up(fresh)
    assert len(yard.said("start", "note")) == 1


@pytest.mark.parametrize("yard", ["made"], indirect=True)
@pytest.mark.parametrize("there", [True, False])
def test_the_name_comes_before_the_id_where_no_run_is_on(yard: Yard, there: bool) -> None:
    """The last run's container was kept under another name; a new one may have its old name."""
    base = yard.plan.baseline
    assert isinstance(yard.engine, MadeEngine)
    yard.engine.find(base.container_id).name = f"{base.container_name}-old"
    fresh = yard.create_baseline(base.container_name) if there else ""
    yard.plan = replace(yard.plan, baseline=replace(base, by_name=True))
    assert yard.roll_back().serving, yard.lines
    assert yard.up(fresh or base.container_id)
    assert not there or not yard.up(base.container_id)


@pytest.mark.parametrize("yard", ["made"], indirect=True)
def test_a_plan_without_a_container_goes_by_the_labels_of_compose(
    yard: Yard, tmp_path: Path
) -> None:
    """The engine was away at the seal, and an unrelated container has the service's name."""
    base, file = yard.plan.baseline, tmp_path / "compose.yaml"
    yard.remove(base.container_id)
    labels = {COMPOSE_SERVICE: "base", f"{COMPOSE_PROJECT}.config_files": str(file)}
    stranger = yard.create("base", ["sleep", "600"], {COMPOSE_SERVICE: "base"})
    ours = yard.create("p-base-1", server(base), labels)
    argv = ("docker", "compose", "-f", str(file), "up", "-d", "base")
    unnamed = replace(base, container_id="", container_name="", compose_argv=argv)
    yard.plan = replace(yard.plan, baseline=unnamed)
    sealed.write(yard.plan, tmp_path / "sealed.json")
    yard.plan = sealed.read(tmp_path / "sealed.json")
    assert yard.roll_back().serving, yard.lines
    assert (yard.up(ours), yard.up(stranger)) == (True, False)


@pytest.mark.parametrize("yard", ["made"], indirect=True)
def test_only_what_compose_made_is_its_baseline(yard: Yard, tmp_path: Path) -> None:
    base = yard.plan.baseline
    argv = ("docker", "compose", "-f", str(tmp_path / "compose.yaml"), "up", "-d", "base")
    unnamed = replace(base, container_id="", container_name="", compose_argv=argv)
    plan = replace(yard.plan, baseline=unnamed)
    yard.remove(base.container_id)
    assert not observe.answers(plan, known=False), "there is none"
    made = f"{COMPOSE_PROJECT}.config_files"
    moved = yard.create("a", ["sleep", "600"], {COMPOSE_SERVICE: "base", made: "/moved/c.yaml"})
    assert [observe.answers(plan, known=known) for known in (False, True)] == [True, False]
    yard.remove(moved)
    labels = {COMPOSE_SERVICE: "base", made: str(tmp_path / "../" / tmp_path.name / "compose.yaml")}
    yard.create("b", server(base), labels)
    assert not observe.answers(plan, known=False), "it does not run"


@pytest.mark.parametrize("yard", ["made"], indirect=True)
@pytest.mark.parametrize("known", ["nothing", "name", "name and id"])
def test_a_container_of_compose_run_is_not_the_services(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """Whatever it answers, and whatever name `--name` gave it, it is not taken for the baseline,
    and nothing is started beside it."""
    base, file = yard.plan.baseline, tmp_path / "compose.yaml"
    argv = ("docker", "compose", "-f", str(file), "up", "-d", "base")
    named = "p-base-run-1" if "name" in known else ""
    identity = base.container_id if "id" in known else ""
    unnamed = replace(base, container_id=identity, container_name=named, compose_argv=argv)
    yard.plan = replace(yard.plan, baseline=unnamed)
    yard.remove(base.container_id)
    labels = {COMPOSE_SERVICE: "base", f"{COMPOSE_PROJECT}.config_files": str(file)}
    one_off = yard.create("p-base-run-1", server(base), {**labels, ONE_OFF: "True"})
    yard.raw.start(one_off)
    inspect = RawEngine.inspect

    def published(engine: RawEngine, name: str) -> dict[str, Any]:
        port = [{"HostIp": "127.0.0.1", "HostPort": str(port_of(base.url))}]
        found = inspect(engine, name)
        found["HostConfig"] = {"PortBindings": {"8000/tcp": port}}
        return found | {"NetworkSettings": {"Ports": {"8000/tcp": port}}}

    monkeypatch.setattr(RawEngine, "inspect", published)
    monkeypatch.setattr(RollbackContext, "command", lambda *_: pytest.fail("nothing is started"))
    assert not observe.answers(yard.plan, known=False)
    result = yard.roll_back()
    assert not result.serving
    assert "p-base-run-1" in result.detail, result
    assert yard.up(one_off)
    assert "p-base-run-1" in container_state(yard.plan, 2.0)[1]


@pytest.mark.parametrize("yard", ["made"], indirect=True)
def test_compose_may_give_the_baseline_another_name(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, file = yard.plan.baseline, tmp_path / "compose.yaml"
    yard.remove(base.container_id)
    labels = {COMPOSE_SERVICE: "base", f"{COMPOSE_PROJECT}.config_files": str(file)}
    argv = ("docker", "compose", "-f", str(file), "up", "-d", "base")

    def up(context: RollbackContext, command: list[str], _: float) -> None:
        assert tuple(command) == argv
        yard.raw.start(yard.create("new", server(base), labels))

    monkeypatch.setattr(RollbackContext, "command", up)
    yard.plan = replace(yard.plan, baseline=replace(base, compose_argv=argv))
    assert yard.roll_back().serving, yard.lines
    assert yard.up("new")


@only_real
def test_container_gone_goes_by_compose(yard: Yard, tmp_path: Path) -> None:
    base = yard.plan.baseline
    yard.remove(base.container_id)
    port = base.url.rpartition(":")[2]
    file = tmp_path / "compose.yaml"
    key, _, value = yard.label.partition("=")
    file.write_text(
        f"name: t{value[:8]}\nservices:\n  base:\n    image: {yard.image}\n"
        f"    container_name: {base.container_name}\n    labels: {{{key}: '{value}'}}\n"
        f"    ports: ['127.0.0.1:{port}:8080']\n    network_mode: bridge\n"
        f"    volumes: ['{tmp_path}/models:/models:ro']\n"
        "    command: [llama-server, -m, /models/tiny.gguf, --host, 0.0.0.0, --port, '8080']\n"
    )
    argv = (
        yard.engine.docker, "compose", "-f", str(file), "up", "-d",
        "--no-deps", "--no-build", "--pull", "never", "base",
    )  # fmt: skip
    yard.plan = replace(yard.plan, baseline=replace(base, compose_argv=argv))
    assert yard.roll_back().serving, yard.lines


@only_real
def test_baseline_that_exits_is_reported_with_its_last_lines(yard: Yard, tmp_path: Path) -> None:
    (tmp_path / "models" / "tiny.gguf").write_bytes(b"not a model")
    result = yard.roll_back()
    assert not result.serving
    assert re.search(
        "(?i)(failed to load model|invalid magic).*the baseline ended(;|$)", result.detail
    )
    assert any(" start " in command for command in result.manual)
    assert any("restarting it once" in detail for detail in yard.said("ready", "note"))


def test_container_with_a_candidates_name_is_not_ours_by_that(yard: Yard, tmp_path: Path) -> None:
    stranger = yard.candidate("")
    name = yard.name(stranger)
    yard.plan = replace(yard.plan, candidates=(Candidate("cand", container=name, name=name),))
    assert yard.roll_back().serving
    assert yard.up(stranger)
    if isinstance(yard.engine, MadeEngine):
        return
    made = write.write(yard.plan, yard.plan.rollback_dir)
    path = f"{Path(yard.engine.docker).parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": "/"}
    assert subprocess.run(["dash", str(made)], env=env, timeout=120, check=False).returncode == 0
    assert yard.up(stranger)


def test_container_that_is_gone_for_good_ends_at_once(yard: Yard) -> None:
    yard.remove(yard.plan.baseline.container_id)
    result = yard.roll_back()
    assert not result.serving
    assert yard.said("ready", "skipped"), "nothing is waited for"
    assert yard.said("ready", "note") == []


def test_kept_container_outlives_what_the_runner_asks_for(yard: Yard) -> None:
    helper = yard.candidate(**{"omni.service": "helper"})
    yard.record("helper", helper)
    yard.plan = replace(yard.plan, keep=("helper",))
    assert yard.roll_back(emergency=False).serving
    assert yard.up(helper)
    assert yard.roll_back().serving
    assert not yard.up(helper)


@only_real
def test_wrong_port_owner_is_said(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process holds the baseline's port: the report quotes the engine and fails at once."""
    monkeypatch.setattr(start, "ENGINE_RETRY_S", 0.1)
    monkeypatch.setattr(verify, "FAILED_S", 1.0)
    port = int(yard.plan.baseline.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        result = yard.roll_back()
    assert not result.serving
    assert "address already in use" in " ".join(x["detail"] for x in yard.lines)


def test_a_warm_ladder_restores_as_well(yard: Yard) -> None:
    directory, candidate = yard.plan.rollback_dir, yard.candidate()
    written = directory / PROGRESS_FILE
    follower = Follower(written, size_of(written), yard.lines.append)
    argv = [sys.executable, "-m", "console.recovery.rollback.standby", str(directory)]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as child:
        try:
            until(lambda: standby.is_standing_by(directory), "the standby waits")
            assert standby.trigger(directory)
            until(lambda: follower.poll() is not None, "the standby is done")
        finally:
            child.kill()
    assert yard.said("serving", "ok")
    assert not yard.up(candidate)
    assert yard.up(yard.plan.baseline.container_id)
