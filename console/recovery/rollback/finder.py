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
from console.recovery.rollback import live
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.records import Pointer, live_others, roll_back_first
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK, SCRIPT, SealedPlan
from console.recovery.rollback.trigger import STANDBY_FILE

RUNNER_S = 3.0
"""How long a killed runner may take to be gone."""
Seal = Callable[[], SealedPlan]


@dataclass(frozen=True, slots=True)
class SelectedPlan:
    """The plan to act on, and where it came from, as a clean sentence."""

    plan: SealedPlan
    source: str
    anew: bool = False
    """The plan was made just now: the run's waiting ladder has another one, and is not woken."""
    first: bool = False
    """Another site is asked for, whose turn comes after this one's."""


class Finder:
    """Looks for the plan, in the order an operator would want it."""

    def __init__(
        self,
        site_seal: Seal | None,
        explicit_site: bool,
        note: Callable[[str], None],
        seal_at: Callable[[str], SealedPlan] | None = None,
        run_dir: str = "",
        site: str = "",
    ) -> None:
        """`site_seal` makes a plan from the site that is asked for, or from the usual one of the
        user whose turn it is; `seal_at` makes one from a site file. `run_dir` is the run to roll
        back where another one or none is pointed at, `site` the file that is asked for."""
        self.site = site
        self._had: set[str] = set()
        self.seal_at = seal_at
        self.run_dir = run_dir
        self.site_seal = site_seal
        self.explicit_site = explicit_site
        self.note = note

    def find(self) -> SelectedPlan | None:
        """The plan; None when there is nothing to roll back to. Raises ConsoleError (site)."""
        usual = self._as_root if os.getuid() == 0 else self._as_user
        if found := self._interrupted() or usual():
            return found
        if self.explicit_site and self.site_seal is not None:
            return SelectedPlan(self.site_seal(), "the site file")
        return self._without_a_run()

    def has_begun(self, selected: SelectedPlan | None) -> bool:
        """Whether a run of one's own is on now that this choice did not know."""
        mine = pointers.read(os.getuid())
        known = {*self._had, selected.plan.run_id if selected else ""}
        return mine is not None and mine.run_id not in known and process.alive(mine.pid, mine.start)

    def _interrupted(self) -> SelectedPlan | None:
        """The run that is asked for, where another one or none is pointed at."""
        mine = pointers.read(os.getuid())
        if not self.run_dir or (mine and mine.run_dir == self.run_dir):
            return None
        return self._plan(Path(self.run_dir) / ROLLBACK / PLAN, "the run that was interrupted")

    def _as_user(self) -> SelectedPlan | None:
        """One's own run; another user's is named, never acted on."""
        mine = pointers.read(os.getuid())
        if mine is not None and (selected := self._pointed(mine)):
            return selected
        for other in pointers.find_all():
            if other.uid != os.getuid() and process.alive(other.pid, other.start):
                self.note(_belongs(f"run {other.run_id}", other.uid))
        return None

    def _as_root(self) -> SelectedPlan | None:
        """Root's own run, or that of whoever called sudo; another user's where neither of them has
        anything. What another user wrote stands in nobody's way; a run that is on ends first."""
        sudo = os.environ.get("SUDO_UID", "")
        behind = int(sudo) if sudo.isdigit() else 0
        mine = [found for uid in {0, behind} if (found := pointers.read(uid)) is not None]
        mine.sort(key=lambda p: (not process.alive(p.pid, p.start), p.uid != os.getuid()))
        others = live_others({0, behind})
        what = _belongings(behind) if behind and not self.explicit_site else ""
        if mine or what or self._has_own():
            for other in others:
                roll_back_first(other, self.note)
        for chosen in mine:
            if chosen.uid != os.getuid():
                self._act_as(chosen.uid, "whose run it is")
                return self._pointed(chosen, f"the run of {name_of(chosen.uid)}")
            if selected := self._pointed(chosen):
                return selected
        if what:
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

    def _without_a_run(self) -> SelectedPlan | None:
        """No run is on: the user's site file, or the newest plan sealed for that very file."""
        path = paths.default_site()  # what site_file() gives where no site is named
        site = os.path.realpath(path) if os.path.exists(path) else ""
        for selected in self._plans(paths.runs_dir()):
            if not site or self.site_seal is None or _is_of(selected.plan, site):
                ended = replace(selected, plan=selected.plan.of_old)
                return self._fresher(ended, site, self.site_seal)
        if self.site_seal is None or not self._has_site():
            return None
        try:
            return SelectedPlan(self.site_seal(), "the site file")
        except Exception as error:
            # Whatever is wrong with the site file (or with the parsers): a way back is still there.
            newest = next(iter(self._plans(paths.runs_dir())), None)
            if newest is None:
                raise
            self.note(f"the site file gives no plan: {_words(error)}")
            return newest

    def _fresher(self, selected: SelectedPlan, site: str, seal: Seal | None) -> SelectedPlan:
        """The plan, with the baseline of its site file where that was changed after the seal."""
        if not site or seal is None or not selected.plan.is_older_than(Path(site)):
            return selected
        self.note(f"{site} changed after {selected.plan.run_id or 'the plan'} was sealed")
        try:
            made = seal()
            return SelectedPlan(made if made.run_id else selected.plan.on(made), "the site file")
        except Exception as error:
            self.note(f"the changed site file gives no plan: {_words(error)}")
            return selected

    def _pointed(self, pointer: Pointer, source: str = "this user's run") -> SelectedPlan | None:
        selected = self._of_pointer(pointer, source)
        if selected is not None and self._is_elsewhere(selected.plan):
            return self._before_the_asked(selected, pointer)
        return self._of_ended(selected) if selected is not None and pointer.over else selected

    def _of_pointer(self, pointer: Pointer, source: str) -> SelectedPlan | None:
        path = Path(pointer.run_dir) / ROLLBACK / PLAN
        if os.path.exists(path) and (selected := self._plan(path, source)):
            return selected
        never = os.path.isdir(path.parent) and not self._was_sealed(pointer)
        _end_runner(pointer, "is just starting" if never else "has lost its plan", self.note)
        if os.path.exists(path) and (selected := self._plan(path, source)):
            return selected
        if not never:
            return self._of_lost(pointer)
        earlier = pointers.put_back(pointers.before(os.getuid(), path.parent)[:1])
        return self._pointed(earlier, source) if earlier is not None else None

    def _is_elsewhere(self, plan: SealedPlan) -> bool:
        """Whether a site is asked for that is another than the run's, as far as can be told."""
        if not self.site or self.site_seal is None or _is_of(plan, os.path.realpath(self.site)):
            return False
        try:
            return self.site_seal().site_name != plan.site_name
        except Exception as error:
            self.note(f"{self.site} gives no plan: {_words(error)}")
            return False

    def _before_the_asked(self, selected: SelectedPlan, pointer: Pointer) -> SelectedPlan | None:
        """A run of another site: in its outage it holds the host and is rolled back first, once.
        What it has left for good is not meant: its candidate may be what clients are to have."""
        theirs = f"run {pointer.run_id} is of site {selected.plan.site_name}"
        if pointer.run_id in self._had:
            return None
        if pointer.over:
            self.note(f"{theirs}; omni-console rollback --site {selected.plan.site_path} ends it")
            return None
        self._had.add(pointer.run_id)
        self.note(f"{theirs}: it is rolled back first")
        return replace(selected, first=True)

    def _was_sealed(self, pointer: Pointer) -> bool:
        """Whether a run has sealed its plan, by all that comes after it: a lost plan alone, or with
        its script, is no sign that nothing is down."""
        place = Path(pointer.run_dir) / ROLLBACK
        later = any(os.path.exists(place / name) for name in (SCRIPT, STANDBY_FILE))
        laddered = any(entry.kind == "ladder" for entry in live.read(place / live.LIVE))
        return later or laddered or self._copy_of(pointer) is not None

    def _of_ended(self, selected: SelectedPlan) -> SelectedPlan:
        """A run that is over and left the baseline down: its site file may say by now what is to
        come back, where a candidate was promoted. The climb is the run's: its ladder leaves then,
        and its journal says what became of it."""
        site = selected.plan.site_path
        seal = partial(self.seal_at, site) if self.seal_at is not None and site else None
        fresh = self._fresher(selected, site, seal)
        return fresh if fresh is selected else replace(fresh, anew=True)

    def _of_lost(self, pointer: Pointer) -> SelectedPlan:
        """A run whose plan is lost: whatever carries its cookie is ended, and the copy of its plan,
        its site file or an older plan says what to bring back. Raises ConsoleError where none
        does."""
        self.note(f"the plan of run {pointer.run_id} is lost: {pointer.run_dir}")
        found = self._copy_of(pointer) or self._of_its_site(pointer)
        found = found or next(self._plans(paths.runs_dir()), None)
        if found is not None:
            there = pointer.run_dir if os.path.isdir(pointer.run_dir) else ""
            return replace(found, plan=replace(found.plan, run_id=pointer.run_id, run_dir=there))
        for who in process.by_cookie(pointer.run_id):
            with contextlib.suppress(ConsoleError):
                process.stop_group(*who, grace_s=RUNNER_S)
        raise ConsoleError(
            "nothing says what to bring back",
            f"run {pointer.run_id} has lost its plan, and there is no site file; what was left of "
            "it is ended",
            "start the baseline by hand, or write a site file: omni-console rollback --site FILE",
        )

    def _copy_of(self, pointer: Pointer) -> SelectedPlan | None:
        plans = (self._plan(path, "the copy of its plan") for path in sealed.copies())
        return next((one for one in plans if one and one.plan.run_id == pointer.run_id), None)

    def _of_its_site(self, pointer: Pointer) -> SelectedPlan | None:
        seals = [self.site_seal] if self.site_seal is not None and self._has_site() else []
        if self.seal_at is not None and not self.explicit_site and os.path.exists(pointer.site):
            seals.insert(0, partial(self.seal_at, pointer.site))
        for seal in seals:
            try:
                return SelectedPlan(seal(), "the site file")
            except Exception as error:  # as without a run: an older plan is still a way back
                self.note(f"the site file gives no plan: {_words(error)}")
        return None

    def _plan(self, path: Path, source: str) -> SelectedPlan | None:
        try:
            plan, owner = sealed.read_owned(path)
        except ConsoleError as error:
            self.note(str(error))
            return None
        if owner != os.getuid():
            self.note(_belongs(str(path), owner))
            return None
        return SelectedPlan(plan, source)

    def _plans(self, runs: Path) -> Iterator[SelectedPlan]:
        """One's own usable plans, the newest first; each is read when it is wanted."""
        stamped: list[tuple[float, Path]] = []
        for name in _names_in(runs):
            path = runs / name / ROLLBACK / PLAN
            try:
                stamped.append((os.stat(path).st_mtime, path))
            except OSError:
                continue
        for _, path in sorted(stamped, reverse=True):
            selected = self._plan(path, "the newest run")
            if selected is not None and not _is_rehearsed(selected.plan):
                yield selected


def _end_runner(pointer: Pointer, why: str, note: Callable[[str], None]) -> None:
    """A run that has nothing sealed has taken nothing down: without its runner it never was.
    One whose plan is lost is ended like any other."""
    if not process.alive(pointer.pid, pointer.start):
        return
    note(f"run {pointer.run_id} {why}: its runner is ended")
    deadline = time.monotonic() + RUNNER_S
    try:
        process.send(pointer.pid, pointer.start, signal.SIGKILL)
    except OSError as error:
        note(f"its runner, pid {pointer.pid}, cannot be ended: {error.strerror}")
    while process.alive(pointer.pid, pointer.start) and time.monotonic() < deadline:
        time.sleep(0.005)


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
