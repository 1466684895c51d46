"""Keeps what was measured on disk, so that a point is never measured again.

One file for each setting (program, model, machine, way of measuring), a line for each point: the
hash of its command line, the same as it may be shown, and what became of it. A later line of a
point counts instead of an earlier one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from console.bench.tune.outcome import Outcome
from console.common import record, redact
from console.common.files import append_line, json_lines, write_atomically
from console.common.record import RecordError
from console.common.text import clean
from console.common.units import number

MAX_POINTS = 100_000
NO_SECRETS = redact.Known()


@dataclass(frozen=True, slots=True)
class _Line:
    """A point on disk. `argv` is only shown; `at`: when it was measured, Unix seconds."""

    key: str
    argv: list[Any] = field(default_factory=list)
    outcome: Outcome = field(kw_only=True)
    at: float = 0.0


class Points:
    """The points of one setting. `setting` is anything that JSON holds; its hash names the file,
    and nothing of it is written, since an environment may hold secrets; `known` are never
    written, either."""

    def __init__(
        self, folder: Path, setting: Mapping[str, Any], known: redact.Known = NO_SECRETS
    ) -> None:
        self._secrets = known
        self.path = folder / f"{_hash(setting)[:16]}.jsonl"
        self._known: dict[str, Outcome] = {}

    def read(self) -> int:
        """Read what earlier searches measured; return the number of points. Lines that are torn or
        make no sense are left out."""
        with contextlib.suppress(OSError):
            for line in json_lines(self.path):
                with contextlib.suppress(RecordError):
                    point = record.of(_Line, line)
                    self._known[point.key] = point.outcome
                if len(self._known) >= MAX_POINTS:
                    break
        return len(self._known)

    def get(self, argv: Sequence[str]) -> Outcome | None:
        return self._known.get(_hash(list(argv)))

    def keep(self, argv: Sequence[str], outcome: Outcome, at: float) -> None:
        """Keep a point, on disk before this returns. Raises OSError."""
        key = _hash(list(argv))
        self._known[key] = outcome
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = [clean(self._secrets.text(word), 300) for word in redact.argv(argv)]
        safe = replace(outcome, why=self._secrets.text(outcome.why))
        line = record.plain(_Line(key, shown, at, outcome=safe))
        append_line(self.path, json.dumps(line), 0o600)

    def forget(self, before: float) -> None:
        """Delete what was measured before a time. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            lines = list(json_lines(self.path))
            kept = [line for line in lines if (number(line.get("at")) or 0.0) >= before]
            write_atomically(self.path, "".join(f"{json.dumps(line)}\n" for line in kept), 0o600)


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
