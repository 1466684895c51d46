"""A watch whose time, looks, fingerprints and restores a test gives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from console.bench.statistics import interval
from console.host.process import ProcessSpec
from console.journal import watch_record as record
from console.journal.watch_record import SERVING, SUSPECT
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.watch.fingerprint import Print
from console.watch.look import Holder, Look
from console.watch.plan import Settings, WatchPlan
from console.watch.watcher import Hands, Restored, Watcher
from tests.clock import FakeClock

if TYPE_CHECKING:
    from tests.watching.llama import Llama

MACHINE = {"kernel": "6.1.0-40", "driver": "575.57.08", "NUMA nodes": "0-3", "BIOS": "1401"}
SERVER = {"image": "sha256:" + "a" * 64, "command line": "llama-server -c 4096 -fa"}
SILENT = Look(SUSPECT, "no answer in time; pid 7 is stopped (SIGSTOP)")
RATE = 10.5


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "OMNI_HOST_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("OMNI_SITE", raising=False)
    return tmp_path


def plan_of(url: str = "http://127.0.0.1:1", **settings: Any) -> WatchPlan:
    base = Baseline(
        "baseline", "process", url, process=ProcessSpec(("serve.sh",)), ready_timeout_s=600.0,
        reference_tok_s=10.0,
    )  # fmt: skip
    return WatchPlan(Settings(**settings), SealedPlan("", "", base, site_name="ws"))


class Noise:
    """Rates of a machine that is well: spread, neighbours alike, warmer days, single slow answers
    and builds of up to twelve minutes."""

    def __init__(self, seed: int, spread: float = 0.015, daily: float = 0.02) -> None:
        self.random = random.Random(seed)
        self.spread, self.daily = spread, daily
        self.phase = self.random.random()
        self._near = self._build = 0.0
        self._left = 0

    def __call__(self, at: float, level: float = RATE) -> float:
        chance = self.random
        self._near = 0.9 * self._near + chance.gauss(0, 0.004)
        day = 1 + self.daily * math.sin(2 * math.pi * (at / 86_400 + self.phase))
        rate = level * day * math.exp(chance.gauss(0, self.spread) + self._near)
        if not self._left and chance.random() < 1 / 720:
            self._left, self._build = chance.randint(1, 12), chance.uniform(0.4, 0.9)
        if self._left:
            self._left -= 1
            rate *= self._build
        return rate * (chance.uniform(0.3, 1.0) if chance.random() < 0.01 else 1.0)


@dataclass
class World:
    """`look` is called with the time since the beginning; `prints` and `gauges` are what the next
    look finds; `restore` says how a restore ends, which takes `takes_s`."""

    plan: WatchPlan
    clock: FakeClock = field(default_factory=lambda: FakeClock(1_750_000_000.0))
    look: Callable[[float], Look] = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    prints: Print = field(default_factory=lambda: {**MACHINE, **SERVER})
    gauges: dict[str, float] = field(default_factory=dict)
    restore: Callable[[], Restored] = lambda: Restored(True, "omni-console rollback took 9 s")
    takes_s: float = 9.0
    restored: list[float] = field(default_factory=list)
    held: Holder | None = None

    def __post_init__(self) -> None:
        self.begun = self.clock.now()
        self.watcher = self.made()

    def made(self) -> Watcher:
        return Watcher(
            self.plan,
            Hands(
                self.clock, lambda: self.look(self.clock.now() - self.begun),
                lambda: (dict(self.prints), dict(self.gauges)), self._restore, interval,
                lambda: self.held,
            ),
            (1, 1),
        )  # fmt: skip

    def again(self) -> None:
        """The watch is killed and starts anew."""
        self.watcher = self.made()

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.clock.sleep(self.watcher.tick())

    def until(self, at: float) -> None:
        """Tick until so many seconds after the beginning."""
        while self.clock.now() - self.begun < at:
            self.tick()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [line for line in record.memory("ws") if line["kind"] == "event"]

    @property
    def kinds(self) -> list[str]:
        return [line["event"] for line in self.events]

    def _restore(self) -> Restored:
        self.restored.append(self.clock.now() - self.begun)
        self.clock.sleep(self.takes_s)
        return self.restore()


@pytest.fixture
def world() -> Iterator[World]:
    return World(plan_of(restore=True, at_most=2))


def with_settings(world: World, **changes: Any) -> World:
    settings = replace(world.plan.settings, **changes)
    return World(replace(world.plan, settings=settings))


@pytest.fixture
def llama() -> Iterator[Llama]:
    from tests.watching.llama import Llama

    made = Llama()
    yield made
    made.close()
