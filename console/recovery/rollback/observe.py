"""The baseline as it is seen: whether it runs, and whether it is what answers at its address."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from console.common.errors import EngineError
from console.host import process
from console.host.ports import Listener, foreign, listeners
from console.host.process import BASELINE_COOKIE
from console.host.resident import pids_of_container
from console.recovery.rollback.context import Scene
from console.runtime import proxy as relay
from console.runtime.engine_api import NoSuchContainer, RawEngine
from console.runtime.probe import Health, health

OWNER_S = 2.0
"""How long the engine may take to say whether it is the baseline that answers."""
ENGINE_PROXY = "docker-proxy"
"""What holds a published port where the engine does not leave that to the firewall."""


class Observed:
    """What can be known of the baseline; nothing is started or stopped here."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.plan = scene.plan.baseline
        self.container = next(iter(self.plan.ways), "")
        self.process: tuple[int, int] | None = None

    def serving(self) -> bool:
        """Whether it answers its health path and is the one that runs there, as far as known."""
        if health(self.plan.url, self.plan.ready_path, 1.0)[0] is not Health.SERVING:
            return False
        if relay.at(self.plan.url) is not None:
            return False  # a candidate answers there, by a cutover that could not be ended
        return self.is_ours()

    def is_ours(self, limit_s: float | None = None) -> bool:
        """Whether what answers may be the baseline, as far as known. After a stop that failed a
        candidate may answer in its place: then only a baseline that is known to run counts."""
        able = self.can_answer(limit_s)
        known = able is True if self.scene.stop_failed else able is not False
        return known and not self._somebody_else_listens()

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
        self.process = self.process or self.scene.baseline_process()
        if self.process is None:
            return None
        # A start script may be gone while the server it started is not.
        return process.alive(*self.process) or bool(process.members(*self.process))

    def _state(self, limit_s: float | None) -> dict[str, Any] | None:
        """The inspected container, empty when it is gone; None when nobody can tell."""
        engine = self.scene.engine
        if engine is None or not self.container:
            return None
        if limit_s is not None:
            engine = RawEngine(engine.path, limit_s)
        try:
            return engine.inspect(self.container)
        except NoSuchContainer:
            return {}
        except EngineError:
            return None

    def _somebody_else_listens(self) -> bool:
        """Whether the port is another user's, or that of a process which the baseline's has not
        started: a server may load for long before it finds its address taken."""
        url = self.plan.url
        if self.plan.kind == "container":
            # in the host's network it may run as any user
            return foreign(url) is not None and foreign(url, self._users()) is not None
        found = list(listeners(url)) if self.process is not None else []
        if not found:  # not known, or not to be seen by this user
            return foreign(url) is not None
        return not any(self._has(one) for one in found)

    def _has(self, one: Listener) -> bool:
        """Whether a listener is the baseline's process or comes from it."""
        assert self.process is not None
        if one.words.split(" ")[0].endswith(ENGINE_PROXY):
            return True  # a start script that runs a container
        return one.pid in {member.pid for member in process.members(*self.process)} | self._marked()

    def _marked(self) -> set[int]:
        """The pids that have the baseline's mark in their environment: a server may have left the
        session of what started it."""
        spec = self.plan.process
        if spec is None:
            return set()
        mark = process.mark(self.scene.plan.records_dir, self.plan.name, spec)[1]
        return {pid for pid, _ in process.by_cookie(BASELINE_COOKIE, mark)}

    def _users(self) -> set[int]:
        """The users that the container's processes and its engine run as: one without root's
        rights holds the published port itself."""
        found = self._state(OWNER_S) or {}
        first = _dict(found, "State").get("Pid")
        pids = {*pids_of_container(str(found.get("Id", "")))}
        pids |= process.ancestry(first) if isinstance(first, int) and first > 0 else set()
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
