"""What an earlier version sealed brings the baseline back with this one installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from console.host import process
from console.host.process import ProcessSpec
from console.recovery.rollback import live
from console.runtime import proxy
from tests.compat.world import Past, lost
from tests.runner.world import Outcome

pytestmark = pytest.mark.xdist_group("compat")
"""One at a time: the runs of an archive have the same ids in each world, and a rollback ends what
bears the id of its run."""


def spawn(past: Past, name: str, *argv: str) -> tuple[int, int]:
    """A process of the newest run, known by its cookie and by its line in live.jsonl."""
    spec = ProcessSpec(argv, tuple(past.env.items()), str(past.root))
    started = process.spawn(spec, log=past.root / f"{name}.log", cookie=past.run.id)
    live.append(past.run.live, live.Live("process", name, *started))
    return started


def candidate(past: Past) -> tuple[int, int]:
    """The candidate serves, as it did before the reboot."""
    engine = [sys.executable, "-S", str(past.root / "engine.py"), str(past.cand_port)]
    started = spawn(past, "cand", *engine)
    past.until(lambda: past.serves(past.cand_url), "the candidate serves")
    return started


def is_back(past: Past) -> None:
    """The baseline of the old plan itself serves, and nothing of the run."""
    assert past.serves()
    found = past.baseline()
    assert found is not None
    words = Path(f"/proc/{found[0]}/cmdline").read_bytes().decode().split("\0")
    plan = json.loads(past.run.sealed.read_text())["baseline"]["process"]
    assert words[:-1] == plan["argv"]
    assert not past.listens(past.cand_url)


def script(past: Past, path: Path) -> Outcome:
    done = subprocess.run(
        ["sh", str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
        env=past.env, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_the_sealed_plan_brings_the_baseline_back(trials: Past) -> None:
    cand = candidate(trials)
    done = trials.console("rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    is_back(trials)
    assert not process.alive(*cand)
    view = trials.over()
    assert (str(view.state), view.outage) == ("rolled_back", False), trials.words
    assert trials.run.report.exists(), "the closer of the old plan wrote the report"


def test_the_old_script_brings_the_baseline_back(trials: Past) -> None:
    cand = candidate(trials)
    done = script(trials, trials.run.script)
    assert done.code == 0, done
    is_back(trials)
    assert not process.alive(*cand)
    again = trials.console("rollback", "--json")
    assert (again.code, again.json["nothing_to_do"]) == (0, True), again
    assert str(trials.over().state) == "rolled_back", trials.words


@pytest.mark.full
def test_the_scripts_of_the_site_and_of_runs_that_are_over_do_too(trials: Past) -> None:
    scripts = [*(trials.root / "state/omni-console/rollback").glob("*.sh")]
    scripts += [trials.named("measure").script, trials.named("grow").script]
    assert len(scripts) == 3
    for path in scripts:
        done = script(trials, path)
        assert done.code == 0, done
        is_back(trials)
        baseline = trials.baseline()
        assert baseline is not None
        process.stop_group(*baseline, grace_s=10.0)


def clients_at_candidate(past: Past) -> tuple[int, int]:
    """The cutover as it was before the reboot, by this version's relay; its (pid, start)."""
    candidate(past)
    listen, to = proxy.address(past.base_url), proxy.address(past.cand_url)
    relay = spawn(past, proxy.NAME, *proxy.argv(listen, to, "cand"))
    past.until(past.serves, "clients reach the candidate")
    found = proxy.at(past.base_url)
    assert found is not None
    assert (found.service, found.run) == ("cand", past.run.id)
    return relay


@pytest.mark.full
@pytest.mark.parametrize("by", ["command", "script"])
def test_clients_at_the_candidate_come_back(cutover: Past, by: str) -> None:
    """The relay is this version's: it is still known by what an old script looks for."""
    relay = clients_at_candidate(cutover)
    cutover.run.live.write_text("")  # the relay is found by its command line
    done = cutover.console("rollback") if by == "command" else script(cutover, cutover.run.script)
    assert done.code == 0, done
    is_back(cutover)
    assert not process.alive(*relay)
    assert proxy.at(cutover.base_url) is None


@pytest.mark.full
def test_an_earlier_cutover_is_shown_and_can_be_promoted(cutover: Past) -> None:
    argv, before = cutover.said("show-cutover")
    now = cutover.console(*argv)
    assert now.code == before.code, now
    assert list(lost(before.json, now.json)) == []
    clients_at_candidate(cutover)
    done = cutover.console("promote", "--why", "20 tok/s for an hour", "--yes", "--json")
    assert done.code == 0, done
    assert cutover.view().cutover.what == "promoted"
    assert cutover.console("rollback").code == 0
    is_back(cutover)


@pytest.mark.full
def test_a_reboot_is_followed_by_a_rollback(trials: Past) -> None:
    """As the boot unit of the earlier version asks for it."""
    done = trials.console("rollback", "--if-interrupted", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    is_back(trials)
    again = trials.console("rollback", "--if-interrupted", "--json")
    assert again.code == 0, again


@pytest.mark.full
def test_resume_goes_on_where_a_person_has_to_decide(trials: Past) -> None:
    """The step had begun and has no result, so nothing is repeated unasked."""
    done = trials.console("resume", trials.run.id, "--detach", "--json")
    assert done.code == 0, done
    trials.state("paused:in_doubt")
    assert trials.states()["long"] == "in_doubt"
    assert trials.tell("rollback").code == 0
    assert str(trials.over().state) == "rolled_back", trials.words
    is_back(trials)


@pytest.mark.full
def test_an_earlier_playbook_runs_beside_its_history(trials: Past) -> None:
    before = trials.named("measure").id
    assert trials.console("rollback").code == 0
    done = trials.console("run", str(trials.root / "measure.yaml"), "--json")
    assert done.code in (0, 4), done
    assert done.json["state"] == "succeeded", done
    table = trials.console("report", before, done.json["run"], "--json")
    assert table.code == 0, table
    assert len(table.json["comparison"]["attempts"]) == 2
