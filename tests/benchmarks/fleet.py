"""Ten hosts on loopback: how long `fleet` takes to its first table, against the slowest of ten `ssh
HOST true` that are started together; no connection is open before either."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from console.config.site.site import load_site
from console.recovery.rollback import sealed_plan as sealed
from console.runner.prepare.baseline import written
from console.runner.prepare.seal import sealed_plan
from tests.benchmarks.figures import Measured, Row
from tests.benchmarks.surroundings import CannotRun
from tests.fleet.hosts import Box, Operator, hosts

HOSTS, PAIRS = 10, 7
MOST_RATIO = 1.5
LIMIT_S = 120.0


def run(say: Callable[[str], None]) -> Sequence[Measured]:
    names = [f"h{number}" for number in range(HOSTS)]
    with (
        tempfile.TemporaryDirectory() as made,
        hosts(Path(made), Path(made) / "none.gguf", names, baseline=False) as operator,
    ):
        for box in operator.boxes.values():
            _seal(box)
        _table(operator)  # compiles what is imported
        ours, peer = [], []
        for _ in range(PAIRS):
            ours.append(_table(operator))
            peer.append(_slowest(operator))
        _away(operator)
    say(f"{HOSTS} hosts share this machine's processors, as ten real ones do not")
    name = f"fleet, first table of {HOSTS} hosts"
    return [Row(name, "the slowest ssh HOST true", ours, peer, most_ratio=MOST_RATIO)]


def _seal(box: Box) -> None:
    """The plan that any earlier run has left: no parser is loaded then."""
    site = load_site(box.world.site)
    place = box.world.root / "state/omni-console/runs/earlier/rollback"
    place.mkdir(parents=True)
    sealed.write(sealed_plan(site, written(site)), place / sealed.PLAN)


def _away(operator: Operator) -> None:
    """No shared connection is left."""
    for name in operator.boxes:
        operator.cut(name)


def _table(operator: Operator) -> float:
    _away(operator)
    begun = time.monotonic()
    done = operator.fleet()
    took = time.monotonic() - begun
    if done.code != 0:
        raise CannotRun(str(done))
    return took


def _slowest(operator: Operator) -> float:
    _away(operator)
    with ThreadPoolExecutor(HOSTS) as pool:
        return max(pool.map(lambda name: _true(operator, name), operator.boxes))


def _true(operator: Operator, name: str) -> float:
    begun = time.monotonic()
    done = subprocess.run(
        ["ssh", "-T", name, "true"], env=operator.env, stdin=subprocess.DEVNULL,
        capture_output=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise CannotRun(done.stderr.decode("utf-8", "replace"))
    return time.monotonic() - begun
