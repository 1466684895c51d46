"""What goes wrong in a stand-in server on purpose: one fault a rehearsal."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from console.rehearsal.inside.settings import Settings

CUDA_LINES = (
    "CUDA error: no kernel image is available for execution on the device",
    "  current device: 0, in function ggml_cuda_compute_forward",
)
SOON_S = 2.0
ABORT_S = 5.0
"""Between the words of an error and the end of the process."""
CRASH_AFTER = 2
"""Requests of a soak that are still answered."""
CHUNK = 16 << 20
ABORTED, SEGFAULT = 134, 139
"""Exit codes as of a signal: process 1 of a container cannot send itself one."""


def before(told: Settings, host: str, port: int) -> None:
    """Faults of a load: it eats RAM, or never gets ready. Returns where neither is told."""
    if told.fault == "ram":
        _eat(told.eat_bytes_s)
    if told.fault == "never-ready":
        from console.rehearsal.inside import loading

        loading.serve(host, port)


def beside(told: Settings, port: int) -> None:
    """Faults of a server that serves, in a thread of their own."""
    work = {"cuda-error": _cuda_error, "crash": _crash}.get(told.fault)
    if work is not None:
        threading.Thread(target=work, args=(told, port), daemon=True).start()


def _eat(bytes_s: int) -> None:
    """Take RAM, page by page, until somebody ends it."""
    print("stand-in: loading; RAM goes up as in F-022", flush=True)
    taken = []
    while True:
        taken.append(bytearray(b"\1") * CHUNK)
        time.sleep(CHUNK / bytes_s)


def _cuda_error(told: Settings, port: int) -> None:
    while _ask(port, "/health") is None:
        time.sleep(0.1)
    time.sleep(SOON_S)
    print("\n".join(CUDA_LINES), file=sys.stderr, flush=True)
    time.sleep(ABORT_S)
    os._exit(ABORTED)


def _crash(told: Settings, port: int) -> None:
    """Dies under the soak: its requests are known by their token limit, in /slots."""
    seen: set[int] = set()
    while len(seen) <= CRASH_AFTER:
        time.sleep(0.1)
        for slot in _ask(port, "/slots") or ():
            limit = (slot.get("params") or {}).get("n_predict")
            if limit == told.soak_tokens:
                seen.add(int(slot.get("id_task", -1)))
    print("stand-in: dies now, as a driver fault would have it", file=sys.stderr, flush=True)
    os._exit(SEGFAULT)


def _ask(port: int, path: str) -> Any:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return json.loads(answer.read())
    except (urllib.error.URLError, OSError, ValueError):
        return None
