"""The baseline as it is seen: whether it runs, and whether it is what answers at its address."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from console.common.errors import EngineError
from console.host import process
from console.host.ports import ENGINE_PROXY, foreign, listeners
from console.host.process import BASELINE_COOKIE
from console.host.resident import pids_of_container
from console.recovery.rollback.context import RollbackContext
from console.runtime import proxy as relay
from console.runtime.engine_api import NoSuchContainer, RawEngine
from console.runtime.probe import Health, health

OWNER_S = 2.0
"""How long the engine may take to say whether it is the baseline that answers."""


class Observed:
    """What can be known of the baseline; nothing is started or stopped here."""

    def __init__(self, context: RollbackContext) -> None:
        self.context = context
        self.plan = context.plan.baseline
        self.container = next(iter(self.plan.ways), "")
        self.process: tuple[int, int] | None = None
        self.inspected: dict[str, Any] | None = None
        """The container as its engine had it last; see `_state`."""

    def serving(self) -> bool:
        """Whether it answers its health path and is the one that runs there, as far as known."""
        there = health(self.plan.url, self.plan.ready_path, 1.0)[0] is Health.SERVING
        return there and self.is_ours()

    def is_ours(self, limit_s: float | None = None) -> bool:
        """Whether what answers may be the baseline, as far as known. After a stop that failed a
        candidate may answer in its place: then only a baseline that is known to run counts."""
        able = self.can_answer(limit_s)
        known = able is True if self.context.stop_failed else able is not False
        if not known or relay.at(self.plan.url) is not None:
            return False  # a candidate answers there, by a cutover that could not be ended
        return not self._somebody_else_listens()

    def running(self) -> bool | None:
        """Whether the container or process is up; None when nobody can tell. A container that is
        paused or restarting counts: it may serve again without anybody's help."""
        if self.plan.kind == "process":
            return self._process_runs()
        state = self._state(None)
        return is_up(state) if state is not None else None

    def can_answer(self, limit_s: float | None = None) -> bool | None:
        """Whether it can answer at this moment; None when nobody can tell."""
        if self.plan.kind == "process":
            return self._process_runs()
        state = self._state(limit_s)
        return can_answer(state) if state is not None else None

    def life(self) -> str:
        """What tells this very start of it from its next one; empty when nobody can tell."""
        if self.plan.kind == "process":
            return "{} {}".format(*self.process) if self.process else ""
        state = _dict(self._state(OWNER_S), "State")
        return f"{state.get('Pid')} {state.get('StartedAt')}" if state else ""

    def _process_runs(self) -> bool | None:
        self.process = self.process or self.context.baseline_process()
        if self.process is None:
            return None
        # A start script may be gone while the server it started is not.
        return process.alive(*self.process) or bool(process.members(*self.process))

    def _state(self, limit_s: float | None) -> dict[str, Any] | None:
        """The inspected container, empty when it is gone; None when nobody can tell."""
        self.inspected = None
        engine = self.context.engine
        if engine is None or not self.container:
            return None
        if limit_s is not None:
            engine = RawEngine(engine.path, limit_s)
        try:
            self.inspected = engine.inspect(self.container)
        except NoSuchContainer:
            self.inspected = {}
        except EngineError:
            pass
        return self.inspected

    def _somebody_else_listens(self) -> bool:
        """Whether the port is another user's, or that of a process which is not the baseline's: a
        server may load for long before it finds its address taken."""
        url, here = self.plan.url, self.plan.kind == "process"  # on this machine, by any name
        pids = self._pids()
        found = list(listeners(url, here=here)) if pids else []
        if found:  # the proxy: a start script may run a container
            proxies = {x.pid for x in found if x.words.split(" ")[0].endswith(ENGINE_PROXY)}
            return not any(one.pid in pids | proxies for one in found)
        # not known, or not to be seen by this user
        return (
            foreign(url, here=here) is not None
            and foreign(url, self._users(pids), here=here) is not None
        )

    def _pids(self) -> set[int]:
        """The processes that alone may answer, as far as known. A process by its session, and by
        its mark in their environment, for a server may have left the session of what started it;
        a container where it has no network of its own: else its engine answers for it."""
        if self.plan.kind == "container":
            mode = _dict(self.inspected, "HostConfig").get("NetworkMode")
            return self._inside() if mode == "host" else set()
        spec, known = self.plan.process, self.process
        if spec is None or known is None:
            return set()
        mark = process.mark(self.context.plan.records_dir, self.plan.name, spec)[1]
        marked = {pid for pid, _ in process.by_cookie(BASELINE_COOKIE, mark)}
        return {member.pid for member in process.members(*known)} | marked

    def _users(self, pids: set[int]) -> set[int]:
        """The users that the baseline runs as: it may have changed its user. The engine holds a
        container's port itself: as root, or as who runs it without root's rights."""
        if self.plan.kind == "process" or pids:
            return _owners(pids)
        first = _dict(self.inspected, "State").get("Pid")
        above = process.ancestry(first) if isinstance(first, int) and first > 0 else set()
        return {0} | _owners(self._inside() | above)

    def _inside(self) -> set[int]:
        """The container's processes of this machine."""
        return {*pids_of_container(str((self.inspected or {}).get("Id", "")))}


def _owners(pids: set[int]) -> set[int]:
    """The users of those processes that are still there."""
    users = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            users.add(os.stat(f"/proc/{pid}").st_uid)
    return users


def is_up(container: dict[str, Any]) -> bool:
    """Whether an inspected container runs (paused and restarting count: they hold memory)."""
    state = _dict(container, "State")
    return any(state.get(key) is True for key in ("Running", "Paused", "Restarting"))


def can_answer(container: dict[str, Any]) -> bool:
    """Whether an inspected container has a process that runs now."""
    state = _dict(container, "State")
    held = state.get("Paused") is True or state.get("Restarting") is True
    return state.get("Running") is True and not held and state.get("Pid") != 0


def _dict(value: dict[str, Any] | None, key: str) -> dict[str, Any]:
    found = (value or {}).get(key)
    return found if isinstance(found, dict) else {}
