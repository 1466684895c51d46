"""What pydantic repeats of a value that it refuses, with the name of its field before the words or
on the line above them:

    api_key
      Input should be a valid string [type=string_type, input_value='…', input_type=str]
"""

from __future__ import annotations

from collections.abc import Iterator

from console.common.patterns import lazy
from console.common.secrets.names import HIDDEN, names

HINT = "input_value="
MAX_WORDS = 300
"""Characters before a value in which the name of its field is looked for."""
_VALUE = lazy(
    r"\[type=[\w.]{1,64},\s{1,4}input_value=(?:b?\\?[\"'])?"
    r"(?P<value>(?<=[\"'])[^\"'\\]{1,4096}|[^\s\"',\\\]]{1,4096})"
)
_WORD = lazy(r"(?:\\n)?([\w.-]{2,64})")


def of_text(line: str, above: str = "") -> Iterator[tuple[int, int]]:
    """Where the secret values of a line begin and end; `above`: the line above it."""
    at = 0
    for repeated in _VALUE.finditer(line):
        words = above if not at else ""
        words += " " + line[max(at, repeated.start() - MAX_WORDS) : repeated.start()]
        at = repeated.end()
        if any(_tells(word[1], repeated["value"]) for word in _WORD.finditer(words)):
            yield repeated.span("value")


def below(above: str, line: str) -> str:
    """A line without what the name on the line above it marks as secret."""
    for start, end in reversed([*of_text(line, above[-MAX_WORDS:])]):
        line = line[:start] + HIDDEN + line[end:]
    return line


def _tells(place: str, value: str) -> bool:
    """Whether a field, as `headers.authorization` or `api_keys.0` names it, is a secret's."""
    return names(place, value) or any(names(part, value) for part in place.split("."))
