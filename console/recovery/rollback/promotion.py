"""Who accepted a cutover, when and why: one small file in the directory of its run.

It changes nothing by itself: what a rollback restores is the site file's word alone.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from console.common.text import one_line
from console.recovery.rollback.sealed_plan import write_atomically

FILE = "promotion.json"
SIZE_LIMIT = 16_384


@dataclass(frozen=True, slots=True)
class Promotion:
    """`at` in Unix seconds; texts are clean."""

    service: str
    who: str
    why: str
    at: float


def write(run: Path, promotion: Promotion) -> None:
    """Raises OSError."""
    write_atomically(run / FILE, json.dumps(asdict(promotion)) + "\n", 0o600)


def read(run: Path) -> Promotion | None:
    """The promotion of a run's cutover; None when there is none. Never raises."""
    try:
        with open(run / FILE, "rb") as stream:
            value: Any = json.loads(stream.read(SIZE_LIMIT))
        service, who, why = (one_line(str(value[key]), 300) for key in ("service", "who", "why"))
        return Promotion(service, who, why, float(value["at"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
