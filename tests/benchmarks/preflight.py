"""What `check checkpoint` costs a processor: of a checkpoint of 200 shards, and of --suggest.

A hub on loopback is a process of its own. CPU seconds are those of a command and its children; a
loaded machine changes them little. Beside ours stands what the hub's own library takes for the
same headers, and beside --suggest the ordinary question about one quantization.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure, Measured, Row, in_turns

ROUNDS = 5
CHECKPOINT, MANY = "example/shards", "example/quantizations"
SHARDS = 200
MAX_CPU_S, MAX_EXCHANGES, MAX_RSS = 1.5, 14, 120 * 2**20
MAX_SENT = 12e6
MAX_SUGGEST_S, MAX_SUGGEST_RSS = 5.0, 200 * 2**20
MAX_RATIO = 1.1
SITE = """\
schema: omni.site/v1
name: bench
baseline: {container: nothing, url: "http://127.0.0.1:1"}
machine: {ram: 512GiB, ram_used: 8GiB, swap: 0GiB, disk_free: 9000GB}
gpus:
  - {uuid: GPU-00000000-0000-0000-0000-000000000001, name: large, memory: 96GiB, compute: "12.0"}
  - {uuid: GPU-00000000-0000-0000-0000-000000000002, name: small, memory: 32GiB, compute: "12.0"}
"""
THEIRS = """
import sys
from huggingface_hub import HfApi
found = HfApi().get_safetensors_metadata(sys.argv[1])
assert len(found.files_metadata) == int(sys.argv[2])
"""


def run(say: Callable[[str], None]) -> list[Measured]:
    with surroundings.workplace() as place, surroundings.helper(__name__) as hub:
        (place / "site.yaml").write_text(SITE)
        env = surroundings.environment(
            place, HF_ENDPOINT=_asked(hub)["url"], HF_HOME=str(place / "hf"),
            OMNI_SITE=str(place / "site.yaml"), DOCKER_HOST=f"unix://{place}/none.sock",
            HF_HUB_DISABLE_PROGRESS_BARS="1",
        )  # fmt: skip
        check = [*surroundings.command(), "check", "checkpoint"]
        theirs = [sys.executable, "-c", THEIRS, CHECKPOINT, str(SHARDS)]
        whole = _Side("200 shards", [*check, CHECKPOINT, "--engine", "sglang"], env, hub)
        library = _Side("huggingface_hub", theirs, env, hub)
        one = ["--include", "*Q4_K_M*", "--engine", "llama.cpp"]
        plain = _Side("one quantization", [*check, MANY, *one], env, hub)
        many = _Side("--suggest of 30", [*check, MANY, "--suggest"], env, hub)
        sides = (whole, library, plain, many)
        in_turns({side.name: _cold(side, place) for side in sides}, ROUNDS)
    return [
        Row("200 shards, CPU", library.name, whole.cpu, library.cpu, MAX_RATIO),
        Figure("200 shards, CPU", "s", whole.cpu, MAX_CPU_S),
        Figure("200 shards, exchanges", "", whole.exchanges, MAX_EXCHANGES, "worst"),
        Figure("huggingface_hub, exchanges", "", library.exchanges),
        Figure("200 shards, sent by the hub", "bytes", whole.sent, MAX_SENT, "worst"),
        Figure("huggingface_hub, sent by the hub", "bytes", library.sent),
        Figure("200 shards, resident", "bytes", whole.resident, MAX_RSS, "worst"),
        Row("--suggest of 30, CPU", plain.name, many.cpu, plain.cpu),
        Figure("--suggest of 30, CPU", "s", many.cpu, MAX_SUGGEST_S),
        Figure("--suggest of 30, resident", "bytes", many.resident, MAX_SUGGEST_RSS, "worst"),
    ]


@dataclass
class _Side:
    """One command, and what was seen of it, round by round: the first is a warm-up."""

    name: str
    argv: list[str]
    env: dict[str, str]
    hub: subprocess.Popen[str]
    cpu: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    exchanges: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    warm: bool = False

    def run(self) -> float:
        """CPU seconds of the command and of what it started."""
        _asked(self.hub)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        process = subprocess.Popen(self.argv, env=self.env, **quiet)  # type: ignore[call-overload]
        _, _, used = os.wait4(process.pid, 0)
        seconds = float(used.ru_utime + used.ru_stime)
        if self.warm:
            self.cpu.append(seconds)
            self.resident.append(used.ru_maxrss * 1024.0)
            seen = _asked(self.hub)
            self.exchanges.append(seen["exchanges"])
            self.sent.append(seen["sent"])
        self.warm = True
        return seconds


def _cold(side: _Side, place: Path) -> Callable[[], float]:
    """The command with nothing remembered of what it read before."""

    def way() -> float:
        for kept in place.glob("cache/**/*.json"):
            kept.unlink()
        return side.run()

    side.env["XDG_CACHE_HOME"] = str(place / "cache")
    return way


def _asked(hub: subprocess.Popen[str]) -> dict[str, Any]:
    """The hub's address, and the exchanges and bytes since the last question."""
    assert hub.stdin is not None
    assert hub.stdout is not None
    hub.stdin.write("\n")
    hub.stdin.flush()
    found: dict[str, Any] = json.loads(hub.stdout.readline())
    return found


def serve() -> None:
    """The hub, until stdin ends."""
    from tests.testbed import hub_shapes, quantizations
    from tests.testbed.hub import LocalHub, Repo, files

    scheme = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    config = hub_shapes.DEEPSEEK | {"quantization_config": scheme}
    parts = hub_shapes.sharded(list(hub_shapes.deepseek_checkpoint()), SHARDS)
    with LocalHub() as hub:
        hub.add(Repo(CHECKPOINT, files({"config.json": config, **parts})))
        hub.add(Repo(MANY, quantizations.repository("mixture", words=151_936)))
        for _ in sys.stdin:
            seen = {"url": hub.url, "exchanges": len(hub.seen), "sent": hub.sent}
            print(json.dumps(seen), flush=True)
            hub.forget()


if __name__ == "__main__":
    serve()
