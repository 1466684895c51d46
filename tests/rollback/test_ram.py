"""The memory stage: it does not delay an ordinary rollback, and waits for RAM after a kill."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path

import pytest

from console.host import memory
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.progress import Report, Trigger
from console.recovery.rollback.stages import drain
from tests.clock import FakeClock
from tests.rollback.conftest import Stage

GIB, MIB = 1 << 30, 1 << 20
PAUSE = drain.PAUSE_S


class MemoryStage:
    """The stage on a fake clock, with a given amount of available RAM at each reading."""

    def __init__(self, stage: Stage, patch: pytest.MonkeyPatch) -> None:
        self.stage, self.patch, self.clock = stage, patch, FakeClock()

    def context(
        self, trigger: str = "sentinel-1", stopped: int = 0, **plan: object
    ) -> RollbackContext:
        self.stage.seal(**plan)
        self.stage.lines.clear()
        begun = Trigger(trigger, True, self.clock.monotonic())
        report = Report(self.stage.root / "l", begun, self.clock, self.stage.lines.append)
        made = RollbackContext(self.stage.plan, self.clock, report, None)
        made.ended = {(pid, 0) for pid in range(stopped)}
        return made

    def wait(
        self, figures: Iterable[int | None], context: RollbackContext | None = None
    ) -> tuple[str, float]:
        """The state in which the stage ends, and how many seconds it waited."""
        left, slept = chain(figures, repeat(GIB)), sum(self.clock.slept)
        self.patch.setattr(drain, "available", lambda: next(left))
        drain.memory(context or self.context())
        return self.stage.lines[-1]["state"], sum(self.clock.slept) - slept

    def breach(self, held: int, **limit: object) -> Path:
        path = Path(self.stage.plan.run_dir, *drain.BREACH)
        path.parent.mkdir(exist_ok=True)
        at = self.clock.now()
        fast = [[at - 1, 9 * GIB, 0, None], [at, 4 * GIB, 0, None], [at + 1, 0, 0, 0]]
        page = {
            "at": at, "limit": limit, "killed": [{"held": {"ram": held}}, {"held": None}],
            "window": {"fast": fast},
        }  # fmt: skip
        path.write_text(json.dumps(page))
        os.utime(path, (at, at))
        return path


@pytest.fixture
def memory_stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> MemoryStage:
    return MemoryStage(stage, monkeypatch)


RISING = [2 * GIB + step * 1200 * MIB for step in range(256)]


@pytest.mark.parametrize(
    ("trigger", "stopped", "figures", "state", "least", "most"),
    [
        ("command-1", 0, [], "skipped", 0, 0),
        ("runner-1", 1, [20 * GIB, 20 * GIB + 8 * MIB], "ok", 0, 0.005),
        ("sentinel-1", 0, [*RISING, RISING[-1] + 10 * MIB], "ok", 255.9 * PAUSE, 256.1 * PAUSE),
        ("sentinel-1", 0, range(GIB, 4000 * GIB, GIB), "ok", drain.WAIT_S, drain.WAIT_S + 1),
    ],
    ids=["nothing stopped", "held up for 5 ms", "until it rises no more", "never for ever"],
)
def test_how_long_it_is_waited_for(
    memory_stage: MemoryStage, trigger: str, stopped: int, figures: Iterable[int], state: str,
    least: float, most: float,
) -> None:  # fmt: skip
    found, slept = memory_stage.wait(figures, memory_stage.context(trigger, stopped))
    assert found == state
    assert least <= slept <= most
    if slept > 1:
        notes = sum(line["state"] == "note" for line in memory_stage.stage.lines)
        assert notes >= 4, "visible all the while"


def test_the_look_itself() -> None:
    known = drain.available()
    assert known is not None
    assert known > 0


@pytest.mark.parametrize(
    ("text", "scarce"),
    [
        (f"MemTotal: {377 << 20} kB\nMemFree: 5 kB\nMemAvailable: {37 << 20} kB\n", True),
        (f"MemTotal: {377 << 20} kB\nMemFree: 5 kB\nMemAvailable: {38 << 20} kB\n", False),
        ("MemTotal: 5 kB\n", False),
        (None, False),
    ],
    ids=["less than a tenth", "more", "not known", "no file"],
)
def test_what_is_scarce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, scarce: bool
) -> None:
    if text is not None:
        (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr(drain, "meminfo", lambda: memory.meminfo(tmp_path / "meminfo"))
    assert drain.is_scarce() is scarce


def test_a_fresh_breach_counts_whoever_asked(memory_stage: MemoryStage) -> None:
    path = memory_stage.breach(0)
    for ago, state in ((5, "ok"), (3600, "skipped")):
        os.utime(path, (memory_stage.clock.now() - ago, memory_stage.clock.now() - ago))
        assert memory_stage.wait([], memory_stage.context("command-1"))[0] == state


@pytest.mark.parametrize(
    ("held", "limit", "now", "short"),
    [
        (2 * GIB, {}, 5 * GIB, "563.2 MiB"),  # 4 GiB and 90 % of 2, less 256 MiB
        (2 * GIB, {}, 6 * GIB, ""),
        (0, {}, 3 * GIB, ""),
        (0, {"metric": "host.ram_available", "below": 6.0 * GIB}, 5 * GIB, "1.0 GiB"),
        (0, {"metric": "service.ram_used", "above": 6.0 * GIB}, 5 * GIB, ""),
    ],
)
def test_what_did_not_come_back_is_said_and_holds_nobody_up_for_long(
    memory_stage: MemoryStage, held: int, limit: dict[str, object], now: int, short: str
) -> None:
    context = memory_stage.context()
    memory_stage.breach(held, **limit)
    state, slept = memory_stage.wait([now] * 100, context)
    assert state == ("failed" if short else "ok")
    assert short in memory_stage.stage.lines[-1]["detail"]
    assert bool(context.failures) == bool(short)
    assert slept < drain.LATE_S + 1


def test_what_comes_late_is_waited_for(memory_stage: MemoryStage) -> None:
    memory_stage.breach(2 * GIB)
    assert memory_stage.wait([3 * GIB] * 8 + [7 * GIB] * 100)[0] == "ok"


def test_a_baseline_that_was_started_since_is_not_missing(memory_stage: MemoryStage) -> None:
    context = memory_stage.context("command-1")
    memory_stage.breach(2 * GIB)
    done = {"rung": "done", "at": memory_stage.clock.now() + 1}
    (memory_stage.stage.plan.rollback_dir / "ladder.jsonl").write_text(json.dumps(done) + "\n")
    assert memory_stage.wait([3 * GIB] * 100, context)[0] == "ok"


def test_a_wait_for_gpu_memory_says_how_much_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([90 * GIB, 40 * GIB, 2 * GIB, 2 * GIB])
    monkeypatch.setattr(drain, "vram_used", lambda gpus, call_s: next(readings))
    clock, said = FakeClock(), list[str]()
    words = drain.wait_for_vram(["GPU-1"], clock, lambda: clock.sleep(1.0), 2.0, said.append)
    assert words == "GPU memory in use 2.0 GiB, no longer falling"
    assert said == [
        f"waiting for GPU memory to be freed: {used} GiB in use" for used in ("90.0", "40.0", "2.0")
    ]
