"""Why a process did not start, in words an operator reads."""

from __future__ import annotations

import errno
import os

from console.common.errors import ServiceError
from console.common.text import one_line


def start_error(program: str, cwd: str, error: OSError | ValueError) -> ServiceError:
    """The error for a `program` that could not be started in the directory `cwd`."""
    said = one_line(program)
    code = error.errno if isinstance(error, OSError) else None
    where = os.fsdecode(error.filename) if isinstance(error, OSError) and error.filename else ""
    if cwd and where == cwd and where != program:
        what = f"bad working directory {one_line(cwd)}: {_reason(error)}"
    elif code == errno.ENOENT:
        what = f"{said}: not found"
    elif code == errno.EACCES:
        what = f"{said}: not executable"
    else:
        what = f"{said}: {_reason(error)}"
    return ServiceError("the process did not start", what)


def _reason(error: OSError | ValueError) -> str:
    return one_line((error.strerror if isinstance(error, OSError) else "") or str(error))
