"""A rollout over real ssh to a host whose runs wait for a real Slurm."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.hosts import Operator, hosts
from tests.runner.e2e.sites import REPORT, UP, book, gate
from tests.slurm.conftest import LANE
from tests.testbed.cache import Unavailable
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.slurm import Slurm
from tests.waiting import until

pytestmark = [pytest.mark.full, LANE]


@pytest.fixture
def operator(tmp_path: Path, cluster: Slurm) -> Iterator[Operator]:
    model = tmp_path / "tiny.gguf"
    tiny_llama(model)
    try:
        with hosts(tmp_path, model, ["a"], env=cluster.env) as made:
            row = (
                f"a: {{command: {made.boxes['a'].command}, slurm: {{partition: gpu, gres: gpu:1}}}}"
            )
            made.write(
                "config/omni-console/fleet.yaml", f"schema: omni.fleet/v1\nhosts: {{{row}}}\n"
            )
            yield made
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def test_a_rollout_waits_for_its_allocation_and_goes_on_where_it_was_left(
    operator: Operator, cluster: Slurm
) -> None:
    trial = operator.write("trial.yaml", book(UP, *gate("50", 'go: ">= 20 tok/s"'), final=REPORT))
    words = ("run", trial, "--on", "a", "--yes", "--slurm", "begin=23:00")
    first = operator.start(*words)
    until(lambda: cluster.say("squeue", "-h"), "the job waits")
    job = cluster.say("squeue", "-h", "-o", "%i")
    (row,) = operator.fleet("--json").json["hosts"]
    (waits,) = row["state"]["slurm"]
    assert (waits["job"], waits["state"], waits["reason"]) == (job, "PENDING", "BeginTime")
    assert f"Slurm job {job}: PENDING (BeginTime), from 20" in operator.fleet().out
    refused = operator.fleet("tell", "a", "abort")
    assert f"`ssh a scancel {job}` gives it up" in refused.err, refused
    listed = operator.boxes["a"].world.console("runs")
    assert f"trial waits for Slurm: job {job}, PENDING (BeginTime)" in listed.out, listed
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    again = operator.start(*words)
    cluster.say("scontrol", "update", f"JobId={job}", "StartTime=now")
    out, _ = again.communicate(timeout=120)
    assert again.returncode == 0, out
    assert "going on with the rollout" in out
    assert "decision: GO" in out
    assert len(operator.boxes["a"].world.runs) == 1
    until(lambda: cluster.state(job) == "COMPLETED", "the allocation is given up")
    assert operator.boxes["a"].world.serves()


def test_a_rollout_ends_where_its_job_is_given_up(operator: Operator, cluster: Slurm) -> None:
    trial = operator.write("trial.yaml", book(UP, *gate("50", 'go: ">= 20 tok/s"'), final=REPORT))
    child = operator.start("run", trial, "--on", "a", "--yes", "--slurm", "begin=23:00")
    until(lambda: cluster.say("squeue", "-h"), "the job waits")
    cluster.say("scancel", cluster.say("squeue", "-h", "-o", "%i"))
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 5, out
    assert "CANCELLED" in out
    for wish, why in (
        ("partition=nope", "invalid partition"), ("begin=nonsense", "Invalid time specification"),
        ("gres=magic:1", "Invalid generic resource"),
    ):  # fmt: skip
        refused = operator.fleet("run", trial, "--on", "a", "--yes", "--slurm", wish)
        assert refused.code == 2, "as `run --slurm` does"
        assert why in refused.err, refused
        assert "nothing was started" in refused.err
    assert operator.boxes["a"].world.runs == []
    # a drained node refuses nothing for good: the job waits for it
    node = cluster.say("sinfo", "--noheader", "--format=%N")
    cluster.say("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        child = operator.start("run", trial, "--on", "a", "--yes")
        until(lambda: cluster.say("squeue", "-h"), "the job waits")
    finally:
        cluster.say("scontrol", "update", f"NodeName={node}", "State=RESUME")
    out, _ = child.communicate(timeout=120)
    assert child.returncode == 0, out
