"""What help prints without loading anything: what exit codes mean, and how wide a line may be."""

import os

TYPE_CHECKING = False  # typing itself takes longer to load than help takes to print
if TYPE_CHECKING:
    from typing import TextIO

EXIT_MEANING = {
    0: "done, or GO",
    1: "internal error",
    2: "bad usage or invalid file",
    3: "NO-GO",
    4: "HOLD or unknown",
    5: "step failed, or run cancelled",
    6: "rolled back, baseline serving",
    7: "rollback failed, baseline not proven",
    8: "another run holds the host",
    9: "lint findings",
    130: "interrupted (a detached run goes on)",
}
"""Each code of `console.common.errors.Exit`, in words."""
UNLIMITED = 1 << 20
"""The width of what nobody wraps."""


def columns(out: "TextIO", piped: int = UNLIMITED) -> int:
    """How wide a line may be that is printed to `out`: COLUMNS if it is set, else the width of the
    terminal. What reads a pipe or a file wants whole lines; `piped` is for what is drawn as wide as
    there is room."""
    given = os.environ.get("COLUMNS", "")
    if given.isascii() and given.isdigit() and int(given):
        return int(given)
    try:
        if out.isatty():
            return os.get_terminal_size(out.fileno()).columns or 80
    except (OSError, ValueError):  # closed, or none of the system's files
        pass
    return piped
