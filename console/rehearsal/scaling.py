"""How fast a stand-in candidate is to be, so that a playbook's own gates say what is rehearsed.

The gates stay as they are written; only the CPU quota of the stand-in is chosen by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from console.common.errors import UsageError
from console.config.playbook.steps import CriterionModel
from console.config.playbook.threshold import Threshold

ABOVE, BELOW = 1.4, 0.7
"""A GO is aimed this far above its threshold, an abort this far below its own: what a token costs
drifts by a fifth in minutes where a machine is shared."""
FALLBACK = 12.0
"""tok/s that a playbook without a gate on speed is taken to ask for."""
SPEEDS = ("tok_s", "decode_tok_s", "tg_tok_s")


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
