"""llama.cpp's own `llama-fit-params`, which says what the loader would reserve for a model that it
only reads the header of: Debian sid's package, laid out in the cache and run with its own C library
and one CPU backend, so that neither a container engine nor a compiler is needed.
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
    if os.uname().machine != "x86_64" or sys.platform != "linux":
        raise Unavailable(f"{TOOL} is laid out for x86_64 Linux only")
    home = folder("fit-params") / fingerprint(LAYOUT, *PACKAGES)
    script = home / TOOL
    with locked("fit-params"):
        if not script.exists():
            _lay_out(home)
    return str(script)


def _lay_out(home: Path) -> None:
    shutil.rmtree(home, ignore_errors=True)
    debian.unpack(debian.fetch("sid", PACKAGES, home / "fetched", depends=True), home / "root")
    shutil.rmtree(home / "fetched")
    program = home / "root" / "usr" / "bin" / TOOL
    if not program.exists():
        raise Unavailable(f"Debian's packages hold no {TOOL}")
    flags = set(Path("/proc/cpuinfo").read_text().split())
    text = SCRIPT.format(
        libraries=home / "root/usr/lib/x86_64-linux-gnu", program=program,
        backend="haswell" if {"avx2", "fma", "f16c", "bmi2"} <= flags else "x64",
    )  # fmt: skip
    script = home / TOOL
    script.write_text(text)
    script.chmod(0o755)
