"""Which tests run which lines of the program, and how long each test takes.

Measured once per state of the tree, in the processes that tests start too, and kept beside the
environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from coverage.numbits import numbits_to_nums

KEPT = Path(".venv/mutants")
SLOW_S = 1.0
RC = """\
[run]
source = console
parallel = true
patch = _exit
data_file = {place}/.coverage
context = ${{PYTEST_CURRENT_TEST-none}}
"""
Rank = tuple[bool, bool, bool, str]
_PHASE = re.compile(r"( \((setup|call|teardown)\)|\|(setup|run|teardown))$")


class Test(NamedTuple):
    """A test that passes without any mutant."""

    name: str
    tier: str
    engine: bool
    seconds: float

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


def fingerprint(root: Path) -> str:
    """Of all that decides what a test does, so that no figure outlives what it was measured on."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, text=True
    )
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.split("\0"))):
        of_program = name.endswith((".py", ".toml", ".yaml", ".ambr"))
        if of_program and not name.startswith("tests/mutants/") and (root / name).is_file():
            digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return digest.hexdigest()[:12]


def measure(root: Path, place: Path, tier: str, workers: int, limit_s: float) -> None:
    """Run the tests of a tier under coverage; what fails or is left out is not used.

    Raises subprocess.TimeoutExpired when it takes longer than the limit.
    """
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "rc").write_text(RC.format(place=place))
    plugin = root / ".venv/mutants/plugin"
    plugin.mkdir(exist_ok=True)
    (plugin / "mutants_plugin.py").write_bytes(Path(__file__).with_name("plugin.py").read_bytes())
    only = ["-m", "not full"] if tier == "test" else []
    call: list[str | Path] = [
        root / ".venv/bin/python", "-m", "pytest", "-q", "-p", "mutants_plugin",
        "-n", str(workers), "--dist", "loadgroup", "--cov", f"--cov-config={place}/rc",
        "--cov-context=test", "--cov-report=", *only,
    ]  # fmt: skip
    env = {**os.environ, "MUTANTS_MEASURE": str(place), "PYTHONPATH": str(plugin)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run(call, cwd=root, env=env, check=False, timeout=limit_s)
    (place / "whole").touch()


class Coverage:
    """What was measured: `tests.tsv` and coverage's data files, in one folder."""

    def __init__(self, place: Path, root: Path) -> None:
        self._root = root
        self._data = [path for path in place.glob(".coverage*") if path.is_file()]
        self.tests: dict[str, Test] = {}
        for line in (place / "tests.tsv").read_text("utf-8").splitlines():
            name, tier, engine, seconds = line.split("\t")
            self.tests[name] = Test(name, tier, bool(engine), float(seconds))
        self._lines: dict[str, dict[int, set[str]]] = {}

    def load(self, files: Iterable[str]) -> None:
        """Read once what ran in these files."""
        wanted = {str(self._root / file): file for file in files}
        self._lines = {file: {} for file in wanted.values()}
        for data in self._data:
            for path, context, bits in _rows(data):
                name = _PHASE.sub("", context.removeprefix("none|"))
                if path in wanted and name in self.tests:
                    lines = self._lines[wanted[path]]
                    for number in numbits_to_nums(bits):
                        lines.setdefault(number, set()).add(name)

    def of(self, file: str, lines: set[int]) -> set[str]:
        known = self._lines.get(file, {})
        return set().union(*(known.get(number, set()) for number in lines))

    def order(self, names: Iterable[str], file: str) -> list[Test]:
        """Quick tests before slow ones, and the program file's own room first; then those that
        bear the file's name, for what ran in a process that was killed and left no measurement.

        Tests of a file stay together: what a module sets up is not set up again and again.
        """
        room = f"tests/{file.split('/')[1]}/"
        stem = Path(file).stem

        def first(test: Test) -> Rank:
            own = test.file.startswith(room)
            return (test.seconds > SLOW_S, not own, stem not in test.file, test.file)

        covers = set(names)
        namesakes = {name for name, test in self.tests.items()
                     if test.file.startswith(room) and stem in Path(test.file).stem}  # fmt: skip
        return [test for part in (covers, namesakes - covers)
                for test in self._together(part, first)]  # fmt: skip

    def _together(self, names: set[str], first: Callable[[Test], Rank]) -> list[Test]:
        tests = sorted((self.tests[name] for name in names), key=first)
        groups = [sorted(group, key=lambda test: test.seconds)
                  for _, group in groupby(tests, key=first)]  # fmt: skip
        groups.sort(key=lambda group: (first(group[0])[:3], sum(test.seconds for test in group)))
        return [test for group in groups for test in group]


def _rows(data: Path) -> Iterator[tuple[str, str, bytes]]:
    """A process that was killed while it wrote leaves a file that is none."""
    try:
        with sqlite3.connect(f"file:{data}?mode=ro", uri=True) as base:
            yield from base.execute(
                "select file.path, context.context, numbits from line_bits"
                " join file on file.id = file_id join context on context.id = context_id"
            )
    except sqlite3.DatabaseError:
        return


def within(tests: list[Test], seconds: float) -> list[Test]:
    """As many of these as fit into the time; one at least."""
    chosen: list[Test] = []
    for test in tests:
        if not chosen or sum(one.seconds for one in chosen) + test.seconds <= seconds:
            chosen.append(test)
    return chosen
