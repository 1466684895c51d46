"""`omni-console rollback` of real containers against the bare way to the same end."""

import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from console.host import process
from console.recovery.rollback import live
from console.recovery.rollback.live import Live
from console.recovery.rollback.progress import read_lines, size_of
from console.recovery.rollback.sealed_plan import Baseline, Candidate, EngineAddress
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Row, in_turns
from tests.benchmarks.sealed_run import SealedRun
from tests.benchmarks.surroundings import CannotRun
from tests.benchmarks.yard import GRACE_S, LIMIT_S, Yard, open_yard

PAIRS = 12
BAR = (1.25, 0.150)
DOCKER, CALLS = "docker + curl", "engine calls"


class Scenario(SealedRun):
    """A run whose candidate serves: it is gone (`cold`), or lives and a standby waits (`warm`)."""

    def __init__(self, name: str, place: Path, yard: Yard) -> None:
        address = EngineAddress(yard.socket, f"unix://{yard.socket}", yard.engine.docker_config)
        super().__init__(
            place, place / f"bench-{name}-{yard.baseline[:8]}",
            Baseline(
                name="baseline", kind="container", url=yard.url, ready_timeout_s=LIMIT_S,
                container_id=yard.baseline,
            ),
            candidates=(Candidate("candidate", container=yard.candidate),), engine=address,
            finish_argv=("true",), grace_s=GRACE_S,
        )  # fmt: skip
        self.name = name
        self.yard = yard
        self.whole: list[float] = []
        self.own: list[float] = []
        """Seconds to "serving" on the procedure's own clock, from its trigger on."""
        self.point(2, 1)

    def roll_back(self) -> float:
        """Seconds from the start of the command to its "serving"; the rest is kept aside."""
        self.yard.prepare()
        with ExitStack() as stack:
            runner = None
            if self.name == "warm":
                runner = stack.enter_context(self.running())
                stack.enter_context(self.waiting())
            candidate = Live("container", "candidate", container=self.yard.candidate)
            live.append(self.run.live, candidate)
            took = self._command()
            if runner is not None and process.alive(*runner):
                raise CannotRun("the runner is alive after a rollback")
        self.yard.check()
        return took

    def _command(self) -> float:
        before = size_of(self.run.ladder)
        serving, lines = 0.0, []
        begun = time.perf_counter()
        with subprocess.Popen(
            [*surroundings.command(), "rollback"], env=self.environment(), text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as child:  # fmt: skip
            assert child.stdout is not None
            for line in child.stdout:
                lines.append(line)
                if line.split()[2:4] == ["serving", "ok"]:
                    serving = time.perf_counter() - begun
            code = child.wait(LIMIT_S)
        self.whole.append(time.perf_counter() - begun)
        if code or not serving:
            raise CannotRun(f"the {self.name} rollback ended with {code}: {''.join(lines)}")
        said, _ = read_lines(self.run.ladder, before)
        at = {(line["rung"], line["state"]): float(line["t"]) for line in said}
        self.own.append(at["serving", "ok"])
        return serving


def run(say: Callable[[str], None]) -> list[Row]:
    """Cold (nothing waits) and warm (a run is live), each beside both bare ways. The bars: the
    command beside commands, the procedure alone beside the calls it makes."""
    with surroundings.workplace() as place, open_yard(place) as yard:
        cold, warm = Scenario("cold", place / "cold", yard), Scenario("warm", place / "warm", yard)
        ways = {
            CALLS: yard.by_calls, "cold": cold.roll_back, DOCKER: yard.by_docker,
            "warm": warm.roll_back,
        }  # fmt: skip
        times = in_turns(ways, PAIRS)
    docker, calls = times[DOCKER], times[CALLS]
    rows = []
    for one in (cold, warm):
        name, serving = f"rollback {one.name}", times[one.name]
        # but for the warm-up
        own, whole = one.own[-PAIRS:], one.whole[-PAIRS:]
        rows += [
            Row(f"{name}, to serving", DOCKER, serving, docker, *BAR),
            Row(f"{name}, to serving", CALLS, serving, calls),
            Row(f"{name}, the procedure alone", CALLS, own, calls, *BAR),
            Row(f"{name}, whole command", DOCKER, whole, docker),
        ]
    return rows
