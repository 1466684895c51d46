"""The watch beside a real llama.cpp: frozen by SIGSTOP, killed, held by a run; and as a unit of a
real systemd. Its site looks every five seconds, the least that is allowed."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from tests.runner.e2e.guest import Guest
from tests.runner.e2e.sites import UP, book, host_site
from tests.runner.e2e.world import World, until
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.systemd import HOME, USER, machine

FROZEN_S = 180.0
"""A rollback takes a minute of silence for a hang, and then a restart."""
WATCH = {"interval": "5s", "restore": True, "at_most": 2}


class Watched:
    """A world with a watch that runs, and what the watch has written."""

    def __init__(self, world: World) -> None:
        self.world = world
        site = json.loads(host_site(world))
        self.news = world.root / "news"
        channel = {"command": ["sh", "-c", f'echo "$OMNI_EVENT_KIND" >> {self.news}']}
        more = {"watch": WATCH, "notify": [channel]}
        world.site.write_text(json.dumps({**site, **more}))
        self.begin()
        self.until(lambda: self.state().get("word") == "serving", "it looks, and it serves")

    def begin(self) -> None:
        self.child = self.world.start("watch", "run")

    def state(self) -> dict[str, Any]:
        told = self.world.console("watch", "status", "--json").json
        return told["state"] or {}

    def events(self) -> list[dict[str, Any]]:
        path = self.world.records / "watch.jsonl"
        lines = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
        return [line for line in lines if line["kind"] == "event"]

    def kinds(self) -> list[str]:
        return [line["event"] for line in self.events()]

    def until(self, condition: Any, what: str, limit_s: float = 60.0) -> None:
        until(condition, what, limit_s, where=lambda: json.dumps([self.state(), self.events()]))


@pytest.fixture
def watched(world: World) -> Watched:
    return Watched(world)


def test_a_frozen_server_is_noticed_restored_and_told_once(watched: Watched) -> None:
    world = watched.world
    pid, start = world.baseline() or (0, 0)
    looks = watched.state()["looks"]
    os.kill(pid, signal.SIGSTOP)
    watched.until(lambda: watched.kinds() == ["baseline-down"], "it is noticed")
    assert watched.state()["looks"] - looks <= 3, "one more look may have been under way"
    assert "SIGSTOP" in watched.events()[0]["text"]
    watched.until(lambda: watched.kinds()[1:] == ["baseline-back"], "it is back", FROZEN_S)
    assert not process.alive(pid, start)
    assert world.serves()
    assert watched.state()["restored"] == 1
    # a watch that is killed and starts again says nothing twice
    watched.child.kill()
    watched.child.wait()
    watched.begin()
    looks = watched.state()["looks"]
    watched.until(lambda: watched.state()["looks"] > looks + 2, "it looks again")
    assert watched.kinds() == ["baseline-down", "baseline-back"]
    # and who is named in the site file was told the same
    watched.until(
        lambda: watched.news.exists() and watched.news.read_text().split() == watched.kinds(),
        "it is told",
    )


def test_a_dead_server_is_restored_so_many_times_and_then_only_told(watched: Watched) -> None:
    world = watched.world
    for count in (1, 2):
        pid, _ = world.baseline() or (0, 0)
        os.kill(pid, signal.SIGKILL)
        watched.until(lambda c=count: watched.kinds().count("baseline-back") == c, "it is back")
    pid, start = world.baseline() or (0, 0)
    os.kill(pid, signal.SIGKILL)
    watched.until(lambda: watched.kinds()[4:] == ["baseline-down"] * 2, "it is told")
    assert "it was restored 2 times" in watched.events()[-1]["text"]
    looks = watched.state()["looks"]
    watched.until(lambda: watched.state()["looks"] > looks + 2, "it looks again")
    assert len(watched.events()) == 6
    assert not process.alive(pid, start)
    assert world.console("rollback").code == 0
    watched.until(lambda: watched.kinds()[6:] == ["baseline-back"], "a person has restored it")


def test_what_a_run_takes_down_is_its_own(watched: Watched) -> None:
    world = watched.world
    go = world.root / "go"
    hold = f"id: hold, run: [sh, -c, 'until [ -e {go} ]; do sleep 0.05; done']"
    trial = world.write("trial.yaml", book(UP, hold))
    world.detach(trial)
    watched.until(lambda: not world.listens(world.base_url), "the baseline is down")
    looks = watched.state()["looks"]
    watched.until(lambda: watched.state()["looks"] > looks + 2, "it looks at the outage")
    state = watched.state()
    assert (state["word"], state["restored"], watched.events()) == ("planned", 0, [])
    go.touch()
    watched.until(lambda: watched.state()["word"] == "serving", "the run is over")
    assert watched.events() == []


# -- systemd -----------------------------------------------------------------------------------


@pytest.fixture
def guest(engine: Engine, models: Path) -> Iterator[Guest]:
    try:
        with machine(engine, models) as made:
            yield Guest(made, models / "tiny.gguf")
    except Unavailable as error:
        lacking(PREFIX + error.reason)


@pytest.mark.parametrize("system", [False, True], ids=["user unit", "system unit"])
def test_as_a_unit_it_watches_over_reboots_and_restores_what_outlives_it(
    guest: Guest, system: bool
) -> None:
    path = HOME / ".config/omni-console/site.yaml"
    site = json.loads(guest.machine.user("cat", str(path)).stdout)
    guest.write(path, json.dumps({**site, "watch": WATCH}))
    assert guest.console("rollback").code == 0
    more = ("--system",) if system else ()
    command = guest.sudo if system else guest.console
    if not system:
        refused = guest.console("watch", "install")
        assert (refused.code, "enable-linger ann" in refused.err) == (2, True), refused
        guest.machine.linger()
    done = command("watch", "install", *more)
    assert done.code == 0, done
    name = f"omni-console-watch-{USER}.service" if system else "omni-console-watch.service"

    def word() -> str:
        state = guest.look("watch", "status", "--json").json["state"]
        return state["word"] if state else ""

    def told() -> list[str]:
        where = f"{HOME}/.local/state/omni-console/services/local/watch.jsonl"
        lines = guest.machine.user("cat", where).stdout.splitlines()
        return [line["event"] for line in map(json.loads, lines) if line["kind"] == "event"]

    guest.until(lambda: word() == "serving", "the unit watches")
    [frozen] = guest.engines(8080)
    guest.machine.root("kill", "-STOP", str(frozen))
    until(lambda: told() == ["baseline-down", "baseline-back"], "it is restored", FROZEN_S,
          guest.where)  # fmt: skip
    [pid] = guest.engines(8080)
    assert pid != frozen
    assert guest.serves()
    level, _, _ = guest.doctor("baseline.watch")
    assert level == "ok"
    # The unit ends, and what it restored lives on: KillMode=process.
    assert name in guest.cgroup(pid)
    done = command("watch", "uninstall", *more)
    assert done.code == 0, done
    assert guest.machine.told(name, "ActiveState", system=system)["ActiveState"] == "inactive"
    assert guest.serves()
    assert guest.look("watch", "status").code == 5
    # Installed again it also starts after a reboot, and the dead baseline is restored by it.
    assert command("watch", "install", *more).code == 0
    guest.until(lambda: word() == "serving", "the unit watches again")
    guest.machine.power_off()
    guest.machine.power_on()
    until(lambda: guest.engines(8080) and guest.serves(), "it serves after the reboot", FROZEN_S,
          guest.where)  # fmt: skip
