"""Guards that are breached before anything starts: no outage, and `plan` says so."""

from __future__ import annotations

import json
from pathlib import Path

from console.recovery.guard import config
from tests.run.e2e.sites import UP, book, guards
from tests.run.e2e.world import World


def test_ram_that_is_short_now_costs_no_outage_but_what_the_baseline_gives_back_counts(
    world: World,
) -> None:
    total = int(Path("/proc/meminfo").read_text().split()[1]) // 1024  # MemTotal is its first line
    limit = guards(f"metric: host.ram_available, below: {total - 1}MiB")
    short = world.write("b.yaml", limit + book(UP))
    done = world.go(short)
    assert done.code == 2, done
    assert "RAM available" in json.dumps(done.json), done
    assert not world.runs


def test_the_directory_of_a_guard_is_its_files(world: World) -> None:
    """A relative path is looked at where the playbook lies, not where somebody stands."""
    rows = guards("metric: disk.free, below: 1MiB, of: .")
    done = world.detach(world.write("b.yaml", rows + book("id: ask, approval: {prompt: Go on?}")))
    world.state("waiting_approval")
    (limit,) = json.loads((done.guard / config.CONFIG_FILE).read_text())["limits"]
    assert limit["of"] == str(world.root)
    assert world.tell("abort").code == 0
    world.over()
