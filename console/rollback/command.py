"""`omni-console rollback`: find the sealed plan that counts, then climb, from any shell."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from console import paths
from console.clock import Clock, SystemClock
from console.errors import ConsoleError
from console.rollback import plan as sealed
from console.rollback import pointer as pointers
from console.rollback import wake
from console.rollback.plan import PLAN, ROLLBACK, SealedPlan
from console.rollback.pointer import Pointer
from console.rollback.report import (
    LADDER,
    Emit,
    Follower,
    Result,
    Trigger,
    asked,
    new_trigger,
    size_of,
)
from console.text import one_line

WARM_WORD_S = 0.5
"""A warm ladder that says nothing for this long is not waited for."""
POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan to act on, and where it came from, as a clean sentence."""

    plan: SealedPlan
    source: str


class Finder:
    """Looks for the plan, in the order an operator would want it."""

    def __init__(
        self,
        site_seal: Callable[[], SealedPlan] | None,
        explicit_site: bool,
        note: Callable[[str], None],
    ) -> None:
        self.site_seal = site_seal
        self.explicit_site = explicit_site
        self.note = note

    def find(self) -> Choice | None:
        """The plan; None when there is nothing to roll back to. Raises ConsoleError (site)."""
        mine = pointers.read(os.getuid())
        if mine is not None and (choice := self._pointed(mine, "this user's run")):
            return choice
        others = [p for p in pointers.find_all() if p.uid != os.getuid()]
        found = self._as_root(others) if os.getuid() == 0 else self._as_stranger(others)
        if found is not None:
            return found
        if self.explicit_site and self.site_seal is not None:
            return Choice(self.site_seal(), "the site file")
        newest = self._newest(paths.runs_dir())
        if newest is not None:
            return newest
        return Choice(self.site_seal(), "the site file") if self.site_seal else None

    def _as_root(self, others: list[Pointer]) -> Choice | None:
        """Another user's plan, acted on as that user: a forged one gains nobody anything."""
        sudo = os.environ.get("SUDO_UID", "")
        behind = int(sudo) if sudo.isdigit() else 0
        others = sorted(others, key=lambda p: p.uid != behind)  # stable: newest first after that
        if others:
            chosen = others[0]
            _become(chosen.uid)
            self.note(f"acting as {_name(chosen.uid)}, whose run it is")
            return self._pointed(chosen, f"the run of {_name(chosen.uid)}")
        if behind and not self.explicit_site and (home := _home(behind)):
            runs = Path(home) / ".local/state" / paths.APP / "runs"
            if runs.is_dir() and runs.stat().st_uid == behind:
                _become(behind)
                self.note(f"acting as {_name(behind)}, whose runs these are")
                return self._newest(runs)
        return None

    def _as_stranger(self, others: list[Pointer]) -> Choice | None:
        for other in others:
            choice = self._pointed(other, f"the run of {_name(other.uid)}")
            if choice is not None:
                self.note(
                    f"this run belongs to {_name(other.uid)}: ending its processes and writing "
                    "its report is not permitted; sudo omni-console rollback may"
                )
                return choice
        return None

    def _pointed(self, pointer: Pointer, source: str) -> Choice | None:
        return self._plan(Path(pointer.run_dir) / ROLLBACK / PLAN, source)

    def _plan(self, path: Path, source: str) -> Choice | None:
        try:
            return Choice(sealed.read(path), source)
        except ConsoleError as error:
            self.note(str(error))
            return None

    def _newest(self, runs: Path) -> Choice | None:
        stamped: list[tuple[float, Path]] = []
        for path in runs.glob(f"*/{ROLLBACK}/{PLAN}"):
            try:
                stamped.append((path.stat().st_mtime, path))
            except OSError:
                continue
        for _, path in sorted(stamped, reverse=True):
            if choice := self._plan(path, "the newest run"):
                return choice
        return None


def rollback(
    site_seal: Callable[[], SealedPlan] | None,
    explicit_site: bool,
    emit: Emit | None,
    *,
    clock: Clock | None = None,
) -> Result:
    """Restore the baseline, now. Exit code 0 or 7 by `Result.exit_code`; every line to `emit`.

    `site_seal` makes a plan from the site file when no run has one. Raises ConsoleError when that
    fails; nothing else.
    """
    clock = clock or SystemClock()
    trigger = new_trigger(clock, True, "command")

    def note(detail: str) -> None:
        _say(emit, clock, trigger, "note", detail)

    who = _asker()
    choice = Finder(site_seal, explicit_site, note).find()
    if choice is None:
        result = Result(False, nothing_to_do=True, detail="nothing to do: no run, no site")
        _say(emit, clock, trigger, "ok", result.detail, **result.fields())
        return result
    note(f"plan: {choice.source}, {choice.plan.run_id or choice.plan.site_name}")
    asked(choice.plan.rollback_dir, who, clock.now())
    followed = _through_warm(choice.plan, emit, clock)
    if followed is not None:
        return followed
    # Only now: a warm ladder has all of this loaded, and waking it should not wait for it.
    from console.rollback.ladder import Ladder

    return Ladder(choice.plan, clock=clock, trigger=trigger, emit=emit).run()


def _say(
    emit: Emit | None, clock: Clock, trigger: Trigger, state: str, detail: str, **fields: object
) -> None:
    if emit is not None:
        emit({
            "trigger": trigger.id,
            "rung": "done" if fields else "plan",
            "state": state,
            "at": round(clock.now(), 3),
            "t": round(clock.monotonic() - trigger.begun, 4),
            "detail": detail,
            **fields,
        })  # fmt: skip


def _through_warm(plan: SealedPlan, emit: Emit | None, clock: Clock) -> Result | None:
    """Wake the warm ladder and follow it; None when there is none, or it does not answer."""
    directory = plan.rollback_dir
    if not plan.run_dir or not wake.is_warm(directory):
        return None
    follower = Follower(directory / LADDER, size_of(directory / LADDER), emit)
    if not wake.trigger(directory):
        return None
    deadline = clock.monotonic() + WARM_WORD_S
    while True:
        result = follower.poll()
        if result is not None:
            return result
        if not follower.seen and clock.monotonic() >= deadline:
            return None
        if follower.seen and not wake.is_warm(directory):
            return follower.poll()
        clock.sleep(POLL_S)


def _asker() -> str:
    """Who is at this shell, sudo looked through; before root is dropped."""
    sudo = os.environ.get("SUDO_USER", "") if os.getuid() == 0 else ""
    name = _name(os.getuid())
    return one_line(f"{sudo} (as {name})" if sudo else name, 80)


def _become(uid: int) -> None:
    """Drop root for good: groups, gid, uid, and the environment that names directories."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        raise ConsoleError("the run belongs to nobody known", f"uid {uid}") from None
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setgid(entry.pw_gid)
    os.setuid(uid)
    if os.getuid() != uid or os.geteuid() != uid:
        raise ConsoleError("root could not be dropped", f"still uid {os.geteuid()}")
    for key in [key for key in os.environ if key.startswith("XDG_")]:
        del os.environ[key]
    os.environ.update(HOME=entry.pw_dir, USER=entry.pw_name, LOGNAME=entry.pw_name)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _home(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""
