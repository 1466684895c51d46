"""The memory rung: an ordinary rollback is not held up, after a kill RAM is waited for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.clock import FakeClock
from console.rollback import ram, stop
from console.rollback.report import Line, Report, Trigger
from console.rollback.scene import Scene
from tests.rollback.conftest import Stage

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


Make = Callable[..., Scene]


@pytest.fixture
def make(stage: Stage, clock: FakeClock) -> Make:
    def scene(trigger: str = "sentinel-1", stopped: int = 0, **plan: object) -> Scene:
        stage.seal(**plan)
        begun = Trigger(trigger, True, clock.monotonic())
        made = Scene(stage.plan, clock, Report(stage.root / "l", begun, clock, said), None)
        made.stopped = stopped
        return made

    lines = stage.lines

    def said(line: Line) -> None:
        lines.append(line)

    return scene


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Callable[[Iterator[int]], None]:
    def use(values: Iterator[int]) -> None:
        monkeypatch.setattr(ram, "available", lambda descriptor: next(values))

    return use


def last(stage: Stage) -> tuple[str, str]:
    return stage.lines[-1]["state"], stage.lines[-1]["detail"]


def test_nothing_stopped_and_nothing_killed_waits_for_nothing(
    stage: Stage, make: Make, clock: FakeClock
) -> None:
    stop.memory(make("command-1"))
    assert last(stage)[0] == "skipped"
    assert clock.slept == []


def test_an_ordinary_rollback_is_held_up_for_less_than_five_milliseconds(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    figures(iter([20 * GIB, 20 * GIB + 8 * MIB]))
    stop.memory(make("runner-1", stopped=1))
    assert last(stage)[0] == "ok"
    assert sum(clock.slept) < 0.005


def test_the_look_itself() -> None:
    descriptor = os.open("/proc/meminfo", os.O_RDONLY)
    try:
        known = ram.available(descriptor)
    finally:
        os.close(descriptor)
    assert known is not None
    assert known > 0


@pytest.mark.parametrize(("left", "scarce"), [(37, True), (38, False)])
def test_scarce_is_less_than_a_tenth(tmp_path: Path, left: int, scarce: bool) -> None:
    text = f"MemTotal: {377 * 2**20} kB\nMemFree: 5 kB\nMemAvailable: {left * 2**20} kB\n"
    (tmp_path / "meminfo").write_text(text)
    assert ram.is_scarce(str(tmp_path / "meminfo")) is scarce


def test_what_is_not_known_is_not_scarce(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 5 kB\n")
    assert not ram.is_scarce(str(tmp_path / "meminfo"))
    assert not ram.is_scarce(str(tmp_path / "none"))


def test_after_a_kill_it_waits_until_ram_rises_no_more(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    """300 GiB at 1.2 GiB a look: visible all the while, and then it goes on."""
    values = [2 * GIB + step * 1200 * MIB for step in range(256)]
    figures(iter([*values, values[-1] + 10 * MIB]))
    stop.memory(make("sentinel-1"))
    assert last(stage)[0] == "ok"
    assert sum(clock.slept) == pytest.approx(256 * ram.PAUSE_S)
    assert sum(line["state"] == "note" for line in stage.lines) >= 4


def test_the_wait_is_bounded(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    figures(iter(range(GIB, 4000 * GIB, GIB)))
    stop.memory(make("sentinel-1"))
    assert ram.WAIT_S <= sum(clock.slept) <= ram.WAIT_S + 1


def test_a_fresh_breach_counts_whoever_asked(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    figures(iter([GIB] * 10))
    path = Path(stage.plan.run_dir, *stop.BREACH)
    path.parent.mkdir()
    path.write_text("{}")
    os.utime(path, (clock.now() - 5, clock.now() - 5))
    stop.memory(make("command-1"))
    assert last(stage)[0] == "ok"
    os.utime(path, (clock.now() - 3600, clock.now() - 3600))
    stop.memory(make("command-1"))
    assert last(stage)[0] == "skipped"


def breach(stage: Stage, clock: FakeClock, held: int, **limit: object) -> None:
    path = Path(stage.plan.run_dir, *stop.BREACH)
    path.parent.mkdir(exist_ok=True)
    at = clock.now()
    page = {
        "at": at, "limit": limit, "killed": [{"held": {"ram": held}}, {"held": None}],
        "window": {"fast": [[at - 1, 9 * GIB, 0, None], [at, 4 * GIB, 0, None], [at + 1, 0, 0, 0]]},
    }  # fmt: skip
    path.write_text(json.dumps(page))
    os.utime(path, (at, at))


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
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None],
    held: int, limit: dict[str, object], now: int, short: str,
) -> None:  # fmt: skip
    figures(iter([now] * 100))
    scene = make("sentinel-1")
    breach(stage, clock, held, **limit)
    stop.memory(scene)
    state, detail = last(stage)
    assert state == ("failed" if short else "ok")
    assert short in detail
    assert bool(scene.failures) == bool(short)
    assert sum(clock.slept) < ram.LATE_S + 1


def test_what_comes_late_is_waited_for(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    figures(iter([3 * GIB] * 8 + [7 * GIB]))
    scene = make("sentinel-1")
    breach(stage, clock, 2 * GIB)
    stop.memory(scene)
    assert last(stage)[0] == "ok"


def test_a_baseline_that_was_started_since_is_not_missing(
    stage: Stage, make: Make, clock: FakeClock, figures: Callable[[Iterator[int]], None]
) -> None:
    figures(iter([3 * GIB] * 8))
    scene = make("command-1")
    breach(stage, clock, 2 * GIB)
    done = {"rung": "done", "at": clock.now() + 1}
    (stage.plan.rollback_dir / "ladder.jsonl").write_text(json.dumps(done) + "\n")
    stop.memory(scene)
    assert last(stage)[0] == "ok"
