"""Ten hosts on loopback: how long `fleet` takes to its first table, against the slowest of ten `ssh
HOST true` that are started together; no connection is open before either. And what one host costs,
on the wire and in CPU on both sides, while a silent run is followed, and while its state is
asked every five seconds over one line."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from console.config.site.site import load_site
from console.fleet.inventory import Host
from console.fleet.line import Line
from console.recovery.rollback import sealed_plan as sealed
from console.runner.prepare.baseline import written
from console.runner.prepare.seal import sealed_plan
from tests.benchmarks.figures import Figure, Measured, Row
from tests.benchmarks.surroundings import CannotRun
from tests.fleet.hosts import Box, Operator, hosts
from tests.runner.e2e.sites import book
from tests.testbed.models import tiny_llama
from tests.waiting import until

HOSTS, PAIRS = 10, 7
MAX_RATIO = 1.5
LIMIT_S = 120.0
SETTLE_S, WATCH_S, LOOKS = 8.0, 20.0, 3
EVERY_S = 5.0
"""Seconds between two questions of the console's page of hosts."""
MAX_BYTES_S, MAX_CPU = 1000.0, 0.2
"""Bytes a second on the wire, and percent of a core on either side, for each host."""
FAR = (" bridge", ".listing --each")
"""The far side: the bridge and what asks NVML for it, not the run that it has started."""
EARLIER = 200
"""Runs that lie on the host already."""


def run(say: Callable[[str], None]) -> Sequence[Measured]:
    return [_first_table(say), *_idle(say)]


def _first_table(say: Callable[[str], None]) -> Measured:
    names = [f"h{number}" for number in range(HOSTS)]
    with (
        tempfile.TemporaryDirectory() as made,
        hosts(Path(made), Path(made) / "none.gguf", names, baseline=False) as operator,
    ):
        for box in operator.boxes.values():
            _seal(box, "earlier")
        _plain(operator)
        _table(operator)  # compiles what is imported
        ours, peer = [], []
        for _ in range(PAIRS):
            ours.append(_table(operator))
            peer.append(_slowest(operator))
        _away(operator)
    say(f"{HOSTS} hosts share this machine's processors, as ten real ones do not")
    name = f"fleet, first table of {HOSTS} hosts"
    return Row(name, "the slowest ssh HOST true", ours, peer, max_ratio=MAX_RATIO)


def _plain(operator: Operator) -> None:
    """OpenSSH itself, without the tests' program that cuts lines."""
    program, config = shutil.which("ssh"), operator.root / "ssh_config"
    (operator.root / "bin/ssh").write_text(f'#!/bin/sh\nexec {program} -F {config} "$@"\n')


def _seal(box: Box, name: str) -> None:
    """The plan that any earlier run has left: no parser is loaded then."""
    site = load_site(box.world.site)
    place = box.world.root / f"state/omni-console/runs/{name}/rollback"
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


# -- what a host costs while nothing happens ------------------------------------------------------


def _idle(say: Callable[[str], None]) -> list[Measured]:
    with tempfile.TemporaryDirectory() as made:
        model = Path(made) / "tiny.gguf"
        tiny_llama(model)
        with hosts(Path(made), model, ["a"]) as operator:
            _plain(operator)
            for number in range(EARLIER):
                _seal(operator.boxes["a"], f"20250101-000000-x-{number:04x}")
            rows = _costs(operator, "a silent run is followed", _followed)
            operator.cut("a")
            rows += _costs(operator, f"its state, every {EVERY_S:.0f} s", _refreshed)
    say("the near side has its ssh in it, the host's side is without sshd")
    return rows


@dataclass(frozen=True)
class Spent:
    """So far: bytes of the connection both ways, and CPU seconds of each side."""

    at: float
    wire: int
    near: float
    far: float


def _costs(
    operator: Operator, name: str, way: Callable[[Operator, float], Callable[[], None]]
) -> list[Measured]:
    """`way` begins what is measured, until the given time, and returns what waits for its end."""
    wire, near, far = [], [], []
    end = way(operator, time.monotonic() + SETTLE_S + LOOKS * WATCH_S)
    time.sleep(SETTLE_S)
    before = _spent(operator)
    for _ in range(LOOKS):
        time.sleep(WATCH_S)
        now = _spent(operator)
        took = now.at - before.at
        wire.append((now.wire - before.wire) / took)
        near.append(100 * (now.near - before.near) / took)
        far.append(100 * (now.far - before.far) / took)
        before = now
    end()
    return [
        Figure(f"{name}: on the wire", "bytes/s", wire, MAX_BYTES_S),
        Figure(f"{name}: CPU of the operator's side", "% of a core", near, MAX_CPU),
        Figure(f"{name}: CPU of the host's bridge", "% of a core", far, MAX_CPU),
    ]


def _followed(operator: Operator, _until_then: float) -> Callable[[], None]:
    """`fleet run` on a run that has nothing to tell."""
    path = operator.write("long.yaml", book("id: long, run: [sleep, '600']"))
    child = operator.start("run", path, "--on", "a", "--yes", "--json")
    world = operator.boxes["a"].world
    until(lambda: bool(world.runs), "a run begins")
    return lambda: _end(operator, child)


def _end(operator: Operator, child: subprocess.Popen[str]) -> None:
    child.terminate()
    child.wait()
    operator.fleet("tell", "a", "abort")


def _refreshed(operator: Operator, until_then: float) -> Callable[[], None]:
    """Its state over one line, as the console's page of hosts asks for it."""
    os.environ["PATH"] = operator.env["PATH"]
    shared = operator.runtime / "omni-console"
    shared.mkdir(mode=0o700, exist_ok=True)
    line = Line(Host("a", "a", str(operator.boxes["a"].command)), shared)

    def ask() -> None:
        while time.monotonic() < until_then:
            line.ask("state")
            time.sleep(EVERY_S)
        line.close()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread.join


_looking: list[float] = []
"""CPU seconds that this process has spent on looking, which nobody else has to."""


def _spent(operator: Operator) -> Spent:
    box, begun = operator.boxes["a"], time.process_time()
    mine, there = str(operator.runtime), str(box.world.root)
    near, far = begun - sum(_looking), 0.0
    for one in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words, named = " ".join(one.cmdline()), one.environ()
            if named.get("XDG_RUNTIME_DIR") == mine:
                near += _cpu(one)
            elif named.get("XDG_STATE_HOME", "").startswith(there) and words.endswith(FAR):
                far += _cpu(one)
    found = Spent(time.monotonic(), _wire(box.ssh.port), near, far)
    _looking.append(time.process_time() - begun)
    return found


def _cpu(one: psutil.Process) -> float:
    return float(sum(one.cpu_times()[:2]))


def _wire(port: int) -> int:
    """Bytes that the connections to this port have carried both ways, as the kernel counts."""
    done = subprocess.run(
        ["ss", "-tinH", "dst", f"127.0.0.1:{port}"], capture_output=True, text=True, check=False
    )
    found = re.findall(r"bytes_(?:sent|received):(\d+)", done.stdout)
    if not found:
        raise CannotRun("no connection is open, or there is no ss: apt-get install iproute2")
    return sum(map(int, found))
