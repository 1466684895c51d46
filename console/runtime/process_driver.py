"""A host process behind a service: started, found again by its record, stopped with its group."""

from __future__ import annotations

from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.errors import ConsoleError, ServiceError
from console.common.logs.cause import ended_words
from console.common.logs.tail import read_last, size_of
from console.host import process
from console.host.licence import Licence, Reason, stop_group
from console.host.memory import oom_kills, oom_kills_since
from console.host.process import BASELINE_COOKIE, ProcessSpec
from console.runtime.spec import OOM_SCORE, Handle, Launch, ServiceSpec, Status


class ProcessDriver:
    """A Driver for a ProcessSpec; its record is `records_dir/NAME.json`, of the site `owner`."""

    def __init__(
        self, spec: ServiceSpec, records_dir: Path, clock: Clock | None = None,
        owner: process.Owner = process.UNKNOWN_OWNER,
    ) -> None:  # fmt: skip
        if not isinstance(spec.runs, ProcessSpec):
            raise ServiceError("not a host process", spec.name)
        self.spec = spec
        self.process = spec.runs
        self.records_dir = records_dir
        self.owner = owner
        self.clock = clock or SystemClock()
        self._log = records_dir / f"{spec.name}.log"
        self._cookie = ""
        self._kills: int | None = None
        """How many processes the kernel had killed for memory when this one was started."""
        self._begin = 0
        """Where in its log this start of the process begins."""

    def find(self) -> Handle | None:
        """The recorded process, if it still runs under the same specification."""
        identity = process.known(
            self.records_dir, self.spec.name, self.process, BASELINE_COOKIE, repair=True
        )
        return self._handle(*identity) if identity else None

    def start(self, launch: Launch) -> Handle:
        """Spawn it (or return what runs already). Raises ServiceError."""
        self._log, self._cookie = launch.log, launch.run_id
        running = self.find()
        if running is not None:
            return running
        self._begin, self._kills = size_of(launch.log), oom_kills()
        pid, start = process.spawn(
            self.process, log=launch.log, cookie=launch.run_id, enclosed=True,
            oom_score=None if self.spec.name == "baseline" else OOM_SCORE,
        )  # fmt: skip
        handle = self._handle(pid, start)
        try:
            launch.record(handle)
            process.write_record(
                self.records_dir, self.spec.name, self.process, pid, start, self.owner, self._begin
            )
        except (OSError, ConsoleError) as error:
            # Nothing would stop a process that stands in no record before the baseline starts.
            why = Licence(Reason.TRIAL, launch.run_id)
            stop_group(why, pid, start, grace_s=0.0, clock=self.clock, cookie=self._cookie)
            if isinstance(error, ConsoleError):
                raise
            detail = f"{error.filename}: {error.strerror}"
            raise ServiceError("its record cannot be written: it is stopped", detail) from error
        return handle

    def status(self, handle: Handle) -> Status:
        if process.alive(handle.pid, handle.start):
            return Status(True, detail=f"pid {handle.pid}")
        code = process.exit_code(handle.pid, handle.start)
        return Status(False, exit_code=code, detail=self._ended(code))

    def _ended(self, code: int | None) -> str:
        words = ended_words(code, oom_kills_since(self._kills))
        return words or ("gone" if code is None else f"exit code {code}")

    def stop(self, licence: Licence, handle: Handle, grace_s: float) -> None:
        """SIGTERM, then SIGKILL, on the whole session; returns when it is gone."""
        stop_group(
            licence, handle.pid, handle.start, grace_s=grace_s, clock=self.clock,
            cookie=self._cookie,
        )  # fmt: skip

    def last_lines(self, handle: Handle, count: int) -> list[str]:
        return read_last(self._log, count, self._begin)

    def _handle(self, pid: int, start: int) -> Handle:
        return Handle(self.spec.name, "process", name=self.spec.name, pid=pid, start=start)
