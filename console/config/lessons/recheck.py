"""Asking again whether a lesson still holds. What it finds changes no lesson: a person does."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from console.common.text import clean_lines, decode, one_line
from console.config.lessons.registry import Lesson, Recheck
from console.host.matching import TooSlow, find
from console.host.process import environment

MOST_BYTES = 1024 * 1024
"""Of output; a command that says more is ended, and that is no answer."""
SHOWN = 5


class Answer(StrEnum):
    """passed: still as the lesson says. changed: it no longer is. failed: nothing was learnt."""

    PASSED = "passed"
    CHANGED = "changed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Rechecked:
    """What a recheck said; `lines` is the end of its output, clean."""

    lesson: str
    answer: Answer
    words: str
    lines: tuple[str, ...] = ()
    took_s: float = 0.0


Runner = Callable[[Recheck], tuple[int, str]]
"""Argv and deadline → exit code and output. Raises OSError, TimeoutError or ValueError (said too
much)."""


def recheck(lesson: Lesson, asked: Recheck, run: Runner | None = None) -> Rechecked:
    """Run the command once, without a shell, and judge what it printed."""
    began = time.monotonic()
    try:
        code, output = (run or ask)(asked)
    except TimeoutError:
        return _failed(lesson, f"no answer within {asked.timeout:g} s", began)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return _failed(lesson, f"{asked.output[0]}: {words}", began)
    lines = tuple(line for line in clean_lines(output.strip(), 200)[-SHOWN:] if line)
    took_s = time.monotonic() - began
    if code:
        return Rechecked(
            lesson.id, Answer.FAILED, f"nothing learnt: it ended with {code}", lines, took_s
        )
    pattern = asked.matches or asked.not_matches or ""
    try:
        found = find(pattern, [output], lines=True) != [None]
    except TooSlow as error:
        return _failed(lesson, str(error), began)
    holds = found if asked.matches is not None else not found
    has = "matches" if found else "does not match"
    words = f"the output {has} {one_line(pattern, 80)}"
    return Rechecked(lesson.id, Answer.PASSED if holds else Answer.CHANGED, words, lines, took_s)


def ask(asked: Recheck) -> tuple[int, str]:
    """Exit code and output of the command, in a session of its own, stdin closed."""
    child = subprocess.Popen(
        asked.output, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env=environment((), "recheck"),
    )  # fmt: skip
    deadline = time.monotonic() + asked.timeout
    try:
        data = _read(child, deadline)
        return child.wait(max(0.1, deadline - time.monotonic())), decode(data)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error
    finally:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)  # what it started and left behind
        if child.stdout is not None:
            child.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)


def _read(child: subprocess.Popen[bytes], deadline: float) -> bytes:
    """All of its output until it ends. Raises TimeoutError and ValueError."""
    assert child.stdout is not None
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline - time.monotonic())):
            part = os.read(child.stdout.fileno(), 65536)
            if not part:
                return bytes(data)
            data += part
            if len(data) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes of output")
    raise TimeoutError


def _failed(lesson: Lesson, words: str, began: float) -> Rechecked:
    words = one_line(f"nothing learnt: {words}")
    return Rechecked(lesson.id, Answer.FAILED, words, (), time.monotonic() - began)
