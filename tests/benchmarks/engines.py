"""Real llama.cpp servers to be measured: embedded, and in a container beside its llama-bench."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.rehearsal.demo.model import ModelSpec, write_llama
from tests.benchmarks.surroundings import CannotRun
from tests.benchmarks.yard import labelled, until_healthy
from tests.ports import free_port
from tests.testbed.engine import Engine

MODEL = "measured.gguf"
BENCH_S = 120


def write_model(place: Path) -> Path:
    """A model of 51 MB: slow enough that the network is not what is measured."""
    model = place / MODEL
    spec = ModelSpec("measured", blocks=8, seed=11, width=768, heads=12, feed_forward=2048)
    write_llama(model, spec)
    place.chmod(0o755)
    return model


@contextmanager
def embedded(model: Path) -> Iterator[str]:
    """The demo's server with one thread; its URL."""
    port = free_port()
    argv = [
        sys.executable,
        "-m",
        "console.rehearsal.demo.engine",
        "--model",
        str(model),
        "--port",
        str(port),
    ]
    log = model.with_suffix(".log")
    with log.open("wb") as out:
        server = subprocess.Popen(argv, stdout=out, stderr=out, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        until_healthy(url)
        yield url
    finally:
        server.kill()
        server.wait()


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
        """tok/s of llama-bench, the server stopped. Raises Unavailable or CannotRun."""
        self.engine.run("stop", "-t", "1", self.container)
        said = self.engine.run(
            "run", "--rm", "--label", self.label, "--network", "none", "-v", self.mount,
            self.image, "llama-bench", "-m", f"/models/{MODEL}", "-t", "1", "-p", "0",
            "-n", str(tokens), "-r", str(repetitions), "-o", "jsonl", timeout=BENCH_S,
        )  # fmt: skip
        found = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if not found:
            raise CannotRun(f"llama-bench said nothing: {said[-200:]!r}")
        return [float(one) for one in found[-1]["samples_ts"]]


@contextmanager
def boxed(model: Path) -> Iterator[Boxed]:
    """A real llama-server in a container. Raises Unavailable."""
    with labelled() as (engine, image, label):
        port, mount = free_port(), f"{model.parent}:/models:ro"
        name = engine.run(
            "run", "-d", "--label", label, "-p", f"127.0.0.1:{port}:8080", "-v", mount, image,
            "llama-server", "-m", f"/models/{MODEL}", "--host", "0.0.0.0", "--port", "8080",
            "-c", "4096", "-t", "1",
        ).strip()  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        until_healthy(url)
        yield Boxed(engine, image, mount, label, url, name)
