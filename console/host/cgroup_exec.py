"""The first instructions of a host process: enter a control group of its own, then run the command.

    python -I -S -X utf8 cgroup_exec.py GROUP DESCRIPTOR ENVIRONMENT COMMAND…

Pid and start time stay the same, and nothing is started outside the group `GROUP` + PID.START.
Without a possible group it continues. If the command cannot be run, the errno is written to the
descriptor. The command's environment comes from the file of the descriptor `ENVIRONMENT`, and is
not this interpreter's own: a service's LD_LIBRARY_PATH or LD_PRELOAD may name libraries with which
this interpreter does not start. Standard library only, because this delays every start.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

TRIES = 3
"""Somebody may remove the empty group between the two calls."""


def main() -> int:
    """Run the command; returns only if that fails."""
    group, descriptor, variables, *command = sys.argv[1:]
    os.set_inheritable(int(descriptor), False)
    environment = _environment(int(variables))
    with contextlib.suppress(OSError):
        _enter(f"{group}{os.getpid()}.{_start()}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and that is inherited
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(int(descriptor), str(error.errno).encode())
    return 127


def _start() -> int:
    with open("/proc/self/stat", "rb") as file:
        data = file.read()
    return int(data[data.rindex(b")") + 2 :].split()[19])


def _enter(path: str) -> None:
    for _ in range(TRIES):
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o755)
        try:
            with open(f"{path}/cgroup.procs", "wb", buffering=0) as file:
                file.write(b"0")
            return
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(path)


def _environment(descriptor: int) -> dict[bytes, bytes]:
    """The environment in a file of NAME=VALUE rows, each with a NUL behind it."""
    with open(descriptor, "rb") as file:
        file.seek(0)
        rows = [row.partition(b"=") for row in file.read().split(b"\0") if row]
    return {name: value for name, _, value in rows}


if __name__ == "__main__":
    sys.exit(main())
