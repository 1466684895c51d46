"""The files an image needs to run this very interpreter: itself, its libraries, a few tools."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from console.common.errors import UsageError

TOOLS = (
    "sh", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "df", "dirname", "du", "echo",
    "env", "expr", "false", "find", "free", "grep", "head", "hostname", "id", "ldd", "ls", "mkdir",
    "mktemp", "mv", "nproc", "printf", "pwd", "readlink", "realpath", "rm", "sed", "seq", "sleep",
    "sort", "stat", "sync", "tail", "tee", "test", "timeout", "touch", "tr", "true", "uname",
    "uniq", "wc", "which", "xargs",
)  # fmt: skip
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter",
            "turtledemo", "site-packages", "dist-packages", "pydoc_data"}  # fmt: skip
LEFT_OUT_ENDS = (".a", ".opt-1.pyc", ".opt-2.pyc")
HINT = "pip install 'omni-console[demo]'"
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")

Files = dict[str, Path]
"""Path inside the image → file of this machine."""


def interpreter() -> Path:
    """The program behind this interpreter, out of any virtual environment."""
    return Path(sys.executable).resolve()


def engine() -> Path:
    """The package that holds llama.cpp. Raises UsageError without the extra."""
    found = importlib.util.find_spec("xllamacpp")
    if found is None or not found.submodule_search_locations:
        raise UsageError(
            "a rehearsal needs the demo's engine", "the package xllamacpp is missing", HINT
        )
    return Path(found.submodule_search_locations[0])


def files() -> Files:
    """Everything but this project's own code and the model."""
    found: Files = {str(interpreter()): interpreter()}
    standard = Path(sysconfig.get_path("stdlib"))
    found |= {str(path): path for path in _tree(standard)}
    found |= {f"/opt/rehearsal/packages/xllamacpp/{p.relative_to(engine())}": p
              for p in _tree(engine())}  # fmt: skip
    for tool in TOOLS:
        where = shutil.which(tool, path="/usr/bin:/bin:/usr/sbin:/sbin")
        if where is not None:
            found[f"/usr/bin/{tool}"] = Path(where).resolve()
    programs = [path for path in found.values() if _is_program(path)]
    return found | {str(path): path.resolve() for path in _libraries(programs)}


def _tree(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        yield from (Path(place, name) for name in names if not name.endswith(LEFT_OUT_ENDS))


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """Shared libraries of all of them, as the system's own loader finds them."""
    done = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False, timeout=60,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )  # fmt: skip
    return {Path(name) for name in _LIBRARY.findall(done.stdout)}
