"""Pointers to active runs, cutovers and their promotions, and live runs of other users.

A pointer says which run is active, whose it is, and where its plan is; every user of the host can
read it. Each user has one file in a sticky directory. A pointer counts only if the user whose uid
is in the file's name owns the file, because anybody can create a file with another user's uid.

A promotion says who accepted a cutover, when and why, in a small file in the run's directory. It
changes nothing by itself: the site file alone says what a rollback restores.

What another user wrote may be forged, so it decides nothing about root's own baseline. But a run
that is really active holds memory, so root first starts that user's own rollback, which ends it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import select
import shlex
import stat
import subprocess
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from console.common import paths, record
from console.common.errors import ConsoleError
from console.common.files import open_untrusted, read_end, write_atomically
from console.common.paths import module_argv, own_copy
from console.common.record import RecordError
from console.common.text import clean, decode, one_line
from console.host import process
from console.host.memory import pids_of_container
from console.host.privileges import name_of
from console.recovery.rollback import live
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.sealed_plan import CUT_OVER, PLAN, ROLLBACK, SCRIPT, SITE, SealedPlan
from console.recovery.rollback.shell.program_gone import or_script
from console.recovery.rollback.trigger import flocks, holders

SIZE_LIMIT = 65536
BEFORE = "pointer-before.json"
MAX_NUMBER = 1 << 62
"""More than any pid, start time or date; a pointer with a larger number is forged."""


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("an absolute path")
    return path


_bounded = record.within(0, MAX_NUMBER, "a number that is not negative")
Number = Annotated[int, _bounded]


@dataclass(frozen=True, slots=True)
class Pointer:
    """One active run; `started_at` is in Unix seconds, `pid` and `start` identify its runner."""

    run_id: str
    run_dir: Annotated[str, _absolute]
    owner: str
    uid: Number
    pid: Number
    start: Number
    playbook: str = ""
    site: str = ""
    started_at: Annotated[float, _bounded] = 0.0
    over: bool = False
    """The run has ended and left the baseline down: its rollback failed, or clients use a candidate
    in its place. The pointer stays until a rollback brings the baseline back."""
    lock: str = ""
    """Device and inode of the lock that the runner holds, as the kernel prints them: another user
    may have put something in the lock's usual place."""
    boot: str = ""
    """The boot in which `pid` and `start` are valid. After another boot both are read as 0, and
    name no process."""


def write(pointer: Pointer) -> Path:
    """Write this user's pointer atomically, mode 0644; return its path. Raises OSError.

    Everybody may write to the directory, so another user may have taken its place there. Then the
    pointer goes to the user's own directory, where only this user and root look for it.
    """
    text = record.text(pointer)
    for path in pointer_paths(pointer.uid)[:-1]:
        with contextlib.suppress(OSError):
            write_atomically(path, text)
            return path
    path = pointer_paths(pointer.uid)[-1]
    paths.make(path.parent)
    write_atomically(path, text)
    return path


def pointer_paths(uid: int) -> list[Path]:
    """Where a user's pointer may be, the usual place first. The second place is in the user's state
    directory, in case somebody has blocked the first; root looks there, too."""
    own = [paths.own_host_dir() / "pointer.json"] if uid == os.getuid() else []
    with contextlib.suppress(KeyError):
        if not own and os.getuid() == 0:
            state = Path(pwd.getpwuid(uid).pw_dir) / ".local/state" / paths.APP
            own = [paths.own_host_dir(state) / "pointer.json"]
    return [paths.pointer(uid), *own]


def set_aside(uid: int, directory: Path) -> None:
    """Save a user's pointer in the rollback directory of the run that takes its place.

    Raises OSError.
    """
    before = read(uid)
    if before is not None and Path(before.run_dir) != directory.parent:
        write_atomically(directory / BEFORE, record.text(before), 0o600)


def earlier(uid: int, directory: Path) -> list[Pointer]:
    """Return the pointer that the run of this directory set aside, then the one which that run had
    set aside, and so on; the newest comes first. Never raises."""
    pointers: dict[Path, Pointer] = {}
    while directory not in pointers:
        try:
            written = (directory / BEFORE).stat().st_mtime
            pointer = _parsed(record.load(directory / BEFORE), uid, written)
        except (OSError, RecordError):
            break
        pointers[directory] = pointer
        directory = Path(pointer.run_dir) / ROLLBACK
    return [*pointers.values()]


def put_back(pointers: Iterable[Pointer]) -> Pointer | None:
    """Restore the first of these pointers that can be written, and return it. Never raises."""
    for pointer in pointers:
        with contextlib.suppress(OSError):
            write(pointer)
            return pointer
    return None


def clear(run_id: str, uid: int | None = None) -> None:
    """Remove a user's pointer, by default this user's, if it names this run. Never raises."""
    mine = read(os.getuid() if uid is None else uid)
    if mine is not None and mine.run_id == run_id:
        for path in pointer_paths(mine.uid):
            with contextlib.suppress(OSError):
                path.unlink()


def mark_over(run_id: str) -> None:
    """Mark this user's pointer as that of a run that is over but left the baseline down.

    Never raises.
    """
    mine = read(os.getuid())
    if mine is not None and mine.run_id == run_id and not mine.over:
        with contextlib.suppress(OSError):
            write(replace(mine, over=True))


def read(uid: int) -> Pointer | None:
    """The pointer of one user; None if there is none, or if it is forged or invalid."""
    pointers = (_read(path, uid) for path in pointer_paths(uid))
    return next((pointer for pointer in pointers if pointer is not None), None)


def _read(path: Path, uid: int) -> Pointer | None:
    try:
        descriptor = open_untrusted(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != uid or info.st_size > SIZE_LIMIT:
            return None
        return _parsed(record.parse(os.read(descriptor, SIZE_LIMIT)), uid, info.st_mtime)
    except (OSError, RecordError):
        return None
    finally:
        os.close(descriptor)


def _parsed(value: object, uid: int, written: float) -> Pointer:
    """The pointer in a JSON value; `written` is its file's date in Unix seconds. Raises
    RecordError."""
    if isinstance(value, dict):
        value = {"uid": uid, **value}  # versions before did not write it
    pointer = record.of(Pointer, value)
    if pointer.uid != uid:
        raise RecordError("the user whom the file's name tells", "uid")
    return pointer if _is_of_this_boot(pointer.boot, written) else replace(pointer, pid=0, start=0)


def _is_of_this_boot(boot: str, written: float) -> bool:
    """Whether a pointer was written in this boot. A pointer of an older release names no boot; it
    counts if its file was written since this boot."""
    now = process.boot_id()
    if boot and now:
        return boot == now
    return written >= time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def find_all() -> list[Pointer]:
    """Every valid pointer on this host, the newest run first."""
    form = re.compile(rf"{re.escape(paths.APP)}\.(\d{{1,10}})\.json")
    try:
        names = os.listdir(paths.host_dir())
    except OSError:
        return []
    uids = {os.getuid(), *(int(match[1]) for name in names if (match := form.fullmatch(name)))}
    pointers = [pointer for uid in uids if (pointer := read(uid)) is not None]
    return sorted(pointers, key=lambda p: p.started_at, reverse=True)


def other_plan(pointer: Pointer, plan: SealedPlan) -> SealedPlan | None:
    """The sealed plan of a run that has another baseline than this plan's; None for a run of the
    same one, and where nothing says which one it has."""
    with contextlib.suppress(ConsoleError, OSError):
        theirs = sealed.of_run(Path(pointer.run_dir))
        return None if theirs.has_baseline_of(plan) else theirs
    return None


FILE = "promotion.json"
PROMOTION_LIMIT = 16_384
Words = Annotated[str, lambda text: one_line(text, 300)]


@dataclass(frozen=True, slots=True)
class Promotion:
    """Who accepted a cutover to which service, why and when; `at` is in Unix seconds."""

    service: Words
    who: Words
    why: Words
    at: float


def write_promotion(run: Path, promotion: Promotion) -> None:
    """Write the promotion of a run's cutover. Raises OSError."""
    write_atomically(run / FILE, record.text(promotion), 0o600)


def read_promotion(run: Path) -> Promotion | None:
    """The promotion of a run's cutover, with clean texts; None if there is none. Never raises."""
    try:
        return record.read(Promotion, run / FILE, PROMOTION_LIMIT)
    except (OSError, RecordError):
        return None


@dataclass(frozen=True, slots=True)
class CutOver:
    """Whose clients were given to which candidate, by which run, as that run has recorded it.
    `plan` is the one that the run has sealed: it brings back the baseline of these clients."""

    run: str
    service: str
    plan: SealedPlan

    @property
    def lives(self) -> bool:
        """Whether anything of it still runs, as the kernel tells."""
        return any(
            bool(pids_of_container(service.container)) if service.container
            else process.alive(service.pid, service.start)
            for service in live.read(self.plan.rollback_dir / live.LIVE)
            if service.kind in ("process", "container")
        )  # fmt: skip

    def words(self, replaced: str = "") -> str:
        """Whose clients are where, that this is left alone, and what ends it, in clean words. The
        run's copy of its site file is named where that describes another baseline by now, or is
        the one at the path `replaced`, which is about to."""
        plan = self.plan
        accepted = "promoted" if read_promotion(Path(plan.run_dir)) else "not promoted"
        copy = Path(plan.run_dir) / SITE
        gone = plan.site_path == replaced or plan.is_older_than(Path(plan.site_path))
        site = copy if gone and copy.exists() else ""
        ends = f"omni-console rollback --site {shlex.quote(str(site or plan.site_path))}"
        return clean(
            f"clients of {plan.baseline.url} are at {self.service} ({accepted}), by the cutover of "
            f"run {self.run} of site {plan.site_name}: it is left alone; {ends} ends it and brings "
            "their baseline back", 500,
        )  # fmt: skip


def cut_over(plan: SealedPlan) -> CutOver | None:
    """The cutover that gave this baseline's clients to a candidate, and that nothing has ended
    since; None without one. It lasts though its relay has died, or the machine was rebooted. Never
    raises."""
    mine = (plan.site_name, plan.baseline.url)
    own_cut_overs = [
        cut for cut in cut_overs() if (cut.plan.site_name, cut.plan.baseline.url) == mine
    ]
    return own_cut_overs[-1] if own_cut_overs else None


def cut_overs(besides: str = "") -> list[CutOver]:
    """This user's cutovers in force, of all sites, without those at the address `besides`. Never
    raises.

    A rollback ends one before anything else, so that one which has begun since leaves none.
    """
    readable = []
    for marker in sorted(paths.runs_dir().glob(f"*/{ROLLBACK}/{CUT_OVER}")):
        with contextlib.suppress(OSError, ConsoleError):
            made, progress = marker.stat().st_mtime_ns, marker.parent / PROGRESS_FILE
            if progress.exists() and progress.stat().st_mtime_ns > made:
                continue
            plan, owner = sealed.read_owned(marker.parent / PLAN)
            at_it = bool(besides) and sealed.is_same_address(plan.baseline.url, besides)
            if owner == os.getuid() and not at_it:
                service = one_line(decode(read_end(marker)[0][:SIZE_LIMIT]), 60) or "a candidate"
                readable.append(CutOver(marker.parent.parent.name, service, plan))
    return readable


LIMIT_S = 60.0
"""Seconds for which root waits for another user's rollback before its own begins."""
KEPT = 4096
"""How many of the last bytes that it prints are kept."""


def live_runs_of_others(mine: Iterable[int]) -> list[Pointer]:
    """The live runs of users who are not in `mine` (uids).

    A run counts if its runner is that user's process and holds that user's lock on this host.
    """
    return [
        pointer
        for pointer in find_all()
        if pointer.uid not in mine
        and _holds_host_lock(pointer)
        and process.alive(pointer.pid, pointer.start)
        and process.user_of(pointer.pid) == pointer.uid
    ]


def _holds_host_lock(pointer: Pointer) -> bool:
    if pointer.lock:
        return (pointer.pid, pointer.lock) in flocks()
    return pointer.pid in holders(paths.host_lock(pointer.uid))


def _rollback_argv(other: Pointer) -> tuple[str, ...]:
    """The command of this installation, and what that user's run has sealed where its files are
    gone; a sealed copy has only the latter."""
    script = Path(other.run_dir, ROLLBACK, SCRIPT)
    if own_copy():
        return ("/bin/sh", str(script))
    return tuple(or_script((*module_argv("console.cli"), "rollback"), script))


def roll_back_first(other: Pointer, note: Callable[[str], None]) -> bool:
    """Run `omni-console rollback` with that user's rights, and wait up to LIMIT_S for it. Return
    whether it succeeded in that time."""
    try:
        entry = pwd.getpwuid(other.uid)
        child = subprocess.Popen(
            _rollback_argv(other), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, cwd="/",
            user=other.uid, group=entry.pw_gid,
            extra_groups=os.getgrouplist(entry.pw_name, entry.pw_gid), env=_environment(entry),
        )  # fmt: skip
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        note(f"run {other.run_id} of uid {other.uid} cannot be rolled back: {one_line(str(error))}")
        return False
    who = one_line(entry.pw_name, 40)
    how = "is active" if process.alive(other.pid, other.start) else "was interrupted"
    note(f"run {one_line(other.run_id, 60)} of {who} {how}: it is rolled back first, as {who}")
    try:
        lines = decode(last_output(child, LIMIT_S)).strip().splitlines()
        note(
            f"{who}: exit {child.returncode}, {one_line(lines[-1], 200) if lines else 'no output'}"
        )
    except subprocess.TimeoutExpired:
        note(f"{who}: the rollback is not done after {LIMIT_S:.0f} s; going on without it")
    return child.returncode == 0


def last_output(child: subprocess.Popen[bytes], limit_s: float) -> bytes:
    """Wait for another user's process, and return the last KEPT bytes that it printed; it may print
    without end. Raises TimeoutExpired."""
    assert child.stdout is not None
    deadline, kept = time.monotonic() + limit_s, b""
    while (left := deadline - time.monotonic()) > 0:
        if select.select([child.stdout], [], [], left)[0]:
            part = os.read(child.stdout.fileno(), KEPT)
            if not part:
                child.stdout.close()
                child.wait(max(0.0, deadline - time.monotonic()))
                return kept
            kept = (kept + part)[-KEPT:]
    raise subprocess.TimeoutExpired(child.args, limit_s)


class OtherUsers:
    """The runs of users who are not in `own`. Only root acts on them: `own` is empty for others.

    `failed` names the runs whose own rollback did not bring the baseline back. They fail root's
    command if it had nothing else to do, or with `count`: root acted for other users only.
    """

    def __init__(self, own: Collection[int], note: Callable[[str], None]) -> None:
        self.note, self.failed, self.count = note, list[str](), False
        self.live = live_runs_of_others(own) if own else []
        pointers = find_all() if own else []
        dead = [
            pointer for pointer in pointers if pointer.uid not in own and pointer not in self.live
        ]
        self.interrupted = [pointer for pointer in dead if not pointer.over]
        self.over = [pointer for pointer in dead if pointer.over]
        """Runs that are over. Their clients may be meant to stay at the candidate."""

    def before(self, mine: list[Pointer]) -> list[Pointer]:
        """Roll back what has to end before `mine`, the runs of root and of the user behind sudo.
        Return those of `mine` to act on, in this order. If there is one, others' interrupted runs
        are only reported, because anybody can forge them."""
        self._roll_back(self.live if mine else (*self.live, *self.interrupted))
        for other_run in self.interrupted if mine else ():
            who = name_of(other_run.uid)
            run = f"run {one_line(other_run.run_id, 60)} of {who} is interrupted"
            self.note(f"{run}, its baseline may be down: sudo -u {who} omni-console rollback")
        me = os.getuid()
        pointers = sorted(
            mine, key=lambda p: (p.over, not process.alive(p.pid, p.start), p.uid != me)
        )
        if len([pointer for pointer in pointers if not pointer.over]) < 2:
            return pointers
        self._roll_back([pointer for pointer in pointers if pointer.uid != me])
        return [pointer for pointer in pointers if pointer.uid == me]

    def all_but_one(self) -> list[Pointer]:
        """Roll back all runs but the last, since any may be forged. Return the last one, if any."""
        every = [*self.live, *self.interrupted] or self.over[:1]
        self.count = True
        self._roll_back(every[:-1])
        return every[-1:]

    def _roll_back(self, some: Iterable[Pointer]) -> None:
        for pointer in some:
            if not roll_back_first(pointer, self.note):
                self.failed.append(f"run {one_line(pointer.run_id, 60)} of {name_of(pointer.uid)}")


def _environment(entry: pwd.struct_passwd) -> dict[str, str]:
    host_dir = os.environ.get("OMNI_HOST_DIR")
    return {
        "PATH": os.defpath, "HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name,
        **({"OMNI_HOST_DIR": host_dir} if host_dir else {}),
    }  # fmt: skip
