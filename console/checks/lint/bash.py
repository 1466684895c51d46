"""What bash itself says of a text: the judge where a grammar does not understand it."""

from __future__ import annotations

import re
import shutil
import subprocess

from console.host import bounded

LIMIT_S = 5.0


def complaint(text: str) -> str:
    """Why bash cannot read a text, "" where it can, or where there is no bash. Nothing is run."""
    bash = shutil.which("bash")
    if bash is None:
        return ""
    argv = [bash, "--norc", "-n", "-c", text]
    try:
        code, _, said = bounded.run(argv, LIMIT_S, env={"LC_ALL": "C"})
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    words = said.decode("utf-8", "replace").split("\n", 1)[0]
    return re.sub(r"^.*?: line \d+: ", "", words) if code else ""
