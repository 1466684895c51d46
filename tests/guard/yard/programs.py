"""The C programs of the pressure tests, compiled once and kept in the testbed's cache."""

from __future__ import annotations

from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import command, fingerprint, folder, locked

SOURCES = Path(__file__).resolve().parents[2] / "benchmarks"


def hog() -> Path:
    """Return a load that has to be stopped; see benchmarks/hog.c. It is static, so that any image
    runs it."""
    return _made("hog")


def observer() -> Path:
    """Return the observer that reads a thousand times a second; see benchmarks/hog_observer.c."""
    return _made("hog_observer")


def _made(name: str) -> Path:
    source = SOURCES / f"{name}.c"
    program = folder(f"yard/{fingerprint(source.read_text())}") / name
    with locked("yard"):
        if not program.exists():
            gcc = debian.require_program("gcc", ["gcc", "libc6-dev"])
            fresh = program.with_suffix(".new")
            argv = [gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
            command([*argv, "-o", str(fresh), str(source)])
            fresh.replace(program)
    return program
