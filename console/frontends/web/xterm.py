"""The terminal emulator of the page: `@xterm/xterm`, one pinned release, fetched once.

It is no part of this program. `omni-console web --fetch` has the npm client download it, or takes a
file that was downloaded elsewhere; both count only if their SHA-512 is the one below.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError, UsageError
from console.common.text import one_line
from console.host import children

PACKAGE, VERSION = "@xterm/xterm", "6.0.0"
INTEGRITY = (
    "TQwDdQGtwwDt+2cgKDLn0IRaSxYu1tSUjgKarSDkUM0ZNiSRXFpjxEsvc/Zgc5kq5omJ+V0a8/kIM2WD3sMOYg=="
)
"""SHA-512 of the package, as npm writes it."""
FILES = {"xterm.js": "package/lib/xterm.js", "xterm.css": "package/css/xterm.css"}
MAX_BYTES = 16 << 20
FETCH_S = 120.0
HOW = f"npm pack {PACKAGE}@{VERSION}"


def directory() -> Path:
    """Where the two files lie, once they have been fetched."""
    return paths.data_dir() / "web" / f"xterm-{VERSION}"


def installed() -> dict[str, bytes]:
    """The files by name; {} where they have not been fetched."""
    try:
        return {name: (directory() / name).read_bytes() for name in FILES}
    except OSError:
        return {}


def fetch(given: str = "") -> Path:
    """Put the files where `installed` finds them, all or none. `given`: the package as a file; ""
    has the npm client download it. Raises ConsoleError."""
    if given:
        return install(_read(Path(given)))
    with tempfile.TemporaryDirectory(prefix="omni-console-") as where:
        return install(_download(Path(where)))


def _download(where: Path) -> bytes:
    program = shutil.which("npm")
    if program is None:
        raise UsageError(
            "npm is not installed here",
            "the terminal page needs one package, which npm downloads",
            f"elsewhere: {HOW}; bring the file here, then: omni-console web --fetch FILE",
        )
    argv = (program, *HOW.split()[1:], "--ignore-scripts", "--pack-destination", str(where))
    try:
        code, output, _ = children.run(argv, FETCH_S, env=os.environ, merge=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConsoleError(f"{HOW} does not end", one_line(str(error))) from error
    packages = sorted(where.glob("*.tgz"))
    if code or not packages:
        raise ConsoleError(f"{HOW} failed", one_line(output.decode("utf-8", "replace"), 400))
    return _read(packages[0])


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{one_line(str(path))} cannot be read", error.strerror or "") from error


def install(package: bytes) -> Path:
    """Unpack the two files of the very package that is pinned. Raises ConsoleError."""
    if base64.b64encode(hashlib.sha512(package).digest()).decode() != INTEGRITY:
        raise UsageError(
            f"this is not {PACKAGE} {VERSION}", "its SHA-512 is another one; nothing was unpacked",
            f"{HOW} downloads it",
        )  # fmt: skip
    target = directory()
    paths.make(target.parent)
    fresh = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
    try:
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            for name, inside in FILES.items():
                member = archive.extractfile(inside)
                assert member is not None, "the pinned package has this file"
                (fresh / name).write_bytes(member.read())
        shutil.rmtree(target, ignore_errors=True)
        os.replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target
