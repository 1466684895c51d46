"""The engine against sockets that behave as told, docker commands that do, and the baseline."""

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor.facts import Facts, Level
from console.checks.doctor.run import iterate
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from tests.doctor.conftest import BY_ID, CONTAINER, HEAD, PATIENT_S, PROCESS, Look
from tests.gguf.server import serving
from tests.runtime.serving import in_child
from tests.runtime.test_engine_raw import Answer, daemon, reply, silent

VERSION = {"Version": "28.2.2", "ApiVersion": "1.50"}
GPUS = "gpus: [{uuid: GPU-1}]\n"
Script = Callable[[str, str], Path]


def routes(**paths: Any) -> Answer:
    """A daemon that knows some paths (`version`, `info`) and refuses the others."""

    def answer(peer: socket.socket, request: str) -> None:
        name = request.partition(" /")[2].partition("?")[0]
        known = paths.get(name)
        peer.sendall(reply(404, {"message": "no"}) if known is None else reply(200, known))

    return answer


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the engine's socket is looked for."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/e.sock")
    return tmp_path / "e.sock"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("accepts", [True, False])
def test_a_frozen_engine(path: Path, look: Look, accepts: bool) -> None:
    """A stopped dockerd takes connections into its queue and never answers."""
    if accepts:
        with daemon(path, silent):
            (found,) = look("engine.answers")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(1)
            (found,) = look("engine.answers")
    assert found.level is Level.FAILED
    assert "0.50 s" in found.detail
    assert found.hint


@pytest.mark.parametrize(("version", "level"), [("4.9.4", Level.FAILED), ("5.8.6", Level.OK)])
def test_podman_is_known_by_its_components(
    path: Path, look: Look, version: str, level: Level
) -> None:
    """Its API looks like a Docker that is new enough; what old ones leave out they do not say."""
    parts = [{"Name": "Podman Engine", "Version": version}, {"Name": "Conmon", "Version": "2.1"}]
    said = {"Version": version, "ApiVersion": "1.44", "Components": parts}
    with daemon(path, routes(version=said)):
        (found,) = look("engine.answers")
    assert found.level is level
    assert f"Podman version {version}" in found.detail


@pytest.mark.parametrize(("limits", "level"), [(False, Level.WARNING), (True, Level.OK)])
def test_an_engine_that_limits_no_memory(
    path: Path, look: Look, limits: bool, level: Level
) -> None:
    """Rootless on a machine with cgroup v1: it takes every limit, and discards it."""
    info = {"MemoryLimit": limits, "CgroupDriver": "none", "CgroupVersion": "1"}
    with daemon(path, routes(version=VERSION, info=info)):
        (found,) = look("engine.limits", CONTAINER)
    assert found.level is level


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_login_that_may_not_use_it(path: Path, look: Look) -> None:
    look("engine.answers")  # everything is imported before the fork
    check = BY_ID["engine.answers"]

    def asked() -> str:
        os.setuid(65534)
        (answer,) = iterate(checks=(check,), facts=_Demo(), deadline_s=PATIENT_S)
        (found,) = answer.findings
        return f"{found.level} {found.detail} {found.hint}"

    with daemon(path, routes(version=VERSION)):
        path.chmod(0o600)
        said = in_child(asked)
    assert said.startswith("warning ")
    assert "usermod -aG docker" in said


class _Demo(Facts):
    """No site: what another user cannot read must not be what the test fails on."""

    def site(self) -> None:
        return None


COMPOSE = HEAD + "baseline: {compose: {file: c.yaml, service: llm}, url: 'http://127.0.0.1:9'}\n"


@pytest.mark.usefixtures("impatient")
def test_a_docker_command_that_hangs(path_of: Script, look: Look) -> None:
    path_of("docker", "exec sleep 60")
    (found,) = look("engine.compose")
    assert (found.level, "0.5 s" in found.detail) == (Level.WARNING, True)


def test_no_docker_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look("engine.compose")[0].level is Level.NOTE
    assert look("engine.compose", COMPOSE)[0].level is Level.FAILED


def test_without_a_site_file_init_is_named(look: Look) -> None:
    (note,) = look("baseline.site")
    assert (note.level, "omni-console init" in note.hint) == (Level.NOTE, True)


def test_a_site_file_that_is_not_there(tmp_path: Path, look: Look) -> None:
    (found,) = look("baseline.site", facts=Facts(str(tmp_path / "none.yaml")))
    assert (found.level, "none.yaml" in found.detail) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("code", "level", "said"),
    [("0", Level.OK, "loads"), ("1", Level.WARNING, "ModuleNotFoundError: no such thing")],
)
def test_the_demos_engine(
    path_of: Script, monkeypatch: pytest.MonkeyPatch, look: Look, code: str, level: Level, said: str
) -> None:
    words = f"echo Traceback >&2; echo 'ModuleNotFoundError: no such thing' >&2; exit {code}"
    monkeypatch.setattr("sys.executable", str(path_of("python", words)))
    (found,) = look("baseline.demo")
    assert (found.level, said in found.detail) == (level, True)
    assert ("omni-console[demo]" in found.hint) == (level is Level.WARNING)
    assert look("baseline.demo", PROCESS) == []


@pytest.mark.parametrize(
    ("status", "level", "said"),
    [
        (200, Level.WARNING, "which the console did not start"),
        (503, Level.WARNING, "is loading: "),
        (500, Level.FAILED, "is unknown: its health path says HTTP 500"),
    ],
)  # fmt: skip
def test_health(look: Look, status: int, level: Level, said: str) -> None:
    body = b'{"error": {"message": "Loading model"}}'
    with serving(lambda exchange: exchange.send(status, body)) as server:
        (found,) = look("baseline.health", PROCESS.replace("http://127.0.0.1:9", server.url))
    assert (found.level, said in found.detail) == (level, True), found
    if status == 200:
        assert str(os.getpid()) in found.detail, "the server is this process: it is named"
        assert "kill" not in found.hint, "nothing that serves is to be ended"


@pytest.mark.parametrize(("why", "hint"), [
    ("it refuses: it wants a key (HTTP 401 Invalid API Key)", "the console sends none"),
    ("it is busy or overloaded (HTTP 503 The request queue is full.)", "its queue"),
    ("something else answers at the baseline's address: pid 1, x, holds port 1", "whose it is"),
    ("no answer for 1 min", "omni-console rollback"),
])  # fmt: skip
def test_what_a_rollback_has_just_failed_for_is_answered_by_no_rollback(
    look: Look, why: str, hint: str
) -> None:
    """The hint fits the reason: the same rollback would end the same way."""
    with serving(lambda exchange: exchange.send(200, b"")) as server:
        text = PROCESS.replace("http://127.0.0.1:9", server.url)
        url = server.url
        failed = Evidence(Kind.FAILED, Word.REFUSING, time.time(), Witness.ROLLBACK, why)
        evidence.keep("ws", url, failed)
        [health], [proof] = look("baseline.health", text), look("baseline.proof", text)
    for finding in (health, proof):
        assert hint in finding.hint, finding
        assert ("rollback" in finding.hint) is hint.endswith("rollback"), finding


UNIT = HEAD + "baseline: {unit: {name: a.service, user: true}, url: 'http://127.0.0.1:9'}\n"


@pytest.mark.parametrize(
    ("said", "user", "level"),
    [
        ("echo LoadState=loaded; echo ActiveState=active", 0, Level.OK),
        ("echo LoadState=loaded; echo ActiveState=active", 4711, Level.WARNING),
        ("echo LoadState=not-found; echo ActiveState=inactive", 0, Level.FAILED),
        ("echo Failed to connect to bus >&2; exit 1", 0, Level.FAILED),
    ],
)
def test_a_unit(
    look: Look, path_of: Script, monkeypatch: pytest.MonkeyPatch, said: str, user: int, level: Level
) -> None:
    """A system unit is root's to stop; a user's own is that user's. Neither needs an engine."""
    path_of("systemctl", said)
    monkeypatch.setattr(os, "getuid", lambda: user)
    (found,) = look("baseline.service", UNIT.replace(", user: true", ""))
    assert found.level is level, found
    (mine,) = look("baseline.service", UNIT)
    assert mine.level is (Level.OK if level is Level.WARNING else level)
    assert look("engine.answers", UNIT)[0].level is Level.NOTE


def test_a_compose_container_made_anew_is_not_proven_any_more(
    path: Path, tmp_path: Path, look: Look
) -> None:
    """Before the first run nothing but the site file says which container it is."""
    (tmp_path / "c.yaml").touch()
    labels = {
        "com.docker.compose.service": "llm",
        "com.docker.compose.project.config_files": f"{tmp_path}/c.yaml",
    }
    rows = [{"Id": "2", "Names": ["/s-llm-1"], "State": "running", "Labels": labels}]
    state = {"Status": "running", "Running": True, "Pid": os.getpid(), "StartedAt": "2026-05-01"}

    def answer(peer: socket.socket, request: str) -> None:
        asked = request.partition(" ")[2]
        value: Any = rows if asked.startswith("/containers/json") else None
        if asked.startswith("/containers/2/json"):
            value = {"Id": "2", "Name": "/s-llm-1", "State": state}
        peer.sendall(reply(404, {"message": "no"}) if value is None else reply(200, value))

    with serving(lambda exchange: exchange.send(200, b"")) as server, daemon(path, answer):
        url = server.url
        site = COMPOSE.replace("http://127.0.0.1:9", url)
        for life, said in ((f"{os.getpid()} 2026-05-01", "answered"), ("7 2026", "started again")):
            seen = Evidence(
                Kind.PROOF, Word.SERVING, time.time(), Witness.ROLLBACK, target="container",
                life=life,
            )  # fmt: skip
            evidence.keep("ws", url, seen)
            (found,) = look("baseline.proof", site)
            assert said in found.detail or said in found.what, found
            assert (found.level is Level.OK) == (said == "answered"), found


def test_a_container_of_compose_run_is_not_the_services(
    path: Path, tmp_path: Path, look: Look
) -> None:
    (tmp_path / "c.yaml").touch()
    labels = {
        "com.docker.compose.project.config_files": f"{tmp_path}/c.yaml",
        "com.docker.compose.oneoff": "True",
    }
    rows = [{"Id": "2", "Names": ["/s-llm-run-1"], "State": "running", "Labels": labels}]

    def answer(peer: socket.socket, request: str) -> None:
        listed = "/containers/json" in request
        peer.sendall(reply(200, rows if listed else VERSION))

    with daemon(path, answer):
        (found,) = look("baseline.service", COMPOSE)
    assert (found.level, "s-llm-run-1" in found.detail) == (Level.FAILED, True), found


def test_a_paused_container_is_said_to_be_paused_without_a_wait(path: Path, look: Look) -> None:
    state = {"Status": "paused", "Running": True, "Paused": True, "Pid": os.getpid()}

    def answer(peer: socket.socket, request: str) -> None:
        peer.sendall(reply(200, {"Id": "2", "Name": "/base", "State": state}))

    with socket.create_server(("127.0.0.1", 0)) as silent_server, daemon(path, answer):
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}"
        begun = time.monotonic()
        (found,) = look("baseline.proof", CONTAINER.replace("http://127.0.0.1:9", url))
        waited = time.monotonic() - begun
    assert found.level is Level.WARNING
    assert "container paused: docker unpause base" in found.detail
    assert waited < 1.5, "the silent health path is not waited for"
