"""A soak in words: while it goes on, and when it is over."""

from __future__ import annotations

from console.bench.metrics import repeated
from console.bench.soak_stats import Tally
from console.bench.soak_trend import drift, rolling, spark
from console.bench.statistics import median
from console.common.units import format_bytes, format_duration, format_number


def live_words(tally: Tally, t: float, duration_s: float, silent_s: float = 0.0) -> str:
    """`▆▇▇▆ 10.8 tok/s · 145 requests, 0 errors · RSS 12.3 GiB · 12 min 05 s, 47 min 55 s left`.

    `silent_s`: for how long no token came, where that is longer than normal: no rate then.
    """
    rates = tally.rates
    now = rolling(rates, t)
    if silent_s:
        speed = f"no token for {format_duration(silent_s)}"
    elif tally.hanging:
        speed = "nothing answered since it hung"
    elif now is not None:
        speed = format_number(now, "tok/s")
    else:
        speed = "no answer in the last minute" if tally.requests else "no answer yet"
    errors = sum(tally.errors.values())
    parts = [
        f"{spark(rates, t)} {speed}",
        f"{_plural(len(tally.requests), 'request')}, {_plural(errors, 'error')}",
        *_troubles(tally),
    ]
    if tally.transport_retries:
        parts.append(f"{tally.transport_retries} sent twice")
    if tally.rss:
        parts.append(f"RSS {format_bytes(tally.rss[-1][1])}")
    over = t >= duration_s and bool(silent_s)
    last = "over, one is still out" if over else f"{format_duration(max(0.0, duration_s - t))} left"
    return " · ".join([*parts, f"{format_duration(t)}, {last}"])


def summary(tally: Tally) -> str:
    """The result in one line."""
    slower, _ = drift(tally.rates, tally.observed)
    speed = median([rate for _, rate in tally.rates])
    parts = [
        f"{format_duration(tally.observed)}: {_plural(len(tally.requests), 'request')}, "
        f"{_plural(sum(tally.errors.values()), 'error')}",
        f"{format_number(speed, 'tok/s')}" if speed is not None else "no rate",
    ]
    if slower is not None:
        parts.append(f"{abs(slower):.1%} {'slower' if slower > 0 else 'faster'} at the end")
    grown = tally.figures()["rss_growth"]["value"]
    if grown is not None:
        sign = "−" if grown < 0 else "+"
        parts.append(f"RSS {sign}{format_bytes(abs(grown))}")
    parts.append(", ".join(_troubles(tally)) or "0 restarts, 0 hangs")
    if tally.critical_count:
        parts.append(_plural(tally.critical_count, "critical log line"))
    if tally.gaps:
        parts.append(f"{_plural(len(tally.gaps), 'gap')} in observation")
    return "; ".join([", ".join(parts), *flags(tally)])


def flags(tally: Tally) -> list[str]:
    """What a reader of the figures should know of how they were taken, a line each."""
    return repeated(tally.transport_retries, len(tally.requests))


def _troubles(tally: Tally) -> list[str]:
    """A server that died and did not come back has crashed; one that did was restarted."""
    counts = (
        (len(tally.hangs), "hang"), (tally.restarted, "restart"), (int(bool(tally.gone)), "crash"),
    )  # fmt: skip
    found = [_plural(count, name) for count, name in counts if count]
    return found + ([f"{_plural(tally.missed, 'moment')} missed"] if tally.missed else [])


def _plural(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
