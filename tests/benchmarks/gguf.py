"""What it takes to learn a remote GGUF file's architecture, and its whole header.

A hub that redirects to a server for the bytes, both behind one line of 50 Mbit/s and 20 ms; each
side is a process of its own. hf-mem names huggingface.co in its code: its own function that fetches
a header is given the local address, with a client as its run.py makes it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.models.gguf.header import ValueType as T
from console.models.gguf.parser import parse
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Figure, Measured, Row, in_turns
from tests.gguf.raw import Pieces
from tests.gguf.server import hub, serving
from tests.testbed import cache
from tests.testbed.gguf_write import Item, Planned, Typed, encode

ROUNDS = 5
BITS_PER_S, LATENCY_S, SLACK_S = 50e6, 0.020, 0.010
TOKENS, MERGES, TENSORS, ELEMENTS = 129_280, 127_741, 1086, 4096
MIB = 2**20
MAX_RATIO = 0.5
MAX_BYTES, MAX_EXCHANGES, MAX_SHARE = 64 * 1024, 2, 1 / 50
HEADER_SPARE, HEADER_EXCHANGES = 2 * MIB, 5
HF_JS, HF_MEM = "@huggingface/gguf@0.4.6", "hf-mem==0.5.6"

OURS = """
import json, sys, time
import console.models.gguf.remote
from console.models.gguf.read import read_architecture, read_header
begun = time.perf_counter()
found = {"architecture": read_architecture, "header": read_header}[sys.argv[2]](sys.argv[1])
took = time.perf_counter() - begun
tensors = len(found.header.tensors) if found.header.tensors is not None else None
print(json.dumps({"seconds": took, "said": [found.header.architecture, tensors]}))
"""
THEIRS_JS = """
import { gguf } from "@huggingface/gguf";
const begun = performance.now();
const found = await gguf(process.argv[2]);
const seconds = (performance.now() - begun) / 1e3;
const said = [found.metadata["general.architecture"], found.tensorInfos.length];
console.log(JSON.stringify({ seconds, said }));
"""
THEIRS_PY = """
import asyncio, json, sys, time
import httpx2
from hf_mem.gguf.fetch import fetch_gguf_metadata
from hf_mem.run import MAX_CONCURRENCY as most

async def read():
    limits = httpx2.Limits(max_keepalive_connections=most, max_connections=most)
    options = dict(limits=limits, timeout=httpx2.Timeout(30.0), http2=True, follow_redirects=True)
    begun = time.perf_counter()
    async with httpx2.AsyncClient(**options) as client:
        found = await fetch_gguf_metadata(client, sys.argv[1])
    print(json.dumps({"seconds": time.perf_counter() - begun, "said": found.param_count}))

asyncio.run(read())
"""


def run(say: Callable[[str], None]) -> list[Measured]:
    """Bytes and exchanges as the server counts them; walls of the call and of the process."""
    size = parse(Pieces(header(), (MIB,))).header_bytes
    say(f"header of {size:,} bytes: {TOKENS:,} tokens, {MERGES:,} merges, {TENSORS:,} tensors")
    with surroundings.workplace() as place, surroundings.helper(__name__) as process:
        sides = _sides(place, _Line(process), say)
        in_turns({side.name: side.read for side in sides}, ROUNDS)
    ours, whole, *peers = sides
    spare = [one - size for one in whole.bodies]
    rows: list[Measured] = [
        Figure("architecture, bodies", "bytes", ours.bodies, MAX_BYTES, "worst"),
        Figure("architecture, exchanges", "", ours.exchanges, MAX_EXCHANGES, "worst"),
        Figure("whole header, bodies beyond it", "bytes", spare, HEADER_SPARE, "worst"),
        Figure("whole header, exchanges", "", whole.exchanges, HEADER_EXCHANGES, "worst"),
    ]
    for peer in peers:
        shares = [o / p for o, p in zip(ours.bodies, peer.bodies, strict=True)]
        rows += [
            Figure(f"{peer.name}, bodies", "bytes", peer.bodies),
            Figure(f"{peer.name}, exchanges", "", peer.exchanges),
            Figure(f"architecture, bytes to {peer.name}", "ratio", shares, MAX_SHARE, "worst"),
            *_compared("architecture", ours, peer, MAX_RATIO),
            *_compared("whole header", whole, peer, math.inf),
        ]
    return rows


@dataclass
class _Side:
    """One program: its command, what it must say, and what was seen of it, round by round."""

    name: str
    line: _Line
    argv: list[str]
    said: object
    env: dict[str, str] | None = None
    warm: bool = False
    """The first reading is a warm-up and leaves no trace."""
    calls: list[float] = field(default_factory=list)
    processes: list[float] = field(default_factory=list)
    bodies: list[float] = field(default_factory=list)
    exchanges: list[float] = field(default_factory=list)

    def read(self) -> float:
        self.line.counts()
        begun = time.perf_counter()
        done = subprocess.run(
            self.argv, env=self.env, capture_output=True, text=True, check=True, timeout=120
        )
        took = time.perf_counter() - begun
        told = json.loads(done.stdout)
        assert told["said"] == self.said, (self.name, told, self.said)
        counts = self.line.counts()
        if self.warm:
            self.calls.append(told["seconds"])
            self.processes.append(took)
            self.bodies.append(counts["body_bytes"])
            self.exchanges.append(counts["exchanges"])
        self.warm = True
        return took


def _sides(place: Path, line: _Line, say: Callable[[str], None]) -> list[_Side]:
    """Ours twice, then the peers that can be had here; who is missing is said."""
    env, tensors = surroundings.environment(place), ["deepseek2", TENSORS]
    ours = [sys.executable, "-c", OURS, line.url]
    sides = [
        _Side("ours, architecture", line, [*ours, "architecture"], ["deepseek2", None], env),
        _Side("ours, header", line, [*ours, "header"], tensors, env),
    ]
    peers: tuple[tuple[str, Callable[[], list[str]], object], ...] = (
        ("@huggingface/gguf", _hf_js, tensors), ("hf-mem", _hf_mem, TENSORS * ELEMENTS),
    )  # fmt: skip
    for name, get, said in peers:
        try:
            sides.append(_Side(name, line, [*get(), line.url], said))
        except cache.Unavailable as error:
            say(f"MISSING PEER {name}: {error.reason}")
    return sides


def _hf_js() -> list[str]:
    with cache.locked("peer-hf-js"):
        place = cache.folder(f"peers/hf-js-{cache.fingerprint(HF_JS, THEIRS_JS)}")
        driver = place / "driver.mjs"
        if not driver.exists():
            options = ["--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
            cache.command(["npm", "install", "--prefix", str(place), *options, HF_JS])
            driver.write_text(THEIRS_JS)
        cache.command(["node", "--version"])
    return ["node", str(driver)]


def _hf_mem() -> list[str]:
    with cache.locked("peer-hf-mem"):
        place = cache.folder(f"peers/hf-mem-{cache.fingerprint(HF_MEM, THEIRS_PY)}")
        driver, python = place / "driver.py", place / "venv/bin/python"
        if not driver.exists():
            cache.command([sys.executable, "-m", "venv", str(place / "venv")])
            quiet = ["--quiet", "--disable-pip-version-check"]
            cache.command([str(python), "-m", "pip", "install", *quiet, HF_MEM])
            driver.write_text(THEIRS_PY)
    return [str(python), str(driver)]


def _compared(what: str, ours: _Side, peer: _Side, most: float) -> list[Measured]:
    return [
        Row(f"{what}, the call", peer.name, ours.calls, peer.calls, most),
        Row(f"{what}, the process", peer.name, ours.processes, peer.processes, most),
    ]


def header() -> bytes:
    """A header with the shape of DeepSeek-V3's, from a fixed rule."""
    tokens = [f"t{number:06}" for number in range(TOKENS)]
    merges = [f"m{number:05} x{number % 997:03}" for number in range(MERGES)]
    sizes = {"block_count": 61, "context_length": 163_840, "attention.key_length": 576}
    kv: dict[str, Item] = {
        "general.architecture": "deepseek2",
        **{f"deepseek2.{key}": value for key, value in sizes.items()},
        "tokenizer.ggml.tokens": Typed(T.STRING, list(tokens)),
        "tokenizer.ggml.token_type": Typed(T.INT32, [1] * TOKENS),
        "tokenizer.ggml.merges": Typed(T.STRING, list(merges)),
    }
    planned = [
        Planned(f"blk.{number}.ffn_down_exps.weight", (ELEMENTS,)) for number in range(TENSORS)
    ]
    return encode(kv, planned)


class _Link:
    """One line for all connections: a latency for each journey, and blocks one after another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = 0.0

    def __call__(self, count: int) -> None:
        if not count:
            time.sleep(LATENCY_S)
            return
        with self._lock:
            # A sleep ends late; what it missed is made up for, but no more than a moment of it.
            self._free = max(self._free, time.monotonic() - SLACK_S) + count * 8 / BITS_PER_S
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


class _Line:
    """The servers' process, seen from here."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"{self.counts()['url']}/deepseek-ai/r/resolve/main/x.gguf"

    def counts(self) -> dict[str, Any]:
        """Exchanges and bytes of bodies since the last question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found


def serve() -> None:
    """Both servers, until stdin ends; a line there asks for the counts."""
    data, link = header() + bytes(TENSORS * ELEMENTS * 4), _Link()
    with ExitStack() as stack:
        far = stack.enter_context(serving(lambda exchange: exchange.part(data), link))
        near = stack.enter_context(serving(hub(data, lambda: far), link))
        before = (0, 0)
        for _ in sys.stdin:
            now = len(near.requests) + len(far.requests), near.body_bytes + far.body_bytes
            counts = {"exchanges": now[0] - before[0], "body_bytes": now[1] - before[1]}
            print(json.dumps({"url": near.url, **counts}), flush=True)
            before = now


if __name__ == "__main__":
    serve()
