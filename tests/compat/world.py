"""What earlier versions left behind, laid out anew with the places of this machine.

An archive is the home of a made-up operator as a version of that day wrote it, byte for byte, in a
machine of its own (`make.py`): runs, site, lessons, caches, pointer. Under `said` is what that
version itself printed of it. Its places stand for those of whoever upgrades in place: here they
become the test's directory, this interpreter, free ports and this user. Modes, times and FIFOs are
kept; the boot is another one, so none of its processes lives.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from console.journal.run_dir import RunDir
from tests.compat import make
from tests.runner.e2e.world import World
from tests.runner.world import Json, Outcome

HERE = Path(__file__).parent
VERSIONS = ("2026-11-23", "2026-11-29")
"""By the day: each was the last one before the places of the program's parts changed."""
ENGINE = HERE / "engine.py"
BINARY = (".ring", ".db", "-wal")
PLAN = "rollback/plan.json"
RECORD = "state/omni-console/services/local/baseline.json"
POINTER = "host/omni-console.0."


class Past(World):
    """One archive, unpacked; today's commands and processes act on it."""

    def __init__(self, root: Path, version: str, archive: str) -> None:
        root.mkdir()
        self.version = version
        super().__init__(root, root / "none")
        del self.env["OMNI_SITE"]  # the operator's own, where it is looked for
        (root / "home").mkdir()
        self.env |= {"HOME": str(root / "home"), "TZ": "UTC"}
        with tarfile.open(HERE / version / f"{archive}.tar.gz") as tar:
            self._translate = self._translator(tar)
            for member in tar:
                self._put(tar, member)

    @property
    def site(self) -> Path:
        return self.root / "config/omni-console/site.yaml"

    def named(self, name: str) -> RunDir:
        """The run of this playbook."""
        (found,) = (run for run in self.runs if run.id.split("-")[2] == name)
        return found

    @property
    def run(self) -> RunDir:
        return max(self.runs, key=lambda run: run.id)

    def said(self, name: str) -> tuple[list[str], Outcome]:
        """A command, and what the version before printed of this world."""
        value: Json = json.loads((self.root / "said" / f"{name}.json").read_text())
        return value["argv"], Outcome(value["code"], value["out"], value["err"])

    def _put(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = member.name.replace(POINTER, f"host/omni-console.{os.getuid()}.")
        path = self.root / name
        if member.isdir():
            path.mkdir(exist_ok=True)
            path.chmod(member.mode)
            return
        if member.isfifo():
            os.mkfifo(path, member.mode)
            return
        data = content(tar, member.name)
        if name == ENGINE.name:  # no work of that version: its answers were one word for ever
            data = ENGINE.read_bytes()
        text = not name.endswith(BINARY)
        path.write_bytes(self._translate(data.decode()).encode() if text else data)
        path.chmod(member.mode)
        os.utime(path, (member.mtime, member.mtime))
        if name.endswith("-wal"):  # it comes after its journal
            self._journal(path.with_name("journal.db"))

    def _journal(self, path: Path) -> None:
        """Its events translated, in the state in which its runner left it: in the log that is
        still to be worked in, which a close would do."""
        files = [path, path.with_name(f"{path.name}-wal")]
        times = [file.stat().st_mtime for file in files]
        database = sqlite3.connect(path)
        database.create_function("translated", 1, self._translate)
        database.execute("PRAGMA wal_autocheckpoint=0")
        with database:
            database.execute("UPDATE event SET data = translated(data)")
        kept = [file.read_bytes() for file in files]
        database.close()
        for file, data, at in zip(files, kept, times, strict=True):
            file.write_bytes(data)
            file.chmod(0o600)
            os.utime(file, (at, at))

    def _translator(self, tar: tarfile.TarFile) -> Callable[[str], str]:
        """Places of the archive to those of this world, everywhere at once."""
        places = {
            make.PYTHON: sys.executable,
            str(make.ROOT): str(self.root),
            str(make.BASE_PORT): str(self.base_port),
            str(make.CAND_PORT): str(self.cand_port),
            f"{make.BASE_PORT:04X}": f"{self.base_port:04X}",
        }
        form = re.compile("|".join(rf"(?<![\w.]){re.escape(k)}(?!\w)" for k in places))

        def plain(text: str) -> str:
            return form.sub(lambda match: places[match[0]], text)

        plan = next(content(tar, n).decode() for n in tar.getnames() if n.endswith(PLAN))
        before = marks(plan, f"{make.ROOT}/{RECORD}")
        pairs = list(zip(before, marks(plain(plan), f"{self.root}/{RECORD}"), strict=True))

        def translated(text: str) -> str:
            for old, new in pairs:
                text = text.replace(old, new)
            return plain(text).replace('"uid": 0', f'"uid": {os.getuid()}')

        return translated


def marks(plan: str, record: str) -> tuple[str, str]:
    """By what the version before knew a baseline: the hash of its specification, and its mark."""
    spec: Json = json.loads(plan)["baseline"]["process"]

    def digest(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    sha = digest(json.dumps([spec["argv"], spec["env"], spec["cwd"]]))
    return sha, digest(f"{record}\n{sha}")


def content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None, name
    return file.read()


def lost(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Each fact of an object that another one does not have, or has otherwise; more is no loss."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from lost(value, new[key], f"{at}.{key}")
            else:
                yield f"{at}.{key} is gone"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from lost(one, other, f"{at}[{number}]")
    elif old != new:
        yield f"{at}: {old!r} was said, {new!r} is"
