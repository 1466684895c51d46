"""Times of a playbook that a rehearsal makes shorter: what is measured stays, for less long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.common.units import parse_duration
from console.rehearsal.mapping import Mapping

RUNS, TOKENS = 5, 32
SOAK_TOKENS = 2
SOAK_S, ANSWER_S = 20.0, 0.7
"""A soak's least duration, and what one of its short answers takes at most, seconds."""
STABLE_S, WATCH_S = 2.0, 10.0
SAMPLES = 10

Tree = dict[str, Any]


def shorten(tree: Tree, mapping: Mapping, notes: list[str]) -> None:
    """In place; each change is a line in `notes`."""
    del mapping
    for name, service in (tree.get("services") or {}).items():
        ready = service.get("ready") if isinstance(service, dict) else None
        if isinstance(ready, dict):
            _cap_time(ready, "stable_for", STABLE_S, f"service {name}: ready", notes)
    for step in _steps(tree):
        where = f"step {step.get('id')}:"
        if isinstance(step.get("benchmark"), dict):
            _cap(step["benchmark"], "runs", RUNS, 9, where, notes)
            _cap(step["benchmark"], "max_tokens", TOKENS, 256, where, notes)
            step["benchmark"].pop("max_runs", None)
        if isinstance(step.get("soak"), dict):
            _soak(tree, step, where, notes)
        if isinstance(step.get("cutover"), dict):
            _cap_time(step["cutover"], "watch", WATCH_S, f"{where} cutover", notes)


def _soak(tree: Tree, step: Tree, where: str, notes: list[str]) -> None:
    """Long enough for as many requests as the gates want, each of two tokens."""
    soak = step["soak"]
    needs = max([SAMPLES, *_asked(tree, str(step.get("id")))])
    _cap(soak, "max_tokens", SOAK_TOKENS, 128, where, notes)
    _cap_time(soak, "duration", max(SOAK_S, needs * ANSWER_S), f"{where} soak", notes)
    _cap_time(soak, "every", 0.05, f"{where} soak", notes, otherwise="5s")
    soak.pop("arrivals", None)


def _asked(tree: Tree, soak: str) -> Iterator[int]:
    """Samples that criteria on a soak ask for."""
    for step in _steps(tree):
        for one in step.get("gate") or ():
            if isinstance(one, dict) and str(one.get("metric", "")).startswith(f"{soak}."):
                yield int(one.get("min_samples") or 0)


def _cap(table: Tree, key: str, most: int, otherwise: int, where: str, notes: list[str]) -> None:
    written = table.get(key, otherwise)
    if isinstance(written, int) and written > most:
        notes.append(f"{where} {key} {written} → {most}")
        table[key] = most


def _cap_time(
    table: Tree, key: str, most_s: float, where: str, notes: list[str], otherwise: str = ""
) -> None:
    written = table.get(key, otherwise)
    try:
        seconds = parse_duration(written) if isinstance(written, str) and written else 0.0
    except ValueError:
        return  # the loader reports it
    if seconds > most_s:
        table[key] = f"{most_s * 1000:.0f}ms" if most_s < 1 else f"{most_s:.0f}s"
        notes.append(f"{where} {key} {written} → {table[key]}")


def _steps(tree: Tree) -> Iterator[Tree]:
    for phase in tree.get("phases") or ():
        if isinstance(phase, dict):
            yield from (step for step in phase.get("steps") or () if isinstance(step, dict))
