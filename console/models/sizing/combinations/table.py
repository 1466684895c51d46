"""The table of pairs of features (`pairs.txt`), and what it says of those that are in use.

A feature has the words by which an operator is told of it. A pair that the table does not have is
not known, and is named. Rows of one pair may differ by release: `refused until 0.28`, `works since
0.33`; what lies between, and a release that is not known, is not known either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import combinations, product
from pathlib import Path
from typing import NamedTuple

from console.common.options.since import Release, release_in

PAIRS = Path(__file__).with_name("pairs.txt")
ANY = "*"
WORKS, REFUSED, UNKNOWN = "works", "refused", "unknown"
NAMES = {
    "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "ik_llama.cpp": "ik_llama.cpp",
}  # fmt: skip


class Row(NamedTuple):
    """What is known of a pair. `until`: the last release of which it holds, `since`: the first."""

    state: str
    until: Release | None
    since: Release | None
    words: str
    source: str


class Feature(NamedTuple):
    """Something in use beyond the plain way. `of_model`: the model has it, whatever is asked for;
    two of those are the model itself, and no pair."""

    words: str
    of_model: bool = False


@cache
def rows(engine: str) -> Mapping[frozenset[str], tuple[Row, ...]]:
    """The rows of an engine by their pair."""
    table: dict[frozenset[str], tuple[Row, ...]] = {}
    for line in PAIRS.read_text("utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        engines, pair, state, words, source = (part.strip() for part in line.split("|"))
        if engine not in engines.split(", "):
            continue
        first, second = pair.split(" + ")
        kind, _, limit = state.partition(" ")
        bound = release_in(limit) if limit else None
        row = Row(
            kind, bound if limit.startswith("until") else None,
            bound if limit.startswith("since") else None, words, source,
        )  # fmt: skip
        for left, right in product(first.split(" / "), second.split(" / ")):
            key = frozenset((left.strip(), right.strip()))
            table[key] = (*table.get(key, ()), row)
    return table


def judged(
    engine: str, features: Iterable[Feature], release: Release | None
) -> tuple[list[str], list[str]]:
    """What is refused and what is not known, in words, of the features that are in use at once."""
    refused, unknown = _judged(engine, tuple(dict.fromkeys(features)), release)
    return list(refused), list(unknown)


@lru_cache(maxsize=256)
def _judged(
    engine: str, features: tuple[Feature, ...], release: Release | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    refused, unknown = list[str](), list[str]()
    for first, second in combinations(features, 2):
        if first.of_model and second.of_model:
            continue
        for state, words in _of_pair(engine, first.words, second.words, release):
            (refused if state == REFUSED else unknown).append(words)
    return tuple(dict.fromkeys(refused)), tuple(dict.fromkeys(unknown))


def _of_pair(
    engine: str, first: str, second: str, release: Release | None
) -> Iterator[tuple[str, str]]:
    """What is to be said of a pair; nothing where it works."""
    table = rows(engine)
    keys = (frozenset((first, second)), frozenset((first, ANY)), frozenset((second, ANY)))
    pair_rows = next((table[key] for key in keys if key in table), ())
    pair = f"{first} beside {second}"
    if not pair_rows:
        yield UNKNOWN, f"{pair}: not known that {NAMES[engine]} does both"
        return
    doubt = ""
    for row in pair_rows:
        shown = f"{row.words} ({row.source})" if row.words else f"see {row.source}"
        if row.state == REFUSED and row.until is None:
            yield REFUSED, shown
            return
        if row.state == REFUSED and row.until is not None:
            if release is None:
                doubt = f"{pair}: {shown}; which release it is is not known here"
            elif release[: len(row.until)] <= row.until:
                yield REFUSED, shown
                return
        if row.state == UNKNOWN:
            doubt = f"{pair}: {shown}"
        if row.state == WORKS and (row.since is None or (release or (0,)) >= row.since):
            if not doubt:
                return
        elif row.state == WORKS and not doubt:
            known = f"known to work since {'.'.join(map(str, row.since or ()))}"
            doubt = f"{pair}: {shown}; {known}" if row.words else f"{pair}: {known} alone"
    if doubt:
        yield UNKNOWN, doubt
