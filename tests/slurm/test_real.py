"""Runs with an allocation of a real Slurm's: who holds it, what scancel does, and who waits."""

import json
import os
import shlex
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from console.host import process
from console.journal.state import RunState
from console.recovery.rollback.restores import remember_restore
from tests.runner.e2e.sites import REPORT, UP, book, gate
from tests.slurm.conftest import LANE, Node
from tests.testbed.slurm import Slurm
from tests.waiting import until

pytestmark = LANE

ONE_CARD = ("--slurm", "gpu", "--slurm", "gres=gpu:1")
LOADS_S = 5
"""How long a baseline takes to load: longer than Slurm needs to end a job by itself."""
HOLD = "id: hold, run: [sleep, '600']"


def trial(world: Node, *steps: str) -> str:
    return str(world.write("trial.yaml", book(UP, *steps, final=REPORT)))


def to_go(world: Node) -> str:
    return trial(world, *gate("50", 'go: ">= 20 tok/s"'))


def in_outage(world: Node, *more: str) -> str:
    """A run that has taken the baseline down; returns its job."""
    begun = world.console("run", trial(world, HOLD), *ONE_CARD, *more, "--detach", "--yes")
    assert begun.code == 0, begun
    job = world.job()
    world.until(lambda: world.runs, "the run begins")
    world.step("hold", "running")
    assert not world.serves()
    return job


def test_a_run_to_go_holds_the_allocation_until_the_baseline_serves(
    world: Node, cluster: Slurm
) -> None:
    done = world.console("run", to_go(world), *ONE_CARD, "--yes")
    assert done.code == 0, done
    assert "Slurm job" in done.out
    assert ": RUNNING" in done.out
    job = world.job()
    until(lambda: cluster.state(job) == "COMPLETED", "the allocation is given up")
    assert (cluster.job(job)["Requeue"], cluster.job(job)["NodeList"]) == ("0", "box")
    assert world.serves()
    report = world.run.report.read_text()
    told = f"Slurm job {job}: partition gpu, gres gpu:1, exclusive"
    assert told in report
    assert f"in {told}" in world.console("show").out


@pytest.mark.full
def test_nothing_of_a_run_lives_in_its_job_but_who_holds_it(world: Node, cluster: Slurm) -> None:
    job = in_outage(world)
    assert cluster.state(job) == "RUNNING"
    inside = {pid for pid, _ in world.mine() if _in_job(pid)}
    assert inside == {world.holder().pid}
    kinds = ("runner", "ladder", "process")
    assert not inside & {pid for kind in kinds for pid, _ in world.pids(kind)}
    assert all(world.pids(kind) for kind in kinds)


def _in_job(pid: int) -> bool:
    """Whether a process is a job's: by its group, and by its parents."""
    above = process.ancestry(pid)
    steps = {one for one in above if _command(one).startswith("slurmstepd")}
    group = Path(f"/proc/{pid}/cgroup").read_text()
    return bool(steps) or "/slurm" in group


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.full
def test_scancel_in_the_outage_brings_the_baseline_back_before_the_job_is_gone(
    bare: Node, cluster: Slurm
) -> None:
    site = json.loads(bare.site.read_text())
    base = site["baseline"]["process"]
    base["argv"] = ["sh", "-c", f"sleep {LOADS_S}; exec {shlex.join(base['argv'])}"]
    bare.site.write_text(json.dumps(site))
    bare.bring_up()
    world = bare
    job = in_outage(world)
    cluster.say("scancel", job)
    until(lambda: not cluster.listed(job), "the job is gone")
    assert world.serves(), "the baseline serves already"
    view = world.over()
    assert view.state is RunState.ROLLED_BACK
    verbs = [(verb.verb, verb.who) for verb in view.verbs]
    assert ("rollback", f"Slurm, which ends job {job}") in verbs
    assert world.serves()


@pytest.mark.full
def test_a_job_that_is_killed_or_suspended_brings_the_baseline_back(
    world: Node, cluster: Slurm
) -> None:
    in_outage(world)
    os.kill(world.holder().pid, signal.SIGKILL)
    view = world.over()
    assert (view.state, view.reason) == (RunState.ROLLED_BACK, "allocation")
    assert world.serves()
    job = in_outage(world)
    cluster.say("scontrol", "suspend", job)
    try:
        view = world.over()
        assert (view.state, view.reason) == (RunState.ROLLED_BACK, "allocation")
        assert world.serves()
    finally:
        cluster.say("scontrol", "resume", job)  # what Slurm has frozen cannot be killed
    until(lambda: cluster.state(job) == "COMPLETED", "the allocation is given up")


@pytest.mark.full
def test_a_run_rolls_back_before_the_time_of_its_job_is_over(world: Node, cluster: Slurm) -> None:
    job = in_outage(world, "--slurm", "time=3")
    view = world.state("rolled_back", limit_s=240.0)
    assert world.serves()
    assert f"Slurm, which ends job {job}" in [verb.who for verb in view.verbs]
    until(lambda: not cluster.listed(job), "the job is gone")
    assert cluster.state(job) == "COMPLETED", "no TIMEOUT"


@pytest.mark.full
def test_a_controller_that_is_away_changes_nothing(world: Node, cluster: Slurm) -> None:
    child = world.start("run", to_go(world), *ONE_CARD, "--slurm", "begin=23:00", "--yes")
    job = world.job()
    with cluster.without_controller():
        assert child.stdout is not None
        lines = iter(child.stdout.readline, "")
        assert any("Slurm does not answer" in line for line in lines)
    cluster.say("scontrol", "update", f"JobId={job}", "StartTime=now")
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, (out, err)
    assert world.serves()


@pytest.mark.full
def test_a_run_begins_at_night(world: Node, cluster: Slurm) -> None:
    night = (*ONE_CARD, "--slurm", "begin=23:00")
    begun = world.console("run", to_go(world), *night, "--detach", "--yes")
    assert begun.code == 0, begun
    job = world.job()
    waits = cluster.job(job)
    assert (waits["JobState"], waits["Reason"]) == ("PENDING", "BeginTime")
    assert waits["StartTime"].endswith("T23:00:00")
    assert world.runs == []
    assert world.serves()
    cluster.say("scontrol", "update", f"JobId={job}", "StartTime=now")  # the night has come
    world.until(lambda: world.runs, "the run begins")
    assert world.over().state is RunState.SUCCEEDED
    until(lambda: cluster.state(job) == "COMPLETED", "the allocation is given up")


@pytest.mark.full
def test_two_jobs_that_want_one_card_never_have_it_at_once(world: Node, cluster: Slurm) -> None:
    shared = (*ONE_CARD, "--slurm", "exclusive=false")
    other = cluster.submit("sleep 600", "--gres=gpu:1")
    until(lambda: cluster.state(other) == "RUNNING", "somebody else's job has the card")
    first = world.start("run", to_go(world), *shared, "--yes")
    mine = world.job()
    until(lambda: cluster.job(mine)["Reason"] == "Resources", "the card is waited for")
    assert world.runs == []
    second = world.start("run", to_go(world), *shared, "--yes")
    world.until(lambda: len(world.tickets) == 2, "both wait")
    last = world.job()
    cluster.say("scancel", "--full", "--signal=KILL", other)
    for child in (first, second):
        out, err = child.communicate(timeout=120)
        assert child.returncode == 0, (out, err)
    until(lambda: not cluster.listed(last), "all is over")
    jobs = [cluster.job(one) for one in (other, mine, last)]
    for before, after in pairwise(jobs):
        assert before["EndTime"] <= after["StartTime"], jobs
    assert len(world.runs) == 2
    assert world.serves()


@pytest.mark.full
def test_a_job_that_is_given_up_while_it_waits_begins_nothing(world: Node, cluster: Slurm) -> None:
    memory = world.root / "state/omni-console/restore/local.json"
    remember_restore(memory, "baseline", 95.0, 1.0)
    child = world.start("run", to_go(world), *ONE_CARD, "--slurm", "begin=23:00", "--yes")
    cluster.say("scancel", world.job())
    out, err = child.communicate(timeout=120)
    assert child.returncode == 5, (out, err)
    assert "CANCELLED" in err
    assert "WARNING: after `scancel` Slurm waits" in out, "the baseline needs longer to come back"
    assert world.runs == []


@pytest.mark.full
@pytest.mark.parametrize(
    ("wish", "code", "words"),
    [
        ("nope", 2, "`sinfo` lists the partitions"), ("gres=gpu:7", 5, "which gres"),
        ("begin=banana", 2, "times as Slurm writes them"), ("node=elsewhere", 2, "sinfo --Node"),
        ("time=1", 2, "too short"), ("colour=red", 2, "slurm has no 'colour'"),
    ],
)  # fmt: skip
def test_what_slurm_refuses_is_told_with_a_hint(
    world: Node, cluster: Slurm, wish: str, code: int, words: str
) -> None:
    """What it may give later is a failure; what it never gives is bad usage."""
    done = world.console("run", to_go(world), "--slurm", wish)
    assert done.code == code, done
    assert words in done.err
    assert world.tickets == []
    assert cluster.say("squeue", "-h") == ""


@pytest.mark.full
def test_a_shell_inside_a_job_asks_for_nothing(world: Node, cluster: Slurm) -> None:
    done = world.console("run", to_go(world), *ONE_CARD, SLURM_JOB_ID="77")
    assert (done.code, "inside Slurm's job 77" in done.err) == (5, True), done
    assert cluster.say("squeue", "-h") == ""
