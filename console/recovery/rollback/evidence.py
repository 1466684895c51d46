"""What witnesses have seen of a baseline, on disk: one small file for each witness and kind.

The files of a baseline are in a directory of its own, and each is replaced whole, so nobody waits
for a lock and nobody reads half a record. What the disk does not take is kept in memory until the
machine restarts: else good evidence of before would stand for what is so now. What cannot be read
is left out: without evidence the state is unknown, which is true.
`console.recovery.rollback.baseline_state` weighs what is read here.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote
from zlib import crc32

from console.common import paths, redact
from console.common import record as records
from console.common.files import open_regular, private_mode, write_atomically
from console.common.record import RecordError
from console.common.text import one_line
from console.host import process
from console.recovery.rollback.baseline_state import (
    DETAIL_LIMIT,
    GOOD,
    BaselineState,
    Evidence,
    Kind,
    Witness,
    Word,
    Words,
    is_of_future,
    state_of,
)
from console.recovery.rollback.baseline_state import last_proof as newest_proof
from console.recovery.rollback.progress import PROGRESS_FILE, SCRIPT
from console.recovery.rollback.sealed_plan import SealedPlan

if TYPE_CHECKING:
    from console.runtime.answers.completion import Completion

SIZE_LIMIT = 4096
SHM = Path("/dev/shm")
LOADING_STATUS = 503
MAX_FILES = 64
"""More than all witnesses write of all kinds."""
REMARK_LIMIT = 200
_FAILED = (Kind.FAILED, Word.DOWN)
SAME_S = 5.0
"""Within so many seconds what `rollback.sh` keeps as evidence and its last line are of one end."""


def directory(site: str, url: str) -> Path:
    """Where the evidence of the baseline at this address is kept.

    The address is part of it: two sites may have the same name and different baselines.
    """
    return paths.state_dir() / "evidence" / _name(site, url)


def spare(site: str, url: str) -> Path:
    """Where it is kept while the disk is full or read-only: in memory, for this user alone."""
    place = f"{paths.state_dir()} {_name(site, url)}"
    digest = crc32(place.encode("utf-8", "surrogateescape"))
    return SHM / f"{paths.APP}-evidence.{os.getuid()}.{digest:08x}"


def target_of(plan: SealedPlan) -> str:
    """What tells the plan's baseline from another one at the same site and address."""
    base = plan.baseline
    if base.process is not None:
        return f"process {process.spec_sha(base.process)[:16]}"
    return base.unit.words if base.unit is not None else base.kind


def of_completion(done: Completion, witness: Witness, at: float, life: str = "") -> Evidence:
    """What an answered, refused or failed completion says of the baseline that was asked."""
    from console.runtime.probe import PAGE  # loaded by whoever has asked; a face has not

    kind, word = Kind.FAILED, Word.DOWN
    if done.ok:
        kind, word = Kind.PROOF, Word.SERVING
    elif done.garbled is not None:
        word = Word.GARBLED
    elif done.sends:
        word = Word.UNKNOWN
    elif done.refuses:
        word = Word.REFUSING
    elif done.status == LOADING_STATUS and not done.dead and PAGE not in done.detail:
        word = Word.LOADING
    elif done.fails:
        word = Word.REFUSING
    rate = done.decode_tok_s if done.ok else None
    detail = done.why if done.dead else done.detail
    return Evidence(kind, word, at, witness, detail, rate, life=life, dead=bool(done.dead))


def of_benchmark(
    tok_s: float | None, garbage: str, at: float, reference: float | None, tolerance: float,
    remark: str = "", failure: str = "",
) -> Evidence | None:  # fmt: skip
    """What a benchmark of the baseline says of it; None for one without any figure. `garbage`: why
    most of its answers are none, in clean words, "" if they are sane; `remark`: why some are;
    `failure`: how the server failed each run, "" if it did not."""
    if garbage:
        return Evidence(Kind.FAILED, Word.GARBLED, at, Witness.BENCHMARK, garbage)
    if failure:
        from console.runtime.probe import engine_dead  # as above

        dead = bool(engine_dead(failure))
        word = Word.DOWN if dead else Word.REFUSING
        return Evidence(Kind.FAILED, word, at, Witness.BENCHMARK, failure, dead=dead)
    if tok_s is None:
        return None
    slow = reference is not None and tok_s < reference * (1 - tolerance)
    return Evidence(
        Kind.MEASURED, Word.SERVING, at, Witness.BENCHMARK, "", tok_s, slow, remark=remark
    )


def record(plan: SealedPlan, seen: Evidence) -> str:
    """Keep what was seen of the plan's baseline. Return why it is not on the disk, clean; "" if it
    is. Never raises."""
    if plan.site_name:
        detail = plan.secrets.text(seen.detail)
        remark = plan.secrets.text(seen.remark)
        evidence = replace(seen, target=target_of(plan), detail=detail, remark=remark)
        return keep(plan.site_name, plan.baseline.url, evidence)
    return ""


def keep(site: str, url: str, seen: Evidence) -> str:
    """The same, where the baseline is known by its site and address alone.

    What is older than what is kept does not replace it. What has a time in the future is removed:
    the clock has been set back since, and nobody knows when it was seen.
    """
    of_whom = ".cut-over" if seen.cut_over else ""
    file = directory(site, url) / f"{seen.witness}.{seen.kind}{of_whom}.json"
    _drop_future(site, url)
    before = _read(file)
    if before is not None and seen.at < before.at:
        return ""
    since = seen.since or seen.at
    if before is not None and before.word is seen.word and before.at <= seen.at:
        since = min(since, before.since or before.at)
    detail = one_line(redact.text(seen.detail), DETAIL_LIMIT)
    rate = None if seen.tok_s is None else round(seen.tok_s, 3)
    remark = one_line(redact.text(seen.remark), REMARK_LIMIT)
    made = replace(seen, detail=detail, tok_s=rate, since=since, remark=remark)
    in_memory, text = spare(site, url), records.text(made)
    try:
        paths.make(file.parent)
        # A slow disk must delay nobody, and after a crash older evidence is good enough.
        write_atomically(file, text, private_mode(file.parent), durable=False)
    except (OSError, ValueError) as error:
        why = one_line(f"cannot be written to {file.parent}: {getattr(error, 'strerror', error)}")
        try:
            in_memory.mkdir(0o700, exist_ok=True)
            if _is_own(in_memory):
                write_atomically(in_memory / file.name, text, 0o600, durable=False)
                return f"{why}; it is kept in memory until the machine restarts"
        except (OSError, ValueError):
            pass
        return f"{why}; the console goes on saying what was known before"
    with contextlib.suppress(OSError):
        (in_memory / file.name).unlink()
    return ""


def read(site: str, url: str) -> list[Evidence]:
    """All that is kept of the baseline at this address, in no order. Never raises."""
    return [evidence for _, evidence in _files(site, url)]


def last_proof(site: str, url: str) -> Evidence | None:
    """The newest answered completion of the baseline at this address; None without one."""
    return newest_proof(read(site, url), time.time())


def of_candidate(plan: SealedPlan, life: str) -> Evidence | None:
    """What was newest seen of the candidate that clients were given to by the relay of this life;
    None where nobody has asked it."""
    kept = read(plan.site_name, plan.baseline.url)
    known = [e for e in kept if e.cut_over and e.life == life and not is_of_future(e, time.time())]
    return max(known, key=lambda e: e.at, default=None)


def after_failed_rollback(site: str, url: str) -> str:
    """What is to be done after the newest rollback of a baseline if that has failed: why it has
    comes first; "" if it did not fail, or if there was none."""
    ways = (Witness.ROLLBACK, Witness.RESTORE, Witness.SCRIPT)
    ends = [e for e in read(site, url) if e.witness in ways]
    last = max(ends, key=lambda e: e.at, default=None)
    if last is None or last.kind is not Kind.FAILED:
        return ""
    failed = one_line(last.detail, 200)
    return f"the last rollback failed ({failed}): mend that, then omni-console rollback"


def rolled_back_since(site: str, url: str, at: float) -> bool:
    """Whether a rollback of the baseline has ended since `at`, in Unix seconds: by when its
    evidence was written, since rollback.sh knows the time to a second only. Never raises."""
    ends = (Witness.ROLLBACK, Witness.SCRIPT)
    files = [file for file, evidence in _files(site, url) if evidence.witness in ends]
    with contextlib.suppress(OSError):
        return any(at < file.stat().st_mtime <= time.time() for file in files)
    return False


def proofs(site: str, url: str) -> list[tuple[str, ...]]:
    """For each answered completion of the baseline that is kept what tells which command line it
    was: its process's digest, its start, its container's id; none where that is not known."""
    known = (evidence for evidence in read(site, url) if evidence.kind in GOOD)
    return [
        tuple(filter(None, (
            evidence.target if evidence.target.startswith("process ") else "",
            evidence.life, evidence.container.rpartition(" ")[2],
        ))) for evidence in known
    ]  # fmt: skip


def container_of(site: str, url: str, name: str) -> str:
    """The id of the container that was newest proven to be the baseline of this name, which may
    have been renamed since; "" if none was."""
    known = [e for e in read(site, url) if name and e.container.partition(" ")[0] == name]
    newest = max(known, key=lambda e: e.at, default=None)
    return newest.container.partition(" ")[2] if newest is not None else ""


def state(plan: SealedPlan, *looks: Evidence) -> BaselineState:
    """How the plan's baseline is, by all that is kept of it and by what was seen right now."""
    base = plan.baseline
    kept = read(plan.site_name, base.url)
    own = max((e.at for e in kept if e.witness is Witness.SCRIPT), default=float("-inf"))
    before = [e for e in _of_script(plan) if e.at > own + SAME_S]
    seen = [*kept, *before, *looks]
    return state_of(
        seen, time.time(), target=target_of(plan),
        reference=base.reference_tok_s, tolerance=base.tolerance,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """The last line that a `rollback.sh` has written; `at` in Unix seconds."""

    trigger: str
    rung: str
    serving: bool
    at: float
    detail: Words = ""


def _of_script(plan: SealedPlan) -> list[Evidence]:
    """How the newest rollback of this plan ended, if that was a `rollback.sh` of a version before:
    it leaves nothing but its last line."""
    try:
        with open_regular(plan.rollback_dir / PROGRESS_FILE) as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - SIZE_LIMIT))
            line = records.parse(stream.read(SIZE_LIMIT).rstrip(b"\n").rpartition(b"\n")[2])
        end = records.of(ScriptEnd, line)
    except (OSError, RecordError):
        return []
    if not end.trigger.startswith(f"{SCRIPT}-") or end.rung != "done":
        return []
    kind, word = (Kind.PROOF, Word.SERVING) if end.serving else _FAILED
    return [Evidence(kind, word, end.at, Witness.SCRIPT, end.detail)]


def _files(site: str, url: str) -> list[tuple[Path, Evidence]]:
    place, seen = directory(site, url), list[tuple[Path, Evidence | None]]()
    in_memory = spare(site, url)
    for folder in (place, *([in_memory] if _is_own(in_memory) else [])):
        with contextlib.suppress(OSError):
            names = [name for name in sorted(os.listdir(folder)) if name.endswith(".json")]
            seen += [(folder / name, _read(folder / name)) for name in names[:MAX_FILES]]
    before = paths.state_dir() / "proof" / f"{_name(site, url)}.json"
    return [
        (file, evidence)
        for file, evidence in (*seen, (before, _earlier(before)))
        if evidence is not None
    ]


def _is_own(place: Path) -> bool:
    """Whether it is a directory that nobody else can write to: /dev/shm is everybody's."""
    try:
        status = place.lstat()
    except OSError:
        return False
    private = not status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and private and status.st_uid == os.getuid()


def _drop_future(site: str, url: str) -> None:
    for file, evidence in _files(site, url):
        if is_of_future(evidence, time.time()):
            with contextlib.suppress(OSError):
                file.unlink()


def _name(site: str, url: str) -> str:
    return f"{paths.file_name(site)}@{quote(url, safe='')}"


def _read(file: Path) -> Evidence | None:
    try:
        return records.lenient(Evidence, records.load(file, SIZE_LIMIT))
    except (OSError, RecordError):
        return None


@dataclass(frozen=True, slots=True)
class EarlierProof:
    """The proof that a version before this one kept; `at` in Unix seconds."""

    at: float
    tok_s: float | None = None
    degraded: bool = False


def _earlier(file: Path) -> Evidence | None:
    try:
        proof = records.lenient(EarlierProof, records.load(file, SIZE_LIMIT))
    except (OSError, RecordError):
        return None
    kind = Kind.MEASURED if proof.degraded else Kind.PROOF
    return Evidence(kind, Word.SERVING, proof.at, Witness.EARLIER, "", proof.tok_s, proof.degraded)
