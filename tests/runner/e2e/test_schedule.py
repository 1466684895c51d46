"""A run that a real systemd starts by the clock, on a machine where nobody is logged in."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.e2e.guest import GO, Guest
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.systemd import HOME, machine


@pytest.fixture
def guest(engine: Engine, models: Path) -> Iterator[Guest]:
    try:
        with machine(engine, models) as made:
            yield Guest(made, models / "tiny.gguf")
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def test_a_timer_starts_a_run_with_a_lease_while_nobody_is_logged_in(guest: Guest) -> None:
    path = HOME / ".config/omni-console/site.yaml"
    site = json.loads(guest.machine.user("cat", str(path)).stdout)
    soon = guest.machine.root("date", "-d", "+20 seconds", "+%Y-%m-%d %H:%M:%S").stdout.strip()
    entry = {"name": "nightly", "playbook": f"{HOME}/trial.yaml", "at": soon, "lease": "2h"}
    guest.write(path, json.dumps({**site, "schedule": [entry]}))
    assert guest.console("rollback").code == 0
    refused = guest.console("schedule", "install")
    assert (refused.code, "enable-linger ann" in refused.err) == (2, True), refused
    guest.machine.linger()
    done = guest.console("schedule", "install")
    assert done.code == 0, done
    assert "nightly" in done.out
    guest.machine.logged_out()
    guest.until(lambda: guest.engines(8081) and not guest.engines(8080), "the trial is up")
    [one] = guest.look("runs", "--json").json["runs"]
    run = str(one["run"])
    where = f"{HOME}/.local/state/omni-console/runs/{run}/run.json"
    meta = json.loads(guest.machine.user("cat", where).stdout)
    assert (meta["lease_s"], meta["yes"]) == (7200.0, False)
    guest.machine.user("touch", str(GO))
    assert guest.over(run)["state"] == "succeeded"
    assert guest.serves()
    [listed] = guest.look("schedule", "--json").json["scheduled"]
    assert (listed["name"], listed["next"]) == ("nightly", "")
    assert guest.console("schedule", "remove", "nightly").code == 0
    units = guest.machine.user("sh", "-c", "ls ~/.config/systemd/user").stdout
    assert "omni-console-run" not in units
    # a time that systemd does not know is refused with what it says, and nothing is left
    guest.write(path, json.dumps({**site, "schedule": [{**entry, "at": "at dawn"}]}))
    refused = guest.console("schedule", "install")
    assert refused.code != 0
    assert "systemd-analyze calendar" in refused.err
    assert guest.look("schedule", "--json").json["scheduled"] == []
