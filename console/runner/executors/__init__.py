"""One module a step kind; each has `execute(context, planned, attempt) -> Done`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from console.runner.context import Executor

_MODULES = {
    "run": "command",
    "script": "command",
    "build": "command",
    "check": "check",
    "service": "service",
    "benchmark": "benchmark",
    "gate": "gate",
    "approval": "manual",
    "manual": "manual",
    "note": "note",
    "report": "note",
    "checkpoint": "preflight",
    "gguf": "preflight",
    "host": "preflight",
    "imports": "preflight",
    "download": "download",
    "soak": "soak",
    "cutover": "cutover",
    "baseline:stop": "baseline",
    "baseline:measure": "benchmark",
    "restore": "baseline",
}


ALWAYS = ("restore", "baseline:stop", "report", "run")


def executor(kind: str) -> Executor:
    """The executor of a kind; modules load when the runner warms up."""
    module = import_module(f"console.runner.executors.{_MODULES[kind]}")
    name = {"baseline:measure": "measure_baseline", "restore": "restore", "report": "report",
            "manual": "manual", "checkpoint": "checkpoint", "gguf": "gguf", "host": "host",
            "imports": "import_chain"}.get(kind, "execute")  # fmt: skip
    found: Executor = getattr(module, name)
    return found


def preload(kinds: Iterable[str]) -> None:
    """Import everything a run may need: nothing is loaded later on a thrashing machine."""
    for kind in {*kinds, *ALWAYS} & _MODULES.keys():
        executor(kind)
