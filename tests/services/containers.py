"""What the container tests share: names nobody else has, a launch that remembers, a cut line."""

from __future__ import annotations

import shutil
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.services.base import ContainerSpec, Handle, Launch, Ready, ServiceSpec

_REAL = (pytest.mark.engine, pytest.mark.alone)
ENGINES = ["made", pytest.param("real", marks=[*_REAL, pytest.mark.full])]
only_real = pytest.mark.parametrize("client", ENGINES[1:], indirect=True)
"""What a kernel or a container's runtime has to do."""
also_real = pytest.mark.parametrize(
    "client", ["made", pytest.param("real", marks=_REAL)], indirect=True
)
"""The one test of its kind that `make test` does on a real engine."""


def with_real(*values: Any) -> Any:
    """These values with the real engine, in `make test-all`."""
    return pytest.param("real", *values, marks=[*_REAL, pytest.mark.full])


FOREVER = ("sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done")


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


def service(name: str, runs: Any, url: str = "http://127.0.0.1:9", **ready: Any) -> ServiceSpec:
    return ServiceSpec(name, url, runs, Ready(**ready))


def busy(image: str, *argv: str, **more: Any) -> ContainerSpec:
    return ContainerSpec(image=image, command=argv or FOREVER, **more)


class Recorder:
    """A Launch, and the handles that were recorded in it."""

    def __init__(self, folder: Path, run_id: str = "run-1") -> None:
        self.handles: list[Handle] = []
        self.launch = Launch(run_id, folder / "service.log", self.handles.append)


def tidy_up(api: Any, *words: str) -> None:
    """Remove what compose made in projects with one of these words in their names: an engine has
    addresses for some thirty networks."""

    def ours(row: dict[str, Any]) -> bool:
        project = (row.get("Labels") or {}).get("com.docker.compose.project", "")
        return any(word in project for word in words)

    for row in filter(ours, api.containers(all=True)):
        api.remove_container(row["Id"], force=True, v=True)
    for row in filter(ours, api.networks()):
        api.remove_network(row["Id"])


@contextmanager
def fake_daemon(answer: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """The address of a unix socket; `answer(connection, over)` has each connection in a thread."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="omni-fake-"))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "docker.sock"))
    server.listen(16)
    over = threading.Event()
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                answer(connection, over)
            except OSError:
                pass  # the other side hung up

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
            threads[-1].start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield f"unix://{folder / 'docker.sock'}"
    finally:
        over.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for thread in (acceptor, *threads):
            thread.join(5)
        shutil.rmtree(folder)


class Line:
    """A line to the real engine that can be cut, as when the engine restarts beneath a client."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.up = threading.Event()
        self.up.set()
        self._open: set[socket.socket] = set()

    def cut(self) -> None:
        self.up.clear()
        for end in list(self._open):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def answer(self, connection: socket.socket, over: threading.Event) -> None:
        if not self.up.is_set():
            return
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self.path)
            self._open |= {connection, engine}
            back = threading.Thread(target=self._copy, args=(engine, connection), daemon=True)
            back.start()
            self._copy(connection, engine)
            back.join(5)
            self._open -= {connection, engine}

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
