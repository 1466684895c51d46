"""Hogs in containers of an engine, as a site's candidate."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.guard.yard import programs
from tests.guard.yard.scene import RATE, SIZE
from tests.testbed.engine import Engine
from tests.testbed.image import BUSY

LIMIT = "6GiB"
"""More than any hog takes: the guard has to end it, not this limit."""


def box(
    url: str, command: list[str], place: Path, *, limit: str = LIMIT, pids: int = 4096
) -> dict[str, Any]:
    """Return a service that runs `command` in the tiny image; `/yard` has the hog, `/place` is
    shared."""
    container = {
        "image": BUSY, "name": f"yard-{uuid.uuid4().hex[:10]}", "command": command,
        "mounts": [f"{programs.hog().parent}:/yard:ro", f"{place}:/place"], "memory": limit,
        "pids": pids,
    }  # fmt: skip
    return {"container": container, "url": url, "exclusive": True, "ready": {"timeout": "60s"}}


def on_word(command: str) -> list[str]:
    """Return a command for the container's shell that waits until /place/go exists."""
    return ["sh", "-c", f"until [ -e /place/go ]; do sleep 0.05; done; exec {command}"]


def alloc(size: int = SIZE, rate: int = RATE) -> str:
    return f"/yard/hog alloc {size} {rate}"


def running(engine: Engine, name: str) -> bool:
    form = ["inspect", "--format", "{{.State.Running}}", name]
    return engine.run(*form, timeout=20).strip() == "true"
