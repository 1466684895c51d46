"""Which tests run which lines of the program, in whatever process, and how long each test takes."""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from coverage import CoverageData, CoverageException

PLUGIN = Path(__file__).with_name("plugin.py")
RC = """\
[run]
source = console
parallel = true
patch = _exit
data_file = {place}/.coverage
context = ${{PYTEST_CURRENT_TEST-none}}
"""
CONTEXT = re.compile(r"(none\|)?(.*?)(@[\w-]+)?( \(\w+\)|\|\w+)")
"""The name of a test, after `none|` where it ran the line in its own process."""


class Test(NamedTuple):
    """A test that passes without any mutant."""

    name: str
    tier: str
    engine: bool
    seconds: float

    @property
    def file(self) -> str:
        return self.name.split("::")[0]


def tree_files(root: Path) -> list[str]:
    """What git knows or would add."""
    call = ["git", "ls-files", "-coz", "--exclude-standard"]
    names = subprocess.check_output(call, cwd=root, text=True).split("\0")
    return sorted({name for name in names if (root / name).is_file()})


def fingerprint(root: Path) -> str:
    """Of all that decides what a test does, so that no figure outlives what it was measured on."""
    digest = hashlib.sha256()
    for name in tree_files(root):
        if name.endswith((".py", ".toml", ".yaml", ".ambr")) and "tests/mutants/" not in name:
            digest.update(name.encode() + b"\0" + (root / name).read_bytes())
    return digest.hexdigest()[:12]


def measure(root: Path, place: Path, tier: str, workers: int) -> bool:
    """Run the tests of a tier under coverage, however long that takes; a test that fails is not
    used. False when the tests did not come to their end."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "rc").write_text(RC.format(place=place))
    shutil.copy(PLUGIN, place / "mutants_plugin.py")
    call = [
        f"{root}/.venv/bin/python", "-m", "pytest", "-q", "-p", "mutants_plugin",
        "-n", str(workers), "--dist", "loadgroup", "--cov", f"--cov-config={place}/rc",
        "--cov-context=test", "--cov-report=", *(["-m", "not full"] if tier == "test" else []),
    ]  # fmt: skip
    env = {**os.environ, "MUTANTS_MEASURE": str(place), "PYTHONPATH": str(place)}
    if subprocess.run(call, cwd=root, env=env, check=False).returncode not in (0, 1):
        return False
    (place / "whole").touch()
    return True


class CoverageMap:
    """What was measured: `tests.tsv` and coverage's data files, in one folder."""

    def __init__(self, place: Path, root: Path, files: Iterable[str]) -> None:
        rows = [line.split("\t") for line in (place / "tests.tsv").read_text("utf-8").splitlines()]
        tests = [Test(row[0], row[1], bool(row[2]), float(row[3])) for row in rows]
        self.tests = {test.name: test for test in tests if (root / test.file).exists()}
        self._lines: dict[tuple[str, int], set[tuple[str, bool]]] = {}
        wanted = {str(root / file): file for file in files}
        for path in place.glob(".coverage*"):
            data = CoverageData(str(path))
            with suppress(CoverageException):  # of a process that was killed while it wrote
                data.read()
                for name in wanted.keys() & data.measured_files():
                    for line, contexts in data.contexts_by_lineno(name).items():
                        ran = self._lines.setdefault((wanted[name], line), set())
                        ran |= {(context[2], bool(context[1]))
                                for context in map(CONTEXT.fullmatch, contexts)
                                if context and context[2] in self.tests}  # fmt: skip

    def of(self, file: str, lines: set[int], around: set[int]) -> list[Test]:
        """The tests that run these lines, or else the lines around them. First come those that run
        them in their own process, then quick ones, then those of the file's room; the tests of one
        file stay together. Tests named like the file come last: a process that was killed has left
        no coverage of the lines it ran."""
        ran: set[tuple[str, bool]] = set()
        for some in (lines, around):
            ran = ran or set().union(*(self._lines.get((file, line), ()) for line in some))
        names, inside = {name for name, _ in ran}, {name for name, own in ran if own}
        room, stem = f"tests/{file.split('/')[1]}/", Path(file).stem
        alike = {name for name, test in self.tests.items()
                 if name.startswith(room) and stem in Path(test.file).stem}  # fmt: skip

        def rank(test: Test) -> tuple[bool | str | float, ...]:
            first = (test.name in names, test.name in inside, test.seconds < 1,
                     test.file.startswith(room), test.name in alike)  # fmt: skip
            return (*(not yes for yes in first), test.file, test.seconds)

        return sorted((self.tests[name] for name in names | alike), key=rank)
