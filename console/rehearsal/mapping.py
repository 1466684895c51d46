"""What a rehearsal puts in the place of what: images, ports, paths, speeds; kept with the run."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from console.common.errors import UsageError
from console.rehearsal.inside.settings import Settings

SHIFT = 10_000
TOO_MUCH = 0.99
"""Of each card that a load over the VRAM budget takes."""
LOOPBACK = re.compile(r"(?<![\w.-])(127\.0\.0\.1|localhost|0\.0\.0\.0)([: ])(\d{2,5})(?!\d)")


@dataclass(frozen=True, slots=True)
class Mapping:
    """`ports`: published → moved, as text (it goes through JSON). `cpus`: of a candidate's
    container. `ram_below`: bytes of available RAM at which the guard stops a load. `speed`: tok/s
    aimed at. `inputs`: values given by the rehearsal, not by the operator."""

    base: str
    fault: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    cpus: float = 1.0
    speed: float = 0.0
    told: Settings = field(default_factory=Settings)
    ram_below: int = 0
    inputs: dict[str, str] = field(default_factory=dict)

    def port(self, value: object) -> Any:
        """A port moved; anything that is not a known port as it is."""
        moved = self.ports.get(str(value))
        return value if moved is None else str(moved) if isinstance(value, str) else moved

    def text(self, text: str, images: dict[str, str]) -> str:
        """A command's or script's text with loopback ports moved and images replaced."""
        moved = LOOPBACK.sub(lambda m: f"{m[1]}{m[2]}{self.ports.get(m[3], m[3])}", text)
        for real, stand_in in images.items():
            moved = re.sub(rf"(?<![\w./:-]){re.escape(real)}(?![\w./:-])", stand_in, moved)
        return moved

    def for_image(self, name: str) -> Settings:
        """Settings of a candidate's image; the baseline has none of its faults."""
        told = replace(self.told, image=name, fault=self.fault)
        if self.fault != "vram":
            return told
        return replace(told, hold={c["uuid"]: int(c["total"] * TOO_MUCH) for c in told.cards})

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def read(path: Path) -> Mapping:
    """What `to_json` gave. Raises UsageError."""
    try:
        data = json.loads(path.read_text())
        return Mapping(**{**data, "told": Settings(**data["told"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError("the rehearsal's record cannot be read", f"{path}: {error}") from error


def move_ports(ports: Iterable[int]) -> dict[str, int]:
    """Each port 10,000 up, or the next one that is free. Raises UsageError without any."""
    moved: dict[str, int] = {}
    for port in sorted(set(ports)):
        wanted = port + SHIFT if port + SHIFT < 65_000 else port - SHIFT
        found = next(
            (n for n in range(wanted, wanted + 200) if n not in moved.values() and _free(n)), None
        )
        if found is None:
            raise UsageError(f"no free port for {port}", f"looked at {wanted}-{wanted + 199}")
        moved[str(port)] = found
    return moved


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
