"""Figures that a pattern captures from a command's output, in the unit that the step declares."""

from __future__ import annotations

import math
import re
from typing import Literal, get_args

from console.common.spans import here
from console.common.text import one_line
from console.config.playbook.threshold import in_base_unit
from console.host.matching import Find

OutputUnit = Literal[
    "", "tok/s", "s", "ms", "min", "h", "B", "kB", "KB", "MB", "GB", "TB",
    "KiB", "MiB", "GiB", "TiB", "ratio", "%", "count",
]  # fmt: skip
"""Units that an output can be declared in; the figure itself is in the base unit (`base_unit`)."""

_SPELLED = {
    "B": {"B", "byte", "bytes", "Byte", "Bytes"},
    "kB": {"kB", "KB", "k", "K"}, "KB": {"kB", "KB", "k", "K"}, "MB": {"MB", "M"},
    "GB": {"GB", "G"}, "TB": {"TB", "T"}, "KiB": {"KiB", "Ki", "k", "K"},
    "MiB": {"MiB", "Mi", "M"}, "GiB": {"GiB", "Gi", "G"}, "TiB": {"TiB", "Ti", "T"},
    "s": {"s", "sec", "secs", "second", "seconds"},
    "ms": {"ms", "msec", "msecs", "millisecond", "milliseconds"},
    "min": {"m", "min", "mins", "minute", "minutes"},
    "h": {"h", "hr", "hrs", "hour", "hours"}, "%": {"%", "percent"},
    "tok/s": {"tok/s", "t/s", "T/s", "tps", "token/s", "tokens/s", "tok/sec", "tokens/sec"},
}  # fmt: skip
_TIMES = ("s", "ms", "min", "h")
_OTHERS = {"us", "µs", "μs", "ns", "d", "day", "days", "bit", "bits", "kbit", "mbit", "gbit",
           "kb", "mb", "gb", "tb", "pb", "pib", "kib", "mib", "gib", "tib"}  # fmt: skip
_KNOWN = _OTHERS.union(*_SPELLED.values())
_WORD = re.compile(r"[ \t]?(?P<word>%|[A-Za-zµμ]+(?:/[A-Za-zµμ]+)*)")
_TIME = r"[0-9]+(?:\.[0-9]+)?[ \t]?(?:d|h|hours?|m|mins?|minutes?|s|sec|secs|seconds?|ms)"
_GOES_ON = re.compile(r"[.,'’_\u00a0\u202f]?[0-9]|[eE][+-]?[0-9]")
_BEGUN = re.compile(r"(?:[0-9](?:[,'’_\u00a0\u202f]|[eE][+-]?)?|(?:^|[^.A-Za-z])\.)\Z")
_SIGN = re.compile(r"(?:\A|[\s=:(\[|,])[-−]\Z")
_NEAR = 40


def base_unit(unit: str) -> str:
    """The unit that a figure declared in `unit` is recorded and judged in."""
    return unit if unit in ("ratio", "count") else in_base_unit(1.0, unit)[1]


def read_output(pattern: str, unit: str, text: str, find: Find = here) -> float | None:
    """The last match's first group in the base unit; None if it is not a finite number.

    A pattern ignores the neighbours of its digits: `([0-9.]+)GB` in bytes makes 12 bytes of an
    image of 12 GB, `([0-9]+)` makes 10 of `10,5`, and `.*([0-9.]+)` makes 5 of `12.5`. Half a
    number, or one in another unit than declared, is no figure. So this raises ValueError, in words,
    if nothing matches, if the number continues beyond what was captured, or if another unit is
    beside it. `^` and `$` are those of a line, as in all patterns over a program's output.
    """
    [last] = find(pattern, [text], lines=True)
    if last is None:
        raise ValueError(f"no line matches {one_line(pattern)}")
    start, end = last[1]
    captured = text[start:end] if start >= 0 else ""
    value = _number(captured)
    if value is None:
        return None
    before = text[max(0, start - _NEAR) : start].rpartition("\n")[2]
    after = text[end : end + _NEAR].partition("\n")[0]
    number = one_line(captured, 40)
    _check_whole(number, before, after)
    _check_unit(number, unit, before, after, last[0][1] - end)
    if unit in ("ratio", "count"):
        return value
    value, _ = in_base_unit(value, unit)
    return value if math.isfinite(value) else None


def _number(text: str | None) -> float | None:
    """A finite number, or None, which holds a gate and never passes one."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _check_whole(number: str, before: str, after: str) -> None:
    """Raise ValueError if digits or a sign stand directly beside what was captured."""
    goes_on, begun = _GOES_ON.match(after), _BEGUN.search(before)
    if goes_on or begun:
        whole = f"{begun[0].lstrip() if begun else ''}{number}{goes_on[0] if goes_on else ''}"
        raise ValueError(
            f"{number} is a part of the number {one_line(whole)}: expected all of it, with a "
            "point and without separators"
        )
    if _SIGN.search(before):
        raise ValueError(f"{number} has a minus before it that the pattern leaves out")


def _check_unit(number: str, unit: str, before: str, after: str, within: int) -> None:
    """Raise ValueError if another unit than the declared one follows. A plain number may have one
    that the pattern itself spells, in the `within` characters of the match after it."""
    match = _WORD.match(after)
    word = match["word"] if match else ""
    spelled = word in _SPELLED.get(unit, set())
    if unit in _TIMES and (
        re.match(r":[0-9]", after)
        or re.search(rf"{_TIME}[ \t]?\Z", before)
        or (match and spelled and re.match(rf"[ \t]?{_TIME}\b", after[match.end() :]))
    ):
        raise ValueError(f"{number} is a part of a time in several units")
    if not match or spelled or (unit == "" and match.end() <= within):
        return
    glued = match.start("word") == 0 and unit not in ("", "count", "ratio")
    if glued or word.split("/")[0] in _KNOWN or (len(word) > 1 and word.lower() in _KNOWN):
        declared = unit if unit else "none"
        hint = f"; expected unit: {word}" if word in get_args(OutputUnit) else ""
        raise ValueError(
            f"{number} is followed by {one_line(word, 20)}, and the unit declared is "
            f"{declared}{hint}"
        )
