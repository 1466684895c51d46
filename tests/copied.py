"""A copy of the program in which something was added; what does not change is linked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def copied_tree(directory: Path, changes: Mapping[str, str]) -> Path:
    """The whole tree in `directory`, with these texts at these paths."""
    open_places = {str(parent) for path in changes for parent in Path(path).parents} - {"."}
    for place in ("", *sorted(open_places)):
        (directory / place).mkdir(exist_ok=True)
        if not (ROOT / place).is_dir():
            continue
        for entry in (ROOT / place).iterdir():
            path = entry.relative_to(ROOT).as_posix()
            hidden = entry.name.startswith(".") or "pycache" in path
            if path not in open_places and path not in changes and not hidden:
                (directory / path).symlink_to(entry)
    for path, text in changes.items():
        (directory / path).write_text(text)
    # packages are found by where their own file lies
    for init in (path for place in open_places for path in (directory / place).glob("__init__.py")):
        if init.is_symlink():
            source = init.resolve()
            init.unlink()
            shutil.copy(source, init)
    return directory


def changed(path: str, old: str, new: str) -> dict[str, str]:
    """The text of a file of the program with one place replaced, by its path."""
    text = (ROOT / path).read_text("utf-8")
    assert text.count(old) >= 1, f"{path} has no {old}"
    return {path: text.replace(old, new, 1)}


def python(tree: Path, *argv: str) -> "subprocess.CompletedProcess[str]":
    own = {"PYTHONPATH": str(tree), "HOME": str(tree), "COLUMNS": "100"}
    env = {key: value for key, value in os.environ.items() if not key.startswith("COV")} | own
    return subprocess.run(
        [sys.executable, *argv], cwd=tree, env=env, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
