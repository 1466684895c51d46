"""Makes a serving process slow, whatever the machine does: it gets a small part of the time.

``python throttle.py PID PORT TIMES`` waits until the port serves, then stops and continues
the process by turns until it is gone. A busy machine makes a slow engine slower still, so that the
distance to a quick one never shrinks; a model with more layers has no such floor.
"""

import contextlib
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

RUNS_S = 0.003


def serves(port: int) -> bool:
    """It listens before it has loaded its model, and loading need not be slow."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/health"):
        return True
    return False


def throttle(pid: int, port: int, times: int) -> None:
    """Slow this process's parent by so many times; return when it has ended."""
    while os.getppid() == pid and not serves(port):
        time.sleep(0.05)
    turns = ((signal.SIGSTOP, RUNS_S * times), (signal.SIGCONT, RUNS_S))
    with contextlib.suppress(ProcessLookupError):
        while os.getppid() == pid:
            for number, spell in turns:
                os.kill(pid, number)
                time.sleep(spell)


def throttled(program: str, port: int, times: int) -> str:
    """The shell's words that run `program` so many times slower."""
    return f'"{sys.executable}" "{Path(__file__)}" $$ {port} {times} &\nexec {program}'


if __name__ == "__main__":
    throttle(*(int(word) for word in sys.argv[1:]))
