"""What a journal and an old proof say is asked of the world before it is believed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import process
from console.journal.run_files import left_down, served_since
from console.journal.run_view import RunView
from console.recovery.rollback import proof, records
from console.runtime import proxy
from tests.rollback.conftest import STANDIN
from tests.run.e2e.sites import UP, book
from tests.run.scenes import WATCH
from tests.run.whole.test_faults import crash
from tests.run.world import WorldBase as World

SITE = "local"


def test_resume_stops_a_baseline_that_came_back(world: World) -> None:
    """`docker start` by hand, `restart: always` after a reboot, or a rollback that was killed."""
    crash(world, "after_intent@up")
    world.bring_up()
    world.until(world.serves, "the baseline serves again")
    proof.remember(proof.proof_file(SITE), time.time(), 5.0, False)
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: world.listens(world.cand_url), "the candidate serves")
    assert world.baseline() is None, "two engines are loaded"
    notes = [e.data["text"] for e in world.events() if e.kind == "run.note"]
    assert any("came back" in text for text in notes)
    said = [e.data["text"] for e in world.events() if e.kind == "step.say"]
    assert "no GPUs in the site file" in said, "GPU memory is waited for after every stop"
    for kind in ("runner", "ladder"):
        world.kill(kind)
    world.dead()
    assert left_down(world.run, unknown=False), "the proof is of while it was back"
    world.console("rollback")


@contextlib.contextmanager
def stranger(port: int) -> Iterator[None]:
    """A server of this user's that is nobody's baseline."""
    child = subprocess.Popen([sys.executable, "-S", str(STANDIN), str(port)])
    try:
        yield
    finally:
        child.kill()
        child.wait()


def test_a_stranger_at_the_address_proves_nothing_for_a_run_that_left_the_baseline_down(
    world: World,
) -> None:
    crash(world, "after_intent@up")
    before = proof.last(proof.proof_file(SITE))
    with stranger(world.base_port):
        world.until(world.serves, "the stranger answers")
        again = world.console("run", str(world.write("other.yaml", book(UP, name="other"))))
        assert again.code == 5
    assert proof.last(proof.proof_file(SITE)) == before
    assert left_down(world.run, unknown=False)
    assert world.console("rollback", "--if-interrupted").code == 0
    assert world.serves()


def test_a_proof_of_before_the_outage_does_not_end_it(world: World) -> None:
    """The clock was an hour ahead when the baseline was proven, and was set right since."""
    file = proof.proof_file(SITE)
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"at": time.time() + 3600, "tok_s": 50.0, "degraded": False}))
    crash(world, "after_intent@up")
    assert left_down(world.run, unknown=False)
    proof.remember(file, time.time(), 5.0, False)
    assert not left_down(world.run, unknown=True), "a proof that came later counts"


@pytest.mark.parametrize(
    ("before_s", "newest_s", "counts"),
    [
        (-60, 5, True),
        (3600, 3600, False),  # the clock was ahead when the baseline was proven
        (3600, 3601, True),
        (-60, -30, False),  # a rollback wrote its proof late, when the next outage had begun
        (None, 5, False),  # an old journal: a proof of the future is none
        (None, -0.5, True),
    ],
)
def test_which_proof_ends_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    before_s: float | None, newest_s: float, counts: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = time.time()
    before = None if before_s is None else now + before_s
    view = RunView(site=SITE, outage=True, down_since=now - 1, proof_before=before)
    proof.remember(proof.proof_file(SITE), now + newest_s, 5.0, False)
    assert bool(served_since(view, alive=False)) is counts


def test_a_refused_resume_leaves_another_runs_cutover_alone(world: World) -> None:
    """rollback.sh ended run A, whose journal knows nothing of it; clients stay at B's candidate."""
    hold = "id: hold, approval: {prompt: 'go on?', expires: 1h}"
    first = world.detach(world.write("a.yaml", book(UP, hold, name="aa")))
    world.until(lambda: "approval" in str(world.view().state), "it waits")
    for kind in ("runner", "ladder"):
        world.kill(kind)
    world.dead()
    [candidate] = world.pids("process")
    process.stop_group(*candidate, grace_s=0.0)
    world.bring_up()
    line = {"trigger": "script-1-2", "rung": "done", "state": "ok", "at": 1, "serving": True}
    with (first.rollback / "ladder.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    mine = {
        "process": {"argv": world.engine(world.model, world.cand_port)}, "url": world.cand_url,
        "ready": {"timeout": "30s"}, "exclusive": True,
    }  # fmt: skip
    steps = (
        "id: up, service: {start: mine}",
        f"id: cut, cutover: {{to: mine, {WATCH}, then: stay}}",
    )
    services = json.dumps({"mine": mine})
    text = book(*steps, name="bb").replace("phases:", f"services: {services}\nphases:")
    world.go(world.write("b.yaml", text))
    world.over()
    relay, pointer = proxy.at(world.base_url), records.read(0)
    assert relay is not None
    assert pointer is not None
    resumed = world.console("resume", first.id, "--detach")
    assert resumed.code == 2
    assert "a rollback has ended run" in resumed.err
    assert (proxy.at(world.base_url), records.read(0)) == (relay, pointer)
    assert (world.baseline(), world.listens(world.cand_url)) == (None, True)
    assert world.console("rollback").code == 0
    assert not world.listens(world.cand_url)
