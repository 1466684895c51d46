"""The kill of one target: what is tried, in which order, and whether the target is dead.

A container is killed by cgroup.kill, or else by signals to everything in its group. The engine is
told at the same time, which also keeps it from restarting the container, and the root helper is
asked if this user may not signal it. Of a process, its group is killed first, and then its session,
its descendants, and strays with the run's cookie.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from console.host import cgroup, process
from console.host.cgroup import Cgroup, Hierarchy
from console.recovery.guard.kill import signals
from console.recovery.guard.kill.mrelease import Reaper
from console.recovery.guard.kill.signals import UnixRequest, kill_request, status
from console.recovery.guard.kill.targets import Target, refreshed
from console.runtime.root_helper import helper_question, helper_refusal

ROUND_S = 0.02
"""Seconds between two rounds of signals; so few that a fork bomb does not outrun them."""
SWEEP_S = 0.1
SOON_S = 0.02
"""Seconds between two listings of /proc: while known processes live, and once none does."""
WATCHED = 32
STUCK_S = 3.0
"""A target that is not dead after this is signalled again, and reported with the reason."""
PENDING_S = 1.0
"""How long the group of a pending container is looked for; most such containers ended long ago."""
REQUEST_S = 2.0


class TargetKill:
    """What all kinds of kill share. `reached_by` names each stage that reached the target, in
    order, and `why` says what did not work. Times are the caller's monotonic ones, None for not
    yet."""

    def __init__(self, target: Target, reaper: Reaper | None, clock: Callable[[], float]) -> None:
        self.target = target
        self.reached_by: list[str] = []
        self.why: list[str] = []
        self.written_at: float | None = None
        self.empty_at: float | None = None
        self.stuck = ""
        self.rounds = 0
        self.freed = False
        self._reaper = reaper
        self._clock = clock
        self._next = 0.0
        self._warn_at = clock() + STUCK_S

    @property
    def over(self) -> bool:
        return self.empty_at is not None

    def _reached(self, stage: str, at: float | None = None) -> None:
        if self.written_at is None:
            self.written_at = self._clock() if at is None else at
        if stage not in self.reached_by:
            self.reached_by.append(stage)

    @property
    def stages(self) -> tuple[str, ...]:
        """What reached the target, in order, and whether its memory was freed from outside."""
        return (*self.reached_by, *(("process_mrelease",) if self.freed else ()))

    def _note(self, words: str) -> None:
        if words and words not in self.why:
            self.why.append(words)

    def _free(self, pids: Sequence[int]) -> None:
        self.freed = signals.free_later(self._reaper, pids) or self.freed


class ContainerKill(TargetKill):
    """The kill of a container, by its control groups."""

    def __init__(
        self,
        target: Target,
        reaper: Reaper | None,
        clock: Callable[[], float],
        trees: tuple[Hierarchy, ...],
        engine: str = "",
        helper: str = "",
    ) -> None:
        super().__init__(target, reaper, clock)
        self.requests: dict[str, UnixRequest] = {}
        self.present = False
        self._trees, self._engine, self._helper = trees, engine, helper
        self._begun = 0.0
        self._signals = False

    def begin(self, now: float) -> None:
        """Send the first kill."""
        self._begun = now
        self._send_kill(now)
        if self._engine:
            # The engine is told even after cgroup.kill: it must neither restart the container nor
            # start it a moment later.
            self.requests["engine"] = UnixRequest(
                self._engine, kill_request(self.target.container), now, REQUEST_S
            )
            if self.requests["engine"].sent and self.target.cgroups:
                self._reached("engine")
        elif not self.target.pending:
            self._note("no engine socket is known")

    def advance(self, now: float) -> bool:
        """Advance without waiting. Returns True when the container is dead, or was not there."""
        if self.over:
            return True
        for name, request in self.requests.items():
            if request.advance(now):
                self._read_answer(name, request)
        if self.target.pending:
            return self._await_start(now)
        if cgroup.is_empty(self._group()):
            self.empty_at, self.stuck = now, ""
        elif now >= self._warn_at:
            self._warn_at = now + STUCK_S
            self.stuck = signals.stuck(self._pids())
            self._send_kill(now)
        elif self._signals and now >= self._next:
            self._send_kill(now)
        return self.over

    def _await_start(self, now: float) -> bool:
        if self.present:
            self.empty_at = now  # the groups it had are gone
        elif now >= self._next:
            self._next = now + ROUND_S
            self.target = refreshed(self.target, self._trees)
            if not self.target.pending:
                self._send_kill(now)
            elif now - self._begun >= PENDING_S:
                self.empty_at = now
        return self.over

    def _send_kill(self, now: float) -> None:
        """Try cgroup.kill, then one round of signals, then the helper. Memory is freed only
        once."""
        if self.target.pending:
            return
        self.present = True
        self.rounds += 1
        if self._by_cgroup():
            return
        if self.rounds == 1:
            self._free(self._pids())
        done = signals.signal_group(self._group(), self.target.container, self._clock)
        if done.reached:
            self._reached("signals", done.first_at)
            self._signals = True
        elif done.not_permitted:
            self._note("this user may not signal it")
            if self._helper and "helper" not in self.requests:
                question = helper_question(self.target.container)
                self.requests["helper"] = UnixRequest(self._helper, question, now, REQUEST_S)
                if self.requests["helper"].sent:
                    self._reached("helper")
        self._next = now + ROUND_S

    def _by_cgroup(self) -> bool:
        for group in self.target.cgroups:
            if group.kind:
                continue
            code, freed = signals.write_kill(group, self._reaper if self.rounds == 1 else None)
            self.freed = self.freed or freed
            if code == 0:
                self._reached("cgroup.kill")
                return True
            if code != errno.ENOENT:
                self._note(f"cgroup.kill: {os.strerror(code)}")
        return False

    def _group(self) -> Cgroup:
        """Return the first control group that still exists, of version 2 if it does: every process
        is in each of them."""
        groups = self.target.cgroups
        return next((group for group in groups if group.stands), groups[0])

    def _pids(self) -> list[int]:
        return cgroup.pids(self._group().path)

    def _read_answer(self, name: str, request: UnixRequest) -> None:
        if name == "helper":
            refused = helper_refusal(request.answer)
            self._note(refused or (request.why and f"helper: {request.why}"))
            return
        code = status(request.answer)
        if request.why:
            self._note(f"engine: {request.why}")
        elif code >= 300 and code not in (404, 409):  # 404, 409: gone or ended already
            self._note(f"engine: HTTP {code}")


class ProcessKill(TargetKill):
    """The kill of a process or step that leads a session of its own."""

    _known: Sequence[tuple[int, int]] = ()

    def __init__(self, target: Target, reaper: Reaper | None, clock: Callable[[], float]) -> None:
        super().__init__(target, reaper, clock)
        self._session = process.Group(target.pid, target.start, target.run)
        # This is known to be the run's: a kill must not read environments, which may block.
        self._session.led = True

    def begin(self, now: float) -> None:
        """Kill the process group in one call; everything else follows with the first sweep."""
        code, self.freed = signals.signal_leader(self.target.pid, self.target.start, self._reaper)
        self.rounds += 1
        if code == 0:
            self._reached("signals")
        elif code == errno.EPERM:
            self._note("this user may not signal it")
        self._end_group()

    def _end_group(self) -> list[int]:
        """Kill everything in the control group in which the process was started, including
        processes that left its session and group. Returns the pids that were in there."""
        left: list[int] = []
        for group in self.target.cgroups:
            pids = cgroup.pids(group.path) if group.stands else []
            if pids and signals.write_kill(group)[0] == 0:
                self._reached("cgroup.kill")
            left += pids
        return left

    @property
    def lives(self) -> bool:
        """Whether a process that was found last time still lives, so that no sweep is needed."""
        return any(process.alive(pid, start) for pid, start in self._known[:WATCHED])

    def sweep(self, now: float, stats: Sequence[process.Stat], spared: set[int]) -> bool:
        """Kill what is left of session, group and descendants. Returns True when nothing is."""
        if self.over:
            return True
        left = signals.group_members(self._session, stats, spared)
        # The whole group is signalled at once if possible: forks slip in between single signals.
        if not any(stat.group == self.target.pid and stat.pid in spared for stat in stats):
            signals.signal_whole_group(self.target.pid, left)
        known = {stat.pid for stat in left}
        inside = set(self._end_group())
        left += [stat for stat in stats if stat.pid in inside - known - spared]
        return self._kill(now, left)

    def _kill(self, now: float, left: Sequence[process.Stat]) -> bool:
        self._known = [(stat.pid, stat.start) for stat in left]
        if not left:
            self.empty_at, self.stuck = now, ""
            return True
        self.rounds += 1
        if self.rounds <= 2:  # once for everything that was found after the leader
            self._free([stat.pid for stat in left])
        done = signals.signal_processes(left, self._clock)
        if done.reached:
            self._reached("signals", done.first_at)
        elif done.not_permitted:
            self._note("this user may not signal it")
        if now >= self._warn_at:
            self._warn_at = now + STUCK_S
            self.stuck = signals.stuck([stat.pid for stat in left])
        return False


class StrayKill(ProcessKill):
    """The kill of strays: processes that carry the run's cookie and are in no record, for example
    after a double fork, in another session."""

    def __init__(self, run_id: str, reaper: Reaper | None, clock: Callable[[], float]) -> None:
        super().__init__(Target("stray", "strays with the run's cookie"), reaper, clock)
        self.run_id = run_id
        self.stray_count = 0

    def begin(self, now: float) -> None:
        """Do nothing: strays are found by the sweep."""

    def sweep(self, now: float, stats: Sequence[process.Stat], spared: set[int]) -> bool:
        if self.over:
            return True
        left = signals.strays(self.run_id, stats, spared)
        self.stray_count = max(self.stray_count, len(left))
        return self._kill(now, left)
