"""Files that a playbook expects to find: put into the rehearsal's work directory as stand-ins."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

from console.common.units import parse_bytes
from console.rehearsal import image
from console.rehearsal import workspace as place
from console.rehearsal.inside.settings import HOLDS, VARIABLE, packed
from console.rehearsal.mapping import Mapping


def put(path: Path, least: Any, mapping: Mapping) -> None:
    """A file of at least `least` bytes; beside a program of an engine, the others of its build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name in image.COMMANDS:
        for name in image.COMMANDS:
            place.script(_in_a_container(name, mapping), path.with_name(name))
        (path.parent / "libggml-cuda.so").write_text("stand-in of a rehearsal\n")
    elif not path.suffix and path.name in ("lib", "bin", "include"):
        path.mkdir(exist_ok=True)
        return
    else:
        path.write_text("stand-in of a rehearsal\n")
    wanted = parse_bytes(least) if isinstance(least, str) else int(least or 0)
    if path.stat().st_size < wanted:
        _pad(path, wanted)


def python(path: Path) -> None:
    """An interpreter of an environment that is not here: this one, with the stand-in modules."""
    modules = place.directory() / "modules"
    for name, text in image.MODULES.items():
        file = modules / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    place.script(f'PYTHONPATH={shlex.quote(str(modules))} exec {sys.executable} "$@"', path)


def _pad(path: Path, size: int) -> None:
    """A script may be longer than what it does: comments behind `exit` are never read."""
    with path.open("a") as file:
        file.write("exit\n#" + "." * (size - os.fstat(file.fileno()).st_size) + "\n")


def _in_a_container(name: str, mapping: Mapping) -> str:
    """A command of the stand-in image, under the candidate's quota, ended by a rollback."""
    told = packed(mapping.for_image(name))
    return (
        f"exec docker run --rm --init --cpus {mapping.cpus:.4f} --network none "
        f'--label {place.role_label()}=oneoff --label "omni.run=$OMNI_RUN" '
        f"-v {shlex.quote(str(place.holds()))}:{HOLDS} -e {VARIABLE}={told} "
        f'{mapping.base} {name} "$@"'
    )
