"""llama.cpp's own `llama-fit-params`, which says what the loader would reserve for a model that it
only reads the header of, and its `llama-server` and `llama-bench`: Debian sid's packages, laid out
in the cache and run with their own C library and one CPU backend, so that neither a container
engine nor a compiler is needed.
"""

import os
import shutil
import sys
from pathlib import Path

from console.checks.preflight.architecture.memory import TOOL
from tests.testbed import debian
from tests.testbed.cache import Unavailable, fingerprint, folder, locked

PACKAGES = ("llama.cpp-tools", "llama.cpp-tools-extra")
LAYOUT = "1"
SCRIPT = """#!/bin/sh
unset LD_LIBRARY_PATH
GGML_BACKEND_PATH={libraries}/ggml/backends0/libggml-cpu-{backend}.so
export GGML_BACKEND_PATH
exec {libraries}/ld-linux-x86-64.so.2 --library-path {libraries}:{libraries}/llama {program} "$@"
"""


def ensure_fit_params() -> str:
    """The path of the program; `OMNI_FIT_PARAMS` names another one. Raises Unavailable."""
    if given := os.environ.get("OMNI_FIT_PARAMS") or shutil.which(TOOL):
        return given
    return ensure(TOOL)


def ensure(name: str) -> str:
    """The path of a program of the packages. Raises Unavailable."""
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise Unavailable(f"{name} is laid out for x86_64 Linux only")
    home = folder("fit-params") / fingerprint(LAYOUT, *PACKAGES)
    with locked("fit-params"):
        if not (home / TOOL).exists():
            _lay_out(home)
        return str(_script(home, name))


def _lay_out(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    debian.unpack(debian.fetch("sid", PACKAGES, home / "fetched", depends=True), home / "root")
    shutil.rmtree(home / "fetched")
    _script(home, TOOL)


def _script(home: Path, name: str) -> Path:
    """The script that runs a program of the layout."""
    script, program = home / name, home / "root" / "usr" / "bin" / name
    if script.exists():
        return script
    if not program.exists():
        raise Unavailable(f"Debian's packages hold no {name}")
    flags = set(Path("/proc/cpuinfo").read_text().split())
    text = SCRIPT.format(
        libraries=home / "root/usr/lib/x86_64-linux-gnu", program=program,
        backend="haswell" if {"avx2", "fma", "f16c", "bmi2"} <= flags else "x64",
    )  # fmt: skip
    script.write_text(text)
    script.chmod(0o755)
    return script
