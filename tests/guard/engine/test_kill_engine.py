"""Containers of a real engine are killed by each way that there is; the baseline's never is."""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from console.host import cgroup
from console.recovery.guard.kill.killer import Killer
from console.recovery.guard.kill.targets import Deny, Target, sort_out
from console.recovery.rollback import live
from console.recovery.rollback.live import Live
from tests.guard.conftest import kill_all, kill_as_user
from tests.guard.yard.engine import own_engine
from tests.testbed.cache import Unavailable
from tests.testbed.door import door
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking, on_every_engine
from tests.testbed.python_image import ensure_python_image
from tests.waiting import until

pytestmark = pytest.mark.engine

HOG = """
import time
b = bytearray(256 << 20)
b[::4096] = b"x" * 65536
print("full")
time.sleep(600)
"""
BOMB = "for n in $(seq 80); do (while :; do sleep 0.3; done) & done; exec sleep 600"
"""Shells that fork endlessly, but never so many that a fork fails."""
PIDS = 250
GID = 54400


@dataclass
class Pen:
    """Containers of one test in an engine."""

    engine: Engine
    image: str
    label: str
    network: tuple[str, ...] = ()

    def run(self, *argv: str, options: tuple[str, ...] = ()) -> str:
        words = ["run", "-d", "--label", self.label, *self.network, *options, self.image, *argv]
        return self.engine.run(*words).strip()

    def up(self, identity: str) -> bool:
        form = "{{.State.Running}}"
        return self.engine.run("inspect", "--format", form, identity).strip() == "true"

    def says(self, identity: str, word: str) -> None:
        until(lambda: word in self.engine.run("logs", identity))

    def close(self) -> None:
        if ids := self.engine.run("ps", "-aq", "--filter", f"label={self.label}").split():
            self.engine.run("rm", "-f", "-v", *ids)


@pytest.fixture
def pen(engine: Engine, busy_image: str) -> Iterator[Pen]:
    made = Pen(engine, busy_image, f"omni.test={uuid.uuid4().hex}")
    try:
        yield made
    finally:
        made.close()


@contextmanager
def killer_of(deny: Deny, engine: str = "", **more: Any) -> Iterator[Killer]:
    made = Killer("", deny, engine=engine, helper="/nowhere", **more)
    try:
        yield made
    finally:
        made.close()


def recorded(*identities: str) -> tuple[Target, ...]:
    entries = [Live("container", "cand", container=one) for one in identities]
    return sort_out(entries, Deny())[0]


@pytest.mark.full
def test_a_hog_is_killed_by_its_control_group(pen: Pen) -> None:
    pen.image = ensure_python_image(pen.engine)
    hog = pen.run("python3", "-u", "-c", HOG, options=("--init", "--memory", "600m"))
    pen.says(hog, "full")
    targets = recorded(hog)
    assert not targets[0].pending
    with killer_of(Deny(), pen.engine.socket) as killer:
        assert killer.rehearse() == ()
        operation = kill_all(killer, targets)
        freed = killer.reaper is not None and not killer.reaper.why
    (one,) = operation.killed
    assert one.stages[:2] == ("cgroup.kill", "engine")
    # the child answers within two milliseconds, or the kill goes on without it
    assert freed or "process_mrelease" not in one.stages
    assert one.why == ()
    until(lambda: not pen.up(hog), "it is down")


@pytest.mark.full
def test_every_way_finds_the_groups_of_a_real_container(pen: Pen) -> None:
    identity = pen.run("sleep", "600")
    quick = cgroup.find(identity, scan=False)
    assert quick
    assert quick[0].kind == "" or not Path(f"{quick[0].path}/cgroup.kill").exists()
    pid = int(pen.engine.run("inspect", "--format", "{{.State.Pid}}", identity))
    assert pid in cgroup.pids(quick[0].path)
    assert not cgroup.is_empty(quick[0])
    by_scan = list(cgroup._groups_of(cgroup.processes()[identity], identity, cgroup.hierarchies()))
    assert {one.path for one in by_scan} == {one.path for one in quick}


@pytest.mark.parametrize("way", ["cgroup.kill", "signals"])
@pytest.mark.full
def test_a_fork_bomb_is_killed(pen: Pen, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "signals":  # like a kernel without cgroup.kill
        monkeypatch.setattr(
            "console.recovery.guard.kill.signals.write_kill", lambda group, reaper: (2, False)
        )
    bomb = pen.run("sh", "-c", BOMB, options=("--init", "--pids-limit", str(PIDS), "--cpus", "0.7"))
    targets = recorded(bomb)
    until(lambda: len(cgroup.pids(targets[0].cgroups[0].path)) >= 80, "it forks")
    with killer_of(Deny(), release=False) as killer:
        operation = kill_all(killer, targets)
    assert operation.killed[0].stages == (way,)
    until(lambda: not pen.up(bomb), "it is down")


@pytest.mark.full
def test_a_restart_policy_does_not_bring_it_back(pen: Pen) -> None:
    """The engine is told at once, and treats the kill as a wanted stop."""
    again = pen.run("sleep", "600", options=("--restart", "always", "--init"))
    with killer_of(Deny(), pen.engine.socket, release=False) as killer:
        kill_all(killer, recorded(again))
    until(lambda: not pen.up(again), "it is down")


@on_every_engine
def test_a_forged_line_does_not_reach_the_baseline(pen: Pen, tmp_path: Path) -> None:
    base, candidate = pen.run("sleep", "600"), pen.run("sleep", "600")
    path = tmp_path / live.LIVE
    for name, identity in (("cand", candidate), ("cand", base), ("innocent", base)):
        live.append(path, Live("container", name, container=identity))
    deny = Deny((base, "baseline"))
    targets, refused = sort_out(live.read(path), deny)
    assert [target.container for target in targets] == [candidate]
    assert len(refused) == 2
    with killer_of(deny, pen.engine.socket, release=False) as killer:
        # the target was found before the deny list named it, so the kill itself refuses it
        operation = kill_all(killer, recorded(base, candidate))
    assert len(operation.refused) == 1
    assert pen.up(base)
    until(lambda: not pen.up(candidate), "it is down")


@pytest.fixture
def ajar(pen: Pen) -> Iterator[str]:
    """The engine's socket as the docker group has it, under a path that everybody may enter."""
    folder = Path(tempfile.mkdtemp(prefix="omni-ajar-"))
    folder.chmod(0o755)
    key, _, value = pen.label.partition("=")
    try:
        with door(folder / "s", pen.engine.socket, (key, value)) as path:
            os.chown(path, 0, GID)
            os.chmod(path, 0o660)
            yield path
    finally:
        shutil.rmtree(folder)


@pytest.mark.full
def test_a_user_of_the_docker_group_kills_through_the_engine(pen: Pen, ajar: str) -> None:
    candidate = pen.run("sleep", "600", options=("--init",))
    empty, report = kill_as_user([GID], candidate, engine=ajar)
    assert empty, report
    until(lambda: not pen.up(candidate), "it is down")
    (one,) = report["killed"]
    assert one["rungs"] == ["engine"]
    assert len(one["why"]) >= 2, "neither its control group nor signals were permitted"


@pytest.mark.full
def test_a_user_of_no_group_kills_nothing_and_is_told(pen: Pen, ajar: str) -> None:
    candidate = pen.run("sleep", "600")
    empty, report = kill_as_user([], candidate, engine=ajar, limit_s=0.3)
    assert not empty
    assert "engine: Permission denied" in report["killed"][0]["why"]
    assert report["written_s"] is None
    assert pen.up(candidate)


@pytest.mark.full
@pytest.mark.alone
def test_with_the_engine_stopped_its_group_is_killed_all_the_same() -> None:
    """An engine for this test alone, because others share the usual one."""
    with ExitStack() as stack:
        try:
            engine, pid = stack.enter_context(own_engine())
        except Unavailable as error:
            lacking(PREFIX + error.reason)
        pen = Pen(engine, "omni-test/busy:1", "omni.test=stopped", ("--network", "none"))
        candidate = pen.run("sleep", "600", options=("--init", "--restart", "always"))
        targets = recorded(candidate)
        os.kill(pid, signal.SIGSTOP)
        try:
            with killer_of(Deny(), engine.socket, release=False) as killer:
                operation = kill_all(killer, targets)
            assert operation.killed[0].stages == ("cgroup.kill", "engine")
            assert cgroup.is_empty(targets[0].cgroups[0])
        finally:
            os.kill(pid, signal.SIGCONT)
