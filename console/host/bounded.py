"""Running a command that may never end: what does not end in time is killed and left behind.

`subprocess.run` waits without bound for a child that SIGKILL does not end (state D: a driver, a
dead file system). Standard library only; the emergency side uses this.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

_unwatched: list[subprocess.Popen[bytes]] = []


def run(
    argv: Sequence[str], seconds: float, *, env: Mapping[str, str], merge: bool = False,
    given: bytes | None = None,
) -> tuple[int, bytes, bytes]:  # fmt: skip
    """Exit code, stdout and stderr (`merge`: all in stdout) of a command in a session of its own.
    `given`: what it reads from stdin.

    Raises OSError when it cannot be run, subprocess.TimeoutExpired at the deadline, at once.
    """
    child = subprocess.Popen(
        list(argv),
        env=dict(env),
        stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merge else subprocess.PIPE,
        start_new_session=True,
    )
    try:
        out, error = child.communicate(given, timeout=seconds)
    except BaseException:
        _abandon(child)
        raise
    return child.returncode, out, error or b""


def _abandon(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        threading.Thread(target=child.wait, name=f"reaper-{child.pid}", daemon=True).start()
    except RuntimeError:  # no thread left: a zombie at worst
        _unwatched.append(child)
