"""What an engine refuses of options beside each other: the rows of beside.txt, judged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from console.common.options.command_line import Given
from console.common.options.table import FOLDER, Option, Table
from console.common.text import one_line

_NUMBERS = re.compile(r"(\S+)=(\d*) (no multiple of|equals) (\S+)=(\d+)")


class Row(NamedTuple):
    """A row of the table: what has to hold, and where the engine refuses it."""

    terms: tuple[str, ...]
    source: str


@cache
def rows(table: str) -> tuple[Row, ...]:
    lines = (FOLDER / "beside.txt").read_text().splitlines()
    columns = [re.split(r"\s+\|\s+", line) for line in lines if line and line[0] != "#"]
    return tuple(Row(tuple(terms.split(" + ")), source) for name, terms, source in columns
                 if name == table)  # fmt: skip


def refused_beside(options: Iterable[Given], env: Mapping[str, str], of: Table) -> Iterator[str]:
    """Refusals in words, of options in the order in which they count."""
    last: dict[str, Given] = {}
    for argument in options:
        if argument.option is not None:
            last[argument.name] = argument
            for positive in _taken_back(argument.option, of):
                last.pop(positive.name, None)
    for row in rows(of.name):
        words = [_held(term, last, env, of) for term in row.terms]
        if all(words):
            first, *others = words
            yield " ".join([first, *(f"{'' if word.startswith('without') else 'beside '}{word}"
                                     for word in others if not _is_aside(word))])  # fmt: skip


def _taken_back(option: Option, of: Table) -> Iterator[Option]:
    """What an option with a --no- spelling takes back."""
    for spelling in option.spellings:
        positive = of.option(f"--{spelling.removeprefix('--no-')}")
        if spelling.startswith("--no-") and positive is not None:
            yield positive


def _is_aside(word: str) -> bool:
    """Modes of another server, which nobody who does not ask for them has to read of."""
    return word in ("without --grpc-mode", "without --smg-grpc-mode")


def _held(term: str, last: Mapping[str, Given], env: Mapping[str, str], of: Table) -> str:
    """A term in words where it holds; "" where it does not."""
    if numbers := _NUMBERS.fullmatch(term):
        return _of_numbers(numbers, last)
    without, name = term.startswith("without "), term.removeprefix("without ")
    if without and not name.startswith("-"):
        return term if env.get(name, "").lower() in ("", "0", "false") else ""
    name, _, limits = name.partition(" ")
    name, _, key = name.partition(".")
    option = of.option(name)
    argument = last.get(option.name) if option is not None else None
    if without:
        return "" if argument is not None else term
    if argument is None:
        return ""
    value = (argument.value or "").strip()
    if key:
        value = _entry(value, key)
        if not value:
            return ""
    if limits.startswith("like "):
        is_like = re.match(limits.removeprefix("like "), value) is not None
        return one_line(f"{name} {value}", 80) if is_like else ""
    negated = limits.startswith("not ")
    words = limits.removeprefix("not ").split(",") if limits else []
    if words and (value in words) is negated:
        return ""
    shown = one_line(f"{name}{'.' if key else ''}{key} {value if words else ''}".rstrip(), 80)
    return f"{shown} (only {', '.join(words)})" if negated else shown


def _entry(value: str, key: str) -> str:
    """What an object has under a key; "" where that cannot be told."""
    try:
        entry = json.loads(value).get(key, "")
    except (ValueError, AttributeError, RecursionError):
        return ""
    return entry if isinstance(entry, str) else ""


def _of_numbers(term: re.Match[str], last: Mapping[str, Given]) -> str:
    numbers = []
    for name, usual in ((term[1], term[2]), (term[4], term[5])):
        argument = last.get(name)
        value = (argument.value if argument is not None else usual) or ""
        if not re.fullmatch(r"\d{1,9}", value):
            return ""
        numbers.append(int(value))
    first, second = numbers
    if term[3] == "equals":
        return f"{term[1]} {first}: it is {term[4]} as well" if first == second else ""
    if second and first % second == 0:
        return ""
    return f"{term[4]} {second}: it does not divide {term[1]} {first}"
