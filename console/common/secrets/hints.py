"""What a plain search finds first: a pattern is tried only on a line that has one of its words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from console.common.patterns import lazy


class Row(NamedTuple):
    """Patterns, the `words` in small letters of which a line needs one, and the longest part that
    all of these words have: a line without it has none of them."""

    part: str
    words: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]


def row(words: tuple[str, ...], *patterns: str) -> Row:
    """A row of patterns, in which small letters and capitals are the same."""
    return Row(_part(words), words, tuple(lazy(pattern, re.IGNORECASE) for pattern in patterns))


def matches(rows: Iterable[Row], line: str, lower: str) -> Iterator[re.Match[str]]:
    """Where the patterns of the rows match in a line; `lower` is the line in small letters."""
    for part, words, patterns in rows:
        if part in lower:
            for word in words:
                if word in lower:
                    for pattern in patterns:
                        yield from pattern.finditer(line)
                    break


def _part(words: tuple[str, ...]) -> str:
    first = words[0]
    parts = {first[a:b] for a in range(len(first)) for b in range(a, len(first) + 1)}
    shared = (part for part in parts if all(part in word for word in words))
    # letters are in every line
    return max(shared, key=lambda part: (len(part), not part.isalnum() and part != "_"), default="")
