"""Where the testbed keeps what it downloads and builds, and how concurrent users wait."""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """A real part cannot be had on this machine; ``reason`` says why in plain words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def root() -> Path:
    """The cache folder, outside the source tree so that a clean checkout keeps it."""
    chosen = os.environ.get("OMNI_TESTBED_CACHE")
    path = Path(chosen) if chosen else Path.home() / ".cache" / "omni-console-testbed"
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def folder(name: str) -> Path:
    path = root() / name
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``; another process that wants it waits."""
    with (folder("locks") / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


class Shared:
    """A share in lock ``name``: many may hold one at a time, and the last can tell it is alone."""

    def __init__(self, name: str) -> None:
        self._handle = (folder("locks") / name).open("a")
        fcntl.flock(self._handle, fcntl.LOCK_SH)

    def alone(self) -> bool:
        """Whether nobody else holds a share; if so, newcomers wait until close."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        self._handle.close()


def fingerprint(*parts: str) -> str:
    """A short key for a recipe: what is built from another recipe gets another name."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def command(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout: float = 300
) -> str:
    """Run a tool and return its output; a failure is Unavailable with the tool's last words."""
    merged = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(
            argv, env=merged, timeout=timeout, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise Unavailable(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{argv[0]} did not finish within {timeout:.0f} s") from error
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        last = words[-1] if words else f"exit status {done.returncode}"
        raise Unavailable(f"{Path(argv[0]).name} failed: {last}")
    return done.stdout
