"""What a load is expected to take while it runs, for a guard to compare with what it does take:
memory of processes, page cache, VRAM by card and swap."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from console.common.text import clean
from console.common.units import format_bytes, format_duration

SLACK = 0.10
MIN_SLACK = 2 << 30
"""A prediction is exceeded by a tenth and 2 GiB, whichever is more."""
MAX_SIZE = 1 << 60
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes at the end of one phase, from a quiet start; `at_s` is seconds since the start, None if
    the disk's speed is unknown. VRAM is by the name or UUID of the card."""

    phase: str
    at_s: float | None = None
    ram: int = 0
    page_cache: int = 0
    vram: tuple[tuple[str, int], ...] = ()
    swap: int = 0


@dataclass(frozen=True, slots=True)
class Envelope:
    """The points in order of time. No points: nothing was predicted, nothing is outside."""

    points: tuple[Point, ...] = ()

    @property
    def peak(self) -> Point:
        cards = dict.fromkeys(name for point in self.points for name, _ in point.vram)
        vram = tuple(
            (name, max(dict(point.vram).get(name, 0) for point in self.points)) for name in cards
        )
        return Point(
            "peak",
            max((point.at_s for point in self.points if point.at_s is not None), default=None),
            max((point.ram for point in self.points), default=0),
            max((point.page_cache for point in self.points), default=0),
            vram,
            max((point.swap for point in self.points), default=0),
        )

    def outside(
        self,
        *,
        ram: int | None = None,
        swap: int | None = None,
        vram: Iterable[tuple[str, int]] = (),
    ) -> str | None:
        """In words what exceeds the prediction by more than the slack; None if nothing does.

        Arguments are what a load takes now, above what was taken before it began; None is "not
        measured". The page cache is not judged, because the kernel reclaims it when needed.
        """
        if not self.points:
            return None
        peak = self.peak
        expected = dict(peak.vram)
        excesses = [
            _above("memory", ram, peak.ram),
            _above("swap", swap, peak.swap),
            *(_above(f"VRAM of {name}", size, expected.get(name, 0)) for name, size in vram),
        ]
        return "; ".join(filter(None, excesses)) or None

    def to_json(self) -> dict[str, object]:
        points = [{**asdict(point), "vram": dict(point.vram)} for point in self.points]
        return {"schema": SCHEMA, "points": points}

    @staticmethod
    def from_json(data: object) -> Envelope:
        """Parse the output of `to_json`. Raises ValueError with what is wrong."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise ValueError("not a memory envelope of this version")
        points = data.get("points")
        if not isinstance(points, list):
            raise ValueError("a memory envelope without points")
        return Envelope(tuple(_point(point) for point in points))

    def lines(self) -> list[str]:
        """One line per point: phase, time, and the bytes that are not zero."""
        return [_line(point) for point in self.points if point != Point(point.phase, point.at_s)]


def _above(what: str, now: int | None, predicted: int) -> str:
    if now is None or now <= predicted + max(MIN_SLACK, int(predicted * SLACK)):
        return ""
    return f"{what} {format_bytes(now)}, predicted at most {format_bytes(predicted)}"


def _point(data: object) -> Point:
    if not isinstance(data, Mapping):
        raise ValueError("a point of a memory envelope is no mapping")
    phase, at, vram = data.get("phase"), data.get("at_s"), data.get("vram")
    if not isinstance(phase, str) or not isinstance(vram, Mapping):
        raise ValueError("a point of a memory envelope lacks its phase or its cards")
    return Point(
        phase=clean(phase, 80),
        at_s=None if at is None else _seconds(at),
        ram=_bytes(data.get("ram"), "ram"),
        page_cache=_bytes(data.get("page_cache"), "page_cache"),
        vram=tuple((clean(str(name), 80), _bytes(size, "vram")) for name, size in vram.items()),
        swap=_bytes(data.get("swap"), "swap"),
    )


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("at_s of a memory envelope is no number of seconds")
    if not 0 <= value < math.inf:
        raise ValueError("at_s of a memory envelope is no time")
    return float(value)


def _bytes(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SIZE:
        raise ValueError(f"{name} of a memory envelope is no number of bytes")
    return value


def _line(point: Point) -> str:
    parts = [("memory", point.ram), ("page cache", point.page_cache), *point.vram]
    parts.append(("swap", point.swap))
    words = [f"{name} {format_bytes(size)}" for name, size in parts if size]
    when = "" if point.at_s is None else f" after {format_duration(point.at_s)}"
    return f"{point.phase}{when}: {', '.join(words)}"
