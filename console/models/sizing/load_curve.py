"""What a load is expected to take while it runs, kept so that a guard can hold it against what
is: memory of processes, page cache, VRAM by card and swap."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from console.common.text import clean
from console.common.units import format_bytes, format_duration

SLACK = 0.10
LEAST_SLACK = 2 << 30
"""A prediction is left when a figure is a tenth and 2 GiB above it, whichever is more."""
MOST = 1 << 60
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Point:
    """Bytes at the end of one phase, from a quiet start; `at_s` is seconds since the start, None
    where the speed of the disk is not known. VRAM is by the name or UUID of the card."""

    phase: str
    at_s: float | None = None
    ram: int = 0
    page_cache: int = 0
    vram: tuple[tuple[str, int], ...] = ()
    swap: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """What a load takes now, above what was taken before it began; None is "not measured"."""

    ram: int | None = None
    page_cache: int | None = None
    vram: tuple[tuple[str, int], ...] = ()
    swap: int | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """The points in order of time. No points: nothing was predicted, nothing is outside."""

    points: tuple[Point, ...] = ()

    @property
    def peak(self) -> Point:
        """The most of everything, over the whole load."""
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

    def outside(self, sample: Sample) -> str | None:
        """In words what is above the prediction by more than the slack; None while it holds.

        The page cache is not judged: the kernel takes back what it needs of it.
        """
        if not self.points:
            return None
        peak = self.peak
        found = []
        if sample.ram is not None:
            found.append(_above("memory", sample.ram, peak.ram))
        if sample.swap is not None:
            found.append(_above("swap", sample.swap, peak.swap))
        expected = dict(peak.vram)
        for name, size in sample.vram:
            found.append(_above(f"VRAM of {name}", size, expected.get(name, 0)))
        words = [one for one in found if one]
        return "; ".join(words) or None

    def to_json(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "points": [
                {
                    "phase": point.phase,
                    "at_s": point.at_s,
                    "ram": point.ram,
                    "page_cache": point.page_cache,
                    "vram": dict(point.vram),
                    "swap": point.swap,
                }
                for point in self.points
            ],
        }

    @staticmethod
    def from_json(data: object) -> Envelope:
        """What `to_json` gave. Raises ValueError with what is wrong."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            raise ValueError("not a memory envelope of this version")
        points = data.get("points")
        if not isinstance(points, list):
            raise ValueError("a memory envelope without points")
        return Envelope(tuple(_point(one) for one in points))

    def lines(self) -> list[str]:
        """One line a point: phase, time, and the bytes that are not zero."""
        return [_line(point) for point in self.points if point != Point(point.phase, point.at_s)]


def _above(what: str, now: int, predicted: int) -> str:
    if now <= predicted + max(LEAST_SLACK, int(predicted * SLACK)):
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
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise ValueError(f"{name} of a memory envelope is no number of bytes")
    return value


def _line(point: Point) -> str:
    parts = [("memory", point.ram), ("page cache", point.page_cache), *point.vram]
    parts.append(("swap", point.swap))
    words = [f"{name} {format_bytes(size)}" for name, size in parts if size]
    when = "" if point.at_s is None else f" after {format_duration(point.at_s)}"
    return f"{point.phase}{when}: {', '.join(words)}"
