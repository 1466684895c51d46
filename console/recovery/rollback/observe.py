"""Observes the baseline: whether it runs, and whether it is what answers at its address."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from console.common.argv import has_other_flags, may_have_started
from console.common.clock import SystemClock
from console.common.errors import EngineError, ServiceError
from console.common.text import one_line
from console.host import process, units
from console.host.memory import oom_kills, oom_kills_since, pids_of_container
from console.host.ports import (
    MAX_NAMED,
    Answering,
    answering,
    doors_of,
    engine_proxies,
    foreign,
    have_engine_client,
    held_by_others,
    held_words,
    listeners,
    port_of,
    strangers,
)
from console.host.process import BASELINE_COOKIE
from console.host.units import UnitState
from console.recovery.rollback import evidence, live
from console.recovery.rollback.baseline_state import GOOD, Evidence, Kind, time_words
from console.recovery.rollback.context import RollbackContext, engine_of
from console.recovery.rollback.progress import Report, new_trigger
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runtime import proxy as relay
from console.runtime.engine_api import (
    NoSuchContainer,
    RawEngine,
    can_answer,
    is_one_off,
    published_elsewhere,
)
from console.runtime.probe import TLS, Health, health

ELSE = "something else answers there"
OTHER = "another process (pid"
ANSWERS, HAS_PORT = "answers", "has its port"
"""What that one is seen to do: whether it answers is not always known."""
ELSEWHERE = "and the url says"
"""Of a baseline that listens, but not at its URL."""
CORRECT = "correct `url` in the site file, or what starts it: no restart changes that"
ITS_REFUSALS = ("HTTP 401", "HTTP 403", TLS)
"""How a health path refuses that is the baseline's own; any other server may know no such path."""
LOOPBACK = "http://127.0.0.1:"
RENAMED = "its container is named"
SLOW_S = 5.0
"""Seconds that a health path gets before what is behind it counts as not serving."""
OWNER_S = 2.0
"""Seconds that the engine gets to answer when it is asked whether the baseline can answer."""


class Observed:
    """What is known of the baseline; nothing is started or stopped here."""

    def __init__(self, context: RollbackContext) -> None:
        self.context = context
        self.plan = context.plan.baseline
        self.container = ""
        """Id or name of the container, once the engine was asked which; see `ways`."""
        self.process: tuple[int, int] | None = None
        self.inspected: dict[str, Any] | None = None
        """The container as the engine last described it; see `_state`."""
        self.unit: UnitState | None = None
        """The unit as its systemd last described it; see `unit_state`."""
        self._group: process.Group | None = None
        self._kills_before = oom_kills()

    def serving(self) -> bool:
        """Whether the health path answers and, as far as known, it is the baseline that answers."""
        state = health(self.plan.url, self.plan.ready_path, 1.0)[0]
        if state is Health.UNHEALTHY:  # it is there, and may only be slow to say that it is well
            state = health(self.plan.url, self.plan.ready_path, SLOW_S)[0]
        return state is Health.SERVING and self.is_ours()

    def is_ours(self, limit_s: float | None = None, *, known: bool = False) -> bool:
        """Whether what answers is the baseline, as far as known.

        The baseline has to be known to run if `known` says so, or if the stop stage failed: then a
        candidate may answer in its place.
        """
        able = self.can_answer(limit_s)
        if able is None and self.plan.kind == "container" and self.pids():
            able = True  # no engine tells, and its processes hold the port
        known = able is True if known or self.context.stop_failed else able is not False
        if not known or relay.at(self.plan.url) is not None:
            return False  # a candidate answers, because its relay could not be ended
        return not self._somebody_else_listens()

    def running(self) -> bool | None:
        """Whether the baseline is up; None when that is unknown.

        A paused or restarting container counts as up: it may serve again by itself. So does a unit
        that starts or stops.
        """
        if self.plan.kind == "process":
            return self._process_runs()
        if self.plan.unit is not None:
            unit = self.unit_state()
            return unit.is_up if unit is not None else None
        state = self._state(None)
        return is_up(state) if state is not None else None

    def can_answer(self, limit_s: float | None = None) -> bool | None:
        """Whether the baseline can answer at this moment; None when that is unknown."""
        if self.plan.kind == "process":
            return self._process_runs()
        if self.plan.unit is not None:
            unit = self.unit_state()
            return unit.is_up and unit.main > 0 if unit is not None else None
        state = self._state(limit_s)
        return can_answer(state) if state is not None else None

    def is_paused(self) -> bool:
        """Whether it is a container that was last seen paused, and nobody else has its address: the
        kernel takes connections for it, and nobody answers."""
        paused = _dict(self.inspected, "State").get("Paused") is True
        return paused and not self._somebody_else_listens()

    def life(self) -> str:
        """A text that differs between two starts of the baseline; empty when that is unknown."""
        if self.plan.kind == "process":
            return "{} {}".format(*self.process) if self.process else ""
        if self.plan.unit is not None:
            unit = self.unit_state()
            return f"{unit.main} {unit.invocation}" if unit is not None and unit.main else ""
        state = _dict(self._state(OWNER_S), "State")
        return f"{state.get('Pid')} {state.get('StartedAt')}" if state else ""

    def container_words(self) -> str:
        """The name that the plan has for the container, and its id; "" where either is unknown."""
        name, known = self.plan.container_name, str((self.inspected or {}).get("Id") or "")
        return f"{name} {known}" if name and known else ""

    def exit_code(self) -> int | None:
        """How the baseline ended, as far as that is known: negative for a signal."""
        if self.plan.kind == "process":
            return process.exit_code(*self.process) if self.process is not None else None
        code = _dict(self.inspected, "State").get("ExitCode")
        return code if isinstance(code, int) else None

    def oom_kills(self) -> int | None:
        """How many processes the kernel has killed for memory since this rollback began."""
        return oom_kills_since(self._kills_before)

    def unit_state(self) -> UnitState | None:
        """The unit as its systemd describes it now; None if it does not say, or there is none."""
        self.unit = None
        if self.plan.unit is not None:
            with contextlib.suppress(ServiceError):
                self.unit = units.look(self.plan.unit, OWNER_S)
        return self.unit

    def _process_runs(self) -> bool | None:
        self.process = self.process or self.context.baseline_process()
        if self.process is None:
            return None
        # A start script may have ended while the server that it started still runs.
        return bool(self._members(*self.process))

    def ways(self) -> list[str]:
        """Names and ids of the container, in the order in which they are tried (`ways`)."""
        engine = self.context.engine
        raw = RawEngine(engine.path, OWNER_S) if engine is not None else None
        return ways(self.context.plan, raw)

    def _state(self, limit_s: float | None, name: str = "") -> dict[str, Any] | None:
        """The inspected container, empty if it is gone; None if the engine gives no answer."""
        self.inspected = None
        if not self.container:
            self.container = next(iter(self.ways()), "")
        engine, name = self.context.engine, name or self.container
        if engine is None or not (name or self.plan.compose_argv):
            return None
        if limit_s is not None:
            engine = RawEngine(engine.path, limit_s)
        try:
            try:
                known = name or engine.of_compose(self.plan.compose_argv)
                self.inspected = engine.inspect(known) if known else None
            except NoSuchContainer:
                if name != self.container:
                    raise
                self.inspected = inspected(self.context.plan, engine)  # it was made anew
                self.container = str(self.inspected.get("Id") or name)
        except NoSuchContainer:
            self.inspected = {}
        except EngineError:
            pass
        return self.inspected

    def _somebody_else_listens(self) -> bool:
        """Whether another user, or a process that is not the baseline's, holds the port.

        That the baseline runs proves nothing: it may load for long before it finds the port taken.
        """
        url = self.plan.url
        if published_elsewhere(self.inspected or {}, url):
            return True
        pids = self.pids()
        # A process or unit is on this machine, whatever name its URL uses; so is a container in
        # the host's network.
        here = self.plan.kind != "container" or bool(pids)
        if not here and _shares_with_proxy(url):
            return True
        sockets = answering(url, here=here) if here else []
        if next(held_by_others(sockets, pids), None) is not None or self._another_program(sockets):
            return True
        unseen = not (here and pids and all(socket.holders for socket in sockets))
        # A listening process that is hidden from this user: its socket's user decides.
        published = not here or have_engine_client(pids)
        return (
            unseen
            and foreign(url, here=here, published=published) is not None
            and foreign(url, self._users(pids), here=here, published=published) is not None
        )

    def _another_program(self, sockets: list[Answering]) -> bool:
        """Whether a process baseline that is not known to run cannot be who listens there: one that
        the operator has started by hand has no record, but the program of the site file, or what
        started it has."""
        spec = self.plan.process
        if self.plan.kind != "process" or spec is None or self.process is not None:
            return False
        for socket in sockets:
            lines = [
                line for holder in socket.holders for line in process.command_lines(holder.pid)
            ]
            if lines and not any(may_have_started(spec.argv, line) for line in lines):
                return True
        return False

    def who_else(self) -> str:
        """Who answers at its address, or does so, too, in clean words; asked where it is known that
        somebody else does."""
        pids, sockets = self.pids(), answering(self.plan.url, here=True)
        shares = any(holder.pid in pids for socket in sockets for holder in socket.holders)
        others = strangers(self.plan.url, pids)[:MAX_NAMED]
        too = ", too" if shares else ""
        named = " and ".join(f"pid {other.pid}, {other.words}" for other in others)
        return f"{ELSE}{too}{named and ': '}{named}"

    def elsewhere(self) -> str:
        """Where a baseline, at whose URL nothing listens, listens instead, in clean words; "" for
        nowhere. A socket at the URL's own port says so by itself. An engine may have sockets at
        other ports: one of these counts only if the baseline's health path is well there, or says
        that it loads, wants a key or speaks TLS."""
        url = self.plan.url
        doors = doors_of(self.pids())
        at = urlsplit(url).netloc.rpartition("@")[2]
        for door in doors:
            if door.port == port_of(url):
                return (
                    f"it listens at {door.words}, {ELSEWHERE} {one_line(at, 100)}: `url` and "
                    "`--host` differ"
                )
        for door in doors:
            state, detail = health(door.url, self.plan.ready_path, 1.0)
            known = state is Health.REFUSING and detail.startswith(ITS_REFUSALS)
            if known or state in (Health.SERVING, Health.LOADING):
                where = f"port {door.port}" if door.url.startswith(LOOPBACK) else door.words
                return f"it answers at {where}, {ELSEWHERE} {one_line(at, 100)}"
        return ""

    def may_be_published(self) -> bool:
        """Whether the engine's proxy at the port may belong to a process baseline although no
        client of an engine runs: the start script is older than the proxy and between two."""
        if self.plan.kind != "process" or self.process is None:
            return False
        starts = map(process.start_time, engine_proxies(port_of(self.plan.url)))
        return any(start is not None and start >= self.process[1] for start in starts)

    def pids(self) -> set[int]:
        """The pids of the only processes that may answer; empty if they are unknown.

        For a process these are its session and every process with its mark in the environment: a
        server may have left the session of its start script. For a container they are known only
        in the host's network, because elsewhere the engine holds the port.
        """
        if self.plan.kind == "container":
            if self.inspected is None:
                return self._pids_by_record()
            mode = _dict(self.inspected, "HostConfig").get("NetworkMode")
            return self._container_pids() if mode == "host" else set()
        if self.plan.kind == "unit":
            return units.pids(self.unit) if self.unit is not None else set()
        if self.plan.process is None or self.process is None:
            return set()
        return {member.pid for member in self._members(*self.process)} | self.context.marked()

    def own_pids(self) -> set[int]:
        """The pids of all of its processes on this machine, wherever they may answer."""
        return self._container_pids() if self.plan.kind == "container" else self.pids()

    def _members(self, pid: int, start: int) -> list[process.Stat]:
        """The processes of the baseline's group; the Group object is kept, as it is asked often."""
        group = self._group
        if group is None or (group.pid, group.start) != (pid, start):
            group = process.Group(pid, start, BASELINE_COOKIE, self.context.mark)
            self._group = group
        return group.members()

    def _users(self, pids: set[int]) -> set[int]:
        """The uids whose sockets may be the baseline's, since a process may have changed its user.

        The engine itself holds a container's port, as root or as the user of a rootless engine.
        """
        if self.plan.kind != "container" or pids:
            return _owners(pids)
        first = _dict(self.inspected, "State").get("Pid")
        above = process.ancestry(first) if isinstance(first, int) and first > 0 else set()
        return {0} | _owners(self._container_pids() | above)

    def _pids_by_record(self) -> set[int]:
        """Where no engine tells, the processes of the container that was sealed, or proven last, by
        the id in their control groups, if one of them holds the port of the URL."""
        base = self.plan
        proven = evidence.container_of(self.context.plan.site_name, base.url, base.container_name)
        identifiers = {base.container_id, proven} - {""}
        pids = {pid for identifier in identifiers for pid in pids_of_container(identifier)}
        sockets = answering(base.url, here=True) if pids else []
        holders = {holder.pid for socket in sockets for holder in socket.holders}
        return pids if pids & holders else set()

    def _container_pids(self) -> set[int]:
        """The pids of the container's processes, as this machine numbers them."""
        identity = str((self.inspected or {}).get("Id") or "")
        return {*pids_of_container(identity)} if identity else set()


def ways(plan: SealedPlan, engine: RawEngine | None) -> list[str]:
    """Name and ids of the plan's container, in the order in which they are tried. Where the name
    comes first, a container that was renamed and serves is still known by its id: by the one that
    was recorded when it was proven, or the sealed one."""
    base = plan.baseline
    recorded = evidence.container_of(plan.site_name, base.url, base.container_name)
    name_first = base.by_name or not base.container_id
    known = [*base.ways[:1], recorded, *base.ways[1:]] if name_first else [*base.ways, recorded]
    known = list(dict.fromkeys(identifier for identifier in known if identifier))
    if _has_name_of_one_off(base, recorded, engine):
        known.remove(base.container_name)
    if not name_first or len(known) < 2 or engine is None:
        return known
    with contextlib.suppress(EngineError):
        for at, name in enumerate(known):
            with contextlib.suppress(NoSuchContainer):
                container = engine.inspect(name)
                if is_up(container) and not (at and published_elsewhere(container, base.url)):
                    return [name, *known[:at], *known[at + 1 :]]
    return known


def inspected(plan: SealedPlan, engine: RawEngine) -> dict[str, Any]:
    """The baseline's existing container: by its name and ids, or as compose made it.

    Raises NoSuchContainer, and EngineError for an engine that does not answer.
    """
    base = plan.baseline
    for name in ways(plan, engine):
        try:
            return engine.inspect(name)
        except NoSuchContainer:
            continue
    container_id = engine.of_compose(base.compose_argv) if base.compose_argv else ""
    if not container_id:
        raise NoSuchContainer("the plan's container is gone")
    return engine.inspect(container_id)


def _has_name_of_one_off(base: Baseline, recorded: str, engine: RawEngine | None) -> bool:
    """Whether `docker compose run --name` has made a container of the baseline's name that is not
    known to be the baseline: it may have other flags, and no service is made of it."""
    ids = {base.container_id, recorded} - {""}
    if engine is None or not base.container_name or not (ids or base.compose_argv):
        return False
    with contextlib.suppress(EngineError):
        container = engine.inspect(base.container_name)
        one_off = is_one_off(_dict(_dict(container, "Config"), "Labels"))
        return one_off and container.get("Id") not in ids
    return False


def renamed(base: Baseline, container: Mapping[str, Any]) -> str:
    """Which name an inspected container has instead of the plan's, and what to do about it; "" if
    it has that one, or if compose names it."""
    now = one_line(str(container.get("Name") or "").lstrip("/"), 60)
    name = one_line(base.container_name, 60)
    if not now or not name or now == name or base.compose_argv:
        return ""
    return (
        f"{RENAMED} {now} now, and no longer {name}: write that name into the site "
        f"file, or docker rename {now} {name}"
    )


def known_start(plan: SealedPlan, seen: Evidence) -> Evidence:
    """What was just seen of the plan's baseline, with what tells this start of it from the next one
    and, of a container, which one it is. The engine gets OWNER_S at most to answer."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        now = Observed(RollbackContext(plan, clock, report, engine_of(plan, report)))
        seen = replace(seen, life=_life(now), container=now.container_words())
        return of_another(seen, another_process(plan))
    except OSError:
        return seen
    finally:
        report.close()


def of_another(seen: Evidence, other: str) -> Evidence:
    """What was seen, where `other` answered: it proves that something answers, and nothing of the
    baseline."""
    if not other:
        return seen
    if seen.kind in GOOD:
        seen = replace(seen, kind=Kind.ANSWERS, tok_s=None, degraded=False)
    return replace(seen, other=other)


def _shares_with_proxy(url: str) -> bool:
    """Whether somebody listens where the engine's proxy should answer for a container: at the very
    address, which the kernel prefers to the proxy's, or on the other family of addresses."""
    proxies = set(engine_proxies(port_of(url)))
    for socket in answering(url) if proxies else []:
        if socket.holders:
            if not any(holder.pid in proxies for holder in socket.holders):
                return True
        elif socket.uid != 0:
            return True
    return False


def answers(plan: SealedPlan, *, known: bool) -> bool:
    """Whether what answers at the baseline's address is the baseline, as far as known. If `known`,
    its record or its engine has to say that it runs. The engine gets OWNER_S at most to answer."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        context = RollbackContext(plan, clock, report, engine_of(plan, report))
        return Observed(context).is_ours(OWNER_S, known=known)
    finally:
        report.close()


def serves(plan: SealedPlan) -> bool:
    """Whether the baseline's health path is well and, as far as known, it is the baseline that
    answers. Its server and the engine get OWNER_S each at most."""
    if health(plan.baseline.url, plan.baseline.ready_path, OWNER_S)[0] is not Health.SERVING:
        return False
    return answers(plan, known=False)


def somebody_else(plan: SealedPlan) -> str:
    """Who answers at the baseline's address instead of the baseline, or beside it, in clean words;
    "" for nobody, as far as known. The engine gets OWNER_S at most to answer."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        seen = Observed(RollbackContext(plan, clock, report, engine_of(plan, report)))
        return "" if seen.is_ours(OWNER_S) or seen.is_paused() else seen.who_else()
    except OSError:
        return ""
    finally:
        report.close()


def another_process(plan: SealedPlan, does: str = ANSWERS) -> str:
    """Which process of the baseline's program listens at its address, with other flags than the
    baseline's and without a record, in clean words that end with what it `does`; "" for none, and
    where that cannot be told. It may be what its operator has put in its place: what was known of
    the baseline is not its own."""
    spec = plan.baseline.process
    if spec is None or process.known(plan.records_dir, plan.baseline.name, spec, BASELINE_COOKIE):
        return ""
    for holder in listeners(plan.baseline.url):
        lines, start = process.command_lines(holder.pid), process.start_time(holder.pid)
        if start is None or not has_other_flags(spec.argv, process.argv(holder.pid)):
            continue
        if not any(tuple(line) == spec.argv for line in lines):
            since = time_words(process.wall_time(start), time.time())
            return f"{OTHER} {holder.pid}, since {since}) with other flags {does}"
    return ""


def held_beside(plan: SealedPlan) -> str:
    """Who else than the plan's baseline is seen to listen at its address, in words."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        seen = Observed(RollbackContext(plan, clock, report, engine_of(plan, report)))
        seen.can_answer(OWNER_S)
        return held_words(plan.baseline.url, seen.pids())
    except OSError:
        return ""
    finally:
        report.close()


def elsewhere(plan: SealedPlan) -> str:
    """Where a baseline that runs, and at whose URL nothing listens, listens instead, in clean
    words; "" for nowhere, as far as known. The engine gets OWNER_S at most to answer."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        seen = Observed(RollbackContext(plan, clock, report, engine_of(plan, report)))
        return seen.elsewhere() if seen.can_answer(OWNER_S) else ""
    except OSError:
        return ""
    finally:
        report.close()


def life(plan: SealedPlan) -> str:
    """A text that differs between two starts of the baseline; "" when that is unknown. The engine
    gets OWNER_S at most to answer."""
    clock = SystemClock()
    report = Report(Path(os.devnull), new_trigger(clock), clock, None)
    try:
        return _life(Observed(RollbackContext(plan, clock, report, engine_of(plan, report))))
    except OSError:
        return ""
    finally:
        report.close()


def _life(seen: Observed) -> str:
    known = seen.life() if seen.can_answer(OWNER_S) else ""
    return known or (_of_listener(seen.context.plan) if seen.plan.kind == "process" else "")


def _of_listener(plan: SealedPlan) -> str:
    """The same of a process that no record names, as one that was started by hand: the oldest of
    those that listen; "" if it cannot be told who does."""
    pids = {holder.pid for holder in listeners(plan.baseline.url)}
    starts = sorted((start, pid) for pid in pids if (start := process.start_time(pid)) is not None)
    return f"{starts[0][1]} {starts[0][0]}" if starts else ""


def instead_of_baseline(plan: SealedPlan) -> str:
    """The service that answers in the baseline's place, at its address; "" if none is known.

    A completion of that service proves nothing about the baseline.
    """
    switched = relay.at(plan.baseline.url)
    if switched is not None:
        return f"{switched.service}, by a cutover,"
    holders = {holder.pid for holder in listeners(plan.baseline.url)} if plan.run_dir else set()
    if not holders:
        return ""
    for entry in live.read(plan.rollback_dir / live.LIVE):
        if entry.kind != "process" or entry.name == plan.baseline.name:
            continue
        group = process.members(entry.pid, entry.start, cookie=plan.run_id)
        if holders & {member.pid for member in group}:
            return entry.name
    return ""


def is_running(plan: SealedPlan, container: str) -> bool:
    """Whether a container is up, as the plan's engine says within OWNER_S. Raises EngineError."""
    engine = RawEngine(plan.engine.socket or plan.engine.docker_host, OWNER_S)
    try:
        return is_up(engine.inspect(container))
    except NoSuchContainer:
        return False


def _owners(pids: set[int]) -> set[int]:
    """The uids of those processes that still exist."""
    return {user for pid in pids if (user := process.user_of(pid)) is not None}


def is_up(container: dict[str, Any]) -> bool:
    """Whether an inspected container is up; paused and restarting count, for they hold memory."""
    state = _dict(container, "State")
    return any(state.get(key) is True for key in ("Running", "Paused", "Restarting"))


def _dict(value: dict[str, Any] | None, key: str) -> dict[str, Any]:
    entry = (value or {}).get(key)
    return entry if isinstance(entry, dict) else {}
