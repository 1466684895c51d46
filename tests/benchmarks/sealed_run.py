"""A run as a rollback finds it: its sealed plan, the pointer to it, its runner and a standby."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from console.common.paths import module_argv
from console.host import process
from console.host.process import COOKIE, ProcessSpec
from console.journal.run_dir import RunDir
from console.recovery.rollback import live, records, sealed_plan, standby
from console.recovery.rollback.live import Live
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from tests.benchmarks import surroundings
from tests.waiting import until


class SealedRun:
    """A run in a place of its own: host, state and configuration are this run's alone."""

    def __init__(self, place: Path, path: Path, baseline: Baseline, **plan: Any) -> None:
        for name in ("host", "state", "config"):
            (place / name).mkdir(parents=True)
        self.place = place
        self.run = RunDir(path)
        self.plan = SealedPlan(
            run_id=path.name, run_dir=str(path), baseline=baseline,
            memory_file=str(place / "restore.json"), **plan,
        )  # fmt: skip
        sealed_plan.write(self.plan, self.run.sealed)

    def environment(self, **extra: str) -> dict[str, str]:
        """What commands are started with; a peer gets the same."""
        places = {"OMNI_HOST_DIR": "host", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
        mine = {key: str(self.place / name) for key, name in places.items()}
        return surroundings.environment(self.place.parent, **mine, **extra)

    def point(self, pid: int, start: int) -> None:
        """Make this the user's run, with that runner."""
        now = time.time()
        who = records.Pointer(
            self.plan.run_id, self.plan.run_dir, "ann", os.getuid(), pid, start, started_at=now
        )
        with patch.dict(os.environ, OMNI_HOST_DIR=str(self.place / "host")):
            records.write(who)

    @contextmanager
    def running(self) -> Iterator[tuple[int, int]]:
        """A runner that lives, recorded and pointed to; who lived before is forgotten."""
        asleep = ProcessSpec(("sleep", "600"))
        runner = process.spawn(asleep, log=Path(os.devnull), cookie=self.plan.run_id)
        self.run.live.unlink(missing_ok=True)
        live.append(self.run.live, Live("runner", "runner", *runner))
        self.point(*runner)
        try:
            yield runner
        finally:
            with suppress(ProcessLookupError):
                process.send(*runner, signal.SIGKILL)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A standby for as long as this lasts."""
        argv = [*module_argv("console.recovery.rollback.standby"), str(self.run.rollback)]
        env = {**self.environment(), COOKIE: self.plan.run_id}
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
        try:
            until(lambda: standby.is_standing_by(self.run.rollback), "the standby waits")
            yield
        finally:
            child.kill()
            child.wait()
