"""The machine that a benchmark's test declares: a /proc of its own, and cards that nobody asks.

Whatever else runs on the real one (an engine beside it, a process on every core) is not seen.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.bench.interference import Engine, Surroundings
from console.bench.sample import Sample
from console.host.gpu.clocks import Watch

TICK, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
RUN_S = 10.0
SERVER, BASELINE, OTHER = 100, 200, 300


class NoWatch(Watch):
    """Cards are another test's."""

    def start(self) -> None:
        self.started = True

    def stop(self, seconds: float = 0.0) -> tuple[dict[str, Any], str]:
        return {}, "no NVIDIA driver"


@dataclass
class Host:
    """A scripted /proc. `work` lets a process use CPU, `run` lets time pass."""

    proc: Path
    now: float = 1000.0
    pages: int = 0
    faults: int = 0
    cpu: float = 0.0
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)

    def add(self, pid: int, name: str, parent: int = 1, **more: Any) -> None:
        facts = {"name": name, "parent": parent, "session": pid, "cpu": 0.0, "faults": 0}
        self.processes[pid] = facts | {"start": 7, "argv": name} | more
        self.write()

    def work(self, pid: int, cores: float, seconds: float = RUN_S) -> None:
        self.processes[pid]["cpu"] += cores * seconds
        self.cpu += cores * seconds
        self.write()

    def write(self) -> None:
        self.proc.mkdir(exist_ok=True)
        (self.proc / "vmstat").write_text(
            f"pgpgin 5\npswpin {self.pages}\npgmajfault {self.faults}\n"
        )
        busy = int(self.cpu * TICK)
        (self.proc / "stat").write_text(f"cpu  {busy} 0 0 99999 5 0 0 0 0 0\ncpu0 1 2 3\n")
        for pid, one in self.processes.items():
            folder = self.proc / str(pid)
            folder.mkdir(exist_ok=True)
            ticks = int(one["cpu"] * TICK)
            numbers = [0] * 40
            numbers[0:3] = [one["parent"], pid, one["session"]]
            numbers[8], numbers[10], numbers[18] = one["faults"], ticks, one["start"]
            rest = " ".join(map(str, numbers))
            (folder / "stat").write_text(f"{pid} ({one['name']}) S {rest}\n")
            (folder / "cmdline").write_bytes("\0".join(one["argv"].split()).encode() + b"\0")

    def surroundings(self, *, known: bool = True) -> Surroundings:
        """`known`: which processes are the server's, and which the baseline's."""
        return Surroundings(
            Engine("cand", SERVER, {"argv": ["llama-server"]}) if known else None,
            [Engine("baseline", BASELINE)] if known else [],
            proc=self.proc, monotonic=lambda: self.now, watch=NoWatch(),
        )  # fmt: skip

    def run(
        self, around: Surroundings, sample: Sample | None = None, *, seconds: float = RUN_S,
        pages: int = 0, faults: int = 0, unseen: float = 0.0, **cores: float,
    ) -> Sample:  # fmt: skip
        """One run in which the named processes (`p300=1.0`) worked, `unseen` by what is gone."""
        before = around.look()
        for pid, share in cores.items():
            self.work(int(pid.removeprefix("p")), share)
        self.pages, self.faults = self.pages + pages, self.faults + faults
        self.cpu += unseen * seconds
        self.now += seconds
        self.write()
        return around.judge(sample or Sample(tok_s=20.0), before, around.look())


def still(tmp_path: Path) -> Host:
    """A quiet machine: this process, a server, a baseline and a compiler that all do nothing."""
    made = Host(tmp_path / "proc")
    made.add(1, "systemd", parent=0)
    made.add(os.getpid(), "pytest")
    made.add(SERVER, "llama-server")
    made.add(BASELINE, "llama-server")
    made.add(OTHER, "cc1plus")
    return made
