"""A scripted NVML library: the real pynvml reads cards that a text file describes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import command, fingerprint, folder, locked

SONAME = "libnvidia-ml.so.1"
MIB = 1024 * 1024
NOT_SUPPORTED = "not_supported"
# NVML's own numbers, for ``fail`` in a script.
ERROR_NO_PERMISSION = 4
ERROR_GPU_IS_LOST = 15
ERROR_RESET_REQUIRED = 16
ERROR_LIB_RM_VERSION_MISMATCH = 18
ERROR_UNKNOWN = 999


@dataclass(frozen=True)
class Card:
    """One scripted card; a value of None is one that the card does not support."""

    name: str
    uuid: str
    mem_total: int | None
    mem_used: int | None
    pci: str
    util: int | None = 0
    temp: int | None = 35
    power: int | None = 20_000
    power_limit: int | None = 600_000
    fan: int | None = 30
    pstate: int | None = 8
    clock: int | None = 2_400
    capability: str | None = "12.0"
    mig: int | None = None
    lost: bool = False
    procs: Mapping[int, int] | None = None
    fail: Mapping[str, int] | None = None
    hang: Mapping[str, int] | None = None

    def lines(self, number: int) -> list[str]:
        plain = "name uuid mem_total mem_used pci util temp power power_limit fan pstate clock"
        values = {key: getattr(self, key) for key in (*plain.split(), "capability", "mig")}
        values["lost"] = int(self.lost)
        values["procs"] = " ".join(f"{p}:{used}" for p, used in (self.procs or {}).items())
        for kind, calls in (("fail", self.fail), ("hang", self.hang)):
            values.update({f"{kind}.{call}": value for call, value in (calls or {}).items()})
        return [
            f"{number}.{key} {NOT_SUPPORTED if value is None else value}"
            for key, value in values.items()
        ]

    def but(self, **changes: object) -> Card:
        return replace(self, **changes)  # type: ignore[arg-type]


RTX_PRO_6000 = Card(
    name="NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    uuid="GPU-6f3c1a52-0e7d-4b1c-9a44-96a1c0de6000",
    mem_total=97_887 * MIB,
    mem_used=612 * MIB,
    pci="0:01:00",
    mig=0,
)
RTX_5090 = Card(
    name="NVIDIA GeForce RTX 5090",
    uuid="GPU-2b8e7d10-55c3-4f0a-8d21-32b2c0de5090",
    mem_total=32_607 * MIB,
    mem_used=15 * MIB,
    pci="0:02:00",
    power_limit=575_000,
)
WORKSTATION = (RTX_PRO_6000, RTX_5090)


@dataclass(frozen=True)
class Nvml:
    """A compiled library, and what programs need to load it instead of a driver's."""

    library: Path

    def env(self, script: Path) -> dict[str, str]:
        """For a child process; LD_LIBRARY_PATH is only read when a process starts."""
        before = os.environ.get("LD_LIBRARY_PATH")
        folders = [str(self.library.parent), *([before] if before else [])]
        return {"LD_LIBRARY_PATH": ":".join(folders), "OMNI_NVML_SCRIPT": str(script)}

    def write(
        self,
        script: Path,
        cards: Sequence[Card] = WORKSTATION,
        *,
        driver: str = "580.105.08",
        cuda: int = 13_000,
        fail: Mapping[str, int] | None = None,
        hang: Mapping[str, int] | None = None,
    ) -> Path:
        """Write a script in one step, so that a reader never sees half of it."""
        lines = [f"count {len(cards)}", f"driver {driver}", f"cuda {cuda}"]
        lines += [f"fail.{call} {code}" for call, code in (fail or {}).items()]
        lines += [f"hang.{call} {seconds}" for call, seconds in (hang or {}).items()]
        for number, card in enumerate(cards):
            lines += card.lines(number)
        fresh = script.with_name(f".{script.name}.new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(script)
        return script


def ensure_nvml(without: Sequence[str] = ()) -> Nvml:
    """Compile the library; ``without`` names functions to leave out, as old drivers lack them."""
    source = Path(__file__).with_name("nvml.c")
    key = fingerprint(source.read_text(), *sorted(without))
    library = folder(f"nvml/{key}") / SONAME
    with locked("nvml"):
        if not library.exists():
            _compile(source, library, without)
    return Nvml(library)


def _compile(source: Path, library: Path, without: Sequence[str]) -> None:
    gcc = debian.require_program("gcc", ["gcc", "libc6-dev"])
    fresh = library.with_suffix(".new")
    argv = [gcc, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-D_GNU_SOURCE"]
    argv += [f"-Wl,-soname,{SONAME}", "-o", str(fresh), str(source)]
    if without:
        script = library.with_name("exports")
        hidden = " ".join(f"{name};" for name in without)
        script.write_text(f"{{ global: *; local: {hidden} }};\n")
        argv.append(f"-Wl,--version-script={script}")
    command(argv)
    fresh.replace(library)
