"""What the watch is told: the site's settings and the sealed plan of its baseline, in plain JSON.

`omni-console watch run` writes it from the site file and then becomes the watch, which loads no
parser and no validation library.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.errors import InvalidFile, Problem
from console.common.files import write_atomically
from console.common.record import RecordError
from console.journal.watch_record import PLAN
from console.recovery.rollback.sealed_plan import SealedPlan

SCHEMA = "omni.watch/v1"
SIZE_LIMIT = 1 << 20
OPTIONS = ("-OO",)
"""Of the interpreter that watches: words that only readers of the source need take memory."""
ENVIRONMENT = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "16384",
               "MALLOC_MMAP_THRESHOLD_": "16384", "MALLOC_TOP_PAD_": "0"}  # fmt: skip
"""For glibc, in the watch alone: one arena, and memory that is free goes back at once."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`watch:` of a site; times in seconds."""

    interval_s: float = 60.0
    tokens: int = 16
    ask_after: int = 10
    """How many looks in a row may find the server busy before it is asked all the same."""
    restore: bool = False
    at_most: int = 3
    """Restores within 24 hours."""
    metrics: str = ""
    """HOST:PORT of loopback for /metrics; "" for none."""


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """`site_path` is the site file, "" for the demo's; `given`: whether it was named; `notify`: its
    channels as they are written there, for as long as the file cannot be used."""

    settings: Settings
    sealed: SealedPlan
    given: bool = False
    notify: tuple[dict[str, Any], ...] = ()

    @property
    def site(self) -> str:
        return self.sealed.site_name


def usual_environment() -> dict[str, str]:
    """The environment for children of the watch: as it was before the watch changed it."""
    return {key: value for key, value in os.environ.items() if key not in ENVIRONMENT}


def write(plan: WatchPlan, path: Path) -> None:
    """Replace the plan, which may hold secrets of the baseline's start. Raises OSError."""
    paths.make(path.parent)
    write_atomically(path, record.text(plan, schema=SCHEMA), 0o600)


def read(path: Path) -> WatchPlan:
    """Raises InvalidFile."""
    try:
        return record.read(WatchPlan, path, SIZE_LIMIT, schema=SCHEMA)
    except (OSError, RecordError) as error:
        problem = Problem(str(path), 0, 0, f"{type(error).__name__}: {error}")
        raise InvalidFile("not a usable plan of the watch", [problem]) from error


def of_site_file(path: Path, *, current: bool) -> WatchPlan | None:
    """The plan that a watch of this site file wrote; None without one. `current`: only if the file
    has not changed since."""
    wanted = os.path.realpath(path)
    for plan_file in sorted(paths.records_dir("").glob(f"*/{PLAN}")):
        with contextlib.suppress(InvalidFile, OSError):
            plan = read(plan_file)
            newer = os.stat(wanted).st_mtime if current else 0.0
            if (
                os.path.realpath(plan.sealed.site_path) == wanted
                and newer < plan_file.stat().st_mtime
            ):
                return plan
    return None
