"""One module a step kind; each has `execute(context, planned, attempt) -> Done`."""

from __future__ import annotations

from importlib import import_module

from console.run.context import Executor

_MODULES = {
    "run": "command",
    "script": "command",
    "build": "command",
    "check": "check",
    "service": "service",
    "benchmark": "benchmark",
    "gate": "gate",
    "approval": "approval",
    "manual": "approval",
    "note": "note",
    "report": "note",
    "baseline:stop": "baseline",
    "baseline:measure": "benchmark",
    "restore": "baseline",
}


def executor(kind: str) -> Executor:
    """The executor of a kind; modules load when the runner warms up."""
    module = import_module(f"console.run.executors.{_MODULES[kind]}")
    name = {"baseline:measure": "measure_baseline", "restore": "restore", "report": "report",
            "manual": "manual"}.get(kind, "execute")  # fmt: skip
    found: Executor = getattr(module, name)
    return found


def preload() -> None:
    """Import everything a run may need: nothing is loaded later on a thrashing machine."""
    for kind in _MODULES:
        executor(kind)
