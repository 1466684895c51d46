"""Plans over a fixed site, a run of one of them, and a machine that guards are held against."""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.host import process
from console.host.gpu.figures import GpuReport, GpuSample
from console.journal import events
from console.journal.breach import Seen
from console.journal.run_dir import RunDir, RunMeta
from console.journal.run_view import RunView
from console.journal.state import RunState
from console.journal.store import Journal
from console.recovery.guard.config import Limit
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runner.context import Context
from console.runner.control import Control
from console.runner.guard import client as guards
from console.runner.guard import limits
from console.runner.guard.client import Guard
from console.runner.guard.limits import Finding, findings
from console.runner.prepare.plan import Plan, make_plan
from tests.clock import FakeClock

SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: base, url: "http://127.0.0.1:8000"}
services:
  big: {process: {argv: [serve, big]}, url: "http://127.0.0.1:9001", exclusive: true}
"""
SERVICES = """\
services:
  cand: {process: {argv: [serve, "a b"]}, url: "http://127.0.0.1:8001", exclusive: true}
  other: {process: {argv: [serve]}, url: "http://127.0.0.1:8002", exclusive: true}
  beside: {process: {argv: [serve]}, url: "http://127.0.0.1:8003"}
  kept: {process: {argv: [serve]}, url: "http://127.0.0.1:8004", keep: true}
  box:
    url: "http://127.0.0.1:8005"
    ready: {http: /v1, timeout: 2h, stable_for: 10s}
    container:
      image: img
      command: [serve, --x]
      mounts: ["m:/m", "/n:/n:rw"]
      ports: ["1:2"]
      memory: 1GiB
  stack:
    url: "http://127.0.0.1:8006"
    compose: {file: c.yaml, service: llm, profile: p}
"""

MakePlan = Callable[..., Plan]
Look = Callable[..., list[Finding]]
GIB = 1 << 30
TWO = GpuReport(0.0, (
    GpuSample("GPU-aaaa", 0, "A", 90 * GIB, 96 * GIB, temperature_c=88.0),
    GpuSample("GPU-bbbb", 1, "B", GIB, 32 * GIB),
))  # fmt: skip
MEMINFO = "MemTotal: {} kB\nMemFree: 0 kB\nMemAvailable: {} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
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
        # Each has its own id: a step's processes are found by that id on the whole machine.
        run = RunDir(path / f"run-{secrets.token_hex(4)}")
        (run.path / "rollback").mkdir(parents=True)
        run.guard.mkdir()
        run.write_meta(replace(META, run_id=run.id))
        sealed.write(SealedPlan(run.id, str(run.path), BASE), run.sealed)
        self.clock = FakeClock()
        control = Control()
        self.context = Context(
            run, META, plan, Journal(run.journal), self.clock, control, RunView()
        )
        control.on_verb = lambda verb, step, attempt: self.context.record(
            events.Verb(verb=verb.verb, who=verb.who, why=verb.why)
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


def mine() -> tuple[int, int]:
    return os.getpid(), process.start_time(os.getpid()) or 0


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, pointers, lessons and site of this machine stay out of it."""
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path))
    monkeypatch.delenv("OMNI_SITE", raising=False)


@pytest.fixture
def plan(tmp_path: Path) -> MakePlan:
    """A plan of steps written as flow mappings, over a fixed site and fixed services."""

    def make(*steps: str, final: str = "", restore_s: float | None = None) -> Plan:
        site = tmp_path / "site.yaml"
        site.write_text(SITE)
        text = "schema: omni.playbook/v1\nname: x\ntitle: t\n" + SERVICES
        text += "phases:\n- title: Work\n  steps:\n" + "".join(f"  - {step}\n" for step in steps)
        text += f"finally: [{final}]\n"
        path = tmp_path / "book.yaml"
        path.write_text(text)
        loaded = load_site(site)
        playbook = load_playbook(path, site_services=frozenset(loaded.model.services))
        return make_plan(playbook, loaded, restore_s)

    return make


@pytest.fixture
def bench(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A run that has begun."""
    steps = ("{id: up, service: {start: cand}}", "{id: cmd, run: [x]}", "{id: n, note: x}")
    made = plan(*steps, "{id: down, service: {stop: cand}}", final="{id: last, run: [x]}")
    one = Bench(tmp_path, made, monkeypatch)
    yield one
    one.context.journal.close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def held(tmp_path: Path, plan: MakePlan, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Look:
    """Holds a limit against a machine with 377 GiB of RAM, 40 GiB of it available."""
    made, root = plan("{id: cmd, run: [x]}"), tmp_path / "root"
    (root / "proc/pressure").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO.format(377 << 20, 40 << 20))

    def look(
        limit: Limit, cards: GpuReport = TWO, *, outage: bool = True, **more: int
    ) -> list[Finding]:
        monkeypatch.setattr(limits, "read_cards", lambda seconds: cards)
        one = replace(made, playbook=replace(made.playbook, guards=(limit,)))
        monkeypatch.setattr(Plan, "takes_down", property(lambda self: outage))
        return findings(one, clock=clock, root=root, **more)

    return look
