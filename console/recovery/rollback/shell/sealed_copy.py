"""The sealed copy: the code of a rollback, which any python3 can run without the installed console.

`python3 -I -S -B COPY RUN_DIR` rolls a run back with the code of the version that sealed it,
whatever has become of that version's files since: an upgrade, a broken or removed virtual
environment. All runs of a version share one copy. Its directory is named by the digest of its
sources, and SEALED.sha256, which `sha256sum -c` understands, says what belongs in it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import marshal
import os
import shutil
import struct
import sys
import time
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from pathlib import Path

import console
from console.common import paths

ROOMS = ("common", "host", "runtime", "recovery")
"""The floors from the ground up to that of rollback and sentinel. They need the standard library
alone, except for what asks an engine through the docker library, which neither of the two does."""
CURVE = ("models/__init__.py", "models/sizing/__init__.py", "models/sizing/load_curve.py")
"""What a load may take as it goes on, by which the sentinel judges."""
LIBRARIES = ("pynvml",)
"""Single modules that a rollback uses where they are there: with this one it sees whether the
candidate's GPU memory is free."""
KINDS = (".py", ".txt")
UNUSED_S = 90 * 86400.0
"""Seconds after which a copy that no run has sealed goes; longer than any run takes."""
MANIFEST = paths.SEALED
MAIN = "__main__.py"
START = b"""import sys

if sys.argv[1:2] == ["-m"]:  # a process of its own starts a module of the copy
    import runpy

    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
else:
    from console.recovery.rollback.shell.entry import main

    sys.exit(main())
"""
UNCHECKED = (1).to_bytes(4, "little")
"""Flags of compiled code that is not compared with its source (PEP 552): MANIFEST covers both."""
MASK = 0xFFFFFFFF


def place() -> str:
    """Return the directory of this version's copy as `make` does; "" where it cannot be written, as
    on a full disk. rollback.sh is then the script that needs no Python, and standby and sentinel
    run what is installed."""
    try:
        return str(make())
    except OSError:
        return ""


def copies() -> Path:
    """The directory of all copies, one for each version that has begun a run."""
    return paths.state_dir() / "sealed"


def make() -> Path:
    """Return the directory of this version's copy, which is made where it is absent or damaged.
    Raises OSError."""
    sources = {MAIN: START, **dict(_sources())}
    directory = copies() / _digest(sources)
    if is_whole(directory):
        with contextlib.suppress(OSError):
            os.utime(directory)
        return directory
    paths.make(directory.parent)
    _remove_unused(directory.parent, time.time() - UNUSED_S)
    made = directory.with_name(f".{directory.name}.{os.getpid()}")
    try:
        _write(made, sources)
        if directory.exists():  # a damaged one, which this very name still leads runs to
            directory.rename(made.with_suffix(".old"))
        made.rename(directory)
    finally:
        for left in (made, made.with_suffix(".old")):
            shutil.rmtree(left, ignore_errors=True)
    return directory


def _remove_unused(place: Path, before: float) -> None:
    """Remove copies that no run has sealed since a Unix time."""
    for copy in place.iterdir():
        with contextlib.suppress(OSError):
            if copy.stat().st_mtime < before:
                shutil.rmtree(copy, ignore_errors=True)


def is_of_another_version(copy: str) -> bool:
    """Whether a run's sealed copy is there, whole, and not what this installation would seal: the
    console was upgraded since. A copy does not look: it is what the run has sealed."""
    if not copy or paths.own_copy() or not is_whole(Path(copy)):
        return False
    with contextlib.suppress(OSError):  # the installation is damaged
        return Path(copy).name != _digest({MAIN: START, **dict(_sources())})
    return True


def is_whole(directory: Path) -> bool:
    """Whether everything that MANIFEST names is there, unchanged."""
    try:
        rows = (directory / MANIFEST).read_text("utf-8").splitlines()
        return bool(rows) and all(
            hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
            for digest, name in (row.split("  ", 1) for row in rows)
        )
    except (OSError, ValueError):
        return False


def _sources() -> Iterator[tuple[str, bytes]]:
    """Each file of the copy that is not compiled: its place in the copy, and its bytes."""
    package = Path(console.__file__).parent
    files = [package / name for name in ("__init__.py", *CURVE)]
    for room in ROOMS:
        files += (path for path in (package / room).rglob("*") if path.suffix in KINDS)
    for path in files:
        yield f"console/{path.relative_to(package)}", path.read_bytes()
    for name in LIBRARIES:
        with contextlib.suppress(ImportError, OSError):
            spec = importlib.util.find_spec(name)
            if spec is not None and spec.origin is not None:
                yield f"{name}.py", Path(spec.origin).read_bytes()


def _digest(sources: dict[str, bytes]) -> str:
    """Name a copy by its sources, and by the interpreter that its compiled code is for."""
    digest = hashlib.sha256(sys.implementation.cache_tag.encode())
    for name, data in sorted(sources.items()):
        digest.update(b"%s %d\n" % (name.encode(), len(data)) + data)
    return digest.hexdigest()[:16]


def _write(directory: Path, sources: dict[str, bytes]) -> None:
    # Not synchronised to the disk file by file: a copy that a power cut damages is made again by
    # the next run, and rollback.sh does without it.
    shutil.rmtree(directory, ignore_errors=True)
    rows = []
    for name, data in sorted({**sources, **dict(_compiled(sources))}.items()):
        path = directory / name
        path.parent.mkdir(0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        rows.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    (directory / MANIFEST).write_text("".join(rows), "utf-8")


def _compiled(sources: dict[str, bytes]) -> Iterator[tuple[str, bytes]]:
    """What this interpreter would compile the sources to; another one compiles them itself."""
    package = Path(console.__file__).parent.parent
    for name, data in sources.items():
        if name.startswith("console/") and name.endswith(".py"):
            code = _cached(package / name) or marshal.dumps(compile(data, name, "exec"))
            yield cache_from_source(name), MAGIC_NUMBER + UNCHECKED + source_hash(data) + code


def _cached(source: Path) -> bytes:
    """The code that an earlier import of a source has left beside it; b"" if there is none that
    belongs to it. Its head is the magic number, flags, and date and size of the source."""
    with contextlib.suppress(OSError):
        compiled, info = Path(cache_from_source(str(source))).read_bytes(), source.stat()
        stamp = struct.pack("<LLL", 0, int(info.st_mtime) & MASK, info.st_size & MASK)
        if compiled.startswith(MAGIC_NUMBER + stamp):
            return compiled[len(MAGIC_NUMBER) + len(stamp) :]
    return b""
