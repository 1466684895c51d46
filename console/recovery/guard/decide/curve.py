"""The curve of the figure that made a breach: of RAM and swap the samples are kept anyway; of
services, cards, disks and logs the looks of the last two minutes are asked again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from console.recovery.guard.decide.metrics import Sight, reader
from console.recovery.guard.decide.policy import Breach
from console.recovery.guard.limits import OF_CARD
from console.recovery.guard.observe.snapshot import Look

KEPT = 128
COLUMNS = {
    "host.ram_available": 1, "host.time_to_full": 1, "host.swap_used": 2, "host.swap_free": 2,
    "host.swap_growth": 2, "host.pressure": 3,
}  # fmt: skip
"""Of these the window's rows have the curve."""


class Curves:
    """Looks, one a second, as far as they are not of RAM."""

    def __init__(self) -> None:
        self._looks: deque[Look] = deque(maxlen=KEPT)

    def add(self, look: Look) -> None:
        self._looks.append(look)

    def of(
        self, breach: Breach, sight: Sight, more: Iterable[tuple[float, float]], wall: float
    ) -> dict[str, Any]:
        """What was on the limit that made a breach: `metric` (or `log`), `of`, and either the
        `column` of the window's rows or `points`, [wall, figure] in the limit's unit. `more`:
        points of monotonic time that are known besides; `wall`: when the breach was judged."""
        limit, shift = breach.limit, wall - breach.at
        if limit.log:
            found: dict[str, Any] = {"log": limit.log, "of": limit.log}
        else:
            found = {"metric": limit.metric, "of": breach.of or limit.of}
        if limit.metric in COLUMNS:
            return {**found, "column": COLUMNS[limit.metric]}
        if breach.of and not limit.log and limit.of in ("", *OF_CARD):
            limit = replace(limit, of=breach.of)
        read, points = reader(limit, breach.index)[0], dict(more)
        for look in self._looks:
            seen = Sight(sight.forecast, sight.gpus)
            seen.look = look
            figure = read(seen)
            if figure is not None and figure.value is not None:
                points.setdefault(figure.at, figure.value)
        rows = [[round(at + shift, 3), points[at]] for at in sorted(points)]
        return {**found, "points": rows}
