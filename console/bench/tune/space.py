"""The flags that a tuner varies, the points that they span, and a command line at one of them."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from console.common import redact
from console.common.options.table import spellings

Value = str | None
"""A flag's value; None leaves the flag out, and "" gives it without a value."""
Point = tuple[int, ...]
"""One combination: for each flag of a space, the place of its value."""
Resource = Literal["host", "card"]

_DRAFT = ("--draft", "--draft-max", "--draft-n", "--spec-draft-n-max")
"""One flag, whose first names older builds take."""
_MEMORY: dict[str, tuple[int, int]] = {
    "--n-gpu-layers": (-1, 1), "--n-cpu-moe": (1, -1), "--n-cpu-ffn": (1, -1),
    "--ctx-size": (1, 1), "--parallel": (1, 1), "--batch-size": (1, 1), "--ubatch-size": (1, 1),
    "--context-length": (0, 1), "--max-total-tokens": (0, 1), "--mem-fraction-static": (0, 1),
    "--cpu-offload-gb": (1, -1), "--kt-num-gpu-experts": (0, 1), "--max-model-len": (0, 1),
    "--gpu-memory-utilization": (0, 1), "--max-num-seqs": (0, 1), "--ctx-checkpoints": (1, 0),
    "--threads": (0, 0), "--threads-batch": (0, 0),
}  # fmt: skip
"""By a flag's spellings: whether a larger value takes more (1) or less (-1) memory of the host and
of the cards; 0: neither."""
CONTEXT = "--ctx-size"
SHELLS = ("sh", "bash", "dash", "ash", "zsh")
_COMMAND, _GIVEN = re.compile("-[a-z]*c"), re.compile(r"\$[@*1-9{]")


def same(name: str) -> tuple[str, ...]:
    """Every spelling of a flag, as far as it is known, and at least the one given."""
    return _DRAFT if name in _DRAFT else spellings(name) or (name,)


def _flag(word: str) -> str:
    """The flag that a word of a command line gives, with the dashes for which engines take
    underscores as well."""
    flag = word.partition("=")[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag


@dataclass(frozen=True, slots=True)
class Flag:
    """One thing that varies: `names` are flags that all take the same value, mostly just one.

    `number` is each value as a number, None where it is none. A negative one is none, and a context
    of 0, too: engines read them as "automatic", "all", or "as the model has it".
    """

    names: tuple[str, ...]
    values: tuple[Value, ...]

    @property
    def words(self) -> str:
        return " ".join(self.names)

    def number(self, place: int) -> float | None:
        value = self.values[place]
        try:
            amount = float(value) if value else math.nan
        except ValueError:
            return None
        whole = amount == 0 and not set(self.names).isdisjoint(same(CONTEXT))
        return amount if math.isfinite(amount) and amount >= 0 and not whole else None

    def direction(self, resource: Resource) -> int | None:
        """1 if a larger number takes more of this memory, -1 if less, 0 if it changes nothing; None
        if that is not known."""
        kinds = {
            _MEMORY[spelling]
            for name in self.names
            for spelling in same(name)
            if spelling in _MEMORY
        }
        which = 0 if resource == "host" else 1
        return next(iter(kinds))[which] if len(kinds) == 1 else None

    @property
    def ordered(self) -> tuple[int, ...]:
        """The places of the values that are numbers, smallest first."""
        numbers = [(self.number(place), place) for place in range(len(self.values))]
        return tuple(place for number, place in sorted(n for n in numbers if n[0] is not None))

    def argv_at(self, place: int) -> list[str]:
        """The words that give the flag this value; none if it is left out."""
        value = self.values[place]
        if value is None:
            return []
        return [word for name in self.names for word in ((name, value) if value else (name,))]


@dataclass(frozen=True, slots=True)
class Space:
    """Every combination of the flags' values. `start` is the command line as it stands."""

    flags: tuple[Flag, ...]
    start: Point

    @property
    def size(self) -> int:
        return math.prod(len(flag.values) for flag in self.flags)

    def points(self) -> Iterator[Point]:
        return itertools.product(*(range(len(flag.values)) for flag in self.flags))

    def argv(self, base: Sequence[str], point: Point) -> tuple[str, ...]:
        """The command line with the flags of a point; at the start it is unchanged. A flag is
        changed where it stands, since it may be a wrapper's (`numactl --interleave all …`); a new
        one comes last."""
        words = list(base)
        for flag, place, began in zip(self.flags, point, self.start, strict=True):
            if place == began:
                continue
            for name in flag.names:
                words = _changed(words, name, flag.values[place], _alone(flag))
        return tuple(words)

    def changes(self, point: Point) -> str:
        """What differs from the start, as words to paste; "as it is" for the start itself."""
        words: list[str] = []
        for flag, place, began in zip(self.flags, point, self.start, strict=True):
            if place != began:
                left_out = [f"(no {name})" for name in flag.names]
                words += [shlex.quote(word) for word in flag.argv_at(place)] or left_out
        return " ".join(words) or "as it is"

    def words(self, point: Point) -> str:
        """All flags of a point that vary, as words to paste."""
        pairs = zip(self.flags, point, strict=True)
        return shlex.join(word for flag, place in pairs for word in flag.argv_at(place))

    def needs_at_least(self, point: Point, other: Point, resource: Resource) -> bool:
        """Whether `point` surely takes as much of this memory as `other`: they differ only in
        flags of which it is known, each in that direction."""
        for flag, mine, its in zip(self.flags, point, other, strict=True):
            if mine == its:
                continue
            direction = flag.direction(resource)
            if direction == 0:
                continue
            here, there = flag.number(mine), flag.number(its)
            if direction is None or here is None or there is None:
                return False
            if (here - there) * direction < 0:
                return False
        return True


def space(flag_values: Mapping[str, Sequence[Value]], argv: Sequence[str]) -> Space:
    """The space of the flags asked for, with today's value of each among its values.

    The keys are flags; several, parted by blanks, get the same value. Raises ValueError for a flag
    that is asked for twice, or that the command line gives more than once, or for a shell's script.
    """
    if _swallows(argv):
        raise ValueError(
            'flags behind a shell\'s script do not reach the engine: end it with "$@" and a word '
            "for $0, or give the engine's own command line"
        )
    flags, start, seen = list[Flag](), list[int](), set[str]()
    for names, values in flag_values.items():
        flag = Flag(tuple(names.split()), tuple(dict.fromkeys(values)))
        for name in flag.names:
            if redact.argv([name, "x"])[1] != "x":
                raise ValueError(f"{name} names a secret: it is not varied")
            if seen.intersection(same(name)):
                raise ValueError(f"{name} is varied twice")
            seen.update(same(name))
        now = _today(flag, argv)
        if now not in flag.values:
            flag = replace(flag, values=(now, *flag.values))
        flags.append(flag)
        start.append(flag.values.index(now))
    return Space(tuple(flags), tuple(start))


def _swallows(argv: Sequence[str]) -> bool:
    """Whether the command line is `sh -c SCRIPT`, and the script uses nothing that follows it."""
    if not argv or argv[0].rpartition("/")[2] not in SHELLS:
        return False
    scripts = [after for word, after in itertools.pairwise(argv) if _COMMAND.fullmatch(word)]
    return bool(scripts) and not _GIVEN.search(scripts[0])


def value_of(argv: Sequence[str], name: str) -> Value:
    """The value that a command line gives a flag by any of its spellings; None without it. Raises
    ValueError if it stands there more than once."""
    return _value(list(argv), same(name), name, False)


def _today(flag: Flag, argv: Sequence[str]) -> Value:
    """The value of a flag on the command line; None if it is not there."""
    values = {_value(list(argv), same(name), name, _alone(flag)) for name in flag.names}
    if len(values) > 1:
        raise ValueError(f"{flag.words} have different values now: vary them one by one")
    return values.pop()


def _alone(flag: Flag) -> bool:
    """Whether a flag stands without a value wherever it stands."""
    return all(not value for value in flag.values)


def _value(words: list[str], names: tuple[str, ...], name: str, alone: bool) -> Value:
    places = [place for place, word in enumerate(words) if _flag(word) in names]
    if not places:
        return None
    if len(places) > 1:
        raise ValueError(f"{name} stands {len(places)} times in the command line: leave one")
    _, mark, value = words[places[0]].partition("=")
    if mark or alone:
        return value
    follows = words[places[0] + 1] if places[0] + 1 < len(words) else ""
    return follows if _is_value(follows) else ""


def _is_value(word: str) -> bool:
    return bool(word) and (not word.startswith("-") or word[1:].lstrip(".")[:1].isdigit())


def _changed(words: list[str], name: str, value: Value, alone: bool) -> list[str]:
    """The words with another value of a flag, at its place; one that stands `alone` has none."""
    new = [] if value is None else [name, value] if value else [name]
    names = same(name)
    for place, word in enumerate(words):
        _, mark, _ = word.partition("=")
        if _flag(word) in names:
            follows = words[place + 1] if place + 1 < len(words) else ""
            end = place + (2 if not mark and not alone and _is_value(follows) else 1)
            return [*words[:place], *new, *words[end:]]
    return [*words, *new]
