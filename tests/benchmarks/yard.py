"""A baseline and a candidate in real containers, and the bare ways to put one for the other."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks.surroundings import CannotRun
from tests.ports import free_port
from tests.testbed.cache import Shared
from tests.testbed.engine import SESSIONS, Engine, ensure_engine
from tests.testbed.image import ensure_llama_image
from tests.testbed.models import tiny_deepseek2, tiny_llama

GRACE_S = 10
POLL_S = 0.005
DOCKER_POLL_S = 0.02
LIMIT_S = 60.0
ASK = {
    "messages": [{"role": "user", "content": "Say in one short sentence that you are ready."}],
    "max_tokens": 8,
    "temperature": 0,
}


class _Local(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=LIMIT_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


@dataclass(frozen=True)
class Yard:
    """`socket` is the engine's door that lists nothing but this yard's containers."""

    engine: Engine
    socket: str
    baseline: str
    candidate: str
    url: str
    candidate_url: str

    def prepare(self) -> None:
        """The candidate serves, the baseline is stopped, and the engine has come to rest."""
        call(self.engine.socket, "POST", f"/containers/{self.baseline}/stop?t={GRACE_S}")
        call(self.engine.socket, "POST", f"/containers/{self.candidate}/start")
        until_healthy(self.candidate_url)
        time.sleep(0.3)

    def check(self) -> None:
        """A way that did not do its work has no time."""
        if self.up(self.candidate) or not self.up(self.baseline):
            raise CannotRun("the candidate runs still, or the baseline does not")

    def up(self, identity: str) -> bool:
        found = call(self.engine.socket, "GET", f"/containers/{identity}/json")
        return bool(json.loads(found)["State"]["Running"])

    def by_calls(self) -> float:
        """Stop, start, health, completion: the bare engine calls and two kinds of request."""
        self.prepare()
        begun = time.perf_counter()
        call(self.socket, "POST", f"/containers/{self.candidate}/stop?t={GRACE_S}")
        call(self.socket, "POST", f"/containers/{self.baseline}/start")
        until_healthy(self.url)
        ask(self.url)
        took = time.perf_counter() - begun
        self.check()
        return took

    def by_docker(self) -> float:
        """The same with what an operator has in a shell: docker and curl."""
        self.prepare()
        docker = shlex.quote(self.engine.docker)
        fetch = "curl -sf -o /dev/null"
        script = (
            f"set -e\n{docker} stop -t {GRACE_S} {self.candidate} >/dev/null\n"
            f"{docker} start {self.baseline} >/dev/null\n"
            f"until {fetch} {self.url}/health; do sleep {DOCKER_POLL_S}; done\n"
            f"{fetch} -H 'Content-Type: application/json' -d {shlex.quote(json.dumps(ASK))} "
            f"{self.url}/v1/chat/completions\n"
        )
        host = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": self.engine.docker_config}
        env = {**os.environ, **host}
        begun = time.perf_counter()
        subprocess.run(["sh", "-c", script], env=env, check=True, timeout=LIMIT_S)
        took = time.perf_counter() - begun
        self.check()
        return took

    def door_costs(self) -> float:
        """Seconds one call takes longer through the door than without it."""
        times: dict[str, list[float]] = {self.socket: [], self.engine.socket: []}
        for _ in range(50):
            for path, taken in times.items():
                begun = time.perf_counter()
                call(path, "GET", "/_ping")
                taken.append(time.perf_counter() - begun)
        through, straight = (sorted(taken)[len(taken) // 2] for taken in times.values())
        return through - straight


@contextmanager
def labelled() -> Iterator[tuple[Engine, str, str]]:
    """The engine, llama.cpp's image, and a label whose containers are removed in the end. Raises
    Unavailable."""
    label = f"omni.test={uuid.uuid4().hex}"
    # A share in the testbed's lock keeps another session's end from sweeping these away.
    with closing(Shared(SESSIONS)):
        engine = ensure_engine()
        image = ensure_llama_image(engine)
        try:
            yield engine, image, label
        finally:
            found = engine.run("ps", "-aq", "--filter", f"label={label}").split()
            if found:
                engine.run("rm", "-f", "-v", *found)


@contextmanager
def open_yard(place: Path) -> Iterator[Yard]:
    """Both containers made and stopped; removed in the end. Raises Unavailable."""
    with labelled() as (engine, image, label):
        models = place / "models"
        models.mkdir()
        tiny_deepseek2(models / "baseline.gguf")
        tiny_llama(models / "candidate.gguf")
        ports = [free_port(), free_port()]
        made = [
            _create(engine, image, models, label, name, port)
            for name, port in zip(("baseline", "candidate"), ports, strict=True)
        ]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        with _door(engine, label) as door:
            yield Yard(engine, door, *made, *urls)


@contextmanager
def _door(engine: Engine, label: str) -> Iterator[str]:
    with TemporaryDirectory(prefix="omni-") as short:  # a socket's address has to be short
        path = f"{short}/s"
        argv = [sys.executable, "-m", "tests.testbed.door", path, engine.socket, label]
        root = Path(__file__).resolve().parents[2]
        with subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                if child.stdout.readline() != "open\n":
                    raise CannotRun("the door to the engine does not open")
                yield path
            finally:
                child.stdin.close()


def _create(engine: Engine, image: str, models: Path, label: str, name: str, port: int) -> str:
    role = ["--label", "omni.role=candidate"] if name == "candidate" else []
    return engine.run(
        "create", "--name", f"{name}-{label[-8:]}", "--label", label, *role,
        "-p", f"127.0.0.1:{port}:8080", "-v", f"{models}:/models:ro",
        image, "llama-server", "-m", f"/models/{name}.gguf",
        "--host", "0.0.0.0", "--port", "8080", "-c", "512", "-t", "1",
    ).strip()  # fmt: skip


def call(path: str, method: str, target: str) -> bytes:
    """One bare engine call. Raises CannotRun when the engine says no."""
    link = _Local(path)
    try:
        link.request(method, target)
        reply = link.getresponse()
        body = reply.read()
    finally:
        link.close()
    if reply.status >= 400:
        raise CannotRun(f"{method} {target}: {body.decode(errors='replace')[:200]}")
    return body


def until_healthy(url: str) -> None:
    """Poll /health until it says 200."""
    deadline = time.monotonic() + LIMIT_S
    while _status(url, "GET", "/health", None) != 200:
        if time.monotonic() > deadline:
            raise CannotRun(f"{url} is not healthy after {LIMIT_S:g} s")
        time.sleep(POLL_S)


def ask(url: str) -> None:
    """One bare completion."""
    if _status(url, "POST", "/v1/chat/completions", ASK) != 200:
        raise CannotRun(f"{url} completes nothing")


def _status(url: str, method: str, target: str, body: dict[str, Any] | None) -> int:
    link = http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)
    try:
        data = json.dumps(body) if body is not None else None
        link.request(method, target, data, {"Content-Type": "application/json"})
        reply = link.getresponse()
        reply.read()
        return reply.status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        link.close()
