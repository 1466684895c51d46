"""What may be killed, by recorded identity, and what is never killed, whatever a record says.

A container is identified by its full id and then by its control groups (with their inodes), a
process by pid and start time. Nothing is ever chosen by size or name. The deny list overrides
everything: baseline, protected services, pid 1, this process with its ancestors and session,
the runner and the standby.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from console.common.text import one_line
from console.host import cgroup, process
from console.host.cgroup import FULL_ID, Cgroup, Hierarchy
from console.host.process import COOKIE
from console.recovery.guard.config import GuardConfig
from console.recovery.rollback import live
from console.recovery.rollback.live import Live

KILLED = ("container", "process", "step")
"""Kinds of entries in live.jsonl that a breach kills; entries of other kinds are spared."""
SHORTEST_ID = 12
"""How many hexadecimal digits identify a container in a deny list; fewer could be a name."""


@dataclass(frozen=True, slots=True)
class Target:
    """A load of the run. A container has `container` and `cgroups`; with no `cgroups` it is
    pending: it has not started, or is gone. A process or step has `pid` and `start` of the leader
    of its session and, where one could be made, the control group that everything it starts is
    in."""

    kind: str
    name: str
    container: str = ""
    cgroups: tuple[Cgroup, ...] = ()
    pid: int = 0
    start: int = 0
    run: str = ""
    """The run's id. It identifies the members of a group whose leader has ended."""
    expendable: bool = False
    """Whether a container was started to learn if it fits: an OOM kill in it is no breach."""

    @property
    def pending(self) -> bool:
        """Whether it is a container whose control group has yet to be found."""
        return bool(self.container) and not any(group.stands for group in self.cgroups)

    @property
    def who(self) -> str:
        """The identity in words."""
        if self.container:
            return f"container {self.container[:12]}"
        return f"pid {self.pid}" if self.pid else ""

    @property
    def title(self) -> str:
        """Name and identity, clean."""
        name, who = one_line(self.name, 40), self.who
        return f"{name} ({who})" if name and who else name or who


@dataclass(frozen=True, slots=True)
class Deny:
    """What is never killed: containers by id (`spare`), and processes by (pid, start) with
    everything in their sessions and groups. A service's name never counts here, because an
    unrelated container may have it."""

    spare: tuple[str, ...] = ()
    spare_pids: tuple[tuple[int, int], ...] = ()
    since: int = 0
    """When the run's first runner started, in clock ticks since boot."""
    run: str = ""
    """The run's id."""

    def covers(self, target: Target) -> bool:
        """Return whether a target is denied by its container's id."""
        return bool(target.container) and any(
            target.container.startswith(word)
            for word in self.spare
            if len(word) >= SHORTEST_ID and FULL_ID.match(word.ljust(64, "0"))
        )

    def pids(self, stats: Iterable[process.Stat] | None = None) -> set[int]:
        """Return every pid that is spared now. `stats` is a listing of all processes, if the caller
        has one."""
        leaders = self.leaders()
        heads = leaders | {os.getsid(0)}
        every = process.all_stats() if stats is None else stats
        return leaders | {s.pid for s in every if s.session in heads or s.group in heads}

    def leaders(self) -> set[int]:
        """Return pid 1, this process, its ancestors, and the spared processes themselves."""
        spared = {pid for pid, start in self.spare_pids if _is_or_was(pid, start)}
        return process.ancestry(os.getpid()) | spared | {1}

    def groups(self, trees: Iterable[Hierarchy]) -> tuple[Cgroup, ...]:
        """Return the control groups of denied containers."""
        ids = [word for word in self.spare if FULL_ID.fullmatch(word)]
        return tuple(group for word in ids for group in cgroup.find(word, trees, scan=False))

    def places(self) -> tuple[tuple[str, str], ...]:
        """Return (kind, path below the mount) of the control groups that this process and the
        spared ones are in, since a group above one of them must not be killed either."""
        mine = [os.getpid(), *(pid for pid, start in self.spare_pids if process.alive(pid, start))]
        return tuple(place for pid in mine for place in cgroup.paths_of(pid))


def _is_or_was(pid: int, start: int) -> bool:
    """Return whether a pid belongs to this process, or to none: the process's group may live on."""
    process_stat = process.stat(pid)
    return process_stat is None or process_stat.start == start


def deny_of(config: GuardConfig, entries: Iterable[Live] = ()) -> Deny:
    """Return the deny list of a guard config, with runner and standby of live.jsonl added."""
    entries = tuple(entries)
    others = [(e.pid, e.start) for e in entries if e.kind not in KILLED and e.pid]
    pids = dict.fromkeys([*config.spare_pids, *others])
    if config.runner[0]:
        pids[config.runner] = None
    since = min((e.start for e in entries if e.kind == "runner"), default=config.runner[1])
    spare = tuple(word for word in config.spare if word)
    return Deny(spare, tuple(pids), since, config.run_id)


def sort_out(
    entries: Iterable[Live], deny: Deny, trees: tuple[Hierarchy, ...] | None = None
) -> tuple[tuple[Target, ...], tuple[str, ...]]:
    """Return the targets, and in words what is recorded but denied. Containers that have no control
    group yet are targets, too (`pending`). `trees` are the mounted hierarchies, if known."""
    trees = cgroup.hierarchies() if trees is None else trees
    targets: dict[Target, None] = {}
    refused: dict[str, None] = {}
    named = [entry for entry in entries if entry.kind in KILLED]
    # One listing of /proc serves all of them.
    inside = cgroup.processes() if any(entry.container for entry in named) else {}
    stats = process.all_stats() if any(entry.pid for entry in named) else []
    for entry in named:
        target = _target(entry, trees, inside, stats, deny.run)
        if target is None:
            continue
        why = refusal(target, deny, trees) or _older_than_run(target, deny)
        if why:
            refused[f"{target.title} is spared: {why}"] = None
        else:
            targets[target] = None
    return tuple(targets), tuple(refused)


def _target(
    entry: Live,
    trees: tuple[Hierarchy, ...],
    inside: Mapping[str, int],
    stats: Sequence[process.Stat],
    run: str,
) -> Target | None:
    if entry.container:
        if not FULL_ID.fullmatch(entry.container):
            return None
        groups = cgroup.find(entry.container, trees, inside=inside)
        return Target(entry.kind, entry.name, entry.container, groups, expendable=entry.expendable)
    if entry.pid < 2:
        return None
    group = cgroup.of(entry.group, entry.pid, entry.start) if entry.group else None
    groups = (group,) if group is not None else ()
    if process.members(entry.pid, entry.start, stats, cookie=run) or any(
        not cgroup.is_empty(g) for g in groups
    ):
        return Target(entry.kind, entry.name, "", groups, entry.pid, entry.start, run)
    return None


def refreshed(
    target: Target, trees: tuple[Hierarchy, ...], *, inside: Mapping[str, int] | None = None
) -> Target:
    """Return a container with its current control groups. This takes a few stat calls (some 0.1
    ms). `inside` is the result of `cgroup.processes` and is used if the groups are in none of the
    usual places."""
    if not target.container:
        return target
    groups = cgroup.find(target.container, trees, inside=inside or {})
    return target if groups == target.cgroups else replace(target, cgroups=groups)


def refusal(target: Target, deny: Deny, trees: tuple[Hierarchy, ...]) -> str:
    """Check the system again, and return in words why a target must not be killed; "" if it may."""
    if deny.covers(target):
        return "it is the baseline or protected"
    if target.container:
        return _refused_groups(target, deny, trees)
    return _refused_process(target, deny) or _refused_groups(target, deny, trees)


def _older_than_run(target: Target, deny: Deny) -> str:
    """Return why a process is spared as somebody else's, "" if it is not. A process that is older
    than the run is a target only if a run started it, so that a wrong record cannot kill somebody
    else's process. This is checked when the target is found, not when it is killed, because the
    environment of a process cannot be read while it maps memory."""
    older = 0 < target.start < deny.since
    if not older or target.cgroups or _has_cookie(target.pid):
        return ""
    return "it is older than the run, and no run started it"


def _has_cookie(pid: int) -> bool:
    """Return whether any run started the process; False if its environment cannot be read."""
    try:
        return f"\0{COOKIE}=".encode() in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _refused_process(target: Target, deny: Deny) -> str:
    """Return why a process is refused, "" if it is not. This takes a few system calls and no
    listing of /proc, because it delays a kill."""
    leaders = deny.leaders()
    theirs = leaders.union(*map(_ids, leaders))
    if ({target.pid} | _ids(target.pid)) & (theirs - {0}):
        return "its process is the baseline's, protected, or the console's own"
    return ""


def _ids(pid: int) -> set[int]:
    """Return the session and the group of a process, as far as there are any."""
    ids = set()
    for of in (os.getsid, os.getpgid):
        with contextlib.suppress(OSError):
            ids.add(of(pid))
    return ids


def _refused_groups(target: Target, deny: Deny, trees: tuple[Hierarchy, ...]) -> str:
    denied = deny.groups(trees)
    inodes = {(group.kind, group.inode) for group in denied}
    mounts = {tree.kind: tree.mount for tree in trees}
    spared = [group.path for group in denied]
    spared += [mounts[kind] + path for kind, path in deny.places() if kind in mounts]
    for own_group in target.cgroups:
        if (own_group.kind, own_group.inode) in inodes:
            return "its control group is the baseline's or protected"
        if any((path + "/").startswith(own_group.path + "/") for path in spared):
            return "a spared process or container runs inside it"
    return ""


NEW_S = 30.0
"""A container without a control group counts as new for this long: it is checked at every tick, and
later once a second."""
SCAN_S = 2.0
"""/proc is searched this often for a new container that is in none of the usual places."""
GROUP_S = 5.0
"""The members of a process group whose leader is gone are looked for this often."""


class LiveTargets:
    """The part of the run that is alive, by its records, which are read again when they grow and
    checked once a second. A recorded container may have no control group yet; while it is new, the
    group is looked for at every tick. `targets` may be killed; `refused` says in words which
    recorded ones may not."""

    def __init__(self, path: Path, trees: tuple[Hierarchy, ...]) -> None:
        self._path = path
        self._trees = trees
        self._stamp: tuple[int, int] = (0, 0)
        self._since: dict[str, float] = {}
        self._scan_at = self._leaderless_at = 0.0
        self._leaderless: set[int] = set()
        self._pending: tuple[Target, ...] = ()
        self.any = False
        self.targets: tuple[Target, ...] = ()
        self.refused: tuple[str, ...] = ()

    def armed(self, now: float) -> bool:
        """Return whether something is alive or is about to start."""
        return self.any or any(self._is_new(target, now) for target in self._pending)

    def _is_new(self, target: Target, now: float) -> bool:
        return now - self._since.get(target.container, now) < NEW_S

    def _split_pending(self) -> None:
        """Find the pending targets. Each costs a stat call or two, so not every tick does this."""
        self._pending = tuple(target for target in self.targets if target.pending)
        self.any = len(self._pending) < len(self.targets)

    def grew(self) -> bool:
        """Return whether the records changed since they were read; this takes one stat call."""
        return self._file_stamp() != self._stamp

    def read(self, deny: Callable[[list[live.Live]], Deny], now: float) -> Deny:
        """Read all records again, in some 5 ms. Returns the deny list that belongs to them."""
        self._stamp = self._file_stamp()
        entries = live.read(self._path)
        denied = deny(entries)
        self.targets, self.refused = sort_out(entries, denied, self._trees)
        for target in self.targets:
            if target.container:
                self._since.setdefault(target.container, now)
        self._split_pending()
        return denied

    def tick(self, now: float) -> bool:
        """Look for containers that have just been recorded. Returns whether one was found."""
        new = [target for target in self._pending if self._is_new(target, now)]
        if not new:
            return False
        scan = now >= self._scan_at
        if scan:
            self._scan_at = now + SCAN_S
        return self._refresh(new, scan)

    def second(self, now: float) -> bool:
        """Check what is alive. Returns whether that changed: processes that ended, containers that
        came or went."""
        before = self.targets
        gone = [target for target in self.targets if target.pid and not self._lives(target, now)]
        if now >= self._leaderless_at:
            self._leaderless_at = now + GROUP_S
        self.targets = tuple(target for target in self.targets if target not in gone)
        # the same container may get a new group under its id: it was restarted
        self._split_pending()
        self._refresh(list(self._pending), False)
        for known_target in self.targets:
            if known_target in self._pending:
                self._since.setdefault(known_target.container, now)
            elif known_target.container:
                self._since.pop(known_target.container, None)
        return self.targets != before

    def _refresh(self, some: list[Target], scan: bool) -> bool:
        inside = cgroup.processes() if scan and some else {}
        refreshed_targets = {
            target: refreshed(target, self._trees, inside=inside) for target in some
        }
        changed = {old: new for old, new in refreshed_targets.items() if not new.pending}
        if changed:
            self.targets = tuple(changed.get(target, target) for target in self.targets)
            self._split_pending()
        return bool(changed)

    def _lives(self, target: Target, now: float) -> bool:
        if process.alive(target.pid, target.start):
            return True
        if target.pid in self._leaderless and now < self._leaderless_at:
            return True
        # a group counts as alive while it has members, even if its leader is gone
        left = any(not cgroup.is_empty(group) for group in target.cgroups)
        left = left or bool(process.members(target.pid, target.start, cookie=target.run))
        self._leaderless = (
            (self._leaderless | {target.pid}) if left else (self._leaderless - {target.pid})
        )
        return left

    def _file_stamp(self) -> tuple[int, int]:
        try:
            file_stat = os.stat(self._path)
        except OSError:
            return (0, 0)
        return (file_stat.st_ino, file_stat.st_size)
