"""A candidate that daemonises, in a whole run: who finds it, who ends it and who names it."""

import json
import subprocess
import sys

import pytest

from console.host import ports, process
from console.recovery.rollback import live
from tests.rollback.test_daemons import DAEMON
from tests.runner.e2e.sites import book, service
from tests.runner.e2e.world import World

LATE = DAEMON.replace("listening", "time.sleep(0.5)\nlistening")


@pytest.mark.parametrize("by", ["rollback", "rollback.sh", "without-python.sh"])
@pytest.mark.parametrize("program", [DAEMON, LATE], ids=["at once", "late"])
def test_a_daemon_ends_with_the_rollback(world: World, by: str, program: str) -> None:
    """`env -i` clears what it was started with. A late one does not listen when its start fails."""
    site = json.loads(world.site.read_text())
    argv = ["env", "-i", sys.executable, "-S", "-c", program, str(world.cand_port), "0"]
    site["services"]["cand"] = service(argv, world.cand_url, exclusive=True)
    world.site.write_text(json.dumps(site))
    world.detach(world.write("b.yaml", book("id: up, service: {start: cand}")))
    world.until(lambda: ports.listener(world.cand_url), "it listens")
    daemon = ports.listener(world.cand_url)
    assert daemon is not None
    start = process.start_time(daemon.pid)
    world.until(lambda: daemon.pid in {e.pid for e in live.read(world.run.live)}, "on record")
    if by != "rollback":
        done = subprocess.run(["sh", str(world.run.rollback / by)], capture_output=True, text=True)
        words, code = done.stdout, done.returncode
    else:
        outcome = world.console("rollback")
        words, code = str(outcome), outcome.code
    assert code == 0, words
    assert not process.alive(daemon.pid, start or 0), words
    assert f"pid {daemon.pid}" in words
    assert not world.listens(world.cand_url)
