"""Secrets in what an operator wrote: found when a file is loaded, hidden wherever its text is shown
or kept. What is executed, and the sealed copies of mode 0600, keep every byte."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

HIDDEN = "*****"
SHORTEST, SHORTEST_WORD = 6, 12
"""Least characters of a value that is hidden everywhere, and of one that may be a word. Shorter
ones occur in normal text, so they are hidden only next to their flag or name."""
_NAME = r"(?:key|token|hft|passwd|password|secret)"
_FLAG = re.compile(rf"--?(?:[\w.-]*[-_])?{_NAME}", re.IGNORECASE)
_VARIABLE = re.compile(rf"(?:[\w.-]*[-_])?{_NAME}|authorization|apikey", re.IGNORECASE)
_VALUE = r"(?P<{}>\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'][^\s]*)"
_FORMS = re.compile(
    rf"(?:(?:(?<=[\s\"'`])|^)--?(?:[\w-]*[-_])?{_NAME}(?:=|\s+)"
    r"|\b(?-i:[A-Z_]*(?:KEY|TOKEN|PASSWD|PASSWORD|SECRET))="
    r"|\b(?:x[-_])?(?:api|hf|auth|access)[-_]?(?:key|token)['\"]?"
    r"(?:\s*=\s*|\s*:\s*(?!(?-i:[a-z]+)(?:\s|$)))"  # after a colon a lone word is prose
    rf"){_VALUE.format('named')}"
    r"|\bauthorization['\"]?\s*[:=]\s*['\"]?(?:[a-z]+\s+)?(?P<header>[^\s'\"]+)"
    r"|\bbearer\s+(?P<bearer>[\w.~+/=-]{8,})"
    r"|\b[a-z][a-z0-9+.-]{0,20}://[^\s/?#:@]*:(?P<password>[^\s/?#]+)@",
    re.IGNORECASE,
)
_HINTS = ("key", "token", "hft", "passw", "secret", "authorization", "bearer", "://")


def text(line: str) -> str:
    """A line of text without what flags, variables, headers and addresses in it mark as secret."""
    lower = line.lower()
    if not any(hint in lower for hint in _HINTS):
        return line
    return _FORMS.sub(_without, line)


def argv(words: Iterable[str]) -> list[str]:
    """The words of a command, to be shown: values of secret flags are hidden."""
    found: list[str] = []
    hide = False
    for word in words:
        flag, equals, _ = word.partition("=")
        secret = _FLAG.fullmatch(flag) is not None
        if hide:
            found.append(HIDDEN)
        else:
            found.append(f"{flag}={HIDDEN}" if secret and equals else text(word))
        hide = secret and not equals and not hide
    return found


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is to be hidden, by its name or by what it holds."""
    return bool(value) and (_VARIABLE.fullmatch(name) is not None or text(value) != value)


@dataclass(frozen=True, slots=True)
class Known:
    """Values that are secret everywhere, the longest first."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, *documents: Any) -> Known:
        """The secret values in the plain data of files."""
        lines = [part for one in documents for value in _secrets(one) for part in value.split("\n")]
        return cls(tuple(sorted({one for one in lines if _telling(one)}, key=len, reverse=True)))

    def __or__(self, other: Known) -> Known:
        return Known(tuple(sorted({*self.values, *other.values}, key=len, reverse=True)))

    def text(self, line: str) -> str:
        for value in self.values:
            line = line.replace(value, HIDDEN)
        return text(line)

    def raw(self, line: bytes) -> bytes:
        """A line of a program's output, unchanged except for the values."""
        for value in self.values:
            line = line.replace(value.encode(), HIDDEN.encode())
        return line

    def data(self, value: Any) -> Any:
        """JSON-like data with every string in it, keys too, treated as by `text` and `argv`."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.data(key): self._named(key, one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            words = all(isinstance(one, str) for one in value)
            return [self.data(one) for one in (argv(value) if words else value)]
        return value

    def _named(self, key: Any, value: Any) -> Any:
        secret = isinstance(key, str) and isinstance(value, str) and _VARIABLE.fullmatch(key)
        return HIDDEN if secret and value else self.data(value)


NONE = Known()


def _without(found: re.Match[str]) -> str:
    group = found.lastgroup or "named"
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return f"{found[0][:start]}{HIDDEN}{found[0][end:]}"


def _secrets(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield from (
            found[found.lastgroup or "named"].strip("\"';,&|)") for found in _FORMS.finditer(data)
        )
    elif isinstance(data, dict):
        for key, value in data.items():
            if isinstance(key, str) and isinstance(value, str) and _VARIABLE.fullmatch(key):
                yield value.rpartition(" ")[2] if key.lower() == "authorization" else value
            yield from _secrets(value)
    elif isinstance(data, list):
        if all(isinstance(one, str) for one in data):
            yield from _behind_flags(data)
        for value in data:
            yield from _secrets(value)


def _behind_flags(words: Sequence[str]) -> Iterator[str]:
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if _FLAG.fullmatch(flag):
            yield value if equals else next(iter(words[at + 1 :]), "")


def _telling(value: str) -> bool:
    """Whether a value is unmistakable: no variable, no word of the console's own."""
    value = value.strip()
    if value.startswith(("$", "-")) or value.lower() in ("true", "false"):
        return False
    return len(value) >= (SHORTEST_WORD if value.isalpha() or value.isdigit() else SHORTEST)
