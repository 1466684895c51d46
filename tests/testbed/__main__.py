"""The testbed by hand: ``python -m tests.testbed up|down|status|env``."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from tests.testbed import cache, compose, engine, image, nvml
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
    """Stop the private engine, unless somebody else on this machine is at work in it."""
    users = engine.in_use() if not force else ""
    if users:
        print(f"left running: {users}; down --force stops it all the same", file=sys.stderr)
        return 1
    print("stopped" if engine.stop_engine() else "was not running")
    return 0


def status() -> int:
    """Say what is there without starting it; exit 1 where the engine is down."""
    print(f"cache   {cache.root()}")
    if not engine.running():
        print("engine  down")
        return 1
    ready = engine.ensure_engine()
    answer = ready.run("version", "--format", "{{.Server.Version}}").strip()
    print(f"engine  {answer} at {ready.host}")
    print(f"client  {ready.docker}")
    print(f"compose {compose.version(ready.docker, compose.docker_config())}")
    listed = ready.run("images", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}")
    for line in sorted(listed.splitlines()):
        print(f"image   {line}")
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
    verbs = {"up": up, "status": status, "env": env}
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("verb", choices=["up", "down", "status", "env"])
    parser.add_argument("--force", action="store_true", help="down: even if it is in use")
    chosen = parser.parse_args()
    try:
        return down(force=chosen.force) if chosen.verb == "down" else verbs[chosen.verb]()
    except Unavailable as error:
        print(f"unavailable: {error.reason}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
