"""A stand-in server: a real llama.cpp on a tiny generated model, with a real server's arguments.

Host, port, model name, context and slots are taken from the command line as the real servers take
them; other options are accepted and named in the log. What stands for another engine answers in its
dialect (`relay`). A rehearsal may inject one fault here.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from console.rehearsal.demo import engine
from console.rehearsal.inside import ik_llama
from console.rehearsal.inside.dialect import DIALECTS, KT_NAME, KTRANSFORMERS, Dialect, Server
from console.rehearsal.inside.settings import (
    HOLDS,
    MODEL,
    OutOfMemory,
    Settings,
    announce,
    fetched,
    hold,
    settings,
    value,
)

CUDA_LINES = (
    "CUDA error: no kernel image is available for execution on the device",
    "  current device: 0, in function ggml_cuda_compute_forward",
)
SOON_S = 2.0
ABORT_S = 5.0
"""Seconds between an error message and the end of the process."""
CRASH_AFTER = 2
"""Requests of a soak that are answered before the crash."""
CHUNK = 16 << 20
ABORTED, SEGFAULT = 134, 139
"""Exit codes as of a signal: process 1 of a container cannot send itself one."""

LLAMA_PORT = 8080
CONTEXTS = ("-c", "--ctx-size", *{dialect.context for dialect in DIALECTS.values()})
MAX_CONTEXT = 8192


class Loading(BaseHTTPRequestHandler):
    """Answers 503 to everything, as llama-server does while its model loads."""

    def do_GET(self) -> None:
        data = b'{"error":{"code":503,"message":"Loading model"}}'
        self.send_response(503)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET


def load_for_ever(host: str, port: int, *, answers: bool = True) -> None:
    """Load until SIGTERM or SIGINT; llama-server answers 503 meanwhile, others refuse."""
    print("stand-in: loading, and never done", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    if answers:
        HTTPServer((host, port), Loading).serve_forever()
    while True:
        signal.pause()


def _eat_ram(bytes_s: int) -> None:
    """Take RAM, page by page, until the process is ended."""
    print("stand-in: loading; RAM goes up as in F-022", flush=True)
    taken = []
    while True:
        taken.append(bytearray(b"\1") * CHUNK)
        time.sleep(CHUNK / bytes_s)


def _cuda_error(own_settings: Settings, port: int) -> None:
    while fetched(port, "/health") is None:
        time.sleep(0.1)
    time.sleep(SOON_S)
    print("\n".join(CUDA_LINES), file=sys.stderr, flush=True)
    time.sleep(ABORT_S)
    os._exit(ABORTED)


def _crash(own_settings: Settings, port: int) -> None:
    """Die during the soak, whose requests are recognised in /slots by their token limit."""
    seen: set[int] = set()
    while len(seen) <= CRASH_AFTER:
        time.sleep(0.1)
        for slot in fetched(port, "/slots") or ():
            limit = (slot.get("params") or {}).get("n_predict")
            if limit == own_settings.soak_tokens:
                seen.add(int(slot.get("id_task", -1)))
    print("stand-in: dies now, as a driver fault would have it", file=sys.stderr, flush=True)
    os._exit(SEGFAULT)


def main(program: str, arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return an exit code if that fails."""
    announce(program)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--version" in given:
        print(f"version: 0 (stand-in of {program})")
        return 0
    own_settings = settings()
    command_line = " ".join(given) or "nothing"
    dialect = DIALECTS.get(program)
    spoken = dialect.engine if dialect is not None else ik_llama.engine(own_settings.image)
    print(f"{program}: asked for {command_line}; a tiny model answers as {spoken} does", flush=True)
    try:
        held = _load(own_settings)
    except OutOfMemory as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    host = value(given, "--host", default=os.environ.get("LLAMA_ARG_HOST", engine.LOOPBACK))
    usual = os.environ.get("LLAMA_ARG_PORT") or str(dialect.port if dialect else LLAMA_PORT)
    port = int(value(given, "--port", default=usual))
    if own_settings.fault == "ram":
        _eat_ram(own_settings.eat_bytes_s)
    if own_settings.fault == "never-ready":
        load_for_ever(host, port, answers=dialect is None)
    front = _front(dialect, given, own_settings)
    if front is not None:
        try:
            host, port = _in_front(front, host, port, own_settings.pace)
        except OSError as error:
            print(f"{program}: port {port}: {error.strerror}", file=sys.stderr, flush=True)
            return 1
    work = {"cuda-error": _cuda_error, "crash": _crash}.get(own_settings.fault)
    if work is not None:  # the fault of a server that serves
        threading.Thread(target=work, args=(own_settings, port), daemon=True).start()
    code = engine.main(_own(given, host, port, own_settings.fault))
    if held >= 0:
        os.close(held)
    return code


def _front(
    dialect: Dialect | None, given: Sequence[str], own_settings: Settings
) -> Server | ik_llama.Llama | None:
    """Who answers in front of llama.cpp; None where it answers by itself."""
    path = _model(given)
    if dialect is None and ik_llama.named(own_settings.image):
        return ik_llama.IkLlama(_alias(given), path, _context(given) * _slots(given))
    if dialect is None:
        return ik_llama.Llama() if own_settings.pace else None
    if dialect is KTRANSFORMERS:
        name = value(given, "--model_name", default=KT_NAME)
    else:
        name = value(given, "--served-model-name", default=path)
    return Server(dialect, name, path, _context(given), dialect.reports in given)


def _in_front(front: Server | ik_llama.Llama, host: str, port: int, slow: float) -> tuple[str, int]:
    """Let it answer there; return where llama.cpp has to serve. Raises OSError if the address is
    taken."""
    from console.rehearsal.inside.relay import LOOPBACK, Relay, free_port

    inner = free_port()
    relay = Relay((host, port), front, inner, slow)
    threading.Thread(target=relay.serve, daemon=True).start()
    return LOOPBACK, inner


def _model(given: Sequence[str]) -> str:
    """The model as it was given: `vllm serve MODEL` has no option for it."""
    first = given[1] if given[:1] == ["serve"] and len(given) > 1 else ""
    bare = "" if first.startswith("-") else first
    return value(given, "-m", "--model", "--model-path", "--model_path", default=bare)


def _context(given: Sequence[str]) -> int:
    return min(int(value(given, *CONTEXTS, default="0")) or MAX_CONTEXT, MAX_CONTEXT)


def _own(given: Sequence[str], host: str, port: int, fault: str) -> list[str]:
    """The demo engine's arguments, from those of a real server."""
    slots = _slots(given)
    return [
        "--model", MODEL, "--host", host, "--port", str(port), "--alias", _alias(given),
        "--ctx", str(_context(given) * slots), "--parallel", str(slots), "--cache-ram", "0",
        *(engine.GARBLED if fault == "garbled" else ()),
    ]  # fmt: skip


def _slots(given: Sequence[str]) -> int:
    return int(value(given, "-np", "--parallel", default="1"))


def _alias(given: Sequence[str]) -> str:
    alias = value(given, "-a", "--alias", "--served-model-name", default=Path(_model(given)).stem)
    return alias or "stand-in"


def _load(own_settings: Settings) -> int:
    """Take as much of the cards as the real model would; -1 if there are no cards."""
    directory = Path(HOLDS)
    if not own_settings.hold or not directory.is_dir():
        return -1
    total = {str(card["uuid"]): int(card["total"]) for card in own_settings.cards}
    held = hold(directory, own_settings.hold, total)
    for uuid, size in own_settings.hold.items():
        print(f"stand-in: {size / 2**30:.1f} GiB of {uuid} in use", flush=True)
    return held
