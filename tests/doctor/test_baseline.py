"""The site file and its baseline; most of it is held by the test of words."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor.facts import Facts, Level
from tests.doctor.conftest import HEAD, PROCESS, Look
from tests.gguf.server import serving
from tests.services.test_engine_raw import Answer, reply

Script = Callable[[str, str], Path]
INVALID = HEAD + "baseline: {container: base, url: 'ftp://x'}\nservces: {}\n"


def test_the_example_is_a_site_file(look: Look) -> None:
    (note,) = look("baseline.site")
    example = "\n".join(line[2:] for line in note.hint.splitlines()[1:])
    (found,) = look("baseline.site", example)
    assert (found.level, found.detail.endswith("site workstation")) == (Level.OK, True)


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
    ("status", "level", "said"),
    [
        (200, Level.WARNING, "which the console did not start"),
        (503, Level.WARNING, "loading (Loading model)"), (500, Level.FAILED, "unhealthy (HTTP 500"),
    ],
)  # fmt: skip
def test_health(look: Look, status: int, level: Level, said: str) -> None:
    body = b'{"error": {"message": "Loading model"}}'
    with serving(lambda exchange: exchange.send(status, body)) as server:
        (found,) = look("baseline.health", PROCESS.replace("http://127.0.0.1:9", server.url))
    assert (found.level, said in found.detail) == (level, True), found
    if status == 200:
        assert str(os.getpid()) in found.hint, "the server is this process: it is named"
