"""A stand-in server: a real llama.cpp on a tiny generated model, with the arguments of a real one.

Host, port, model name, context and slots are taken from the command line as the real servers take
them; whatever else it says is accepted and named in the log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from console.rehearsal.demo import engine
from console.rehearsal.inside import mishap
from console.rehearsal.inside.argument import value
from console.rehearsal.inside.settings import HOLDS, MODEL, Settings, announce, settings
from console.rehearsal.inside.vram import OutOfMemory, hold

DEFAULT_PORT = {
    "llama-server": 8080, "sglang.launch_server": 30000, "ktransformers.server.main": 10002,
}  # fmt: skip
MOST_CONTEXT = 4096


def main(program: str, arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; the exit code of a server that could not."""
    announce(program)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in given:
        print(f"version: 0 (stand-in of {program})")
        return 0
    told = settings()
    model = value(given, "-m", "--model", "--model-path", "--model_path")
    print(
        f"{program}: asked for {' '.join(given) or 'nothing'}; a tiny model is served", flush=True
    )
    try:
        held = _load(told)
    except OutOfMemory as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    host = value(given, "--host", default=os.environ.get("LLAMA_ARG_HOST", engine.LOOPBACK))
    port = int(value(given, "--port", default=_port(program)))
    mishap.before(told, host, port)
    mishap.beside(told, port)
    code = engine.main(_own(given, model, host, port))
    if held >= 0:
        os.close(held)
    return code


def _port(program: str) -> str:
    return os.environ.get("LLAMA_ARG_PORT") or str(DEFAULT_PORT.get(program, 8080))


def _own(given: Sequence[str], model: str, host: str, port: int) -> list[str]:
    """The demo engine's arguments for what a real server was asked for."""
    slots = int(value(given, "-np", "--parallel", default="1"))
    context = int(value(given, "-c", "--ctx-size", "--context-length", default="0")) or MOST_CONTEXT
    alias = value(given, "-a", "--alias", "--served-model-name", default=Path(model).stem)
    return [
        "--model", MODEL, "--host", host, "--port", str(port), "--alias", alias or "stand-in",
        "--ctx", str(min(context, MOST_CONTEXT) * slots), "--parallel", str(slots),
        "--cache-ram", "0",
    ]  # fmt: skip


def _load(told: Settings) -> int:
    """Take what a load of the real model would take of the cards; -1 where there are none."""
    directory = Path(HOLDS)
    if not told.hold or not directory.is_dir():
        return -1
    total = {str(card["uuid"]): int(card["total"]) for card in told.cards}
    held = hold(directory, told.hold, total)
    for uuid, size in told.hold.items():
        print(f"stand-in: {size / 2**30:.1f} GiB of {uuid} in use", flush=True)
    return held
