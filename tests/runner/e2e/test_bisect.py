"""A bisect on real engines: a planted slow version among ten, killed in the middle and resumed."""

import json
import math
import signal
import sys
from pathlib import Path

import pytest

from console.host import process
from console.journal.run_files import view_of
from tests.runner.e2e.sites import service
from tests.runner.e2e.throttle import throttled
from tests.runner.e2e.world import World

VERSIONS = tuple(f"b{number}" for number in range(9401, 9411))
FIRST_BAD = "b9408"


@pytest.fixture
def builds(world: World) -> Path:
    """A directory with a build for each version: what an image tag would be elsewhere."""
    place = world.root / "builds"
    place.mkdir()
    engine = f'"{sys.executable}" -m console.rehearsal.demo.engine "$@"'
    slow, quick = throttled(engine, world.cand_port, 100), f"exec {engine}"
    for version in VERSIONS:
        program = place / version
        program.write_text(f"#!/bin/sh\n{slow if version >= FIRST_BAD else quick}\n")
        program.chmod(0o755)
    return place


def playbook(world: World, builds: Path) -> Path:
    """A quick build fails its gate after a stall of 1.3 s, a slow one is six times below it.

    A part of the baseline's speed would be no bound: a busy machine moves that by ten times.
    """
    argv = [f"{builds}/${{{{ inputs.build }}}}", *world.engine(world.model, world.cand_port)[3:]]
    return world.write("upgrade.yaml", json.dumps({
        "schema": "omni.playbook/v1", "name": "upgrade", "title": "Is this build as fast?",
        "inputs": {"build": {"type": "string", "required": True}},
        "services": {"candidate": service(argv, world.cand_url, exclusive=True)},
        "phases": [{"title": "Trial", "steps": [
            {"id": "up", "service": {"start": "candidate"}, "on_failure": "rollback"},
            {"id": "bench", "on_failure": "rollback", "benchmark": {
                "service": "candidate", "runs": 3, "max_tokens": 128, "against": "baseline"}},
            {"id": "go", "on_no_go": "rollback", "gate": [
                {"metric": "bench.tok_s", "go": ">= 100 tok/s"}]},
        ]}],
    }))  # fmt: skip


def test_a_planted_slow_version_is_found_though_it_is_killed(world: World, builds: Path) -> None:
    words = (
        "bisect", str(playbook(world, builds)), "--good", VERSIONS[0], "--bad", VERSIONS[-1],
        "--over", "build", "--list", ",".join(VERSIONS), "--json", "--yes",
    )  # fmt: skip
    first = world.start(*words)
    world.until(lambda: len(world.runs) == 2 and world.pids("runner"), "the second run goes on")
    world.step("bench", "running", "succeeded")
    alive = process.stat(first.pid)
    assert alive is not None
    process.send(first.pid, alive.start, signal.SIGKILL)
    first.wait(timeout=60)
    under_way = world.run.id

    done = world.console(*words)
    assert done.code == 0, f"{done.out}\n{done.err}"
    said = done.json
    assert (said["first_bad"], said["last_good"]) == (FIRST_BAD, "b9407")
    assert said["runs"] == len(world.runs) <= math.ceil(math.log2(len(VERSIONS) - 1)) == 4
    assert under_way in {one["run"] for one in said["tries"]}, "it was followed, not run again"
    speeds = {one["version"]: one["figures"]["bench.tok_s"] for one in said["tries"]}
    assert speeds.keys() >= {FIRST_BAD, "b9407"}
    for run in world.runs:
        view, _ = view_of(run)
        assert (view.outage, bool(view.cutover)) == (False, False)
        assert view.restored_s is not None
    assert world.serves()
    assert world.baseline() is not None
    report = Path(said["report"]).read_text()
    assert f"first bad: {FIRST_BAD}" in report
    assert speeds[FIRST_BAD] in report
