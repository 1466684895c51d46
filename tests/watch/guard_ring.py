"""A run with a flight recording of a load that filled the machine, and what was done about it."""

import json
from pathlib import Path
from typing import Any

from console.journal.breach import read_breach
from console.journal.events import Breach
from console.journal.run_dir import RunDir, RunMeta
from console.recovery.guard.observe.snapshot import Memory
from console.recovery.guard.record.recorder import Recorder
from tests.clock import FakeClock

GIB = 1 << 30
WALL, MONO = 1_790_000_000.0, 5_000.0
"""When the recording begins: Unix seconds, and seconds since that boot."""
KILL_S, END_S = 95.0, 115.0
EVERY_S = 0.25


class Clock(FakeClock):
    """Both clocks of the recorder, `time` seconds after the recording began."""

    def now(self) -> float:
        return WALL + self.time

    def monotonic(self) -> float:
        return MONO + self.time


def available(t: float) -> int:
    """354 GiB that fill from the 20th second on, and come back after the kill."""
    if t < 20:
        return 354 * GIB
    if t < KILL_S:
        return int(max(28.0, 354 - (t - 20) * 4.5) * GIB)
    return int(min(350.0, 28 + (t - KILL_S) * 16) * GIB)


def level(t: float) -> str:
    return "ok" if t < 70 or t > KILL_S + 5 else "warn" if t < KILL_S else "act"


def run_of(place: Path) -> RunDir:
    run = RunDir(place)
    for part in ("guard", "rollback"):
        (run.path / part).mkdir(parents=True, exist_ok=True)
    run.write_meta(RunMeta(run.id, "x", "/b", "0", "/s", "/b"))
    return run


def record(
    run: RunDir, until: float = END_S, page: dict[str, Any] | None = None, said: str = ""
) -> Clock:
    """Its recording up to this second, by this process and in this boot; `said`: a last event."""
    (run.path / "guard").mkdir(exist_ok=True)
    clock = Clock(0.0)
    ring = Recorder(run.path / "guard" / "recorder.ring", run.id, clock)
    told = [
        (10.0, "armed", "candidate"), (70.0, "warn", "RAM full in 29 s"),
        (KILL_S, "breach", "RAM available 28.0 GiB"), (KILL_S + 0.03, "kill", "cgroup.kill"),
    ]  # fmt: skip
    second = 0.0
    while clock.time <= until:
        t = clock.time
        swap = int(max(0.0, min(9.0, (t - 80) / 2)) * GIB)
        memory = Memory(clock.monotonic(), 377 * GIB, available(t), 207 * GIB, swap)
        ring.tick(memory, 0.5, None, level(t))
        if t >= second:
            used = int(min(90.0, t) * GIB)
            card = {"uuid": "GPU-a", "used": used, "total": 96 * GIB, "why": "", "age_s": 0.1}
            load = {"name": "candidate", "kind": "container", "ram": max(0, int(t - 20)) * GIB}
            ring.second({"cards": [card], "loads": [load], "swap_in": 0.0, "swap_out": None})
            second += 1.0
        while told and t >= told[0][0]:
            ring.event(*told.pop(0)[1:])
        clock.time += EVERY_S
    if said:
        ring.event(said, "")
    ring.status(page if page is not None else {"level": level(clock.time), "reasons": []})
    ring.close()
    return clock


def breach(run: RunDir, **changes: Any) -> Breach:
    """Its breach.json, as a sentinel writes it, and what is read of it."""
    limit = {"metric": "host.ram_available", "below": 32 * GIB, "for_s": 0.1, "source": "site:4"}
    stages = ["cgroup.kill", "process_mrelease"]
    killed = {
        "name": "candidate (container 0123456789ab)", "kind": "container", "rungs": stages,
        "who": "container 0123456789ab", "written_s": 0.034, "empty_s": 0.227, "why": "",
        "stuck": "", "held": {"ram": 75 * GIB, "swap": 0, "age_s": 0.4},
    }  # fmt: skip
    page = {
        "at": WALL + KILL_S, "wall": WALL + KILL_S, "mono": MONO + KILL_S, "cause": "guard",
        "reason": "RAM available 28.0 GiB, below 32.0 GiB", "reasons": [], "limit": limit,
        "killed": [killed], "refused": [], "window": {"fast": []},
        "curve": {"metric": "host.ram_available", "of": "", "column": 1}, **changes,
    }  # fmt: skip
    (run.path / "guard" / "breach.json").write_text(json.dumps(page))
    return read_breach(run)


def climbed(run: RunDir, *stages: tuple[str, float]) -> None:
    """Rungs of the ladder that went well, seconds after the kill."""
    lines = [
        {"rung": rung, "state": "ok", "at": WALL + KILL_S + after, "trigger": "sentinel"}
        for rung, after in stages
    ]
    run.ladder.write_text("".join(json.dumps(line) + "\n" for line in lines))
