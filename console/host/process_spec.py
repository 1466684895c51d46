"""What a host process is started with, and the marks in its environment that tell whose it is."""

from __future__ import annotations

from dataclasses import dataclass

COOKIE = "OMNI_RUN"
"""Environment variable of every child of a run, so that strays are found without any record."""

BASELINE_COOKIE = "baseline"
"""Value of it for a baseline process: never a run's, or a fence would take it for a stray."""
STEP_COOKIE = "OMNI_STEP"
"""The same for the children of one step: they end with it, whatever session they went to. A
baseline process carries its mark there (`process.mark`)."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """A host process; `env` is added to the allow-listed environment."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
