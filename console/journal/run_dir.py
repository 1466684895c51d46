"""The directory of a run: everything about it in one place. History is the set of directories."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.errors import UsageError
from console.common.files import write_atomically
from console.common.record import RecordError
from console.common.text import clean, one_line
from console.recovery.rollback.sealed_plan import BREACH, CUT_OVER, SITE

ALLOCATION = "allocation.json"
META, INPUTS = "run.json", "inputs.json"
MAX_META = 16 << 20
"""Most bytes of each of the two: inputs may be long."""
STAMP, STAMP_LENGTH = "%Y%m%d-%H%M%S", 15
"""How a run's name begins: the second of its start."""


@dataclass(frozen=True, slots=True)
class RunMeta:
    """The settings a run was started with. An input may be a secret, so run.json is without them:
    they stand in inputs.json, of mode 0600, for the attempts that continue with them."""

    run_id: str
    playbook: str
    base: str
    digest: str
    site: str
    site_base: str
    inputs: dict[str, str] = field(default_factory=dict)
    yes: bool = False
    step: bool = False
    headless: bool = True
    owner: str = ""
    created: float = 0.0
    lease_s: float | None = None
    """Seconds from the command line; None: use the playbook's or the site's."""
    lint: list[dict[str, Any]] = field(default_factory=list)
    """Lint findings and overrides, as console.runner.prepare.admission keeps them."""


class SeveralRuns(UsageError):
    """A name fits more than one run; `detail` lists some."""


class RunDir:
    """Paths inside a run's directory; no other code knows their names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = clean(path.name)  # anybody may have renamed or copied a directory

    journal = property(lambda self: self.path / "journal.db")
    inputs = property(lambda self: self.path / INPUTS)
    """The inputs as they were given; no other file of a run that is only read has them."""
    playbook = property(lambda self: self.path / "playbook.yaml")
    site = property(lambda self: self.path / SITE)
    rollback = property(lambda self: self.path / "rollback")
    live = property(lambda self: self.path / "rollback" / "live.jsonl")
    sealed = property(lambda self: self.path / "rollback" / "plan.json")
    script = property(lambda self: self.path / "rollback" / "rollback.sh")
    without_python = property(lambda self: self.path / "rollback" / "without-python.sh")
    """What rollback.sh does where no python3 starts."""
    ladder = property(lambda self: self.path / "rollback" / "ladder.jsonl")
    socket = property(lambda self: self.path / "control.sock")
    runner_log = property(lambda self: self.path / "runner.log")
    guard = property(lambda self: self.path / "guard")
    breach = property(lambda self: self.path.joinpath(*BREACH))
    gauges = property(lambda self: self.path / "samples" / "gauges.jsonl")
    switched = property(lambda self: self.path / "rollback" / CUT_OVER)
    """Exists while clients are at this run's candidate, as far as is recorded, and names it."""
    allocation = property(lambda self: self.path / ALLOCATION)
    """The job of Slurm's that this run's cards belong to; only there if it has one."""
    report = property(lambda self: self.path / "report.md")
    report_json = property(lambda self: self.path / "report.json")

    def log(self, service: str) -> Path:
        return self.path / "logs" / f"{service}.log"

    def attempt_log(self, step: str, attempt: int) -> Path:
        name = re.sub(r"[^a-z0-9_-]", "-", step)
        return self.path / "attempts" / f"{name}.{attempt}.log"

    @property
    def readable(self) -> bool:
        try:
            self.meta()
        except UsageError:
            return False
        return True

    def write_meta(self, meta: RunMeta) -> None:
        """Write the inputs, then run.json, which makes the directory a run's."""
        about = record.plain(meta)
        for path, data in ((self.inputs, about.pop("inputs")), (self.path / META, about)):
            write_atomically(path, json.dumps(data, indent=1) + "\n", 0o600)

    def meta(self) -> RunMeta:
        """Read both. Raises UsageError when the directory is not a run's."""
        try:
            about = record.load(self.path / META, MAX_META)
            if isinstance(about, dict) and "inputs" not in about:  # else an earlier build's
                about["inputs"] = record.load(self.inputs, MAX_META)
            return record.of(RunMeta, about)
        except (OSError, RecordError) as error:
            raise UsageError(f"{self.path} is not a run", one_line(str(error))) from error


def create(name: str, meta: RunMeta, playbook_text: str, site_text: str) -> RunDir:
    """Make a new, private run directory, since site files and argv may hold keys. Root reads it
    anyway, and the pointer tells everybody else whose run it is."""
    root = paths.runs_dir()
    paths.make(root)
    stamp = time.strftime(STAMP)
    run = RunDir(root / f"{stamp}-{name}-{os.urandom(2).hex()}")
    run.path.mkdir(mode=0o700)
    for part in ("rollback", "logs", "attempts"):
        (run.path / part).mkdir(mode=0o700)
    write_atomically(run.playbook, playbook_text, 0o600)
    write_atomically(run.site, site_text, 0o600)
    run.write_meta(replace(meta, run_id=run.id))
    return run


def all_runs() -> list[RunDir]:
    """Every run, newest first: by the second in their names, then by the file's time."""
    root = paths.runs_dir()
    try:
        names = os.listdir(root)
    except OSError:
        return []
    entries: list[tuple[str, int, str]] = []
    for name in names:
        with contextlib.suppress(OSError):
            made = os.stat(f"{root}/{name}/{META}").st_mtime_ns
            entries.append((name[:STAMP_LENGTH], made, name))
    return [RunDir(root / name) for _, _, name in sorted(entries, reverse=True)]


def find_run(text: str | None) -> RunDir:
    """A run by id, unique beginning or end of an id, or directory; the newest if text is empty.

    Raises UsageError when there is none, or more than one.
    """
    if text and "/" in text:
        run = RunDir(Path(text).absolute())
        run.meta()
        return run
    runs = all_runs()
    if not runs:
        raise UsageError("there is no run yet", hint="start one: omni-console run PLAYBOOK")
    if not text:
        return next((run for run in runs if run.readable), runs[0])
    matches = [r for r in runs if r.id == text]
    matches = matches or [r for r in runs if r.id.startswith(text) or r.id.endswith(text)]
    if len(matches) == 1:
        return matches[0]
    some = ", ".join(r.id for r in (matches or runs)[:5])
    name, hint = one_line(text, 60), "omni-console runs lists them"
    if matches:
        raise SeveralRuns(f"'{name}' is more than one run", some, hint)
    raise UsageError(f"'{name}' is not a run", some, hint)
