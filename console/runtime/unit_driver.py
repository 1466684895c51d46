"""A systemd unit behind the baseline: started, looked at and stopped by systemctl."""

from __future__ import annotations

from console.common.clock import Clock, SystemClock
from console.common.errors import ServiceError
from console.host import process, units
from console.host.licence import Licence
from console.host.units import UnitSpec, UnitState
from console.runtime.spec import Handle, Launch, ServiceSpec, Status


class UnitDriver:
    """A Driver for a UnitSpec. Its handle has the pid of the unit's first process."""

    def __init__(self, spec: ServiceSpec, clock: Clock | None = None) -> None:
        if not isinstance(spec.runs, UnitSpec):
            raise ServiceError("not a unit", spec.name)
        self.spec, self.unit = spec, spec.runs
        self.clock = clock or SystemClock()

    def find(self) -> Handle | None:
        """The unit, if it is up. Raises ServiceError if its systemd does not say."""
        state = units.look(self.unit)
        return self._handle(state) if state.is_up else None

    def start(self, launch: Launch) -> Handle:
        """Have it started, or return what runs already. Raises ServiceError."""
        state = units.look(self.unit)
        if not state.is_up:
            units.start(self.unit)
            state = units.look(self.unit)
        handle = self._handle(state)
        launch.record(handle)
        return handle

    def status(self, handle: Handle) -> Status:
        state = units.look(self.unit)
        words = f"{self.unit.words} is {state.active or 'unknown'}"
        return Status(state.is_up, restarts=state.restarts, detail=words)

    def stop(self, licence: Licence, handle: Handle, grace_s: float) -> None:
        """Stop the unit, by SIGKILL after the grace; returns when it is down."""
        units.stop(licence, self.unit, grace_s, self.clock)

    def last_lines(self, handle: Handle, count: int) -> list[str]:
        try:
            invocation = units.look(self.unit).invocation
        except ServiceError:
            invocation = ""
        return units.last_lines(self.unit, count, invocation)

    def _handle(self, state: UnitState) -> Handle:
        start = process.start_time(state.main) if state.main else None
        return Handle(
            self.spec.name, "process", name=self.unit.name, pid=state.main if start else 0,
            start=start or 0,
        )  # fmt: skip
