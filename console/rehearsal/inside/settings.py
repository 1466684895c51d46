"""The settings of a stand-in container, from its rehearsal and its arguments, and its VRAM.

Everything in this package runs inside the stand-in image, on the standard library alone. VRAM is
scripted: one file per process names bytes per card, and counts while its lock is held. The lock
ends with the process, so memory is freed after SIGKILL as well.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "OMNI_REHEARSAL"
"""Environment variable of a stand-in image: the settings below, as JSON in base64, because a
Dockerfile has quoting rules of its own."""
HOLDS_VARIABLE = "OMNI_REHEARSAL_HOLDS"
"""On the host: the directory that containers see as HOLDS."""
MODEL = "/opt/rehearsal/model.gguf"
HOLDS = "/omni-rehearsal/vram"
"""Where containers record how much of which card they hold: a bind-mounted host directory."""


def value(arguments: Sequence[str], *names: str, default: str = "") -> str:
    """The last value given under any of these names, as `-x V` or `--x=V`. Names are exact: unlike
    in argparse, llama.cpp's `-ngl` is not read as `-n gl`."""
    last_value = default
    for number, argument in enumerate(arguments):
        name, sign, inline = argument.partition("=")
        if name in names:
            last_value = inline if sign else "".join(arguments[number + 1 : number + 2])
    return last_value


@dataclass(frozen=True, slots=True)
class Settings:
    """`fault`: the fault to inject, or empty. `cards`: {uuid, name, total} each; `hold`: UUID →
    bytes that a load takes. `soak_tokens`: the token limit that marks requests of a soak.
    `eat_bytes_s`: the pace of a load that eats RAM. `unsteady`: tok/s of every other answer with
    the fault `grey`; 0.0: all are alike."""

    image: str = "stand-in"
    fault: str = ""
    cards: list[dict[str, Any]] = field(default_factory=list)
    hold: dict[str, int] = field(default_factory=dict)
    compute: str = "12.0"
    soak_tokens: int = 0
    eat_bytes_s: int = 256 << 20
    unsteady: float = 0.0

    @property
    def pace(self) -> float:
        """Most tok/s of every other answer; 0.0 if all are alike, as the baseline's always are."""
        return self.unsteady if self.fault == "grey" else 0.0

    @property
    def capability(self) -> tuple[int, int]:
        major, _, minor = self.compute.partition(".")
        return int(major), int(minor or 0)

    @property
    def architectures(self) -> list[str]:
        """CUDA architectures that the stand-in claims to have kernels for."""
        own = "sm_" + self.compute.replace(".", "")
        known = ["sm_80", "sm_86", "sm_89", "sm_90"]
        return known if self.fault == "no-sm120" else [*known, own]


def settings() -> Settings:
    """The settings in the image, else the defaults."""
    text = os.environ.get(VARIABLE, "")
    return Settings(**json.loads(base64.b64decode(text))) if text else Settings()


def packed(stand_in_settings: Settings) -> str:
    return base64.b64encode(json.dumps(asdict(stand_in_settings)).encode()).decode()


def fetched(port: int, path: str) -> Any:
    """The JSON that a server on this machine has at `path`; None if it has none."""
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return json.loads(answer.read())
    except (OSError, ValueError):
        return None


def announce(name: str) -> None:
    """Print the first line of every stand-in, on stderr."""
    print(f"{name}: stand-in of a rehearsal, not the real one", file=sys.stderr, flush=True)


class OutOfMemory(Exception):
    """The cards have too little memory left; the text is CUDA's."""


def held(directory: Path) -> dict[str, int]:
    """Bytes in use by UUID: the sum over all live processes with a file in `directory`."""
    used: dict[str, int] = {}
    for path in sorted(directory.glob("*.hold")):
        for uuid, size in _live(path).items():
            used[uuid] = used.get(uuid, 0) + size
    return used


def _live(path: Path) -> dict[str, int]:
    """A holder's figures while its process lives; empty once the process is gone."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                sizes = json.loads(file.read() or "{}")
                return {str(uuid): int(size) for uuid, size in sizes.items()}
    except (OSError, ValueError):
        pass
    return {}


def hold(directory: Path, wanted: Mapping[str, int], total: Mapping[str, int]) -> int:
    """Take bytes of the cards until the returned descriptor is closed or the process ends.

    Raises OutOfMemory if a card has too little left, OSError if writing fails.
    """
    used = held(directory)
    for uuid, size in wanted.items():
        if used.get(uuid, 0) + size > total.get(uuid, size):
            free = total.get(uuid, 0) - used.get(uuid, 0)
            raise OutOfMemory(f"CUDA error: out of memory: {size} B wanted of {uuid}, {free} free")
    path = directory / f"{socket.gethostname()}-{os.getpid()}.hold"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.truncate(descriptor, 0)
    os.write(descriptor, json.dumps(dict(wanted)).encode())
    return descriptor
