"""Tracebacks as they are kept and shown: an exception may quote foreign text, secrets and all."""

from __future__ import annotations

import sys
from typing import Any

from console.common.secrets import lines
from console.common.text import clean

MAX_LINES = 400


def uncaught(*failure: Any) -> None:
    """What the interpreter calls for an exception that nobody catches: with the exception itself,
    or with one record of a thread or of an object's end."""
    error = failure[1] if len(failure) > 1 else failure[0].exc_value
    _print(error)


def print_exception() -> None:
    """The exception that is being handled, on stderr."""
    _print(sys.exc_info()[1])


def _print(error: BaseException | None) -> None:
    if error is None or isinstance(error, SystemExit) or sys.stderr is None:
        return
    sys.stderr.write(f"{words_of(error)}\n")
    sys.stderr.flush()


def words_of(error: BaseException) -> str:
    """The traceback of an exception, clean, without the values of variables."""
    import traceback  # only where something went wrong

    return _clean("".join(traceback.format_exception(error)))


def clean_logging() -> None:
    """Have what libraries log without a handler of their own, an exception that asyncio has met
    too, come out clean."""
    import logging

    class Clean(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return _clean(super().format(record))

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Clean())


def _clean(text: str) -> str:
    return "\n".join(lines.shown(map(clean, text.splitlines()[-MAX_LINES:])))
