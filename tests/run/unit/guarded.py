"""A runner's guard on a clock of its own, with a sentinel that does as it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from console.journal.breach import Seen
from console.journal.run_dir import RunDir, RunMeta
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.journal.store import Journal
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runner.context import Context
from console.runner.control import Control
from console.runner.guard import client as guards
from console.runner.guard.client import Guard
from console.runner.prepare.plan import Plan
from tests.clock import FakeClock

BASE = Baseline("baseline", "container", "http://127.0.0.1:1", container_id="b" * 64,
                container_name="base")  # fmt: skip
META = RunMeta("r1", "", "", "", "", "")


class FakeSentinel:
    """Stands where guard_process.SentinelProcess does."""

    def __init__(self) -> None:
        self.pid = (4_000_000, 1)
        self.alive = self.watches = True
        self.starts = self.ends = 0
        self.comes_up = True
        self.log = "sentinel.log"
        self.here = False

    def adopt(self) -> bool:
        return self.here

    def start(self) -> None:
        self.starts += 1
        self.alive = self.watches = self.comes_up

    def wait_ready(self) -> None:
        assert self.watches

    def end(self) -> None:
        self.ends += 1
        self.alive = self.watches = False


class Bench:
    """A guard, ticked by hand; what it tells the sentinel is in `told`."""

    def __init__(self, path: Path, plan: Plan, patch: pytest.MonkeyPatch) -> None:
        run = RunDir(path / "run")
        (run.path / "rollback").mkdir(parents=True)
        run.guard.mkdir()
        sealed.write(SealedPlan(run.id, str(run.path), BASE), run.sealed)
        self.clock = FakeClock()
        control = Control()
        self.context = Context(
            run, META, plan, Journal(run.journal), self.clock, control, RunView()
        )
        control.on_verb = lambda verb, step, attempt: self.context.record(
            "verb", verb=verb.verb, who=verb.who, why=verb.why
        )
        self.context.enter(RunState.RUNNING)
        self.guard = Guard(self.context)
        self.sentinel = FakeSentinel()
        self.guard.sentinel = self.sentinel  # type: ignore[assignment]
        self.context.guard = self.guard
        self.seen: Seen | None = None
        self.told: list[dict[str, Any]] = []
        patch.setattr(guards, "look", lambda run, pid: self.seen)
        patch.setattr(guards, "tell", lambda run, message: self.told.append(message))

    def tick(self, count: int = 1, *, fresh: bool = True, seconds: float = 0.25) -> None:
        for _ in range(count):
            self.clock.time += seconds
            if fresh:
                self.says(self.seen.level if self.seen else "ok")
            self.guard.tick()

    def says(self, level: str, *reasons: str, lease_s: float | None = None) -> None:
        self.seen = Seen(self.clock.time, level, reasons, None, lease_s)

    def breach(self, **page: Any) -> None:
        whole = {"at": 1.5, "reason": "RAM available below 2.0 GiB", "cause": "guard", **page}
        (self.context.run.guard / "breach.json").write_text(json.dumps(whole))

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.context.view.guards]

    @property
    def halted(self) -> str:
        verb = self.context.control.stop_verb
        return f"{verb.verb}:{verb.cause}" if verb is not None else ""

    def close(self) -> None:
        self.context.journal.close()


def mine() -> tuple[int, int]:
    from console.host import process

    return os.getpid(), process.start_time(os.getpid()) or 0
