"""Executors of the step kinds; each kind names a function `(context, planned, attempt) -> Done`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from console.config.playbook.steps import KINDS
from console.runner.context import Executor

ALWAYS = ("restore", "baseline:stop", "report", "run")


def executor(kind: str) -> Executor:
    """The executor of a kind; modules load when the runner warms up."""
    module, function = KINDS[kind].executor.split(":")
    implementation: Executor = getattr(
        import_module(f"console.runner.executors.{module}"), function
    )
    return implementation


def preload(kinds: Iterable[str]) -> None:
    """Import everything a run may need: nothing is loaded later on a thrashing machine."""
    for kind in {*kinds, *ALWAYS} & KINDS.keys():
        executor(kind)
