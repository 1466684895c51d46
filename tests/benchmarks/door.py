"""`python -m tests.benchmarks.door SOCKET ENGINE_SOCKET LABEL`: a scoped engine till stdin ends.

In a process of its own, so that the one with the stopwatch shares its interpreter with nobody.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.rollback.scope import scoped_engine


def main(path: str, engine_socket: str, label: str) -> None:
    with scoped_engine(Path(path), engine_socket, label):
        print("open", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
