"""The services of a run: a driver for each, what is alive, and one log tailer each."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import BaselineNotReady, EngineError, ServiceError
from console.common.logs.tail import keep_end
from console.common.text import one_line
from console.host import cgroup, process
from console.host.licence import Licence, Reason, end_cgroup, refusal
from console.host.memory import pids_of_container
from console.host.ports import held_words, listeners, port_of, port_taken
from console.host.process import ProcessSpec
from console.host.units import UnitSpec
from console.journal import events
from console.journal.events import Service
from console.journal.state import Cause
from console.recovery.rollback import live
from console.runner.context import LOG_LIMIT, Attempt, Context, StepFailed, outage, wait_released
from console.runner.fault import point
from console.runner.prepare.baseline import container_ref
from console.runtime.docker.client import connect, inspect, require_image
from console.runtime.loading import of_service
from console.runtime.probe import Health, health
from console.runtime.process_driver import ProcessDriver
from console.runtime.spec import (
    ComposeSpec,
    ContainerSpec,
    Driver,
    ExistingContainer,
    Handle,
    Launch,
    ServiceSpec,
    Status,
    changed_weights,
)
from console.runtime.unit_driver import UnitDriver
from console.runtime.wait_ready import ReadyWait

if TYPE_CHECKING:
    import docker


CAP_INTERVAL_S = 2.0
READ_BACK = 200
"""Lines of a log in which the one that explains a failure is searched."""


class RunServices:
    """Starts, stops and watches the run's services; connects to the engine when needed."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.specs = context.plan.services
        self.handles: dict[str, Handle] = {}
        self._drivers: dict[str, Driver] = {}
        self._tailers: dict[str, Any] = {}
        self._client: docker.DockerClient | None = None
        self._attempt: Attempt | None = None
        self._caps: threading.Thread | None = None
        self._closed = threading.Event()
        self.named_in_outage = ""
        """The last note of who answers at the baseline's address during its outage."""

    @property
    def client(self) -> docker.DockerClient:
        """The engine's client. Raises EngineError."""
        if self._client is None:
            self._client = connect(self.context.plan.site.model.engine.host or None)
        return self._client

    def spec(self, name: str) -> ServiceSpec:
        return self.context.plan.site.baseline_spec() if name == "baseline" else self.specs[name]

    def driver(self, name: str) -> Driver:
        if name not in self._drivers:
            self._drivers[name] = self._make(self.spec(name))
        return self._drivers[name]

    def _make(self, spec: ServiceSpec) -> Driver:
        site = self.context.plan.site
        if isinstance(spec.runs, ProcessSpec):
            records = paths.records_dir(site.name)
            return ProcessDriver(spec, records, self.context.clock, site.owner)
        if isinstance(spec.runs, UnitSpec):
            return UnitDriver(spec, self.context.clock)
        if spec.name == "baseline":
            from console.runtime.docker.container import ContainerDriver

            runs = ExistingContainer(container_ref(spec, self.client))
            return ContainerDriver(replace(spec, runs=runs), self.client, say=self._say)
        if isinstance(spec.runs, ComposeSpec):
            from console.runtime.docker.compose import ComposeDriver

            files = self.context.run.path / "compose"
            return ComposeDriver(spec, self.client, files, site=site.name, say=self._say)
        from console.runtime.docker.container import ContainerDriver

        return ContainerDriver(spec, self.client, site=site.name, say=self._say)

    def _say(self, text: str) -> None:
        """Show a driver's decision (reused, renamed aside, …) as the step's progress."""
        if self._attempt is not None:
            self._attempt.say(text, always=True)

    def start(self, name: str, attempt: Attempt) -> Handle:
        """Start a service and follow its log; the journal already has the intent."""
        self._attempt, log = attempt, self.context.run.log(name)
        launch = Launch(self.context.run.id, log, lambda handle: self._named(name, handle))
        try:
            handle = self.driver(name).start(launch)
        except ServiceError as error:
            lines = [self.context.plan.fitting(error.hint)]
            raise StepFailed(Cause.START_ERROR, str(error), lines=lines) from error
        self.adopt(name, handle)
        attempt.say(f"{name} started: {handle.container[:12] or f'pid {handle.pid}'}", always=True)
        return handle

    def _named(self, name: str, handle: Handle) -> None:
        """Record an effect in live.jsonl and the journal before it acts, so that a start that fails
        halfway is undone too."""
        point("effect_begun", name)
        searching = self._attempt is not None and self._attempt.searching
        self.context.alive(handle, expendable=searching)
        self._hold(name, handle)

    def _hold(self, name: str, handle: Handle) -> None:
        if self.handles.get(name) == handle:
            return
        self.handles[name] = handle
        self.context.record(
            events.Service(
                service=name, alive=True, runs_as=handle.kind, container=handle.container,
                name=handle.name, pid=handle.pid, start=handle.start,
            )
        )  # fmt: skip

    def can_start(self, name: str) -> None:
        """Check what would keep a service from starting, before the baseline goes down.

        Raises EngineError, ServiceError or StepFailed.
        """
        runs = self.spec(name).runs
        if isinstance(runs, ContainerSpec):
            from console.runtime.docker.container import check_mounts

            require_image(self.client, runs.image)
            check_mounts(self.client, runs.mounts)
            self.find(name)  # another site's or user's that runs in its place is refused
        elif isinstance(runs, ComposeSpec):
            self.find(name)
        elif isinstance(runs, ProcessSpec):
            program, path = runs.argv[0], os.environ.get("PATH", os.defpath)
            path = runs.within.variables(path).get("PATH", path)
            there = shutil.which(program, path=path) or Path(runs.cwd or ".", program).exists()
            if not there:
                raise StepFailed(Cause.START_ERROR, f"{one_line(program)}: not found")

    def model(self, name: str, step_model: str) -> str:
        """The model name to request from a service: the step's, else the baseline's own."""
        base = self.context.plan.site.model.baseline
        return step_model or (base.completion.model if name == "baseline" else "")

    def take_over(self, name: str, attempt: Attempt) -> bool:
        """Take over a running service; False if none runs, or if its model file has changed since
        it was started, in which case it is stopped."""
        handle = self.find(name)
        if handle is None:
            return False
        self.context.alive(handle)
        self.adopt(name, handle)
        began = _began(handle)
        changed = changed_weights(self.spec(name).runs, began) if began else ""
        if not changed:
            return True
        attempt.say(f"{name} runs, but {one_line(changed)} has changed since", always=True)
        self.stop(name, attempt)
        return False

    def adopt(self, name: str, handle: Handle) -> None:
        """Take a live service into the run and tail its log."""
        self._hold(name, handle)
        if handle.pid and self._caps is None:
            self._caps = threading.Thread(target=self._cap_logs, name="log caps", daemon=True)
            self._caps.start()
        if handle.container and name not in self._tailers:
            from console.runtime.service_logs import Tailer

            tailer = Tailer(
                self.client, handle, self.context.run.log(name), known=self.context.plan.known
            )
            tailer.start()
            self._tailers[name] = tailer

    def _cap_logs(self) -> None:
        """Cap the logs of host processes, which write them directly."""
        while not self._closed.wait(CAP_INTERVAL_S):
            for name, handle in list(self.handles.items()):
                if handle.pid:
                    keep_end(self.context.run.log(name), LOG_LIMIT)

    def find(self, name: str) -> Handle | None:
        """The live handle of a service, of this run or still running from before."""
        known = self.handles.get(name)
        if known is not None and self.driver(name).status(known).alive:
            return known
        self.gone(name)  # it died: a new attempt starts a new one
        return self._find_baseline() if name == "baseline" else self.driver(name).find()

    def _find_baseline(self) -> Handle | None:
        """The live handle of the baseline. Compose may have made its container anew, and a person
        may have taken it away: which one it is, is asked each time."""
        self._drivers.pop("baseline", None)
        try:
            return self.driver("baseline").find()
        except BaselineNotReady:
            return None  # its service has no container

    def baseline_now(self) -> tuple[Handle, Status, float] | None:
        """The baseline, how it is, and since when, in Unix seconds; None where it does not run or
        nobody says. Raises EngineError and ServiceError."""
        handle = self.find("baseline")
        began = _began(handle) if handle is not None else None
        if handle is None or began is None:
            return None
        return handle, self.driver("baseline").status(handle), began

    def use(self, spec: ServiceSpec) -> None:
        """Set the specification of one of the console's own services for this step."""
        if self.specs.get(spec.name) != spec:
            self.specs[spec.name] = spec
            self._drivers.pop(spec.name, None)

    def change(self, specs: dict[str, ServiceSpec]) -> None:
        """Take new specifications; stop services whose specification changed first."""
        for name, spec in specs.items():
            if spec != self.specs.get(name):
                if name in self.handles:
                    self.stop(name)
                self._drivers.pop(name, None)
        self.specs = specs

    def wait(self, name: str, attempt: Attempt) -> float:
        """Wait until ready; return the seconds. Raises StepFailed with cause and log."""
        spec, driver = self.spec(name), self.driver(name)
        handle = self.handles.get(name) or self.find(name)  # a dead one is waited for: it says why
        if handle is None:
            raise StepFailed(Cause.PRECONDITION, f"{name} has not been started")
        held = handle
        log = self.context.run.log(name) if name != "baseline" else None
        load = of_service(
            held, spec.runs, log, self.context.clock, cookie=self.context.run.id,
            inspected=lambda: inspect(self.client, held.container),
        )  # fmt: skip

        def status() -> Status:
            attempt.remaining()
            return driver.status(held)

        try:
            waited = ReadyWait(
                spec, status=status, last_lines=lambda count: driver.last_lines(held, count),
                clock=self.context.clock, cancelled=attempt.cancelled, progress=attempt.say,
                load_progress=load.look,
            ).run()  # fmt: skip
        except ServiceError as error:
            record_daemon(self.context, name)
            state = driver.status(held)
            cause = Cause.OOM_KILL if state.oom_killed else Cause.NOT_READY
            lines = driver.last_lines(held, READ_BACK)
            # what it said last follows line by line
            words = ": ".join([error.title, *error.detail.splitlines()[:1]])
            words += port_taken(spec.url, lines)
            raise StepFailed(cause, one_line(words, 400), lines=lines) from error
        point("service_ready", name)
        return waited

    def explain(self, name: str) -> StepFailed | None:
        """Why a service fails to serve, with its last log lines; None if it is alive."""
        handle = self.handles.get(name)
        if handle is None:
            return None
        state = self.driver(name).status(handle)
        if state.alive:
            return None
        lines = self.driver(name).last_lines(handle, READ_BACK)
        words = f"{name} died: {state.detail}{port_taken(self.spec(name).url, lines)}"
        return StepFailed(_died(state), words, lines=lines)

    def stop(self, name: str, attempt: Attempt | None = None) -> bool:
        """Stop a service gracefully; False when nothing was alive."""
        handle = self.find(name)
        if handle is None:
            self.gone(name)
            return False
        if attempt is not None:
            attempt.say(f"stopping {name}", always=True)
        own = bool(handle.pid) and name != "baseline"
        # asked while it lives: it may have been started from another session
        group = cgroup.of_process(handle.pid, handle.start) if own else ""
        why = self.licence(name)
        self.driver(name).stop(why, handle, self.spec(name).grace_s)
        end_cgroup(why, group, handle.pid, handle.start)
        self.gone(name)
        return True

    def licence(self, name: str) -> Licence:
        """Why this run may stop a service."""
        if name == "baseline":
            site = self.context.plan.site
            return Licence(Reason.BASELINE, site.name, owner=site.owner)
        return Licence(Reason.CANDIDATE, self.context.run.id)

    def gone(self, name: str) -> None:
        """Forget a service that no longer runs."""
        tailer = self._tailers.pop(name, None)
        if tailer is not None:
            tailer.stop()
        if self.handles.pop(name, None) is not None:
            self.context.record(events.Service(service=name, alive=False))

    def close(self) -> None:
        self._closed.set()
        for tailer in self._tailers.values():
            tailer.stop()
        self._tailers.clear()
        if self._client is not None:
            self._client.close()


def keep_baseline_down(context: Context, attempt: Attempt, *, starts: bool) -> None:
    """Stop a baseline that its engine (`restart: always`) or a person started during its outage,
    also in a container that was made anew, so that two engines are not loaded. Another server in
    its place is no baseline, so it is named and left alone, and the outage goes on. Raises
    StepFailed if a step that `starts` the run's first service would load it beside that server."""
    services = context.services
    try:
        back = services.find("baseline") is not None
    except (EngineError, ServiceError):
        return  # a step that needs the engine says so itself
    if back:
        words = "the baseline came back: it is stopped again"
        context.record(events.RunNote(text=words, by_others=True))
        services.stop("baseline", attempt)
        outage(context, attempt.step, attempt.number)  # a proof of while it was back ends no outage
        attempt.say(wait_released(context, attempt), always=True)
    elif not context.view.cutover and not _of_this_run(services):
        base = context.plan.site.baseline_spec()
        if health(base.url, base.ready.path)[0] is not Health.SERVING:
            return
        if starts and not services.handles:
            raise StepFailed(
                Cause.PRECONDITION,
                f"something that this run did not start answers at {base.url} during the outage; "
                "two engines would be loaded: stop it, then retry",
            )
        words = f"something that is not the baseline answers at {base.url} during the outage"
        who = held_words(base.url)
        note = one_line(f"{words}: {who}" if who else words, 400)
        if note != services.named_in_outage:
            services.named_in_outage = note
            context.record(events.RunNote(text=note))


def _of_this_run(services: RunServices) -> bool:
    """Whether a live service of the run has the port of the baseline's address."""
    port = port_of(services.spec("baseline").url)
    held = [services.specs[name] for name in services.handles if name in services.specs]
    return any(port_of(spec.url) == port for spec in held)


def refuse_stranger(context: Context, name: str) -> None:
    """Raise StepFailed if another server answers at the service's address: it may have taken the
    port while the service loaded, and would be measured in its place."""
    handle = context.services.handles.get(name)
    who = stranger(context.run.id, handle, context.services.spec(name)) if handle else ""
    if who:
        record_daemon(context, name)
        raise StepFailed(
            Cause.PRECONDITION, f"{who}, and not {name}",
            lines=["a server that a service starts has to be its own process or descend from it"],
        )  # fmt: skip


def record_daemon(context: Context, name: str) -> None:
    """Record as this run's what a service has left behind outside of its session, parents and
    environment (a double fork), since nothing else would find it. The kernel gives such an orphan
    to the runner, as `take_orphans` asks for; what the runner has started itself is in the runner's
    session, leads one or is on record, and a stranger has another parent."""
    handle, spec = context.services.handles.get(name), context.services.spec(name)
    if handle is None or not handle.pid or not isinstance(spec.runs, ProcessSpec):
        return
    known = {entry.pid for entry in live.read(context.run.live)}
    at_address = {listener.pid for listener in listeners(spec.url, here=True)}
    stats, own = process.all_stats(), (os.getpid(), os.getsid(0))
    orphans = [
        child for child in stats
        if child.parent == own[0] and child.start >= handle.start and child.state not in "ZX"
        and (child.pid in at_address or child.session not in (own[1], child.pid))
    ]  # fmt: skip
    why, sessions = (
        Licence(Reason.CANDIDATE, context.run.id),
        {orphan.session for orphan in orphans},
    )
    for stat in stats:
        left = stat in orphans or (
            stat.session in sessions - {own[1]} and stat.start >= handle.start
        )
        if left and stat.pid not in known and not refusal(why, stat.pid, stat.start):
            context.alive(Handle(name, "process", name=name, pid=stat.pid, start=stat.start))
            place = f", which answers at {spec.url}" if stat.pid in at_address else ""
            words = f"{name} left pid {stat.pid} behind{place}: a rollback ends it"
            context.record(events.RunNote(text=words))


def stranger(run_id: str, handle: Handle, spec: ServiceSpec) -> str:
    """What else answers at a service's address, in words; "" if it is the service itself.

    Only processes and containers in the host's network can be told apart: in other networks the
    engine holds the port. "" too if the service's own processes are not known.
    """
    return live.stranger(spec.url, _own_pids(run_id, handle, spec))


def handle_of(service: Service | None) -> Handle | None:
    """The handle of a service from its journal entry; None if the entry is incomplete."""
    if service is None or not service.runs_as:
        return None
    return Handle(
        service.service, service.runs_as, service.container, service.name, service.pid,
        service.start,
    )  # fmt: skip


def _own_pids(run_id: str, handle: Handle, spec: ServiceSpec) -> set[int]:
    """The pids of a service's processes; empty where they are not known."""
    if isinstance(spec.runs, ContainerSpec) and spec.runs.network == "host":
        return set(pids_of_container(handle.container))
    if not isinstance(spec.runs, ProcessSpec):
        return set()
    return live.pids_of_process(run_id, handle.pid, handle.start)


def _began(handle: Handle) -> float | None:
    """When the oldest process of a service was started, in Unix seconds; None if unknown."""
    pids = [handle.pid] if handle.pid else pids_of_container(handle.container)
    starts = [start for pid in pids if (start := process.start_time(pid)) is not None]
    return process.wall_time(min(starts)) if starts else None


def _died(state: Status) -> Cause:
    """Why a service that had served no longer runs; shells report signal N as 128 + N."""
    if state.oom_killed:
        return Cause.OOM_KILL
    code = state.exit_code or 0
    return Cause.SIGNAL if code < 0 or code > 128 else Cause.EXIT_CODE
