"""Which sealed plan a rollback acts on: the run that is on, the site, the newest run.

A plan names programs to start and files to write, so only its owner's word counts: a plan in a
file of another user is never acted on. Root becomes that user first.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError
from console.host import process
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback import trigger as wake
from console.recovery.rollback.records import Pointer, live_others, roll_back_first
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK, SCRIPT, SealedPlan

RUNNER_S = 3.0
"""How long a killed runner may take to be gone."""
Seal = Callable[[], SealedPlan]


@dataclass(frozen=True, slots=True)
class Choice:
    """The plan to act on, and where it came from, as a clean sentence."""

    plan: SealedPlan
    source: str
    anew: bool = False
    """The plan was made just now: the run's waiting ladder has another one, and is not woken."""


class Finder:
    """Looks for the plan, in the order an operator would want it."""

    def __init__(
        self,
        site_seal: Seal | None,
        explicit_site: bool,
        note: Callable[[str], None],
        seal_at: Callable[[str], SealedPlan] | None = None,
        run_dir: str = "",
    ) -> None:
        """`site_seal` makes a plan from the site that is asked for, or from the usual one if there
        is one: that is asked when the user is known whose it is. `seal_at` makes one from a site
        file. `run_dir` is the run to roll back where another one or none is pointed at."""
        self.seal_at = seal_at
        self.run_dir = run_dir
        self.site_seal = site_seal
        self.explicit_site = explicit_site
        self.note = note

    def find(self) -> Choice | None:
        """The plan; None when there is nothing to roll back to. Raises ConsoleError (site)."""
        found = self._interrupted()
        if found is None:
            found = self._as_root() if os.getuid() == 0 else self._as_user()
        if found is not None:
            return found
        if self.explicit_site and self.site_seal is not None:
            return Choice(self.site_seal(), "the site file")
        return self._without_a_run()

    def has_begun(self, choice: Choice | None) -> bool:
        """Whether a run of one's own is on now that this choice did not know."""
        mine = pointers.read(os.getuid())
        known = choice.plan.run_id if choice is not None else ""
        return mine is not None and mine.run_id != known and process.alive(mine.pid, mine.start)

    def _interrupted(self) -> Choice | None:
        """The run that is asked for, where another one or none is pointed at."""
        mine = pointers.read(os.getuid())
        if not self.run_dir or (mine is not None and mine.run_dir == self.run_dir):
            return None
        return self._plan(Path(self.run_dir) / ROLLBACK / PLAN, "the run that was interrupted")

    def _as_user(self) -> Choice | None:
        """One's own run; another user's is named, never acted on."""
        mine = pointers.read(os.getuid())
        if mine is not None and (choice := self._pointed(mine)):
            return choice
        for other in pointers.find_all():
            if other.uid != os.getuid() and process.alive(other.pid, other.start):
                self.note(_belongs(f"run {other.run_id}", other.uid))
        return None

    def _as_root(self) -> Choice | None:
        """Root's own run, or that of whoever called sudo; another user's where there is nothing of
        root's own. What another user wrote stands in the way of neither."""
        sudo = os.environ.get("SUDO_UID", "")
        behind = int(sudo) if sudo.isdigit() else 0
        mine = [found for uid in {0, behind} if (found := pointers.read(uid)) is not None]
        mine.sort(key=lambda p: (not process.alive(p.pid, p.start), p.uid != os.getuid()))
        others = live_others({0, behind})
        if mine or self._has_own():
            for other in others:
                roll_back_first(other, self.note)
        for chosen in mine:
            if chosen.uid != os.getuid():
                self._act_as(chosen.uid, "whose run it is")
                return self._pointed(chosen, f"the run of {name_of(chosen.uid)}")
            if choice := self._pointed(chosen):
                return choice
        if behind and not self.explicit_site and (what := _belongings(behind)):
            self._act_as(behind, f"whose {what}")
            return None
        if self._has_own():
            return None
        dead = [p for p in pointers.find_all() if p.uid not in {0, behind} and p not in others]
        for chosen in (*others, *dead):
            self._act_as(chosen.uid, "whose run it is")
            return self._pointed(chosen, f"the run of {name_of(chosen.uid)}")
        return None

    def _has_own(self) -> bool:
        return self._has_site() or next(self._plans(paths.runs_dir()), None) is not None

    def _has_site(self) -> bool:
        """Whether this user, who may be another one than at first, has a site to make a plan of.
        Without one nothing is made: a demo that nobody ran is no baseline."""
        demo = paths.state_dir() / "demo"
        there = self.explicit_site or any(map(os.path.exists, (paths.default_site(), demo)))
        return self.site_seal is not None and there

    def _act_as(self, uid: int, why: str) -> None:
        become(uid)
        self.note(f"acting as {name_of(uid)}, {why}")

    def _without_a_run(self) -> Choice | None:
        """No run is on: the user's site file, or the newest plan sealed for that very file."""
        path = paths.default_site()  # what find_site() gives where no site is named
        site = os.path.realpath(path) if os.path.exists(path) else ""
        for choice in self._plans(paths.runs_dir()):
            if not site or self.site_seal is None or _is_of(choice.plan, site):
                return self._fresher(choice, site, self.site_seal)
        if self.site_seal is None or not self._has_site():
            return None
        try:
            return Choice(self.site_seal(), "the site file")
        except Exception as error:
            # Whatever is wrong with the site file (or with the parsers): a way back is still there.
            newest = next(iter(self._plans(paths.runs_dir())), None)
            if newest is None:
                raise
            self.note(f"the site file gives no plan: {_words(error)}")
            return newest

    def _fresher(self, choice: Choice, site: str, seal: Seal | None) -> Choice:
        """The plan, made anew where the site file was changed after it was sealed."""
        if not site or seal is None or not _changed(site, choice.plan.sealed_at):
            return choice
        self.note(f"{site} changed after {choice.plan.run_id or 'the plan'} was sealed")
        try:
            return Choice(seal(), "the site file")
        except Exception as error:
            self.note(f"the changed site file gives no plan: {_words(error)}")
            return choice

    def _pointed(self, pointer: Pointer, source: str = "this user's run") -> Choice | None:
        path = Path(pointer.run_dir) / ROLLBACK / PLAN
        if os.path.exists(path) and (choice := self._plan(path, source)):
            return self._of_ended(choice) if pointer.over else choice
        never = os.path.isdir(path.parent) and not os.path.exists(path.parent / SCRIPT)
        self._end_runner(pointer, "is just starting" if never else "has lost its plan")
        if os.path.exists(path) and (choice := self._plan(path, source)):
            return choice
        if not never:
            return self._of_lost(pointer)
        wake.trigger(
            path.parent, wake.QUIT
        )  # its ladder would look in a minute whether it is needed
        earlier = pointers.put_back(pointers.before(os.getuid(), path.parent)[:1])
        return self._pointed(earlier, source) if earlier is not None else None

    def _of_ended(self, choice: Choice) -> Choice:
        """A run that is over and left the baseline down: its site file may say by now what is to
        come back, where a candidate was promoted. The climb is the run's: its ladder leaves then,
        and its journal says what became of it."""
        old, site = choice.plan, choice.plan.site_path
        seal = partial(self.seal_at, site) if self.seal_at is not None and site else None
        fresh = self._fresher(choice, site, seal)
        if fresh is choice:
            return choice
        plan = replace(
            fresh.plan, run_id=old.run_id, run_dir=old.run_dir, finish_argv=old.finish_argv
        )
        return Choice(plan, fresh.source, anew=True)

    def _end_runner(self, pointer: Pointer, why: str) -> None:
        """A run that has nothing sealed has taken nothing down: without its runner it never was.
        One whose plan is lost is ended like any other."""
        if not process.alive(pointer.pid, pointer.start):
            return
        self.note(f"run {pointer.run_id} {why}: its runner is ended")
        deadline = time.monotonic() + RUNNER_S
        try:
            process.send(pointer.pid, pointer.start, signal.SIGKILL)
        except OSError as error:
            self.note(f"its runner, pid {pointer.pid}, cannot be ended: {error.strerror}")
        while process.alive(pointer.pid, pointer.start) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _of_lost(self, pointer: Pointer) -> Choice:
        """A run whose plan is lost: whatever carries its cookie is ended, and the copy of its plan,
        its site file or an older plan says what to bring back. Raises ConsoleError where none
        does."""
        self.note(f"the plan of run {pointer.run_id} is lost: {pointer.run_dir}")
        found = self._copy_of(pointer) or self._of_its_site(pointer)
        found = found or next(self._plans(paths.runs_dir()), None)
        if found is not None:
            there = pointer.run_dir if os.path.isdir(pointer.run_dir) else ""
            return Choice(replace(found.plan, run_id=pointer.run_id, run_dir=there), found.source)
        for who in process.by_cookie(pointer.run_id):
            with contextlib.suppress(ConsoleError):
                process.stop_group(*who, grace_s=RUNNER_S)
        raise ConsoleError(
            "nothing says what to bring back",
            f"run {pointer.run_id} has lost its plan, and there is no site file; what was left of "
            "it is ended",
            "start the baseline by hand, or write a site file: omni-console rollback --site FILE",
        )

    def _copy_of(self, pointer: Pointer) -> Choice | None:
        for path in sealed.copies():
            choice = self._plan(path, "the copy of its plan")
            if choice is not None and choice.plan.run_id == pointer.run_id:
                return choice
        return None

    def _of_its_site(self, pointer: Pointer) -> Choice | None:
        seals = [self.site_seal] if self.site_seal is not None and self._has_site() else []
        if self.seal_at is not None and not self.explicit_site and os.path.exists(pointer.site):
            seals.insert(0, partial(self.seal_at, pointer.site))
        for seal in seals:
            try:
                return Choice(seal(), "the site file")
            except Exception as error:  # as without a run: an older plan is still a way back
                self.note(f"the site file gives no plan: {_words(error)}")
        return None

    def _plan(self, path: Path, source: str) -> Choice | None:
        try:
            plan, owner = sealed.read_owned(path)
        except ConsoleError as error:
            self.note(str(error))
            return None
        if owner != os.getuid():
            self.note(_belongs(str(path), owner))
            return None
        return Choice(plan, source)

    def _plans(self, runs: Path) -> Iterator[Choice]:
        """One's own usable plans, the newest first; each is read when it is wanted."""
        stamped: list[tuple[float, Path]] = []
        for name in _names_in(runs):
            path = runs / name / ROLLBACK / PLAN
            try:
                stamped.append((os.stat(path).st_mtime, path))
            except OSError:
                continue
        for _, path in sorted(stamped, reverse=True):
            choice = self._plan(path, "the newest run")
            if choice is not None and not _is_rehearsed(choice.plan):
                yield choice


def become(uid: int) -> None:
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


def name_of(uid: int) -> str:
    """A user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _belongs(what: str, uid: int) -> str:
    name = name_of(uid)
    return f"{what} belongs to {name}: sudo omni-console rollback acts as {name}"


def _is_of(plan: SealedPlan, site: str) -> bool:
    return plan.site_path.startswith("/") and os.path.realpath(plan.site_path) == site


def _is_rehearsed(plan: SealedPlan) -> bool:
    """A rehearsal's baseline is nobody's baseline; its plan counts where it is asked for alone."""
    return plan.site_path.startswith(f"{paths.rehearsal_dir()}/")


def _changed(site: str, sealed_at: float) -> bool:
    try:
        return os.stat(site).st_mtime > sealed_at
    except OSError:
        return False


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, ConsoleError) else f"{type(error).__name__}: {error}"


def _names_in(directory: Path) -> list[str]:
    """What a directory holds; nothing where it cannot be read: another source may say more."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _belongings(uid: int) -> str:
    """What of a user's says that a rollback is that user's; empty for none."""
    try:
        home = Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return ""
    state, config = home / ".local/state" / paths.APP, home / ".config" / paths.APP
    for path, what in ((state / "runs", "runs these are"), (config / "site.yaml", "site it is")):
        with contextlib.suppress(OSError):
            if os.stat(path).st_uid == uid:
                return what
    return ""
