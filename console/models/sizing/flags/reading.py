"""How values of options become values of a plan, and what is named because no sum has it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from console.common import redact
from console.common.options.command_line import Given, from_environment, given
from console.common.options.table import Effect, Table, table
from console.common.text import one_line

ON = ("on", "enabled", "true", "1", "yes")
OFF = ("off", "disabled", "false", "0", "no")
MAX_NUMBER = 1 << 31
GIB = 1 << 30
_HUMAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([A-Za-z]{0,2})")


@dataclass
class Reading:
    """What was read so far: values by field of the plan, and what is to be named."""

    got: dict[str, Any] = field(default_factory=dict)
    overrides: list[tuple[str, str]] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: list[str] | None = None
    """What the engine refuses at its start; None: its parser was not asked, so that a value that
    does not look right is a problem."""

    def refuse(self, words: str) -> None:
        (self.problems if self.refused is None else self.refused).append(words)

    def refuse_value(self, flag: str, value: str, expected: str) -> None:
        self.refuse(f"{flag} {one_line(value, 40) or '(nothing)'}: expected {expected}")

    def problem(self, flag: str, value: str, expected: str) -> None:
        self.problems.append(f"{flag} {one_line(value, 40) or '(nothing)'}: expected {expected}")

    def told(self) -> dict[str, Any]:
        """The fields that every plan has, each word once."""
        names = ("uncounted", "problems", "notes")
        return {name: tuple(dict.fromkeys(getattr(self, name))) for name in names}


_FORMS = {
    "int": (re.compile(r"[+-]?\d"), "a whole number"),
    "float": (re.compile(r"[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE), "a number"),
}
"""How values of a kind begin: llama.cpp takes the number at the beginning of a word."""

Apply = Callable[[Reading, str, str], None]
"""How a value is applied: (reading, the option's own spelling for messages, value). The value of an
option that has none is ""."""


def read(
    reading: Reading, options: Iterable[Given], appliers: Mapping[str, Apply], of: Table
) -> None:
    """Apply each option in its order. An option that the table does not have, or that no sum has,
    is named."""
    for one in options:
        option = one.option
        if option is None:
            reading.problems.append(f"{one_line(one.spelling, 60)} is no option of {of.of}")
        elif option.effect is Effect.ENDS:
            reading.refuse(f"{one.spelling}: the program prints and ends, and serves nothing")
        elif option.effect is Effect.UNCOUNTED and not _refused(one):
            reading.uncounted.append(_shown(one))
        elif option.effect is not Effect.READ and (wanted := _refused(one)):
            reading.refuse_value(option.name, one.value or "", wanted)
        elif option.effect is Effect.NOTED:
            reading.notes.append(f"{_shown(one)} is not judged")
        elif option.effect is Effect.READ:
            _apply(reading, one, appliers)


def plan_of(
    engine: str,
    appliers: Mapping[str, Apply],
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The fields of a plan by an engine's own table: its variables first, then its command line,
    and what is to be named."""
    reading, options = Reading(), table(engine)
    known = named(options, appliers)
    for source in (from_environment(env or {}, options), given(argv, options)):
        read(reading, source, known, options)
    return {**reading.got, **reading.told()}


def _refused(one: Given) -> str:
    """What the engine wants in place of the value of an option that no sum reads; "" if it takes
    the value, as far as its help tells."""
    option, value = one.option, (one.value or "").strip()
    if option is None or option.kind in ("flag", "opt") or one.value is None:
        return ""
    if option.choices:
        return "" if value in option.choices else "one of " + ", ".join(option.choices[:12])
    form = _FORMS.get(option.kind)
    return "" if form is None or form[0].match(value) else form[1]


def _shown(one: Given) -> str:
    """An option with its value, if that is no secret."""
    value = redact.argv([one.name, one.value])[1] if one.value else ""
    return f"{one.name} {one_line(value, 60)}".rstrip()


def _apply(reading: Reading, one: Given, appliers: Mapping[str, Apply]) -> None:
    assert one.option is not None
    name, value = one.option.name, one.value
    choices = one.option.choices
    if choices and value and value.strip() not in choices:
        reading.refuse_value(name, value, "one of " + ", ".join(choices))
    elif value is None and one.option.kind not in ("flag", "opt"):
        reading.refuse_value(name, "", "a value")
    elif name in appliers:
        appliers[name](reading, name, (value or "").strip())
    else:
        reading.uncounted.append(name)


def number(name: str, least: int = 0, most: int = MAX_NUMBER) -> Apply:
    def apply(reading: Reading, flag: str, value: str) -> None:
        if re.fullmatch(r"[+-]?\d{1,12}", value) and least <= int(value) <= most:
            reading.got[name] = int(value)
        else:
            reading.problem(flag, value, "a whole number")

    return apply


def human(name: str, units: Mapping[str, int], example: str) -> Apply:
    """A whole number that may end with one of the engine's own units; "" is the unit of none."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        match = _HUMAN.fullmatch(value)
        size = int(float(match[1]) * units.get(match[2], 0)) if match else 0
        if size < 1:
            reading.problem(flag, value, f"a whole number, like 32768 or {example}")
        else:
            reading.got[name] = size

    return apply


def fraction(name: str, most: float, scale: float = 1.0) -> Apply:
    def apply(reading: Reading, flag: str, value: str) -> None:
        try:
            read_value = float(value)
        except ValueError:
            read_value = math.nan
        if 0 <= read_value <= most:
            reading.got[name] = read_value * scale
        else:
            reading.problem(flag, value, f"a number up to {most:.15g}")

    return apply


def gibibytes(name: str) -> Apply:
    """A number of GiB, as whole bytes."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        fraction(name, 1e6, GIB)(reading, flag, value)
        reading.got[name] = int(reading.got.get(name, 0))

    return apply


def choice(name: str, words: Sequence[str]) -> Apply:
    def apply(reading: Reading, flag: str, value: str) -> None:
        if value.lower() in words:
            reading.got[name] = value.lower()
        else:
            reading.problem(flag, value, "one of " + ", ".join(words))

    return apply


def fixed(name: str, to: object, note: str = "") -> Apply:
    """Set a field to one value, whatever the option's own is."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        reading.got[name] = to
        if note and note not in reading.notes:
            reading.notes.append(note)

    return apply


def switch(name: str, inverted: bool = False) -> Apply:
    """An option that takes no value on the command line, and one as a variable."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        if value.lower() in (*ON, *OFF, ""):
            reading.got[name] = (value.lower() not in OFF) is not inverted
        else:
            reading.problem(flag, value, "on or off")

    return apply


def text(name: str) -> Apply:
    def apply(reading: Reading, flag: str, value: str) -> None:
        reading.got[name] = one_line(value, 200)

    return apply


def named(options: Table, appliers: Mapping[str, Apply]) -> dict[str, Apply]:
    """Appliers by their option's own name in a table, whichever spelling they are written under;
    those of options that the table does not have are left out."""
    found = ((options.option(spelling), apply) for spelling, apply in appliers.items())
    return {option.name: apply for option, apply in found if option is not None}
