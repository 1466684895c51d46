"""What a bisect has found so far, kept on disk: a file for each, named by what was asked for, so
that the same command goes on where an earlier call ended, whatever ended it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from console.common import paths, record
from console.common.errors import HostBusy, UsageError
from console.common.files import write_atomically
from console.common.record import Key, RecordError
from console.common.text import one_line
from console.runner.bisect.search import Standing, Word, contradiction, standing

VERSION = 1
PRIVATE = 0o600
MAX_SIZE = 32 << 20
"""Bytes of the record of as many commits as the largest repositories have."""


@dataclass(frozen=True, slots=True)
class BisectQuery:
    """What is searched. `repo`: the git repository whose commits are tried; "" for other versions.
    `inputs`: the playbook's other inputs, as given."""

    playbook: str
    digest: str
    site: str
    over: str
    candidates: tuple[str, ...]
    inputs: dict[str, str] = field(default_factory=dict)
    repo: str = ""

    @property
    def name(self) -> str:
        """The name of its file: the playbook's, and what tells it from every other bisect."""
        words = json.dumps(record.plain(self), sort_keys=True).encode("utf-8", "surrogatepass")
        return f"{self.playbook}-{hashlib.sha256(words).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Try:
    """A version that was tried. `run`: the run's id, "" if none began. `why`: the run's reason in
    one sentence. `metric`: what decided it; `figures`: metric → figure, of every gate. `baseline`:
    how the baseline was when the run was over. All of it is clean."""

    at: int
    word: Word
    why: str
    run: str = ""
    metric: str = ""
    figures: dict[str, str] = field(default_factory=dict)
    took_s: float | None = None
    baseline: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A version whose run was asked for at `since` (Unix seconds); `run` is "" until it began."""

    at: int
    since: float
    run: str = ""


@dataclass
class Record:
    """A bisect and what is known of it; `save` makes every change durable before anything else."""

    query: Annotated[BisectQuery, Key("asked")]
    begun: float
    tries: list[Try] = field(default_factory=list)
    pending: Pending | None = None

    @property
    def path(self) -> Path:
        return paths.bisect_dir() / f"{self.query.name}.json"

    @property
    def report(self) -> Path:
        return self.path.with_suffix(".md")

    @property
    def words(self) -> Mapping[int, Word]:
        """Position → what was found; the newest word of each."""
        return {trial.at: trial.word for trial in self.tries}

    @property
    def standing(self) -> Standing:
        return standing(len(self.query.candidates), self.words)

    @property
    def contradiction(self) -> int | None:
        """The position of an end that is not what it was said to be, if one was tried."""
        return contradiction(len(self.query.candidates), self.words)

    def of(self, at: int) -> Try | None:
        """The newest try of a version."""
        return next((trial for trial in reversed(self.tries) if trial.at == at), None)

    def save(self) -> None:
        """Raises OSError."""
        paths.make(self.path.parent)
        write_atomically(self.path, record.text(self, indent=1, version=VERSION), PRIVATE)


def read(path: Path) -> Record:
    """A record as it lies on disk. Raises UsageError."""
    try:
        return record.read(Record, path, MAX_SIZE, version=VERSION)
    except (OSError, RecordError) as error:
        hint = "--fresh begins the bisect anew"
        raise UsageError(f"{path} cannot be read", one_line(str(error)), hint) from error


def kept() -> list[Record]:
    """Every readable record, the newest first."""
    records = []
    for path in paths.bisect_dir().glob("*.json"):
        with suppress(UsageError):
            records.append(read(path))
    return sorted(records, key=lambda bisect: bisect.begun, reverse=True)


def opened(query: BisectQuery, now: float, *, fresh: bool) -> Record:
    """The record of this command: the one on disk, or a new one. Raises UsageError for one on disk
    that cannot be read, unless `fresh`."""
    made = Record(query, now)
    return read(made.path) if made.path.exists() and not fresh else made


@contextmanager
def held(bisect: Record) -> Iterator[None]:
    """Keep every other process from going on with this bisect; the kernel lets go of a dead one's.
    Raises HostBusy, OSError."""
    paths.make(bisect.path.parent)
    lock = bisect.path.with_suffix(".lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            hint = "omni-console bisect --status shows how far it is"
            raise HostBusy("this bisect is under way in another terminal", "", hint) from error
        yield
    finally:
        os.close(descriptor)
