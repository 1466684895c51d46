"""Since which release an engine has an option, or one of its values (`since_*.txt`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

from console.common.options.command_line import Given
from console.common.options.table import FOLDER, Table

Release = tuple[int, ...]


class Newcomer(NamedTuple):
    """Something that an engine has since a release. `lacks`: the last release before that surely
    has not; one between the two is not known."""

    words: str
    since: Release
    lacks: Release

    def is_in(self, release: Release) -> bool | None:
        """Whether a release has it, of which the last numbers may be missing; None: not known."""
        if not is_older(release, self.since):
            return True
        length = len(release)
        older = release <= self.lacks[:length] and release < self.since[:length]
        return False if older else None


def release_in(text: str) -> Release:
    """`0.10.2` as numbers."""
    return tuple(map(int, re.findall(r"\d+", text)))


def is_older(release: Release, other: Release) -> bool:
    """Whether a release came before another; numbers that it does not name are 0."""
    return (*release, *(0 for _ in other[len(release) :])) < other


@cache
def _rows(engine: str) -> Mapping[tuple[str, str], Newcomer]:
    """By option and value, "" for the option itself; none for an engine without such a table."""
    path = FOLDER / f"since_{engine}.txt"
    rows: dict[tuple[str, str], Newcomer] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        if line.startswith("#"):
            continue
        since, lacks, words = line.split(maxsplit=2)
        option, _, values = words.partition(":")
        for value in values.split() or [""]:
            shown = f"{option} {value}".rstrip()
            rows[option, value] = Newcomer(shown, release_in(since), release_in(lacks))
    return rows


def newcomers(options: Iterable[Given], of: Table) -> Iterator[Newcomer]:
    """What of these options and their values not all known releases have."""
    rows = _rows(of.name)
    for argument in options:
        if argument.option is None:
            continue
        spelling = of.normal(argument.spelling.partition(".")[0])
        row = rows.get((spelling, ""))
        if row is not None:
            yield row
        row = rows.get((argument.name, (argument.value or "").strip()))
        if argument.value and row is not None:
            yield row


class Arrival(NamedTuple):
    """When builds of an engine without releases got an option, and by what."""

    words: str
    day: str
    build: int
    source: str


@cache
def arrivals(engine: str) -> Mapping[str, Arrival]:
    """By spelling; none for an engine without such a table."""
    path = FOLDER / f"since_{engine}.txt"
    rows: dict[str, Arrival] = {}
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        if not line.startswith("#"):
            day, build, source, *spellings = line.split()
            rows |= {name: Arrival(name, day, int(build), source) for name in spellings}
    return rows
