"""Keeps what was measured on disk, so that a point is never measured again.

One file for each setting (program, model, machine, way of measuring), a line for each point: its
command line, and what became of it. A later line of a point counts instead of an earlier one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from console.bench.tune.outcome import Outcome, outcome_of
from console.common.files import append_line, json_lines

MOST_POINTS = 100_000


class Points:
    """The points of one setting. `setting` is anything that JSON holds; its hash names the file."""

    def __init__(self, folder: Path, setting: Mapping[str, Any]) -> None:
        text = json.dumps(setting, sort_keys=True)
        self.path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.jsonl"
        self._setting = text
        self._known: dict[tuple[str, ...], Outcome] = {}

    def read(self) -> int:
        """Read what earlier searches measured; return the number of points. Lines that are torn or
        make no sense are left out."""
        with contextlib.suppress(OSError):
            for line in json_lines(self.path):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    self._known[_words(line["argv"])] = outcome_of(line["outcome"])
                if len(self._known) >= MOST_POINTS:
                    break
        return len(self._known)

    def get(self, argv: Sequence[str]) -> Outcome | None:
        return self._known.get(tuple(argv))

    def keep(self, argv: Sequence[str], outcome: Outcome, at: float) -> None:
        """Keep a point, on disk before this returns. Raises OSError."""
        self._known[tuple(argv)] = outcome
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = {"argv": list(argv), "outcome": outcome.to_json(), "at": at}
        if not self.path.exists():
            append_line(self.path, json.dumps({"setting": json.loads(self._setting)}), 0o600)
        append_line(self.path, json.dumps(line))

    def forget(self) -> None:
        """Delete the file. Raises OSError."""
        self._known.clear()
        self.path.unlink(missing_ok=True)


def _words(argv: object) -> tuple[str, ...]:
    if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
        raise ValueError("no command line")
    return tuple(argv)
