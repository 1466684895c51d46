"""The numbers of docs/measurements/replay.md."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from console.common.units import format_bytes
from console.models.sizing.assessment import GIB, HOST_MARGIN, Verdict
from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard.config import NOTHING_PREDICTED, defaults
from console.render.guard import limit_words
from tests.guard.replay import replay, replay_memories
from tests.guard.replay_machine import (
    GB,
    SWAP,
    TOTAL,
    Curve,
    Filling,
    conversion,
    family,
    incident,
    preflight,
    ramp,
)
from tests.guard.replay_record import all_curves, idle_hour

DOCUMENT = Path(__file__).parents[2] / "docs" / "measurements" / "replay.md"
MARK = "<!-- python -m tests.guard.replay --write -->"
RATES = tuple(rate * GB for rate in (0.2, 1.0, 3.0, 6.0))
SHARES = (0.60, 0.90, 0.95, 1.005, 1.10, 1.40)
ENDS = (*(share * TOTAL for share in SHARES), TOTAL - HOST_MARGIN - 1e6, TOTAL - 5 * GIB)
"""Shares of RAM, then the most that is a GO, then a value between that and all of the machine's
RAM."""


def seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:,.1f} s"


def predicted(load_gb: float) -> Envelope:
    return Envelope((Point("start", 0.0), Point("loaded", None, int(load_gb * GB))))


def incidents() -> Iterator[str]:
    """The published curves, with and without a prediction."""
    first, slow = incident(), conversion(60.0)
    yield "| curve | warned | killed | RAM used then | lowest RAM available | because |"
    yield "|---|---|---|---|---|---|"
    cases: list[tuple[str, Curve, Envelope]] = [
        ("F-022, nothing predicted", first, NOTHING_PREDICTED),
        ("F-022, the 642 GB predicted (NO-GO)", first, preflight(first)[1]),
        ("F-022, 350 GB predicted, as was believed (TIGHT)", first, predicted(350)),
        ("F-022, 300 GB predicted by mistake (GO)", first, predicted(300)),
        ("F-022, 340 GB predicted by mistake (GO)", first, predicted(340)),
        (slow.name, slow, NOTHING_PREDICTED),
        ("conversion, 600 s a layer", conversion(600.0), NOTHING_PREDICTED),
    ]
    for name, curve, envelope in cases:
        found = replay(curve, envelope)
        yield (
            f"| {name} | {seconds(found.warned_at)} | {seconds(found.acted_at)} | "
            f"{found.used / GB:.0f} GB | {found.lowest / GB:.1f} GB | {found.reason} |"
        )


def compared() -> list[Curve]:
    """The curves that the usual guards are compared on."""
    rates, ends = tuple(rate * GB for rate in (0.2, 1.0, 6.0)), (1.05 * TOTAL, 1.40 * TOTAL)
    return [incident(), conversion(60.0), *(ramp(rate, end) for rate in rates for end in ends)]


STEP_S = 0.1
AVG_TAU_S, AVG_EVERY_S = 10.0, 2.0
EXCESS_S = 30.0


def others(curve: Curve) -> dict[str, float | None]:
    """Return the second at which each rule is met with nothing else interfering; None for never.

    earlyoom: MemAvailable and free swap both at 10 % or less, then 5 %. systemd-oomd: memory and
    swap both used above 90 %; or the 10 s average of PSI full above 60 % for 30 s.
    """
    found: dict[str, float | None] = dict.fromkeys(
        ("earlyoom TERM", "earlyoom KILL", "oomd swap", "oomd pressure", "RAM full")
    )
    filling, averaged, above, before, due = Filling(curve), 0.0, 0.0, 0.0, AVG_EVERY_S
    while not filling.ended:
        filling.step(STEP_S)
        memory, t = filling.memory(), filling.t
        free = 100 * (SWAP - memory.swap_used) / SWAP
        available = 100 * memory.available / TOTAL
        if t >= due:
            share = (filling.stalled_us - before) / AVG_EVERY_S / 1e4
            averaged += (share - averaged) * (1 - math.exp(-AVG_EVERY_S / AVG_TAU_S))
            before, due = filling.stalled_us, due + AVG_EVERY_S
        above = above + STEP_S if averaged > 60 else 0.0
        met = {
            "earlyoom TERM": available <= 10 and free <= 10,
            "earlyoom KILL": available <= 5 and free <= 5,
            "oomd swap": 100 - available > 90 and 100 - free > 90,
            "oomd pressure": above >= EXCESS_S,
            "RAM full": TOTAL - filling.ram < 2.5e9,
        }
        for name, yes in met.items():
            if yes and found[name] is None:
                found[name] = t
    return found


def beside(curves: list[Curve]) -> Iterator[str]:
    """Apply the rules of the usual guards to the same curves."""
    names = ("earlyoom TERM", "earlyoom KILL", "oomd swap", "oomd pressure")
    yield "| curve | RAM full | sentinel | " + " | ".join(names) + " |"
    yield "|---|---|---|---|---|---|---|"
    for curve in curves:
        there, found = others(curve), replay(curve)
        cells = " | ".join(seconds(there[name]) for name in names)
        acted = seconds(found.acted_at)
        yield f"| {curve.name} | {seconds(there['RAM full'])} | {acted} | {cells} |"


def kin() -> Iterator[str]:
    """Count the family of curves, by preflight's verdict and by where each ends."""
    counted: Counter[tuple[str, bool, bool]] = Counter()
    lowest: dict[str, float] = {}
    for curve in family(RATES, ENDS):
        verdict, envelope = preflight(curve)
        told, untold = replay(curve, envelope), replay(curve)
        group = group_of(curve, verdict)
        counted[group, told.acted_at is not None, untold.acted_at is not None] += 1
        lowest[group] = min(lowest.get(group, TOTAL), told.lowest)
    yield "| ends | loads | killed, as predicted | killed, nothing predicted | lowest RAM |"
    yield "|---|---|---|---|---|"
    for group in ("preflight says GO", "between", "past the machine"):
        mine = {key: count for key, count in counted.items() if key[0] == group}
        told_n = sum(count for key, count in mine.items() if key[1])
        untold_n = sum(count for key, count in mine.items() if key[2])
        total = sum(mine.values())
        yield f"| {group} | {total} | {told_n} | {untold_n} | {lowest[group] / GB:.1f} GB |"


def group_of(curve: Curve, verdict: Verdict) -> str:
    if curve.past:
        return "past the machine"
    return "preflight says GO" if verdict is Verdict.GO else "between"


def recorded() -> Iterator[str]:
    """Loads that were run for real, and an hour of nothing."""
    yield "| recorded here | length | lowest RAM available | warned | killed |"
    yield "|---|---|---|---|---|"
    curves = [(c.what, c.seconds, (c.memories(), c.total, c.swap_total)) for c in all_curves()]
    for what, length, memories in [
        *curves,
        ("an hour of idle, made of the minute", 3600, idle_hour()),
    ]:
        found = replay_memories(*memories)
        warned, acted = seconds(found.warned_at), seconds(found.acted_at)
        yield f"| {what} | {length:.0f} s | {found.lowest / GIB:.1f} GiB | {warned} | {acted} |"


def default_limits() -> Iterator[str]:
    found = defaults(TOTAL, SWAP)
    yield f"- RAM counts as full with {format_bytes(found.reserve)} left"
    yield from (f"- {limit_words(limit)}" for limit in found.limits)


def text() -> str:
    """Return everything after the mark in the document."""
    parts = [
        ("The defaults on this machine (377 GB of RAM, 207 GB of swap)",
         default_limits()),
        ("The incident and the conversion", incidents()),
        ("The usual guards' rules on the same curves", beside(compared())),
        ("The family", kin()),
        ("Recorded loads", recorded()),
    ]  # fmt: skip
    return "\n".join(f"\n## {title}\n\n" + "\n".join(lines) for title, lines in parts) + "\n"


def main(arguments: list[str]) -> int:
    found = text()
    if arguments == ["--write"]:
        head = DOCUMENT.read_text("utf-8").partition(MARK)[0]
        DOCUMENT.write_text(head + MARK + "\n" + found, "utf-8")
    else:
        print(found)
    return 0
