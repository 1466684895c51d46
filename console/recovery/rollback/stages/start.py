"""Stage start starts the baseline: by container id, name or compose, as a process or a unit."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.errors import EngineError, EngineTimeout, ServiceError
from console.common.logs.cause import may_be_taken
from console.common.logs.tail import read_last, size_of
from console.common.text import one_line
from console.host import process, units
from console.host.licence import Reason, stop_group
from console.host.ports import in_use, owners, port_of
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.recovery.rollback.context import MISSING, RollbackContext, log_path
from console.recovery.rollback.observe import OWNER_S, Observed, _dict, is_up
from console.recovery.rollback.stages import stop
from console.recovery.rollback.stages.held import held
from console.runtime.engine_api import (
    OVERRIDES,
    EngineRefused,
    NoSuchContainer,
    RawEngine,
    is_published_at,
    started_at,
)

ENGINE_RETRY_S = 2.0
OTHERS_NETWORK = "container:"
"""Prefix of NetworkMode if a container joins another one's network; it can start only while that
one runs."""
RESTART_GRACE_S = 10.0
"""Seconds that a baseline gets to end before its restart. (A candidate's grace may be zero.)"""
REFUSED_TRIES = 3
ADDRESS_S = 180.0
"""Seconds for which a baseline is started again that found its address in use, though nobody
listens there: connections of its clients linger in the kernel for a minute."""
MIN_FREE_BYTES = 64 * 1024
COMPOSE_S = 120.0
LEAVES_S = 2.0
"""Seconds for which whoever has the baseline's address is given to leave it: it may just end."""


def _is_full(directory: Path) -> bool:
    """Whether the disk of a directory is as good as full; False when that is unknown."""
    try:
        space = os.statvfs(directory)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < MIN_FREE_BYTES


def _unread(argv: Sequence[str]) -> list[str]:
    """Override files beside the files of a compose command, which compose does not read because it
    is told what to read."""
    files = [after for word, after in pairwise(argv) if word in ("-f", "--file")]
    places = dict.fromkeys(os.path.dirname(os.path.realpath(file)) for file in files)
    beside = (os.path.join(place, name) for place in places for name in OVERRIDES)
    read = {os.path.realpath(file) for file in files}
    return [path for path in beside if os.path.isfile(path) and path not in read]


def _already(container: dict[str, Any] | None) -> str:
    """What one does that need not be started."""
    waits = _dict(container, "State").get("Restarting") is True
    return " has ended, and its engine is to start it again" if waits else " runs already"


class Baseline(Observed):
    """The baseline that a rollback restores; `started` is set once this rollback started it."""

    def __init__(self, context: RollbackContext) -> None:
        super().__init__(context)
        self.started = False
        self.failed = False
        """The last start raised an error."""
        self.gone = False
        """The engine answers that the container does not exist, and nothing can create it again;
        or there is no engine on this machine."""
        self.ended_by = ""
        """The kind of what has ended it, by its log (`console.common.logs.cause`)."""
        self.displaced = ""
        """Who serves at its address, so that nothing was started beside it; "" for nobody."""
        self._log_begin = 0
        """Where in its log the last start of the process begins."""

    def start(self) -> str:
        """Start the baseline; return how, in clean words. Raises EngineError or ServiceError."""
        self.failed = True
        ways = {"process": self._start_process, "unit": self._start_unit}
        how = ways.get(self.plan.kind, self._start_container)()
        self.failed = False
        return how

    def restart(self) -> str:
        """Stop what is left of it and start it again. Raises EngineError or ServiceError."""
        own = self.context.licence(Reason.BASELINE)
        if self.plan.kind == "process":
            if self.process is not None:
                stop_group(
                    own, *self.process, grace_s=RESTART_GRACE_S, clock=self.context.clock,
                    cookie=BASELINE_COOKIE, step=self.context.mark,
                )  # fmt: skip
            self.process = None
        elif self.plan.unit is not None:
            units.stop(own, self.plan.unit, RESTART_GRACE_S, self.context.clock)
        elif self.plan.kind == "container" and (container := self._container_to_stop()):
            with contextlib.suppress(EngineError):
                if self.context.engine is not None:
                    self.context.engine.stop(own, container, RESTART_GRACE_S)
                else:
                    stop.stop_by_command(self.context, {container: own}, RESTART_GRACE_S)
        return self.start()

    def address_lingers(self, lines: Sequence[str]) -> bool:
        """Whether its address is in use, as these lines say, though nobody listens there. They may
        speak of another port, or give no reason: the address itself is tried."""
        if not may_be_taken(lines) or owners(self.plan.url, here=True):
            return False
        return in_use(port_of(self.plan.url))

    def _start_beside_nobody(self) -> None:
        """Raise ServiceError if somebody else has the baseline's address, and keeps it."""
        until = self.context.clock.monotonic() + LEAVES_S
        while words := held(self):
            if self.context.clock.monotonic() >= until:
                self.displaced = words
                raise ServiceError(words)
            self.context.clock.sleep(0.2)

    def _container_to_stop(self) -> str:
        """The container that hangs: the one that was started, or the first that the plan names."""
        return self.container or next(iter(self.ways()), "")

    def last_lines(self, count: int = 5, *, earlier: bool = False) -> list[str]:
        """The last lines that it wrote since this start (`earlier`: before it, too), clean."""
        if self.plan.kind == "process":
            begin, records = self._log_begin, self.context.plan.records_dir
            if self.process is not None and not self.started:
                begin = process.log_begin_of(records, self.plan.name, *self.process)
            return read_last(log_path(self.context.plan), count, begin)
        if self.plan.unit is not None:
            unit = None if earlier else self.unit or self.unit_state()
            return units.last_lines(self.plan.unit, count, unit.invocation if unit else "")
        try:
            since = 0.0 if earlier else started_at(self.inspected)
            engine = self.context.engine if self.container else None
            return engine.last_lines(self.container, count, since) if engine else []
        except EngineError:
            return []

    def _start_unit(self) -> str:
        spec = self.plan.unit
        if spec is None:
            raise ServiceError("the plan has no unit to start")
        state = self.unit_state()
        if state is not None and not state.exists:
            raise ServiceError(f"there is no {spec.words}")
        # A unit that is stopping is started all the same: systemd starts it when it is down.
        if state is not None and state.is_up and state.active != "deactivating":
            return f"{spec.words} runs already"
        self._start_beside_nobody()
        units.start(spec)
        self.started = True
        return spec.words

    def _start_process(self) -> str:
        spec = self.plan.process
        if spec is None:
            raise ServiceError("the plan has no process to start")
        self.process = self.context.baseline_process()
        if self.process is not None:
            return f"pid {self.process[0]} runs already"
        self._start_beside_nobody()
        log = log_path(self.context.plan)
        with contextlib.suppress(OSError):
            paths.make(log.parent)
        if _is_full(log.parent):
            # A server may end because it cannot write its log.
            self.context.report.note("start", f"the disk of {log.parent} is full: no log is kept")
            log = Path("/dev/null")
        self._log_begin = size_of(log)
        try:
            pid, start = self._spawn(spec, log)
        except ServiceError as error:
            if not isinstance(error.__cause__, OSError) or "log" not in error.title:
                raise
            self.context.report.note("start", f"{error}; the baseline's output is discarded")
            pid, start = self._spawn(spec, Path("/dev/null"))
        self.started, self.process = True, (pid, start)
        self._unprotect(pid)
        try:
            plan, begin = self.context.plan, self._log_begin
            directory, name = plan.records_dir, self.plan.name
            process.write_record(directory, name, spec, pid, start, plan.owner, begin)
        except OSError as error:
            self.context.report.note("start", f"its record cannot be written: {error.strerror}")
        return f"pid {pid}"

    def _spawn(self, spec: ProcessSpec, log: Path) -> tuple[int, int]:
        """Start the process, with the sealed program and environment if the plan has them."""
        mark = process.mark(self.context.plan.records_dir, self.plan.name, spec)
        if os.access(self.plan.program, os.X_OK):
            spec = replace(spec, argv=(self.plan.program, *spec.argv[1:]))
        base = dict(self.plan.environment) or None
        return process.spawn(spec, log=log, cookie=BASELINE_COOKIE, extra_env=[mark], base=base)

    def _unprotect(self, pid: int) -> None:
        """Give a child the usual OOM score: it has inherited this process's protection."""
        if self.context.oom_score is not None:
            with contextlib.suppress(OSError):
                Path(f"/proc/{pid}/oom_score_adj").write_text(str(self.context.oom_score))

    def _start_container(self) -> str:
        """Start the container by its id, or else by name, or else by compose.

        An engine that is away is asked again for as long as the whole rollback waits for it. It is
        the engine that refuses a published port which somebody holds; in the host's network it
        would let the container load beside whoever serves there.
        """
        context, state = self.context, self._state(OWNER_S) or {}
        if (state.get("HostConfig") or {}).get("NetworkMode") == "host" and not is_up(state):
            self._start_beside_nobody()
        refused, address_until = 0, context.clock.monotonic() + ADDRESS_S
        while True:
            try:
                return self._start_by_engine()
            except NoSuchContainer:
                return self._start_by_compose()
            except EngineRefused as error:
                refused += 1
                lingers = context.clock.monotonic() < address_until and self.address_lingers(
                    [str(error)]
                )
                if refused >= REFUSED_TRIES and not lingers:
                    raise
                context.report.note("start", f"{error}; trying again")
            except EngineError as error:
                if context.engine_is_missing(context.engine):
                    self.gone = True
                    raise EngineError(error.title, f"{error.detail}; {MISSING}") from None
                left_s = context.engine_left_s()
                asks_again = context.report_engine_away("start", error, left_s)
                # A start that timed out may have succeeded all the same.
                if isinstance(error, EngineTimeout) and self.running():
                    self.started = True
                    return "the container runs, although the engine answered late"
                if left_s <= ENGINE_RETRY_S or not asks_again:
                    break
            context.clock.sleep(ENGINE_RETRY_S)
        try:
            return self._start_by_command()
        except NoSuchContainer:
            return self._start_by_compose()

    def _start_by_engine(self) -> str:
        engine = self.context.engine
        if engine is None:
            return self._start_by_command()
        if self.context.engine_away:
            stop.end_left_over(self.context, engine)
        ways = self.ways()
        if not ways and (made := engine.of_compose(self.plan.compose_argv)):
            ways = [made]
        how = self._start_first(ways, lambda name: self._start_or_unpause(engine, name))
        self.context.engine_answers()
        return how

    def _start_or_unpause(self, engine: RawEngine, name: str) -> bool:
        """Start a container. A paused one is unpaused instead: it still has its model loaded."""
        try:
            return engine.start(name)
        except NoSuchContainer:
            raise
        except EngineRefused:
            state = self._state(OWNER_S, name) or {}
            if (state.get("State") or {}).get("Paused") is True:
                engine.unpause(name)
                self.context.report.note("start", "the container was paused; it is unpaused now")
                return True
            mode = str((state.get("HostConfig") or {}).get("NetworkMode"))
            if not mode.startswith(OTHERS_NETWORK):
                raise
            self._start_network(engine, mode.removeprefix(OTHERS_NETWORK))
            return engine.start(name)

    def _start_network(self, engine: RawEngine, other: str) -> None:
        """Start the container whose network the baseline's container joins."""
        try:
            engine.start(other)
        except NoSuchContainer as error:  # not the baseline's own container is gone, but this one
            words = f"container {other[:12]}, whose network the baseline joins, is gone"
            raise EngineRefused(words, error.detail) from error
        words = f"container {other[:12]}, whose network the baseline joins, runs"
        self.context.report.note("start", words)

    def _start_first(self, ways: list[str], begin: Callable[[str], bool]) -> str:
        """Start the first container that exists. Raises NoSuchContainer when none does."""
        for at, name in enumerate(ways):
            word = name if name == self.plan.container_name else name[:12]
            try:
                fresh = begin(name)
            except NoSuchContainer:
                if at + 1 == len(ways):
                    raise
                other = "id" if self.plan.by_name else "name"
                self.context.report.note("start", f"container {word} is gone; trying its {other}")
                continue
            self.container = name
            self.started = self.started or fresh
            return f"container {word}" + ("" if fresh else _already(self._state(OWNER_S)))
        raise NoSuchContainer("no container that the plan names exists")

    def _start_by_compose(self) -> str:
        if not self.plan.compose_argv:
            self.gone = True
            names = dict.fromkeys((self.plan.container_name, self.plan.container_id[:12]))
            raise EngineError(
                "the baseline's container is gone",
                f"no {' or '.join(n for n in names if n)}, and no compose file to make it from",
            )
        self._start_beside_no_one_off()
        self.context.report.note("start", "the baseline has no container; compose is to make one")
        for override in _unread(self.plan.compose_argv):
            words = f"{one_line(override, 200)} is not read: the site file names other files"
            self.context.report.note("start", words)
        self.context.command(list(self.plan.compose_argv), COMPOSE_S)
        self.started = True
        # The compose file may name it differently by now, and the sealed id is the lost one's.
        self.container = self._made_by_compose() or self.plan.container_name
        return "by compose"

    def _start_beside_no_one_off(self) -> None:
        """Raise ServiceError if a container of `docker compose run` has the service's port."""
        engine = self.context.engine
        with contextlib.suppress(EngineError):  # compose itself is refused a port that is taken
            for one_off in engine.one_offs(self.plan.compose_argv) if engine is not None else ():
                container = engine.inspect(one_off.id) if engine is not None else {}
                if is_up(container) and is_published_at(container, self.plan.url):
                    name = one_line(one_off.name or one_off.id[:12], 60)
                    self.displaced = (
                        f"container {name} has its port: it is of `docker compose run`, not the "
                        f"service's container, and is left alone; docker stop {name} ends it"
                    )
                    raise ServiceError(self.displaced)

    def _made_by_compose(self) -> str:
        with contextlib.suppress(EngineError):
            if self.context.engine is not None:
                return self.context.engine.of_compose(self.plan.compose_argv)
        return ""

    def _start_by_command(self) -> str:
        done = self._start_first(list(self.plan.ways), self._docker_start)
        return f"{done} by the docker command"

    def _docker_start(self, name: str) -> bool:
        try:
            self.context.command(["docker", "start", name], 30.0)
        except EngineError as error:
            if "no such container" in str(error).lower():
                raise NoSuchContainer(error.title, error.detail) from error
            if "paused" not in str(error).lower():
                if "error response from daemon" in str(error).lower():  # it answered, with a no
                    raise EngineRefused(error.title, error.detail) from error
                raise
            self.context.command(["docker", "unpause", name], 30.0)
        return True
