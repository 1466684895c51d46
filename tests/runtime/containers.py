"""What the container tests share: names nobody else has, a launch that remembers, a cut line."""

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import docker
import pytest

from console.runtime.docker.client import inspect
from console.runtime.docker.container import ContainerDriver
from console.runtime.spec import ContainerSpec, Handle, Launch, Ready, ServiceSpec
from tests.runtime.serving import serving, unix_listener
from tests.testbed.kinds import OTHERS, USUAL
from tests.waiting import some

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


on_every_engine = pytest.mark.parametrize(
    ("client", "kind"),
    [("made", USUAL), *(with_real(kind) for kind in (USUAL, *OTHERS))],
    indirect=True,
)  # fmt: skip
"""The engine in this process, and every real one."""
FOREVER = ("sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done")


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:8]}"


def service(name: str, runs: Any, url: str = "http://127.0.0.1:9", **ready: Any) -> ServiceSpec:
    return ServiceSpec(name, url, runs, Ready(**ready))


def busy(image: str, *argv: str, **more: Any) -> ContainerSpec:
    return ContainerSpec(image=image, command=argv or FOREVER, **more)


class Place:
    """An engine for one test: an image of it, the test's label, and what its launch recorded."""

    def __init__(
        self, client: docker.DockerClient, image: str, mine: dict[str, str], folder: Path
    ) -> None:
        self.client, self.image, self.mine, self.folder = client, image, mine, folder
        self.handles: list[Handle] = []
        self.states: list[str] = []
        """Of the containers, when they were recorded."""
        self.said: list[str] = []
        self.launch = Launch("run-1", folder / "service.log", self._record)

    def _record(self, handle: Handle) -> None:
        self.handles.append(handle)
        self.states.append(self.look(handle.container)["State"]["Status"])

    def look(self, container: str) -> dict[str, Any]:
        return some(inspect(self.client, container))

    def driver(
        self, name: str, runs: Any, url: str = "http://127.0.0.1:9", site: str = ""
    ) -> ContainerDriver:
        spec = service(name, runs, url, timeout_s=60.0)
        return ContainerDriver(spec, self.client, labels=self.mine, site=site, say=self.said.append)

    def shell(self, script: str, **more: Any) -> ContainerDriver:
        return self.driver(unique("shell"), busy(self.image, "sh", "-c", script, **more))

    def create(self, *argv: str, name: str = "", policy: str = "", **more: Any) -> str:
        """A container that somebody else made, by its id."""
        if policy:
            more["host_config"] = self.client.api.create_host_config(
                restart_policy={"Name": policy}
            )
        made = self.client.api.create_container(
            self.image, list(argv), name=name or unique("own"), labels=self.mine, **more
        )
        return str(made["Id"])


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
    with (
        TemporaryDirectory(prefix="omni-fake-") as folder,
        serving(unix_listener(f"{folder}/docker.sock"), lambda peer: answer(peer, over)) as over,
    ):
        yield f"unix://{folder}/docker.sock"


class Line:
    """A line to the real engine that can be cut, as when the engine restarts beneath a client."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.up = threading.Event()
        self.up.set()
        self._open: set[socket.socket] = set()
        self.refused = 0
        """Connections that came while it was cut."""

    def cut(self) -> None:
        self.up.clear()
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def answer(self, connection: socket.socket, over: threading.Event) -> None:
        if not self.up.is_set():
            self.refused += 1
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
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
