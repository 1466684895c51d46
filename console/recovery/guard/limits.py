"""One limit of a guard, as the sheet carries it from site and playbook to the sentinel."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

METRICS = {
    "host.ram_available": "B", "host.swap_used": "B", "host.swap_free": "B",
    "host.swap_growth": "B", "host.swap_in_rate": "B/s", "host.swap_out_rate": "B/s",
    "host.pressure": "%", "host.pressure_some": "%", "host.time_to_full": "s",
    "gpu.memory_used": "B", "gpu.memory_free": "B", "disk.free": "B",
    "service.ram_used": "B", "service.restarts": "", "service.oom_kills": "",
    "runner.silent": "s",
}  # fmt: skip
"""What a limit can be on, and its unit. Pressure is the share of the last second in which all
(`host.pressure`) or some (`host.pressure_some`) tasks waited for memory; `host.swap_growth` is
what swap grew by since something of the run came alive."""
OWN_METRICS = {"host.bound_left": "B"}
"""What only a default is on: RAM left to the control group around the console, while a host process
of the run lives in it."""
OF_CARD = ("sum", "max", "min")
"""`of` of a gpu limit: these, or a UUID (its beginning); of a disk limit a path; of a service limit
a service's name, "" for any."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Breached when `metric` is below (or above) `value` for `for_s` seconds without a break.

    `log` instead of a metric: `count` lines of that service match `matches`. `act`: "kill" or
    "warn". `missing`: what no figure means, "say" (shown) or "breach" (after a grace it counts as
    breached). `source`: default, site or playbook, and where. `scarce`: only while RAM available is
    below this many bytes; 0 for always.
    """

    metric: str = ""
    below: float | None = None
    above: float | None = None
    for_s: float = 0.0
    of: str = ""
    log: str = ""
    matches: str = ""
    count: int = 1
    act: str = "kill"
    missing: str = "say"
    source: str = "default"
    scarce: int = 0

    @property
    def unit(self) -> str:
        return (METRICS | OWN_METRICS).get(self.metric, "")

    def passed(self, value: float) -> bool:
        """Whether a figure is on the wrong side."""
        if self.below is not None:
            return value < self.below
        return self.above is not None and value > self.above

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, "")}

    @staticmethod
    def from_json(data: object) -> Limit:
        """What `to_json` gave. Raises ValueError with what is wrong."""
        if not isinstance(data, dict):
            raise ValueError("a limit is a table")
        limit = Limit(**data)
        if bool(limit.log) == bool(limit.metric):
            raise ValueError("a limit is on a metric or on a log")
        if limit.metric and limit.metric not in METRICS | OWN_METRICS:
            raise ValueError(f"unknown metric {limit.metric}")
        if limit.metric and (limit.below is None) == (limit.above is None):
            raise ValueError(f"{limit.metric}: below or above")
        value = limit.below if limit.below is not None else limit.above
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{limit.metric}: no number")
        return limit
