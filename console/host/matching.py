"""A user's regular expression, looked for in a process of its own.

`re` holds the whole interpreter while it matches, and a pattern that goes back and forth may take
years over one line: no thread of the same process could abort it. Here the kernel ends it, after so
many seconds of processor time. Standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Sequence

from console.common.logs import buffer as log_pattern
from console.common.logs.buffer import at_most
from console.common.paths import module_argv
from console.common.spans import Spans, here
from console.common.text import one_line
from console.host import children

CPU_S, WALL_S = 2, 30.0
"""Seconds of processor time that a pattern gets, and of waiting, on a machine that is busy."""
QUICK_CPU_S = 0.2

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
    request = {"pattern": pattern, "texts": list(texts), "lines": lines, "whole": whole}
    given = json.dumps({**request, "cpu_s": CPU_S}).encode()
    argv = module_argv("console.common.spans")
    try:
        code, out, _ = children.run(argv, min(within_s, WALL_S), env=os.environ, given=given)
        if code == 0:
            return [spans and [(int(a), int(b)) for a, b in spans] for spans in json.loads(out)]
    except (OSError, ValueError) as error:
        words = f"the pattern {one_line(pattern, 80)} could not be looked for"
        raise TooSlow(f"{words}: {one_line(str(error))}") from error
    except subprocess.TimeoutExpired:
        pass
    raise _too_slow(pattern, texts)


def _too_slow(pattern: str, texts: Sequence[str]) -> TooSlow:
    length = sum(map(len, texts))
    return TooSlow(f"the pattern {one_line(pattern, 80)} takes too long over {length} characters")


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
