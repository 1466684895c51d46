"""What a contract step needs before step 1: its cases, and the file that it compares with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from console.bench.contract.fingerprint import read_fingerprint
from console.common.errors import ConsoleError, Problem
from console.config.contract import load_cases
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import Step


def refused(
    playbook: Playbook, step: Step, maker: Callable[[Path], Step | None]
) -> Iterator[Problem]:
    """What is wrong with the files of a step; nothing with one that an earlier step may make, which
    `maker` knows."""
    if step.contract is None:
        return
    files = ((step.contract.cases, load_cases), (step.contract.against, read_fingerprint))
    for name, read in files:
        path = Path(playbook.base, os.path.expanduser(name))
        if name not in ("", "baseline") and (path.exists() or maker(path) is None):
            try:
                read(path)
            except ConsoleError as error:
                yield from getattr(error, "problems", (Problem(str(path), 0, 0, str(error)),))
