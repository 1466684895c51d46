"""The list of mutants that the repository keeps: how it is drawn, and how a place is found again.

A place is known by its function's name and by the text of its statement, not by a line number, so
that the list outlives edits elsewhere.
"""

from __future__ import annotations

import ast
import json
import random
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutation import Fault, Function, Place, Source, Span

LIST = Path(__file__).with_name("list.json")
PACKAGES = ("run", "rollback", "guard", "benchmark", "playbook", "fit", "services")
COUNT = 200
SEED = 7


@dataclass(frozen=True)
class Mutant:
    """One fault of the list."""

    id: str
    file: str
    function: str
    line: int
    """Where it stood when the list was drawn; for the reader only."""
    kind: str
    occurrence: int
    """Which of the equal statements in the function."""
    old: str
    new: str

    @property
    def package(self) -> str:
        return self.file.split("/")[1]


class Found(NamedTuple):
    """Where a mutant of the list is now."""

    mutated: bytes
    lines: set[int]
    around: set[int]
    """The lines of the whole function, for a line that no measurement saw."""


def read() -> list[Mutant]:
    return [Mutant(**entry) for entry in json.loads(LIST.read_text("utf-8"))]


def write(mutants: list[Mutant]) -> None:
    """One mutant a line, so that a new draw is a readable difference."""
    lines = ",\n".join(json.dumps(asdict(mutant), ensure_ascii=False) for mutant in mutants)
    LIST.write_text(f"[\n{lines}\n]\n", "utf-8")


def matches(source: Source, function: str, text: str) -> list[Span]:
    """Every stretch with this text in the functions of this name."""
    wanted = text.encode()
    found: set[Span] = set()
    for place in source.places():
        if place.name == function:
            begin, end = source.span(place.node)
            at = source.data.find(wanted, begin, end)
            while at >= 0:
                found.add((at, at + len(wanted)))
                at = source.data.find(wanted, at + 1, end)
    return sorted(found)


def locate(mutant: Mutant, data: bytes) -> Found | None:
    """Where the mutant is in a file that may have been edited since; None where it is gone."""
    source = Source(data)
    spans = matches(source, mutant.function, mutant.old)
    if len(spans) <= mutant.occurrence:
        return None
    span = spans[mutant.occurrence]
    around: set[int] = set()
    constant = False
    for place in source.places():
        begin, end = source.span(place.node)
        if place.name == mutant.function and begin <= span[0] and span[1] <= end:
            constant = not isinstance(place.node, Function)
            around |= set(range(source.line(begin) + 1, source.line(end) + 1))
    lines = set(range(source.line(span[0]), source.line(span[1]) + 1))
    if constant:
        lines = source.readers(mutant.function)
    return Found(source.with_(span, mutant.new), lines, around)


def draw(root: Path) -> list[Mutant]:
    """A new list: as many of each package as its share of the lines, one a function at most."""
    dice = random.Random(SEED)
    files = {package: sorted((root / "console" / package).glob("**/*.py")) for package in PACKAGES}
    lengths = {
        package: sum(path.read_bytes().count(b"\n") for path in paths)
        for package, paths in files.items()
    }
    mutants: list[Mutant] = []
    for package, wanted in shares(lengths, COUNT).items():
        sources = {path.relative_to(root): Source(path.read_bytes()) for path in files[package]}
        pairs = [(path, place) for path, source in sources.items() for place in source.places()]
        dice.shuffle(pairs)
        drawn = (_one(path, sources[path], place, dice) for path, place in pairs)
        mutants += islice((mutant for mutant in drawn if mutant is not None), wanted)
    mutants.sort(key=lambda mutant: (mutant.file, mutant.line))
    return [Mutant(**(asdict(each) | {"id": f"m{n:03}"})) for n, each in enumerate(mutants, 1)]


def shares(sizes: dict[str, int], count: int) -> dict[str, int]:
    """`count` split in proportion to the sizes, by largest remainder."""
    whole = sum(sizes.values())
    exact = {name: count * size / whole for name, size in sizes.items()}
    given = {name: int(value) for name, value in exact.items()}
    by_remainder = sorted(exact, key=lambda name: given[name] - exact[name])
    for name in by_remainder[: count - sum(given.values())]:
        given[name] += 1
    return given


def _one(path: Path, source: Source, place: Place, dice: random.Random) -> Mutant | None:
    """One fault of this place: first a kind is drawn, then one of that kind."""
    faults = source.faults(place)
    if not isinstance(place.node, Function) and not source.readers(place.name):
        return None
    while faults:
        kind = dice.choice(sorted({fault.kind for fault in faults}))
        fault = dice.choice([fault for fault in faults if fault.kind == kind])
        if _worth(source, fault):
            old = source.text(fault.span)
            occurrence = matches(source, place.name, old).index(fault.span)
            return Mutant("", str(path), place.name, fault.line, kind, occurrence, old, fault.new)
        faults.remove(fault)
    return None


def _worth(source: Source, fault: Fault) -> bool:
    """Whether it compiles, and changes what the program is."""
    mutated = source.with_(fault.span, fault.new)
    try:
        compile(mutated, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return ast.dump(ast.parse(mutated)) != ast.dump(source.tree)
