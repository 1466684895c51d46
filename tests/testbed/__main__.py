"""The testbed by hand: ``python -m tests.testbed up|down|env``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from tests.testbed import engine, image, nvml
from tests.testbed.cache import Unavailable

T = TypeVar("T")


def up() -> int:
    """Have every real part ready, saying how long each one took."""
    ready = _timed("engine", engine.ensure_engine)
    _timed("busy image", lambda: image.ensure_busy_image(ready))
    _timed("llama image", lambda: image.ensure_llama_image(ready))
    _timed("nvml library", nvml.ensure_nvml)
    print(f"up at {ready.host}")
    return 0


def down(*, force: bool = False) -> int:
    users = engine.in_use() if not force else ""
    if users:
        print(f"left running: {users}; down --force stops it all the same", file=sys.stderr)
        return 1
    print("stopped" if engine.stop_engine() else "was not running")
    return 0


def env() -> int:
    """Print lines for a shell to eval; the engine is started if it is down."""
    values = engine.ensure_engine().env()
    first = values.pop("PATH").split(":")[0]
    for name, value in values.items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'export PATH={shlex.quote(first)}:"$PATH"')
    return 0


def _timed(name: str, make: Callable[[], T]) -> T:
    begin = time.monotonic()
    made = make()
    print(f"{name}: ready in {time.monotonic() - begin:.1f} s", flush=True)
    return made


def main() -> int:
    verbs = {"up": up, "env": env}
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("verb", choices=["up", "down", "env"])
    parser.add_argument("--force", action="store_true", help="down: even if it is in use")
    chosen = parser.parse_args()
    try:
        return down(force=chosen.force) if chosen.verb == "down" else verbs[chosen.verb]()
    except Unavailable as error:
        print(f"unavailable: {error.reason}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
