"""What a real llama.cpp logs while it loads, model by model."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

CHILD = Path(__file__).with_name("load_child.py")
LIMIT_S = 250


def logged(folder: Path, cases: list[tuple[Path, dict[str, Any]]]) -> list[str]:
    """The log of each case: a model's file, and the parameters it is loaded with."""
    wanted = folder / "wanted.json"
    asked = [{"model": str(path), "parameters": how} for path, how in cases]
    wanted.write_text(json.dumps(asked), "utf-8")
    done = subprocess.run(
        [sys.executable, CHILD, wanted], capture_output=True, check=True, timeout=LIMIT_S
    )
    text = (done.stdout + done.stderr).decode(errors="replace")
    found = re.split(r"^@@ \d+$", text, flags=re.MULTILINE)[1:]
    assert len(found) == len(cases)
    return found
