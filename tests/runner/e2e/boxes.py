"""A world whose baseline and candidates are real llama.cpp containers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.runner.e2e.world import World, until
from tests.testbed.engine import Engine

LABEL = "omni.test"


def server(model: str) -> list[str]:
    """llama-server's argv inside the image."""
    return [
        "llama-server", "-m", f"/models/{model}", "--host", "0.0.0.0", "--port", "8080",
        "-t", "1", "-c", "1024", "--slots", "--metrics",
    ]  # fmt: skip


@dataclass
class Boxes:
    """One test's containers, all of them with its own label."""

    world: World
    engine: Engine
    image: str
    scope: str
    host: str

    @property
    def models(self) -> Path:
        return self.world.model.parent

    @property
    def base_name(self) -> str:
        return f"e2e-{self.scope}-deepseek"

    @property
    def cand_name(self) -> str:
        return f"e2e-{self.scope}-cand"

    def docker(self, *args: str) -> str:
        return self.engine.run(*args).strip()

    def inspect(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.docker("inspect", name))[0]
        return found

    def running(self, name: str) -> bool:
        return bool(self.inspect(name)["State"]["Running"])

    def ids(self, *more: str) -> list[str]:
        query = ["ps", "-aq", "--no-trunc", "--filter", f"label={LABEL}={self.scope}", *more]
        return self.docker(*query).split()

    def baseline(self) -> str:
        """Start the deepseek2 baseline; its id, once it serves."""
        found = self.docker(
            "run", "-d", "--name", self.base_name, "--label", f"{LABEL}={self.scope}",
            "-p", f"127.0.0.1:{self.world.base_port}:8080", "-v", f"{self.models}:/models:ro",
            self.image, *server("deepseek2.gguf"),
        )  # fmt: skip
        until(self.world.serves, "the baseline's container serves")
        return found

    def site(self, **baseline: Any) -> str:
        return json.dumps(
            {
                "schema": "omni.site/v1",
                "name": "box",
                "baseline": {"url": self.world.base_url, "ready": {"timeout": "60s"}, **baseline},
                "engine": {"host": self.host},
                "services": {"cand": self.candidate("tiny.gguf"),
                             "broken": self.candidate("unknown.gguf")},
            }
        )  # fmt: skip

    def candidate(self, model: str) -> dict[str, Any]:
        container = {
            "image": self.image, "name": self.cand_name, "command": server(model),
            "ports": [f"{self.world.cand_port}:8080"], "mounts": [f"{self.models}:/models:ro"],
            "memory": "1GiB",
        }  # fmt: skip
        return {
            "container": container, "url": self.world.cand_url, "exclusive": True,
            "ready": {"timeout": "60s"},
        }  # fmt: skip

    def close(self) -> None:
        for found in self.ids():
            self.docker("rm", "-f", "-v", found)
        made = f"omni-test/next:{self.base_name}"
        if self.docker("images", "-q", made):
            self.docker("rmi", made)  # by its name: the image may have others


def boxes(world: World, engine: Engine, image: str, host: str, scope: str) -> Iterator[Boxes]:
    """Its commands speak to the engine through the door `host`."""
    world.env |= {**engine.env(), "DOCKER_HOST": host}
    made = Boxes(world, engine, image, scope, host)
    try:
        yield made
    finally:
        world.close()
        made.close()
