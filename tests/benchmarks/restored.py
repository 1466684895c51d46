"""`omni-console rollback` of real containers against the bare way to the same end."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from console.host import process
from console.host.process import COOKIE, ProcessSpec
from console.recovery.rollback import live, standby
from console.recovery.rollback import records as pointers
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.live import LIVE, Live
from console.recovery.rollback.progress import PROGRESS_FILE, read_lines, size_of
from console.recovery.rollback.sealed_plan import Baseline, Candidate, EngineAddress, SealedPlan
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row, in_turns
from tests.benchmarks.surroundings import CannotRun
from tests.benchmarks.yard import GRACE_S, LIMIT_S, Yard, open_yard

PAIRS = 12
BAR = Bar(most_ratio=1.25, most_extra_s=0.150)
DOCKER, CALLS = "docker + curl", "engine calls"


@dataclass
class Scenario:
    """A run directory as a run leaves it, and what every climb of it took."""

    name: str
    place: Path
    yard: Yard
    whole: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    """Seconds to "serving" on the ladder's own clock, from its trigger on."""
    stages: list[dict[str, float]] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return f"bench-{self.name}-{self.yard.baseline[:8]}"

    @property
    def directory(self) -> Path:
        return self.place / "run" / sealed.ROLLBACK

    def environment(self) -> dict[str, str]:
        places = {"OMNI_HOST_DIR": "host", "XDG_STATE_HOME": "state"}
        mine = {key: str(self.place / name) for key, name in places.items()}
        return surroundings.environment(self.place.parent, **mine)

    def seal(self) -> None:
        """The plan and the pointer to it, as before step 1 of a run."""
        for name in ("host", "state"):
            (self.place / name).mkdir(parents=True)
        yard = self.yard
        plan = SealedPlan(
            run_id=self.run_id,
            run_dir=str(self.directory.parent),
            baseline=Baseline(
                name="baseline", kind="container", url=yard.url, ready_timeout_s=LIMIT_S,
                container_id=yard.baseline,
            ),
            candidates=(Candidate("candidate", container=yard.candidate),),
            engine=EngineAddress(
                yard.socket, f"unix://{yard.socket}", yard.engine.docker_config
            ),
            memory_file=str(self.place / "restore.json"),
            finish_argv=("true",),
            grace_s=GRACE_S,
        )  # fmt: skip
        sealed.write(plan, self.directory / sealed.PLAN)
        made = pointers.Pointer(
            self.run_id, plan.run_dir, "bench", os.getuid(), 2, 1, started_at=time.time()
        )
        with surroundings.variable("OMNI_HOST_DIR", str(self.place / "host")):
            pointers.write(made)

    def roll_back(self) -> float:
        """Seconds from the start of the command to its "serving"; the rest is kept aside."""
        self.yard.prepare()
        candidate = Live("container", "candidate", container=self.yard.candidate)
        live.append(self.directory / LIVE, candidate)
        before = size_of(self.directory / PROGRESS_FILE)
        argv = [*surroundings.command(), "rollback"]
        serving, lines = 0.0, []
        begun = time.perf_counter()
        with subprocess.Popen(
            argv, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                lines.append(line)
                if line.split()[2:4] == ["serving", "ok"]:
                    serving = time.perf_counter() - begun
            code = child.wait(LIMIT_S)
        whole = time.perf_counter() - begun
        if code or not serving:
            raise CannotRun(f"the {self.name} rollback ended with {code}: {''.join(lines)}")
        self.yard.check()
        said, _ = read_lines(self.directory / PROGRESS_FILE, before)
        at = {f"{x['rung']} {x['state']}": float(x["t"]) for x in said}
        self.whole.append(whole)
        self.own.append(at["serving ok"])
        self.stages.append(at)
        return serving

    def keep_last(self, count: int) -> None:
        """Forget the warm-up."""
        self.whole, self.own = self.whole[-count:], self.own[-count:]
        self.stages = self.stages[-count:]

    def ends(self) -> str:
        """When every rung was done, medians on the ladder's own clock."""
        stages = ("fence", "stop", "memory", "start", "ready", "completion", "serving", "done")
        words = []
        for rung in stages:
            ends = [
                max((at for key, at in climb.items() if key.split()[0] == rung), default=0.0)
                for climb in self.stages
            ]
            words.append(f"{rung} {statistics.median(ends) * 1e3:.0f}")
        return f"{self.name}: ms at the end of {', '.join(words)}"


class Alive(Scenario):
    """A run that is live: a ladder waits, and there is a runner to end."""

    def roll_back(self) -> float:
        runner = process.spawn(
            ProcessSpec(("sleep", "600")), log=Path("/dev/null"), cookie=self.run_id
        )
        try:
            with self._waiting():
                live.append(self.directory / LIVE, Live("runner", "runner", *runner))
                took = super().roll_back()
            if process.alive(*runner):
                raise CannotRun("the runner is alive after a rollback")
            return took
        finally:
            with suppress(ProcessLookupError):
                process.send(*runner, 9)
            # The file of one run, not of thirty.
            (self.directory / LIVE).unlink(missing_ok=True)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """A warm ladder for as long as this lasts."""
        argv = [sys.executable, "-m", "console.recovery.rollback.standby", str(self.directory)]
        env = {**self.environment(), COOKIE: self.run_id}
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=env) as child:
            try:
                deadline = time.monotonic() + LIMIT_S
                while not standby.is_standing_by(self.directory):
                    if time.monotonic() > deadline or child.poll() is not None:
                        raise CannotRun("the warm ladder does not start")
                    time.sleep(0.01)
                yield
            finally:
                child.kill()


def run(say: Callable[[str], None]) -> list[Row]:
    """Cold (nothing waits) and warm (a run is live), each beside both bare ways."""
    with surroundings.workplace() as place, open_yard(place) as yard:
        cold = Scenario("cold", place / "cold", yard)
        hot = Alive("warm", place / "warm", yard)
        cold.seal()
        hot.seal()
        ways = {
            CALLS: yard.by_calls,
            "cold": cold.roll_back,
            DOCKER: yard.by_docker,
            "warm": hot.roll_back,
        }
        times = in_turns(ways, PAIRS)
        say(f"the door to the shared engine adds {yard.door_costs() * 1e3:.2f} ms a call, to all")
    rows = []
    for scenario in (cold, hot):
        scenario.keep_last(PAIRS)
        say(scenario.ends())
        rows += _rows(scenario, times)
    return rows


def _rows(scenario: Scenario, times: dict[str, list[float]]) -> list[Row]:
    """The bars: the command beside commands, the ladder alone beside the calls it makes."""
    name, serving = scenario.name, times[scenario.name]
    docker, calls = times[DOCKER], times[CALLS]
    return [
        Row(f"rollback {name}, to serving", DOCKER, serving, docker, BAR),
        Row(f"rollback {name}, to serving", CALLS, serving, calls),
        Row(f"the ladder alone, {name}", CALLS, scenario.own, calls, BAR),
        Row(f"rollback {name}, whole command", DOCKER, scenario.whole, docker),
    ]
