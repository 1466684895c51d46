"""The commands of the stand-in image, one function each: `python -m …inside.command NAME ARG…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from console.rehearsal.inside.settings import HOLDS, HOLDS_VARIABLE, announce, settings
from console.rehearsal.inside.vram import held

MIB = 1 << 20


def llama_server(arguments: Sequence[str]) -> int:
    """Modules are imported where they are used: under a small quota each one is waited for."""
    from console.rehearsal.inside import server

    return server.main("llama-server", arguments)


def llama_bench(arguments: Sequence[str]) -> int:
    from console.rehearsal.inside import measure

    return measure.bench(arguments)


def sweep_bench(arguments: Sequence[str]) -> int:
    from console.rehearsal.inside import measure

    return measure.sweep(arguments)


def cuobjdump(arguments: Sequence[str]) -> int:
    """The architectures that the build claims, as `--list-elf` prints them."""
    announce("cuobjdump")
    for number, name in enumerate(settings().architectures, 1):
        print(f"ELF file    {number}: stand-in.{number}.{name}.cubin")
    return 0


def nvidia_smi(arguments: Sequence[str]) -> int:
    """`-L` and `--query-gpu=…`, from the scripted cards and what is held of them now."""
    announce("nvidia-smi")
    query = next((one for one in arguments if one.startswith("--query-gpu=")), "")
    if not query:
        for number, card in enumerate(settings().cards):
            print(f"GPU {number}: {card['name']} (UUID: {card['uuid']})")
        return 0
    form = next((one for one in arguments if one.startswith("--format=")), "")
    names = query.partition("=")[2].split(",")
    if "noheader" not in form:
        print(", ".join(names))
    used = held(Path(os.environ.get(HOLDS_VARIABLE, HOLDS)))
    unit = "" if "nounits" in form else " MiB"
    for number, card in enumerate(settings().cards):
        taken = used.get(str(card["uuid"]), 0)
        values = {
            "index": str(number), "name": card["name"], "uuid": card["uuid"],
            "gpu_uuid": card["uuid"], "driver_version": "580.126.09",
            "compute_cap": settings().compute,
            "memory.total": f"{int(card['total']) // MIB}{unit}",
            "memory.used": f"{taken // MIB}{unit}",
            "memory.free": f"{(int(card['total']) - taken) // MIB}{unit}",
        }  # fmt: skip
        print(", ".join(values.get(name.strip(), "[N/A]") for name in names))
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "llama-server": llama_server,
    "llama-bench": llama_bench,
    "llama-sweep-bench": sweep_bench,
    "cuobjdump": cuobjdump,
    "nvidia-smi": nvidia_smi,
}


def entry(arguments: Sequence[str]) -> int:
    """The image's entrypoint: options alone are llama-server's, anything else is a command."""
    if not arguments or arguments[0].startswith("-"):
        return llama_server(arguments)
    try:
        os.execvp(arguments[0], list(arguments))
    except OSError as error:
        print(f"stand-in: {arguments[0]}: {error.strerror}", file=sys.stderr, flush=True)
        return 127


def main() -> int:
    name, *arguments = sys.argv[1:]
    return entry(arguments) if name == "entry" else COMMANDS[name](arguments)


if __name__ == "__main__":
    sys.exit(main())
