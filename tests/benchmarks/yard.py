"""A baseline and a candidate in real containers, and the bare ways to put one for the other."""

import http.client
import json
import os
import shlex
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.surroundings import CannotRun, helper
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
        with (
            TemporaryDirectory(prefix="omni-") as short,  # a socket's address has to be short
            helper("tests.testbed.door", door := f"{short}/s", engine.socket, label) as child,
        ):
            assert child.stdout is not None
            if child.stdout.readline() != "open\n":
                raise CannotRun("the door to the engine does not open")
            yield Yard(engine, door, *made, *urls)


def _create(
    engine: Engine, image: str, models: Path, label: str, name: str, port: int, context: int = 512
) -> str:
    """A llama-server with one thread on NAME.gguf, not started; its id."""
    role = ["--label", "omni.role=candidate"] if name == "candidate" else []
    return engine.run(
        "create", "--name", f"{name}-{label[-8:]}", "--label", label, *role,
        "-p", f"127.0.0.1:{port}:8080", "-v", f"{models}:/models:ro",
        image, "llama-server", "-m", f"/models/{name}.gguf",
        "--host", "0.0.0.0", "--port", "8080", "-c", str(context), "-t", "1",
    ).strip()  # fmt: skip


def call(path: str, method: str, target: str) -> bytes:
    """One bare engine call. Raises CannotRun when the engine says no."""
    link = http.client.HTTPConnection("docker", timeout=LIMIT_S)
    link.sock = socket.socket(socket.AF_UNIX)
    link.sock.settimeout(LIMIT_S)
    link.sock.connect(path)
    status, body = _exchange(link, method, target)
    if status >= 400:
        raise CannotRun(f"{method} {target}: {body.decode(errors='replace')[:200]}")
    return body


def until_healthy(url: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not _healthy(url):
        if time.monotonic() > deadline:
            raise CannotRun(f"{url} is not healthy after {LIMIT_S:g} s")
        time.sleep(POLL_S)


def _healthy(url: str) -> bool:
    try:
        return _exchange(_link(url), "GET", "/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def ask(url: str) -> None:
    """One bare completion."""
    if _exchange(_link(url), "POST", "/v1/chat/completions", json.dumps(ASK))[0] != 200:
        raise CannotRun(f"{url} completes nothing")


def _link(url: str) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(url.removeprefix("http://"), timeout=LIMIT_S)


def _exchange(
    link: http.client.HTTPConnection, method: str, target: str, body: str | None = None
) -> tuple[int, bytes]:
    with closing(link):
        link.request(method, target, body, {"Content-Type": "application/json"})
        reply = link.getresponse()
        return reply.status, reply.read()


@dataclass(frozen=True)
class Boxed:
    """A server in a container, and the tool of the same build; one thread each."""

    engine: Engine
    image: str
    mount: str
    label: str
    url: str
    container: str

    def bench(self, tokens: int, repetitions: int) -> list[float]:
        """tok/s of llama-bench, the server stopped. Raises Unavailable."""
        self.engine.run("stop", "-t", "1", self.container)
        said = self.engine.run(
            "run", "--rm", "--label", self.label, "--network", "none", "-v", self.mount,
            self.image, "llama-bench", "-m", "/models/measured.gguf", "-t", "1", "-p", "0",
            "-n", str(tokens), "-r", str(repetitions), "-o", "jsonl",
        )  # fmt: skip
        found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        return [float(one) for one in found[-1]["samples_ts"]]


@contextmanager
def boxed(models: Path) -> Iterator[Boxed]:
    """A llama-server in a container, on measured.gguf of that folder. Raises Unavailable."""
    with labelled() as (engine, image, label):
        port = free_port()
        container = _create(engine, image, models, label, "measured", port, context=4096)
        engine.run("start", container)
        url = f"http://127.0.0.1:{port}"
        until_healthy(url)
        yield Boxed(engine, image, f"{models}:/models:ro", label, url, container)
