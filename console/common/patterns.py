"""Regular expressions that are compiled when they are first used.

What hides secrets has some two hundred, and most lines need none of them: compiling all took most
of the time in which a command that prints three lines starts.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Lazy:
    """Stands for a compiled pattern; once it is compiled, its methods are that pattern's own."""

    def __init__(self, source: str, flags: int) -> None:
        self._source, self._flags = source, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(self._source, self._flags)
        for method in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split"):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def lazy(source: str, flags: int = 0) -> re.Pattern[str]:
    """The pattern as `re.compile` makes it. A mistake in it is seen at its first use, which the
    tests make of every one."""
    return cast("re.Pattern[str]", _Lazy(source, flags))
