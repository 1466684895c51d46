"""`rollback` from a second shell while everything it might lean on is broken, and on which plan it
acts."""

import json
import socket
import sys
from typing import Any

import pytest

from console.host import process
from console.runner.prepare import startable
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runner.e2e.sites import UP, book, host_site
from tests.runner.scenes import (
    LONG,
    closed,
    is_back,
    is_cut_over,
    points,
    restored,
    roll_back,
    stay,
)
from tests.runner.world import LONGEST_S
from tests.runner.world import WorldBase as World
from tests.runtime.made_engine import IMAGE, Refused, made_engine

BENCH = "id: bench, benchmark: {service: cand, max_tokens: 600, runs: 200}"


def elsewhere(world: World) -> tuple[dict[str, Any], str]:
    """The site with its baseline at a port of its own, and that baseline's address."""
    site, port = json.loads(world.site.read_text()), free_port()
    url = f"http://127.0.0.1:{port}"
    site["baseline"] |= {"process": {"argv": world.engine(world.model, port)}, "url": url}
    return site, url


def test_rollback_during_a_benchmark(world: World) -> None:
    world.detach(world.write("b.yaml", book(UP, BENCH)))
    world.until(lambda: world.at("bench").message, "the benchmark runs")
    told = roll_back(world)
    assert isinstance(told["restore_s"], float)
    closed(world)
    assert world.at("bench").state == "cancelled"


def test_two_at_once_climb_once_and_agree(outage: World) -> None:
    both = [outage.start("rollback", "--json") for _ in range(2)]
    said = [child.communicate(timeout=LONGEST_S) for child in both]
    assert [child.returncode for child in both] == [0, 0], said
    assert all(json.loads(out)["serving"] for out, _ in said)
    restored(outage)
    closed(outage)
    lines = [json.loads(line) for line in outage.run.ladder.read_text().splitlines()]
    starts = [x for x in lines if (x["rung"], x["state"]) == ("start", "ok")]
    assert len(starts) == 1, "the baseline was started once"


def test_rollback_through_the_runner_and_after_the_end(outage: World) -> None:
    assert outage.tell("rollback", "--reason", "enough").code == 0
    closed(outage)
    restored(outage)
    assert outage.view().verbs[-1].verb == "rollback"
    process.stop_group(*(outage.baseline() or (0, 0)), grace_s=0.0)
    assert not outage.serves()
    roll_back(outage)


def test_with_the_playbook_and_site_files_deleted(outage: World) -> None:
    (outage.root / "b.yaml").unlink()
    outage.site.unlink()
    outage.run.playbook.unlink()
    roll_back(outage)
    assert outage.console("runs").code == 0
    outage.until(lambda: not outage.pids("ladder"), "its ladder leaves though no closer can")


def test_with_the_journal_deleted(outage: World) -> None:
    for path in outage.run.path.glob("journal.db*"):
        path.unlink()
    roll_back(outage)
    closed(outage)
    assert outage.show()["title"] == "The trial", "a new journal says whose it is"
    for command in ("runs", "show", "report", "attach"):
        done = outage.console(command)
        assert "Traceback" not in done.err, done


def test_with_the_warm_ladder_gone(outage: World) -> None:
    outage.kill("ladder")
    roll_back(outage)
    closed(outage)


@pytest.mark.parametrize("planned", [True, False])
def test_a_run_restores_without_its_warm_ladder(outage: World, planned: bool) -> None:
    outage.kill("ladder")
    if not planned:
        outage.run.sealed.unlink()
    done = outage.console("abort", outage.run.id)
    assert done.code == 6, done
    outage.dead()
    assert str(outage.view().state) == "rolled_back"
    restored(outage)


def test_a_baseline_that_cannot_come_back_ends_7_with_the_commands(outage: World) -> None:
    blocker = socket.create_server(("127.0.0.1", outage.base_port))
    try:
        done = outage.console("rollback", "--json")
        assert (done.code, done.json["serving"]) == (7, False), done
        assert done.json["manual"], "the exact commands a person would type"
        view = outage.over()
        assert str(view.state) == "rollback_failed"
        outage.until(lambda: points(outage), "it is the run that the next rollback acts on")
    finally:
        blocker.close()
    roll_back(outage)


def test_after_a_failed_rollback_the_site_file_says_what_comes_back(outage: World) -> None:
    """The old plan's ladder, which stays after a failure, starts no second baseline later."""
    with socket.create_server(("127.0.0.1", outage.base_port)):
        assert outage.console("rollback").code == 7
        assert str(outage.over().state) == "rollback_failed"
        site, url = elsewhere(outage)
        outage.site.write_text(json.dumps(site))
        assert outage.console("rollback").code == 0
    assert outage.serves(url)
    outage.until(lambda: not outage.pids("ladder"), "the ladder of the old plan leaves")
    outage.until(lambda: str(outage.view().state) == "rolled_back", "it is on record")
    outage.until(lambda: not points(outage), "no rollback is owed any more")


# -- runs, site files and sealed plans that disagree -----------------------------------------------


def test_a_changed_site_file_forgets_no_candidate_container(
    bare: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline is a process, and the candidate answers at its very port, as an earlier release
    allowed it."""
    monkeypatch.setattr(startable, "refuse", lambda playbook, site: None)
    with made_engine() as engine:
        site = json.loads(host_site(bare, engine.host))
        serve = ["env", "-u", "OMNI_RUN", "-u", "OMNI_STEP", sys.executable, "-S", str(STANDIN)]
        site["services"]["box"] = {
            "container": {"image": IMAGE, "command": [*serve, str(bare.base_port)]},
            "url": bare.base_url, "exclusive": True,
        }  # fmt: skip
        bare.site.write_text(json.dumps(site))
        bare.bring_up()
        bare.detach(bare.write("b.yaml", book("id: up, service: {start: box}", LONG)))
        bare.step("long", "running")

        def refuse(call: str) -> None:
            if "/stop" in call or "/kill" in call:
                raise Refused(500, "did not receive an exit event")

        engine.answer = refuse
        assert bare.console("rollback").code == 7
        bare.over()
        engine.answer = lambda call: None
        bare.site.write_text(json.dumps(site, indent=2))
        done = bare.console("rollback", "--json")
        assert (done.code, done.json["nothing_to_do"]) == (0, False), done
        assert not [one.name for one in engine.containers.values() if one.job.running]
        assert bare.baseline() is not None


@pytest.mark.parametrize("ladder", ["warm", "dead"])
def test_a_run_in_its_outage_whose_plan_and_script_are_lost(outage: World, ladder: str) -> None:
    if ladder == "dead":
        outage.kill("ladder")
        outage.until(lambda: not outage.pids("ladder"), "the ladder is dead")
    outage.run.sealed.unlink()
    outage.run.script.unlink()
    roll_back(outage, OMNI_SITE="")


def test_a_site_file_with_an_old_date_is_a_changed_one(world: World) -> None:
    """It was prepared before the run and is moved into its place after it."""
    place = world.root / "config/omni-console/site.yaml"
    place.parent.mkdir()
    place.write_text(world.site.read_text())
    world.env["OMNI_SITE"] = ""
    site, url = elsewhere(world)
    prepared = world.write("site.new.yaml", json.dumps(site))
    assert world.go(world.write("b.yaml", book("id: n, note: hello"))).code == 0
    prepared.rename(place)
    done = world.console("rollback", "--json")
    assert (done.code, done.json["nothing_to_do"]) == (0, False), done
    assert world.serves(url)


def test_a_rollback_of_one_site_leaves_the_cutover_of_another(world: World) -> None:
    stay(world)
    site, url = elsewhere(world)
    other = world.write("other.yaml", json.dumps(site | {"name": "other"}))
    done = world.console("rollback", "--json", "--site", str(other))
    assert (done.code, done.json["serving"]) == (0, True), done
    assert world.serves(url)
    is_cut_over(world)
    assert f"omni-console rollback --site {world.site}" in done.err
    roll_back(world)
    is_back(world)
