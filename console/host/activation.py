"""What a command on this machine finds beside the allow-listed environment: the programs of a conda
environment, as `conda activate` would give them, and the variables of a file."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from console.common.errors import ServiceError
from console.common.files import read_end
from console.common.text import decode, one_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Activation:
    """A conda environment by its prefix, and a file of NAME=VALUE lines; "" for none. Both are
    read when a command starts, so what the file says appears in no plan and no record."""

    conda: str = ""
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.conda or self.file)

    def __str__(self) -> str:
        words = [f"conda {self.conda}"] if self.conda else []
        return ", ".join([*words, *([f"the variables in {self.file}"] if self.file else [])])

    def variables(self, path: str) -> dict[str, str]:
        """The variables to set, with `path` as PATH so far; those of the file win. Raises
        ServiceError if one of the two is not there, or if the file cannot be understood."""
        return {**_activated(self.conda, path), **_of_file(self.file)}


PLAIN = Activation()
"""The allow-listed environment as it is."""


def _activated(prefix: str, path: str) -> dict[str, str]:
    """PATH with the environment's programs first, and the variables that builds look at.

    CUDA_HOME is set where the environment has an nvcc of its own. Scripts in its
    `etc/conda/activate.d` are not run.
    """
    if not prefix:
        return {}
    if not os.path.isdir(f"{prefix}/bin"):
        what = f"{one_line(prefix)} has no directory bin"
        raise ServiceError("there is no such conda environment", what, "conda env list names them")
    made = {"PATH": f"{prefix}/bin:{path}", "CONDA_PREFIX": prefix,
            "CONDA_DEFAULT_ENV": Path(prefix).name}  # fmt: skip
    if os.access(f"{prefix}/bin/nvcc", os.X_OK):
        made["CUDA_HOME"] = prefix
    return made


def _of_file(file: str) -> dict[str, str]:
    """The variables of a file: NAME=VALUE, quoted as for a shell, which expands nothing here."""
    if not file:
        return {}
    named = f"the file of variables {one_line(file)}"
    try:
        text = decode(read_end(Path(file))[0])
    except OSError as error:
        raise ServiceError(f"{named} cannot be read", error.strerror or "") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            what = f"line {number}: a quotation mark is not closed"
            raise ServiceError(f"{named} is not understood", what) from error
        for word in words[1:] if words[:1] == ["export"] else words:
            name, equals, value = word.partition("=")
            if not equals or not _NAME.fullmatch(name) or name.startswith("OMNI_") or "\0" in value:
                what = f"line {number}: it takes NAME=VALUE, and no name that begins with OMNI_"
                raise ServiceError(f"{named} is not understood", what)
            variables[name] = value
    return variables
