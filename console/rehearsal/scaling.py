"""How fast a rehearsal's stand-in candidate is to be, and how much shorter a playbook's times.

A playbook's own gates stay as they are written, and say what is rehearsed; only the CPU quota of
the stand-in is chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from console.common.errors import UsageError
from console.common.units import parse_duration
from console.config.playbook.steps import CriterionModel
from console.config.playbook.threshold import Threshold

ABOVE, BELOW = 1.4, 0.7
"""A GO is aimed this far above its threshold, an abort this far below its own: what a token costs
drifts by a fifth in minutes where a machine is shared."""
FALLBACK = 12.0
"""tok/s that a playbook without a gate on speed is taken to ask for."""
SPEEDS = ("tok_s", "decode_tok_s", "tg_tok_s")

RUNS, TOKENS = 5, 32
SOAK_TOKENS = 2
SOAK_S, ANSWER_S = 20.0, 0.7
"""A soak's least duration, and what one of its short answers takes at most, seconds."""
STABLE_S, WATCH_S = 2.0, 10.0
SAMPLES = 10

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Aim:
    """tok/s of a candidate that passes, of one that is too slow, of one in between (or None)."""

    good: float
    slow: float
    grey: float | None

    def speed(self, fault: str) -> float:
        """Raises UsageError where the playbook has no zone in between."""
        if fault == "grey" and self.grey is None:
            raise UsageError(
                "this playbook has no grey zone",
                "no gate on a speed has both go and no_go with room in between",
                "--fault slow rehearses its NO-GO",
            )
        return {"slow": self.slow, "grey": self.grey or 0.0}.get(fault, self.good)


def aim(criteria: Iterable[CriterionModel], baseline_tok_s: float) -> Aim:
    """From every criterion on generated tokens a second; relative ones by the baseline's figure."""
    goes: list[float] = []
    aborts: list[float] = []
    zones: list[float] = []
    for one in criteria:
        if one.metric.rpartition(".")[2] not in SPEEDS:
            continue
        go = _value(one.go, baseline_tok_s, (">", ">="))
        abort = _value(one.no_go, baseline_tok_s, ("<", "<="))
        goes += [go] if go else []
        aborts += [abort or go] if abort or go else []
        if abort and go > abort:
            zones.append((go + abort) / 2)
    most = max(goes, default=FALLBACK)
    return Aim(most * ABOVE, min(aborts, default=most) * BELOW, min(zones, default=None))


def _value(found: Threshold | None, baseline_tok_s: float, operators: tuple[str, ...]) -> float:
    """The threshold in tok/s; 0.0 where there is none of that kind."""
    if found is None or found.op not in operators:
        return 0.0
    return found.value * (baseline_tok_s if found.relative else 1.0)


def shorten(tree: Tree, steps: list[Tree], notes: list[str]) -> None:
    """Make times of a playbook and of its steps shorter, in place: what is measured stays, for
    less long. Each change is a line in `notes`."""
    for name, service in (tree.get("services") or {}).items():
        ready = service.get("ready") if isinstance(service, dict) else None
        if isinstance(ready, dict):
            _cap_time(ready, "stable_for", STABLE_S, f"service {name}: ready", notes)
    for step in steps:
        where = f"step {step.get('id')}:"
        if isinstance(step.get("benchmark"), dict):
            _cap(step["benchmark"], "runs", RUNS, 9, where, notes)
            _cap(step["benchmark"], "max_tokens", TOKENS, 256, where, notes)
            step["benchmark"].pop("max_runs", None)
        if isinstance(step.get("soak"), dict):
            _soak(steps, step, where, notes)
        if isinstance(step.get("cutover"), dict):
            _cap_time(step["cutover"], "watch", WATCH_S, f"{where} cutover", notes)


def _soak(steps: list[Tree], step: Tree, where: str, notes: list[str]) -> None:
    """Long enough for as many requests as the gates want, each of two tokens."""
    soak = step["soak"]
    needs = max([SAMPLES, *_asked(steps, str(step.get("id")))])
    _cap(soak, "max_tokens", SOAK_TOKENS, 128, where, notes)
    _cap_time(soak, "duration", max(SOAK_S, needs * ANSWER_S), f"{where} soak", notes)
    _cap_time(soak, "every", 0.05, f"{where} soak", notes, otherwise="5s")
    soak.pop("arrivals", None)


def _asked(steps: list[Tree], soak: str) -> Iterator[int]:
    for step in steps:
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
