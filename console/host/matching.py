"""A user's regular expression, looked for in a process of its own.

`re` holds the whole interpreter while it matches, and a pattern that goes back and forth may take
years over one line: no thread of the same process could abort it. Here the kernel ends it, after so
many seconds of processor time. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from console.common.logs import buffer as log_pattern
from console.common.logs.buffer import at_most
from console.common.paths import module_argv
from console.common.text import one_line
from console.host import children

CPU_S, WALL_S = 2, 30.0
"""Seconds of processor time that a pattern gets, and of waiting, on a machine that is busy."""
QUICK_CPU_S = 0.2
MOST_MEMORY = 1 << 30

Spans = list[tuple[int, int]]
"""Where a match is and where each of its groups, as `re.Match.span`."""
Find = Callable[..., list[Spans | None]]


class TooSlow(Exception):
    """A pattern took longer than it was given, in words."""


def find(
    pattern: str, texts: Sequence[str], *, lines: bool = False, whole: bool = False,
    within_s: float = WALL_S,
) -> list[Spans | None]:  # fmt: skip
    """The last match in each text, None for none; `lines`: `^` and `$` are those of a line;
    `whole`: a match is the whole text.

    Raises TooSlow, also where no process can be had.
    """
    if not texts:
        return []
    asked = {"pattern": pattern, "texts": list(texts), "lines": lines, "whole": whole}
    given = json.dumps(asked).encode()
    argv = module_argv("console.host.matching")
    try:
        code, out, _ = children.run(argv, min(within_s, WALL_S), env=os.environ, given=given)
        if code == 0:
            return [found and [(int(a), int(b)) for a, b in found] for found in json.loads(out)]
    except (OSError, ValueError) as error:
        words = f"the pattern {one_line(pattern, 80)} could not be looked for"
        raise TooSlow(f"{words}: {one_line(str(error))}") from error
    except subprocess.TimeoutExpired:
        pass
    raise _too_slow(pattern, texts)


def _too_slow(pattern: str, texts: Sequence[str]) -> TooSlow:
    length = sum(map(len, texts))
    return TooSlow(f"the pattern {one_line(pattern, 80)} takes too long over {length} characters")


def here(
    pattern: str, texts: Sequence[str], *, lines: bool = False, whole: bool = False
) -> list[Spans | None]:
    """The same in this process, without a limit."""
    regex = re.compile(pattern, re.MULTILINE if lines else re.NOFLAG)
    found: list[Spans | None] = []
    for text in texts:
        all_of_it = [regex.fullmatch(text)] if whole else []
        [last] = all_of_it or deque(regex.finditer(text), 1) or [None]
        found.append(last and [last.span(group) for group in range(regex.groups + 1)])
    return found


def quick(pattern: str, texts: Sequence[str], *, whole: bool = False) -> list[Spans | None]:
    """The same for a few short texts. In the main thread, which may have a screen to draw, a
    signal ends it. Raises TooSlow."""
    if threading.current_thread() is not threading.main_thread():
        return find(pattern, texts, whole=whole)
    try:
        with at_most(QUICK_CPU_S):
            return here(pattern, texts, whole=whole)
    except log_pattern.TooSlow:
        raise _too_slow(pattern, texts) from None


def main() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    asked: dict[str, Any] = json.load(sys.stdin)
    print(json.dumps(here(**asked)))


if __name__ == "__main__":
    main()
