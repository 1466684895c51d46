"""Selects the sealed plan that a rollback acts on: the active run's, the site's, the newest run's.

A plan names programs to start and files to write, so nobody acts on a plan in another user's file.
Root becomes that user first.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError, UsageError
from console.common.text import clean
from console.host import licence, process
from console.host.licence import Licence, Reason, Refused
from console.host.privileges import become, name_of, owner_of
from console.recovery.rollback import live
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.records import OtherUsers, Pointer
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK, SCRIPT, SealedPlan
from console.recovery.rollback.trigger import STANDBY_FILE
from console.runtime.engine_address import DEFAULT_SOCKET

RUNNER_S = 3.0
"""Seconds that a killed runner may take to disappear."""
Seal = Callable[[], SealedPlan]


@dataclass(frozen=True, slots=True)
class SelectedPlan:
    """The plan to act on, and where it came from, in clean words."""

    plan: SealedPlan
    source: str
    anew: bool = False
    """The plan was made just now. The run's standby has an older one, so it is not triggered."""
    first: bool = False
    """Another site was asked for, and is rolled back after this one."""


class _Plans:
    """This user's sealed plans, as they lie in the files; what is odd is noted."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.note = note

    def _act_as(self, uid: int, why: str) -> None:
        become(uid)
        self.note(f"acting as {name_of(uid)}, {why}")

    def _copy_of(self, pointer: Pointer) -> SelectedPlan | None:
        plans = (self._read_plan(path, "the copy of its plan") for path in sealed.copies())
        return next(
            (choice for choice in plans if choice and choice.plan.run_id == pointer.run_id),
            None,
        )

    def _read_plan(
        self, path: Path, source: str, note: Callable[[str], None] | None = None
    ) -> SelectedPlan | None:
        note = note or self.note
        try:
            plan, owner = sealed.read_owned(path)
        except ConsoleError as error:
            note(str(error))
            return None
        if owner != os.getuid():
            note(_belongs_to(str(path), owner))
            return None
        return SelectedPlan(plan, source)

    def _plans(self, site: str = "") -> Iterator[SelectedPlan]:
        """This user's usable plans, the newest first; each is read only when it is needed. With
        `site`, only the plans of that site file, but copies and those of rehearsals, too."""
        runs = paths.runs_dir()
        files = [runs / name / ROLLBACK / PLAN for name in _names_in(runs)]
        stamped: list[tuple[float, Path]] = []
        for path in (*files, *(sealed.copies() if site else ())):
            with contextlib.suppress(OSError):
                stamped.append((os.stat(path).st_mtime, path))
        for _, path in sorted(stamped, reverse=True):
            choice = self._read_plan(path, "the newest run")
            if choice and (_is_of(choice.plan, site) if site else not _is_rehearsal(choice.plan)):
                yield choice


class Finder(_Plans):
    """Looks for the plan in the order in which an operator would want it."""

    def __init__(
        self,
        site_seal: Seal | None,
        explicit_site: bool,
        note: Callable[[str], None],
        seal_at: Callable[[str], SealedPlan] | None = None,
        run_dir: str = "",
        site: str = "",
        left_down: Callable[[str], bool] | None = None,
        automatic: bool = False,
    ) -> None:
        """`site_seal` makes a plan from the site that was asked for, else from the user's default
        site; `seal_at` makes one from the site file at a path. `run_dir` names the run to roll back
        if the pointer names another or none; `site` is the site file that was asked for.
        `left_down` says whether the journal of the run in a directory leaves the baseline down, or
        may do so; without it no run of another site is known to be well. `automatic`: nobody asked,
        so no live run of another site is ended for this."""
        super().__init__(note)
        self.site, self.run_dir = site, run_dir
        self.left_down, self.automatic = left_down, automatic
        self._site_plans: list[SealedPlan | None] = []
        self.others = OtherUsers((), note)
        self._selected_first, self._left_alone = set[str](), set[str]()
        self._has_asked = False
        self.site_seal, self.seal_at = site_seal, seal_at
        self.explicit_site = explicit_site

    def find(self) -> SelectedPlan | None:
        """The plan; None if there is nothing to do. Raises ConsoleError if none can be made."""
        usual = self._as_root if os.getuid() == 0 else self._as_user
        if choice := self._interrupted() or usual():
            return choice
        # a run that was left alone is of another site, as may be the newest plan
        if (self.explicit_site or self._left_alone) and self.site_seal is not None:
            site = os.path.realpath(self.site) if self.site else ""
            return self._from_site(self.site_seal, site)
        choice = self._without_a_run()
        if choice is None:
            _require_home()
        return choice

    def has_begun(self, selected: SelectedPlan | None) -> bool:
        """Whether this user has an active run that began after the plan was selected, and that is
        to be rolled back, too."""
        mine = pointers.read(os.getuid())
        known = {*self._selected_first, *self._left_alone, selected.plan.run_id if selected else ""}
        if self.automatic or mine is None or mine.run_id in known:
            return False
        if self.run_dir and selected is not None and not is_of_site(mine, selected.plan):
            return False
        return process.alive(mine.pid, mine.start) and not self._leaves_alone(mine)

    def _interrupted(self) -> SelectedPlan | None:
        """The plan of the run that was asked for, if the pointer names another run or none."""
        mine = pointers.read(os.getuid())
        if not self.run_dir or self._has_asked or (mine and mine.run_dir == self.run_dir):
            return None
        self._has_asked = True  # what begins meanwhile is not this run again
        choice = self._read_plan(Path(self.run_dir) / ROLLBACK / PLAN, "the run that was asked for")
        return _where_it_lies(choice, self.run_dir)

    def _as_user(self) -> SelectedPlan | None:
        """The plan of this user's run; another user's run is reported, never acted on."""
        mine = pointers.read(os.getuid())
        if mine is not None and (selected := self._select_for(mine)):
            return selected
        for other in pointers.find_all():
            if other.uid != os.getuid() and process.alive(other.pid, other.start):
                self.note(_belongs_to(f"run {other.run_id}", other.uid))
        return None

    def _as_root(self) -> SelectedPlan | None:
        """The plan of root or of the user behind sudo; another user's only if neither has one.
        Other users' runs are ended by their own rollbacks. Merely interrupted ones are left alone
        while root or the user behind sudo has a run, because anybody can forge them."""
        sudo = os.environ.get("SUDO_UID", "")
        sudo_uid = int(sudo) if sudo.isascii() and sudo.isdigit() else 0
        mine = [pointer for uid in {0, sudo_uid} if (pointer := pointers.read(uid)) is not None]
        others = self.others = OtherUsers(() if self.automatic else {0, sudo_uid}, self.note)
        belongings = _evidence_for(sudo_uid) if sudo_uid and not self.explicit_site else ""
        if mine or belongings or self._has_own():
            runs = others.before(mine)
        else:
            runs = others.all_but_one()
        for chosen in runs:
            if chosen.uid != os.getuid():
                self._act_as(chosen.uid, "whose run it is")
                return self._select_for(chosen, f"the run of {name_of(chosen.uid)}")
            if selected := self._select_for(chosen):
                return selected
        own = next(self._plans(), None) if belongings else None
        if belongings and not (own and _is_out_of_reach(own.plan, sudo_uid)):
            self._act_as(sudo_uid, f"whose {belongings}")
        return None

    def _has_own(self) -> bool:
        return self._has_site() or next(self._plans(), None) is not None

    def _has_site(self) -> bool:
        """Whether the current user (root may have become another one) has a site to make a plan
        from. Without a site file, a demo counts if it has been run."""
        demo = paths.state_dir() / "demo"
        site_exists = self.explicit_site or any(map(os.path.exists, (paths.default_site(), demo)))
        return self.site_seal is not None and site_exists

    def _without_a_run(self) -> SelectedPlan | None:
        """Without an active run: the newest plan for the user's site file, or one made from it."""
        path = paths.default_site()  # the file that site_file() gives where no site is named
        site = os.path.realpath(path) if os.path.exists(path) else ""
        for selected in self._plans():
            if not site or self.site_seal is None or _is_of(selected.plan, site):
                ended = replace(selected, plan=selected.plan.name_first)
                return self._refreshed(ended, site, self.site_seal)
        return self._from_site(self.site_seal) if self.site_seal and self._has_site() else None

    def _from_site(self, seal: Seal, site: str = "") -> SelectedPlan:
        """A plan made from the site file. If the file or its parser is broken, the newest sealed
        plan (of `site`, if given), because an older plan still restores a baseline."""
        try:
            return SelectedPlan(seal(), "the site file")
        except Exception as error:
            newest = next(self._plans(site), None)
            if newest is None:
                raise
            self.note(f"no plan can be made from the site file: {_error_words(error)}")
            there = newest.plan.run_dir if os.path.isdir(newest.plan.run_dir) else ""
            return replace(newest, plan=replace(newest.plan.name_first, run_dir=there))

    def _refreshed(self, selected: SelectedPlan, site: str, seal: Seal | None) -> SelectedPlan:
        """The plan, with its site file's baseline if that file has changed since the sealing; the
        file's alone where clients of another address are at the candidate of the plan's run."""
        if not site or seal is None or not selected.plan.is_older_than(Path(site)):
            return selected
        self.note(f"{site} changed after {selected.plan.run_id or 'the plan'} was sealed")
        try:
            made = seal()
            if _serves_others(selected.plan, made):
                return SelectedPlan(made, "the site file")
            plan = made if made.run_id else selected.plan.with_baseline_of(made)
            return SelectedPlan(plan, "the site file")
        except Exception as error:
            self.note(f"no plan can be made from the changed site file: {_error_words(error)}")
            return selected

    def _select_for(self, pointer: Pointer, source: str = "this user's run") -> SelectedPlan | None:
        if self._leaves_alone(pointer):
            return None
        selected = self._find_plan_of(pointer, source)
        if selected is not None and self._is_other_site(selected.plan):
            return self._select_other_site(selected, pointer)
        return self._for_ended_run(selected) if selected is not None and pointer.over else selected

    def _find_plan_of(self, pointer: Pointer, source: str) -> SelectedPlan | None:
        path = Path(pointer.run_dir) / ROLLBACK / PLAN
        if os.path.exists(path) and (selected := self._read_plan(path, source)):
            return selected
        never_sealed = os.path.isdir(path.parent) and not self._was_sealed(pointer)
        _end_runner(pointer, "is just starting" if never_sealed else "has lost its plan", self.note)
        if os.path.exists(path) and (selected := self._read_plan(path, source)):
            return selected
        if not never_sealed:
            return self._for_lost_plan(pointer)
        earlier = pointers.put_back(pointers.earlier(os.getuid(), path.parent)[:1])
        return self._select_for(earlier, source) if earlier is not None else None

    def _is_other_site(self, plan: SealedPlan) -> bool:
        """Whether another site than the plan's was asked for, as far as known."""
        if self.site and _is_of(plan, os.path.realpath(self.site)):
            return False
        site_plan = self._asked_site()
        return site_plan is not None and _differs(site_plan, plan)

    def _asked_site(self) -> SealedPlan | None:
        """The plan of the site that was asked for, made once, or the newest that was sealed of it;
        None if none was asked for or nothing says what it is."""
        if self.site_seal is None or not (self.site or self.automatic):
            return None
        if not self._site_plans:
            try:
                self._site_plans.append(self.site_seal())
            except Exception as error:
                self.note(f"no plan can be made from {self.site}: {_error_words(error)}")
                newest = next(self._plans(os.path.realpath(self.site)), None) if self.site else None
                self._site_plans.append(newest.plan if newest is not None else None)
        return self._site_plans[0]

    def _leaves_alone(self, pointer: Pointer) -> bool:
        """Whether a run goes on, since another site was asked for and this run has not taken its
        baseline down. Raises ConsoleError if nobody asked, and the live run of another site may be
        in its outage or may hold the memory that this site's baseline needs."""
        if pointer.over or (plan := self._plan_at_other_site(pointer)) is None:
            return False
        theirs, alive = f"run {pointer.run_id} of site {plan.site_name}", _is_alive(pointer)
        well = "" if plan.exclusive else self._is_well(pointer, plan)
        if well:
            self._left_alone.add(pointer.run_id)
            self.note(f"{theirs} {'goes on' if alive else 'is left alone'}: {well}")
            return True
        site_plan = self._asked_site()
        if self.automatic and alive and site_plan and site_plan.baseline.url != plan.baseline.url:
            site = self.site or paths.default_site()
            raise ConsoleError(
                f"site {site_plan.site_name} is not restored beside a run of another site",
                f"{theirs} is in its outage, or needs the memory alone: nobody asked for its end",
                f"wait for its end, or type: omni-console rollback --site {shlex.quote(str(site))}",
            )
        return False

    def _is_well(self, pointer: Pointer, plan: SealedPlan) -> str:
        """What shows that a run has not taken its baseline down, in words; "" if nothing does. Both
        its journal and the baseline itself have to say so."""
        if self.left_down is None:
            return ""
        has_plan = os.path.exists(Path(pointer.run_dir) / ROLLBACK / PLAN)
        if not has_plan and not self._was_sealed(pointer) and _is_alive(pointer):
            return "it is just starting, and has stopped nothing"
        from console.recovery.rollback import observe  # the standby of this site's run waits for us

        if self.left_down(pointer.run_dir) or not observe.serves(plan):
            return ""
        return "its baseline serves"

    def _plan_at_other_site(self, pointer: Pointer) -> SealedPlan | None:
        """The plan of a run of another site than the one that was asked for: the sealed one, its
        copy, or what its site file says before it has sealed one. None for this site's run, and if
        nothing says what the run is."""
        if self.run_dir or self._asked_site() is None:
            return None
        selected = self._read_plan(Path(pointer.run_dir) / ROLLBACK / PLAN, "", lambda words: None)
        plan = selected.plan if selected is not None else None
        if plan is None and (copy := self._copy_of(pointer)) is not None:
            plan = copy.plan
        if plan is None and pointer.site and self.seal_at and not self._was_sealed(pointer):
            with contextlib.suppress(Exception):  # then the run is treated as one of this site
                plan = self.seal_at(pointer.site)
        return plan if plan is not None and self._is_other_site(plan) else None

    def _select_other_site(self, selected: SelectedPlan, pointer: Pointer) -> SelectedPlan | None:
        """Select a run of another site first, but only once, and only if it is not over yet. A run
        that is over is left alone: its clients may be meant to stay at its candidate."""
        if pointer.run_id in self._selected_first:
            return None
        if pointer.over:
            self.note(_stays_words(replace(selected.plan, run_id=pointer.run_id)))
            return None
        self._selected_first.add(pointer.run_id)
        theirs = f"run {pointer.run_id} is of site {selected.plan.site_name}"
        self.note(f"{theirs}: it is rolled back first")
        return replace(selected, first=True)

    def _was_sealed(self, pointer: Pointer) -> bool:
        """Whether a run has sealed its plan, as the files that it writes later show. If the plan is
        missing, and even the script, that does not prove that the baseline was never taken down."""
        directory = Path(pointer.run_dir) / ROLLBACK
        later = any(os.path.exists(directory / name) for name in (SCRIPT, STANDBY_FILE))
        standby_began = any(entry.kind == "ladder" for entry in live.read(directory / live.LIVE))
        return later or standby_began or self._copy_of(pointer) is not None

    def _for_ended_run(self, selected: SelectedPlan) -> SelectedPlan:
        """The plan of a run that left the baseline down. Its site file may name another baseline by
        now, such as a promoted candidate; the run's standby and journal still get the outcome."""
        site = selected.plan.site_path
        seal: Seal | None = partial(self.seal_at, site) if self.seal_at and site else None
        if self.explicit_site and self.site:  # it may be the run's own copy of a replaced file
            site, seal = self.site, self.site_seal
        fresh = self._refreshed(selected, site, seal)
        return fresh if fresh is selected else replace(fresh, anew=True)

    def _for_lost_plan(self, pointer: Pointer) -> SelectedPlan:
        """A plan for a run that has lost its own: a copy, one from its site file, or an older plan.
        If there is none of these, end what has the run's cookie and raise ConsoleError."""
        self.note(f"the plan of run {pointer.run_id} is lost: {pointer.run_dir}")
        choice = self._copy_of(pointer) or self._from_its_site(pointer) or next(self._plans(), None)
        if choice is not None:
            there = pointer.run_dir if os.path.isdir(pointer.run_dir) else ""
            return replace(choice, plan=replace(choice.plan, run_id=pointer.run_id, run_dir=there))
        for who in process.by_cookie(pointer.run_id):
            with contextlib.suppress(ConsoleError):
                why = Licence(Reason.COOKIE, pointer.run_id)
                licence.stop_group(why, *who, grace_s=RUNNER_S)
        raise ConsoleError(
            "nothing says which baseline to restore",
            f"run {pointer.run_id} has lost its plan, and there is no site file; what was left of "
            "it is ended",
            "start the baseline by hand, or write a site file: omni-console rollback --site FILE",
        )

    def _from_its_site(self, pointer: Pointer) -> SelectedPlan | None:
        seals = [self.site_seal] if self.site_seal is not None and self._has_site() else []
        if self.seal_at is not None and not self.explicit_site and os.path.exists(pointer.site):
            seals.insert(0, partial(self.seal_at, pointer.site))
        for seal in seals:
            try:
                return SelectedPlan(seal(), "the site file")
            except Exception as error:  # an older plan still restores a baseline
                self.note(f"no plan can be made from the site file: {_error_words(error)}")
        return None


def stays_at_other_site(run_dir: str, site: str, *, automatic: bool = False) -> str:
    """Why an earlier run is left alone by a rollback of the site file `site`, in clean words; "" if
    it is not. It is over at another site, and its clients may be meant to stay at its candidate.
    `automatic`: nobody asked, so that nothing of another site is touched. Never raises."""
    mine = pointers.read(os.getuid())
    before = pointers.earlier(mine.uid, Path(mine.run_dir) / ROLLBACK) if mine is not None else []
    over = any(
        pointer.over
        for pointer in (mine, *before)
        if pointer is not None and pointer.run_dir == run_dir
    )
    if not (over or automatic):
        return ""
    try:
        plan = sealed.read(Path(run_dir) / ROLLBACK / PLAN)
    except ConsoleError:
        return ""
    if not plan.site_path or _is_of(plan, os.path.realpath(site)):
        return ""
    return _stays_words(plan)


def _serves_others(plan: SealedPlan, made: SealedPlan) -> bool:
    """Whether clients are at the candidate of a plan's run, at another address than the baseline of
    the plan `made` has."""
    serving = any(cut.run == plan.run_id for cut in pointers.cut_overs())
    return serving and not made.has_address_of(plan)


def _where_it_lies(choice: SelectedPlan | None, run_dir: str) -> SelectedPlan | None:
    """The same, with the directory in which a run's plan was found, where the one that it names is
    gone: it was moved, maybe with its user's home."""
    if choice is None or os.path.isdir(choice.plan.run_dir or run_dir):
        return choice
    return replace(choice, plan=replace(choice.plan, run_dir=run_dir))


def keeps_clients(run_dir: str, seal: Seal) -> str:
    """Why an earlier run is left alone by a rollback of the site that `seal` makes a plan of, in
    clean words; "" if it is not. Clients of another address are at its candidate. Never raises."""
    with contextlib.suppress(Exception):  # then the run gets its own baseline back
        for cut in pointers.cut_overs():
            if cut.plan.run_dir == run_dir and cut.lives and not seal().has_address_of(cut.plan):
                return cut.words()
    return ""


def _stays_words(plan: SealedPlan) -> str:
    """That the run of a plan is left alone, which is of another site, and what ends it."""
    ends = f"omni-console rollback --site {shlex.quote(plan.site_path)} ends it"
    return clean(f"run {plan.run_id} is of site {plan.site_name} and is left alone; {ends}", 500)


def _is_alive(pointer: Pointer) -> bool:
    return process.alive(pointer.pid, pointer.start)


def _require_home() -> None:
    """Raise UsageError if plans and site file were not found because no home is known."""
    if paths.is_homeless(paths.state_dir()):
        raise UsageError(
            "nothing says which baseline to restore",
            f"HOME is not set, and no home directory is known of uid {os.getuid()}",
            "set HOME, or name the site file: omni-console rollback --site FILE",
        )


def _end_runner(pointer: Pointer, why: str, note: Callable[[str], None]) -> None:
    """Kill the runner, if it lives, of a run that has no plan.

    A run that has sealed no plan has taken nothing down, so only its runner has to end. The rest of
    a run that has lost its plan is ended like that of any other run.
    """
    if not process.alive(pointer.pid, pointer.start):
        return
    note(f"run {pointer.run_id} {why}: its runner is ended")
    deadline = time.monotonic() + RUNNER_S
    try:
        ours = Licence(Reason.RUNNER, pointer.run_id)
        licence.send(ours, pointer.pid, pointer.start, signal.SIGKILL)
    except Refused as error:
        note(str(error))
    except OSError as error:
        note(f"its runner, pid {pointer.pid}, cannot be ended: {error.strerror}")
    while process.alive(pointer.pid, pointer.start) and time.monotonic() < deadline:
        time.sleep(0.005)


def _belongs_to(what: str, uid: int) -> str:
    name = name_of(uid)
    return f"{what} belongs to {name}: sudo omni-console rollback acts as {name}"


def _differs(site_plan: SealedPlan, plan: SealedPlan) -> bool:
    """Whether the plans are of different sites; two site files may have the same site name."""
    return (site_plan.site_name, site_plan.baseline.url) != (plan.site_name, plan.baseline.url)


def _is_out_of_reach(plan: SealedPlan, uid: int) -> bool:
    """Whether a plan restores a container of this user's usual site, but owner and mode of the
    engine's usual socket keep the user from opening it. Root then acts itself: that is what sudo
    was used for."""
    try:
        info, entry = os.stat(DEFAULT_SOCKET), pwd.getpwuid(uid)
    except (OSError, KeyError):
        return False
    if plan.baseline.kind != "container" or not _is_of(plan, _site_in(entry.pw_dir)):
        return False
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    bits = 0o200 if info.st_uid == uid else 0o020 if info.st_gid in groups else 0o002
    return not info.st_mode & bits


def _site_in(home: str) -> str:
    return os.path.realpath(paths.default_site(Path(home) / ".config" / paths.APP))


def is_of_site(pointer: Pointer, plan: SealedPlan) -> bool:
    """Whether a run is of the site whose plan this is."""
    return bool(pointer.site) and _is_of(plan, os.path.realpath(pointer.site))


def _is_of(plan: SealedPlan, site: str) -> bool:
    return plan.site_path.startswith("/") and os.path.realpath(plan.site_path) == site


def _is_rehearsal(plan: SealedPlan) -> bool:
    """Whether it is the plan of a rehearsal, which counts only when it is asked for."""
    return plan.site_path.startswith(f"{paths.rehearsal_dir()}/")


def _error_words(error: Exception) -> str:
    return str(error) if isinstance(error, ConsoleError) else f"{type(error).__name__}: {error}"


def _names_in(directory: Path) -> list[str]:
    """The names in a directory; none if it cannot be read: a plan may be found elsewhere."""
    with contextlib.suppress(OSError):
        return os.listdir(directory)
    return []


def _evidence_for(uid: int) -> str:
    """Say what shows that a rollback under sudo is meant for this user; empty if nothing does."""
    try:
        home = Path(pwd.getpwuid(uid).pw_dir)
    except KeyError:
        return ""
    states = (home / ".local/state" / paths.APP, paths.state_dir())  # the latter with `sudo -E`
    sites = (paths.default_site(home / ".config" / paths.APP), paths.default_site())
    if any(owner_of(state / "runs") == uid for state in states):
        return "runs these are"
    return "site it is" if any(owner_of(site) == uid for site in sites) else ""
