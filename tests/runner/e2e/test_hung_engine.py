"""A real engine that hangs on `stop` and `kill` and answers all else."""

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.host import process
from console.host.memory import pids_of_container
from tests.runner.e2e.boxes import LABEL, Boxes
from tests.runner.e2e.sites import UP, book
from tests.runner.scenes import LONG
from tests.testbed.door import door

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("by", ["rollback", "rollback.sh", "without-python.sh"])
def test_the_candidate_ends_before_the_baseline_starts(
    box: Boxes, by: str, record_property: Callable[[str, object], None]
) -> None:
    world, hung = box.world, list[str]()
    with tempfile.TemporaryDirectory() as short:
        path, behind = Path(short) / "hung.sock", box.host.removeprefix("unix://")

        def hangs(asked: str) -> bool:
            return bool(hung) and asked.partition("?")[0].endswith(("/stop", "/kill"))

        with door(path, behind, (LABEL, box.scope), hangs):
            site = json.loads(world.site.read_text())
            site["engine"]["host"] = f"unix://{path}"
            world.site.write_text(json.dumps(site))
            world.env["DOCKER_HOST"] = f"unix://{path}"
            world.detach(world.write("b.yaml", book(UP, LONG)))
            world.until(lambda: world.at("long").state == "running", "the outage")
            inside = pids_of_container(box.inspect(box.cand_name)["Id"])
            starts = {pid: process.start_time(pid) or 0 for pid in inside}
            assert starts
            hung.append("from now on")
            begun, ended = time.monotonic(), 0.0
            if by != "rollback":
                rolls = subprocess.Popen(
                    ["sh", str(world.run.rollback / by)], stdout=subprocess.PIPE, text=True,
                    stderr=subprocess.STDOUT,
                )  # fmt: skip
            else:
                rolls = world.start("rollback")
            while any(process.alive(*one) for one in starts.items()):
                ended = time.monotonic() - begun
                time.sleep(0.05)
            words = str(rolls.communicate(timeout=120))
            record_property("candidate_dead_s", round(ended, 1))
            record_property("serving_s", round(time.monotonic() - begun, 1))
            print(by, "dead", round(ended, 1), "serving", round(time.monotonic() - begun, 1), words)
        assert rolls.returncode == 0, words
        assert world.serves()
