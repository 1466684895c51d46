"""How values of options become values of a plan, and what is named because no sum has it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from console.common import redact
from console.common.options.beside import refused_beside
from console.common.options.command_line import Given, Stray, from_environment, given
from console.common.options.since import Release, newcomers
from console.common.options.table import Effect, Option, Table, table
from console.common.options.values import (
    WHOLE,
    doubtful,
    is_python_float,
    is_variable,
    wanted,
    wanted_in_python,
)
from console.common.options.variables import judged
from console.common.text import one_line

ON = ("on", "enabled", "true", "1", "yes")
OFF = ("off", "disabled", "false", "0", "no")
MAX_NUMBER = 1 << 31
GIB = 1 << 30
ELSEWHERE: Mapping[str, tuple[str, ...]] = {
    "--kv-cache-dtype": ("f16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"),
    "--dtype": ("fp16", "bf16", "fp32", "f16", "f32", "fp8", "int8", "int4"),
}
"""Words of other programs, which no release of an engine in Python has taken (ModelDType and
CacheDType of vLLM 0.33, the choices of SGLang 0.5.23)."""
_HUMAN = re.compile(r"(\d{1,12}(\.\d{1,9})?)([A-Za-z]{1,2})")


@dataclass
class Reading:
    """What was read so far: values by field of the plan, and what is to be named."""

    got: dict[str, Any] = field(default_factory=dict)
    overrides: list[tuple[str, str]] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unsettled: list[str] = field(default_factory=list)
    """What some builds of the engine take and others refuse."""
    refused: list[str] | None = None
    """What the engine refuses at its start; None: its parser was not asked, so that a value that
    does not look right is a problem."""

    def refuse(self, words: str) -> None:
        (self.problems if self.refused is None else self.refused).append(words)

    def refuse_value(self, flag: str, value: str, expected: str) -> None:
        self.refuse(f"{flag} {one_line(value, 40) or '(nothing)'}: expected {expected}")

    def problem(self, flag: str, value: str, expected: str) -> None:
        self.problems.append(f"{flag} {one_line(value, 40) or '(nothing)'}: expected {expected}")

    def remarks(self) -> dict[str, Any]:
        """The fields that every plan has, each word once."""
        names = ("uncounted", "problems", "notes")
        return {name: tuple(dict.fromkeys(getattr(self, name))) for name in names}


Apply = Callable[[Reading, str, str], None]
"""How a value is applied: (reading, the option's own spelling for messages, value). The value of an
option that has none is ""."""


def read(
    reading: Reading, options: Iterable[Given], appliers: Mapping[str, Apply], of: Table
) -> None:
    """Apply each option in its order. An option that the table does not have, or that no sum has,
    is named."""
    for argument in options:
        option = argument.option
        if argument.stray is not None:
            _beside(reading, argument.spelling, argument.stray, of)
        elif option is None:
            reading.problems.append(f"{one_line(argument.spelling, 60)} is no option of {of.of}")
        elif of.grammar.python and option.kind == "flag" and argument.value is not None:
            reading.refuse_value(option.name, argument.value, "no value")
        elif option.effect is Effect.ENDS:
            reading.refuse(f"{argument.spelling}: the program prints and ends, and serves nothing")
        elif is_variable(argument):
            reading.problem(
                option.name, argument.value or "", "a value, and not a shell's variable"
            )
        elif wrong := (wanted_in_python if of.grammar.python else wanted)(argument):
            _refuse(reading, option, argument.value or "", wrong, of)
        elif option.effect is Effect.UNCOUNTED or _may_harm(argument):
            reading.uncounted.append(_shown(argument))
        elif doubt := doubtful(argument):
            reading.problems.append(f"{option.name}: {doubt}")
        elif option.effect is Effect.READ:
            _apply(reading, argument, appliers)


def plan_of(
    engine: str,
    appliers: Mapping[str, Apply],
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    release: Release | None = None,
) -> dict[str, Any]:
    """The fields of a plan by an engine's own table: its variables first, then its command line,
    and what is to be named. `release`: of the engine, where it is known."""
    refusals: list[str] = []
    reading, options = Reading(refused=refusals), table(engine)
    known = named(options, appliers)
    sources = [
        list(joined(source))
        for source in (from_environment(env or {}, options), given(argv, options))
    ]
    for source in sources:
        read(reading, source, known, options)
    name_variables(reading, env or {}, options, release)
    refusals += refused_beside(chain(*sources), env or {}, options)
    newer = tuple(dict.fromkeys(newcomers(given(argv, options), options)))
    refused = tuple(dict.fromkeys(refusals))
    return {**reading.got, **reading.remarks(), "refused": refused, "newer": newer}


def name_variables(
    reading: Reading, env: Mapping[str, str], of: Table, release: Release | None = None
) -> None:
    """Name the engine's own variables that no sum has."""
    for variable in judged(env, of, release):
        if variable.effect is Effect.UNCOUNTED:
            reading.uncounted.append(variable.words)
        elif variable.effect is None:
            reading.notes.append(f"{variable.words}: {of.of} has no such variable")


def joined(options: Iterable[Given]) -> Iterator[Given]:
    """Options with the keys of an object that are given one by one (`--x.key value`,
    `--x.list+ value`) joined into one value, which stands behind all others, as
    FlexibleArgumentParser of vLLM does it (utils/argparse_utils.py)."""
    objects: dict[str, tuple[Given, dict[str, Any]]] = {}
    for argument in options:
        _, dot, path = argument.spelling.partition(".")
        if argument.option is None or not dot or not argument.spelling.startswith("--"):
            yield argument
            continue
        first, content = objects.setdefault(argument.name, (argument, {}))
        *outer, last = path.split(".")
        for key in outer:
            inner = content.setdefault(key, {})
            content = inner if isinstance(inner, dict) else {}
        value = _of_json(argument.value or "")
        if last.endswith("+"):
            content.setdefault(last[:-1], []).append(value)
        else:
            content[last] = value
    for first, content in objects.values():
        yield replace(first, spelling=first.name, value=json.dumps(content))


def _of_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _may_harm(argument: Given) -> bool:
    """Whether a harmless option has a value that an engine may refuse: a backend, a package or a
    file that is not everywhere."""
    safe = argument.option.safe if argument.option is not None else ()
    return bool(safe) and (argument.value or "").strip() not in safe


def _refuse(reading: Reading, option: Option, value: str, wanted: str, of: Table) -> None:
    """Engines in Python get new words for their closed sets with most releases, so that another
    word may be a newer one's; what is no number is refused by all of them."""
    may_be_new = option.choices and value.strip() not in ELSEWHERE.get(option.name, ())
    complain = reading.problem if of.grammar.python and may_be_new else reading.refuse_value
    complain(option.name, value, wanted)


def _beside(reading: Reading, word: str, stray: Stray, of: Table) -> None:
    """A word that belongs to no option, which an engine does not pass over."""
    shown = one_line(redact.argv([stray.behind, word])[1], 40) or "(an empty word)"
    place = f" behind {one_line(stray.behind, 60)}" if stray.behind else ""
    if stray.sure:
        reading.refuse(f"{shown}{place}, a word of no option ({of.grammar.refusal})")
    else:
        reading.problems.append(f"{shown}{place} is a word of no option of {of.of}")


def _shown(argument: Given) -> str:
    """An option with its value, if that is no secret."""
    value = redact.argv([argument.name, argument.value])[1] if argument.value else ""
    return f"{written(argument)} {one_line(value, 60)}".rstrip()


def written(argument: Given) -> str:
    """An option as it was written, and by its own name where that was short or a part of it."""
    plain = re.fullmatch(r"--[A-Za-z0-9][A-Za-z0-9_-]*", argument.spelling)
    return argument.spelling if plain else argument.name


def _apply(reading: Reading, argument: Given, appliers: Mapping[str, Apply]) -> None:
    assert argument.option is not None
    name, value = argument.option.name, argument.value
    if name in appliers:
        appliers[name](reading, name, (value or "").strip())
    else:
        reading.uncounted.append(written(argument))


def number(name: str, least: int = 0, most: int = MAX_NUMBER, *, bounded: bool = False) -> Apply:
    """A whole number. `bounded`: the engine itself refuses what is smaller than `least`."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        if not WHOLE.fullmatch(value):
            reading.refuse_value(flag, value, "a whole number")
        elif least <= int(value) <= most:
            reading.got[name] = int(value)
        else:
            complain = reading.refuse_value if bounded and int(value) < least else reading.problem
            complain(flag, value, between(least, most))

    return apply


def between(least: int, most: int) -> str:
    """The whole numbers that an option takes, in words."""
    return f"a whole number {f'from {least} to' if least > -MAX_NUMBER else 'up to'} {most}"


def beyond_one(reading: Reading, flag: str, value: str) -> None:
    """A size of which 1 is the default, and no sum has more. The last one that is given counts."""
    reading.uncounted[:] = [words for words in reading.uncounted if words.split()[0] != flag]
    if not WHOLE.fullmatch(value):
        reading.refuse_value(flag, value, "a whole number")
    elif int(value) != 1:
        reading.uncounted.append(f"{flag} {int(value)}")


def human(name: str, units: Mapping[str, int], example: str) -> Apply:
    """A whole number that may end with one of the engine's own units. Of those that are powers of
    ten there may be a fraction; both engines refuse one of the others."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        size = sized(value, units)
        if size is None:
            reading.refuse_value(flag, value, f"a whole number, like 32768 or {example}")
        elif size < 1:
            reading.problem(flag, value, "1 or more")
        else:
            reading.got[name] = size

    return apply


def sized(value: str, units: Mapping[str, int]) -> int | None:
    """The number that is written so; None for one that the engine does not take."""
    if WHOLE.fullmatch(value):
        return int(value)
    match = _HUMAN.fullmatch(value)
    unit = units.get(match[3]) if match else None
    if match is None or unit is None or (match[2] and unit % 10):
        return None
    return int(float(match[1]) * unit)


def fraction(name: str, most: float, scale: float = 1.0, *, bounded: bool = False) -> Apply:
    """A number from 0 up to `most`. `bounded`: the engine itself refuses others."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        if not is_python_float(value):
            reading.refuse_value(flag, value, f"a number up to {most:.15g}")
        elif 0 <= (read_value := float(value)) <= most:
            reading.got[name] = read_value * scale
        else:
            complain = reading.refuse_value if bounded else reading.problem
            complain(flag, value, f"a number up to {most:.15g}")

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


def fp8_of(value: str) -> str:
    """The form of an FP8 cache: `fp8`, which is e4m3, or `fp8_e5m2`; "" for another type."""
    return "" if not value.startswith("fp8") else value if value == "fp8_e5m2" else "fp8"


def of_cache_type(problems: Sequence[str]) -> bool:
    """Whether one of them is a type of the cache that was not understood."""
    return any(problem.startswith("--kv-cache-dtype") for problem in problems)


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


def told_more(reading: Reading, flag: str, value: str) -> None:
    """What a loader of weights is told besides: no sum has it."""
    reading.got["loader_extra"] = True
    reading.uncounted.append(f"{flag} {one_line(redact.argv([flag, value])[1], 60)}".rstrip())


def named(options: Table, appliers: Mapping[str, Apply]) -> dict[str, Apply]:
    """Appliers by their option's own name in a table, whichever spelling they are written under;
    those of options that the table does not have are left out."""
    pairs = ((options.option(spelling), apply) for spelling, apply in appliers.items())
    return {option.name: apply for option, apply in pairs if option is not None}
