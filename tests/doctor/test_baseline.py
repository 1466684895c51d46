"""The site file and its baseline: files, a stand-in engine, a stand-in server."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.doctor.facts import Facts
from console.doctor.model import Level
from console.rollback import proof, restore
from console.run.baseline import restore_file
from tests.doctor.conftest import CONTAINER, HEAD, PROCESS, Look
from tests.doctor.histories import on_now
from tests.services.test_engine_raw import Answer, daemon, reply

Script = Callable[[str, str], Path]
INVALID = HEAD + "baseline: {container: base, url: 'ftp://x'}\nservces: {}\n"


@contextmanager
def server(status: int) -> Iterator[str]:
    """The URL of an HTTP server that answers everything with one status."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(65536)
                    peer.sendall(reply(status, {"error": {"message": "Loading model"}}))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def test_no_site_file(tmp_path: Path, look: Look) -> None:
    (found,) = look("baseline.site")
    assert found.level is Level.NOTE
    assert f"{tmp_path}/config/omni-console/site.yaml" in found.detail
    assert len(found.hint.splitlines()) == 7


def test_the_example_is_a_site_file(look: Look) -> None:
    (note,) = look("baseline.site")
    example = "\n".join(line[2:] for line in note.hint.splitlines()[1:])
    (found,) = look("baseline.site", example)
    assert (found.level, found.detail.endswith("site workstation")) == (Level.OK, True)


def test_every_problem_of_a_site_file_with_its_line(tmp_path: Path, look: Look) -> None:
    one, other = look("baseline.site", INVALID)
    assert (one.level, other.level) == (Level.FAILED, Level.FAILED)
    assert one.detail.startswith(f"{tmp_path}/site.yaml:3:34: 'url'")
    assert other.detail.startswith(f"{tmp_path}/site.yaml:4:1: ")
    assert "'services'" in other.hint
    for check in ("service", "models", "health", "restore", "proof", "reference"):
        assert look(f"baseline.{check}", INVALID) == []


def test_a_site_file_that_is_not_there(tmp_path: Path, look: Look) -> None:
    (found,) = look("baseline.site", facts=Facts(str(tmp_path / "none.yaml")))
    assert (found.level, "none.yaml" in found.detail) == (Level.FAILED, True)


def test_a_great_many_problems_are_counted(look: Look) -> None:
    found = look("baseline.site", CONTAINER + "".join(f"k{n}: 1\n" for n in range(30)))
    assert len(found) == 21
    assert found[-1].detail.startswith("10 ")


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


def engine_of(**inspected: Any) -> Answer:
    """A daemon with one container `base` of the image `sha256:1`, which exists or not."""

    def answer(peer: socket.socket, request: str) -> None:
        path = request.partition(" ")[2]
        rows = inspected.get("rows", [])
        known: dict[str, Any] = {
            "/version": {"ApiVersion": "1.50"},
            "/containers/base/json": inspected.get("base"),
            "/images/sha256%3A1/json": inspected.get("image"),
        }
        value = rows if path.startswith("/containers/json") else known.get(path)
        peer.sendall(reply(404, {"message": "no"}) if value is None else reply(200, value))

    return answer


BASE = {"State": {"Status": "running"}, "Image": "sha256:1"}


@pytest.mark.parametrize(
    ("base", "image", "level", "said"),
    [
        (BASE, {}, Level.OK, "running"), (BASE, None, Level.FAILED, "(sha256:1)"),
        (None, {}, Level.FAILED, "base"),
    ],
)  # fmt: skip
def test_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look, base: Any, image: Any,
    level: Level, said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/e")
    with daemon(tmp_path / "e", engine_of(base=base, image=image)):
        (found,) = look("baseline.service", CONTAINER)
    assert (found.level, said in found.detail) == (level, True)


def test_a_container_where_no_engine_answers(look: Look) -> None:
    (found,) = look("baseline.service", CONTAINER)
    assert (found.level, "no container engine" in found.detail) == (Level.FAILED, True)


def test_a_compose_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    site = HEAD + "baseline: {compose: {file: c.yaml, service: llm}, url: 'http://127.0.0.1:9'}\n"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/e")
    (found,) = look("baseline.service", site)
    assert (found.level, f"{tmp_path}/c.yaml" in found.detail) == (Level.FAILED, True)
    (tmp_path / "c.yaml").touch()
    labels = {"com.docker.compose.project.config_files": f"/other,{tmp_path}/c.yaml"}
    rows = [
        {"Id": "1", "Names": ["/other-llm-1"], "State": "running", "Labels": {}},
        {"Id": "2", "Names": ["/stack-llm-1"], "State": "exited", "Labels": labels},
    ]
    with daemon(tmp_path / "e", engine_of(rows=rows)):
        (found,) = look("baseline.service", site)
        assert (found.level, "stack-llm-1" in found.detail) == (Level.OK, True)
        rows.pop()
        (found,) = look("baseline.service", site)
    assert (found.level, f"-f {tmp_path}/c.yaml" in found.hint) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("process", "level", "said"),
    [
        ("argv: [sh]", Level.OK, "the program /"),
        ("argv: [no-such-program]", Level.FAILED, "the program no-such-program is not in PATH"),
        ("argv: [./tool]", Level.OK, "/./tool"),
        ("argv: [./notes]", Level.FAILED, "the program ./notes cannot be run"),
        ("argv: [sh], cwd: nowhere", Level.FAILED, "/nowhere is not there"),
    ],
)
def test_a_process(tmp_path: Path, look: Look, process: str, level: Level, said: str) -> None:
    (tmp_path / "tool").touch(0o755)
    (tmp_path / "notes").touch(0o644)
    site = HEAD + f"baseline: {{process: {{{process}}}, url: 'http://127.0.0.1:9'}}\n"
    (found,) = look("baseline.service", site)
    assert (found.level, said in found.detail) == (level, True), found


def test_models(tmp_path: Path, look: Look) -> None:
    site = PROCESS.replace("9'}", "9', models: [a.gguf, b.gguf]}")
    (tmp_path / "a.gguf").touch()
    (found,) = look("baseline.models", site)
    assert (found.level, f"{tmp_path}/b.gguf" in found.detail) == (Level.FAILED, True)
    (tmp_path / "b.gguf").touch()
    assert [one.level for one in look("baseline.models", site)] == [Level.OK]
    assert look("baseline.models", PROCESS) == []


@pytest.mark.parametrize(
    ("status", "level", "said"),
    [
        (200, Level.WARNING, "which the console did not start"),
        (503, Level.WARNING, "loading (Loading model)"), (500, Level.FAILED, "unhealthy (HTTP 500"),
    ],
)  # fmt: skip
def test_health(look: Look, status: int, level: Level, said: str) -> None:
    with server(status) as url:
        (found,) = look("baseline.health", PROCESS.replace("http://127.0.0.1:9", url))
    assert (found.level, said in found.detail) == (level, True), found
    if status == 200:
        assert str(os.getpid()) in found.hint, "the server is this process: it is named"


def test_a_baseline_that_is_down(look: Look) -> None:
    (found,) = look("baseline.health", PROCESS)
    assert (found.level, "refused" in found.detail) == (Level.FAILED, True)
    assert "omni-console rollback" in found.hint
    on_now()
    (found,) = look("baseline.health", PROCESS)
    assert (found.level, "r1 is on" in found.detail) == (Level.NOTE, True)


def test_measured_restore(look: Look) -> None:
    assert look("baseline.restore", PROCESS)[0].level is Level.NOTE
    restore.remember(restore_file("ws"), "baseline", 74.0, time.time())
    (found,) = look("baseline.restore", PROCESS)
    assert (found.level, "1 min 14 s" in found.detail) == (Level.OK, True)


@pytest.mark.parametrize(("degraded", "level"), [(False, Level.OK), (True, Level.WARNING)])
def test_the_last_proof(look: Look, degraded: bool, level: Level) -> None:
    assert look("baseline.proof", PROCESS)[0].level is Level.NOTE
    proof.remember(proof.proof_file("ws"), time.time() - 7200, 10.94, degraded)
    (found,) = look("baseline.proof", PROCESS)
    assert found.level is level
    assert "2 h 00 min" in found.detail
    assert "10.9 tok/s" in found.detail


def test_reference(look: Look) -> None:
    (found,) = look("baseline.reference", PROCESS)
    assert (found.level, "omni-console bench http://127.0.0.1:9" in found.hint) == (
        Level.NOTE, True,
    )  # fmt: skip
    site = PROCESS.replace("9'}", "9', reference: {tok_s: 10.9}}")
    (found,) = look("baseline.reference", site)
    assert (found.level, found.detail[:10]) == (Level.OK, "10.9 tok/s")
