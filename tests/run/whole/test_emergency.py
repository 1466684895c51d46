"""`rollback` from a second shell while everything it might lean on is broken."""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import Iterator

import pytest

from console.host import process
from tests.ports import free_port
from tests.run.e2e.sites import UP, book, host_site
from tests.run.scenes import LONG, closed, points, restored, roll_back
from tests.run.world import LONGEST_S
from tests.run.world import WorldBase as World

BENCH = "id: bench, benchmark: {service: cand, max_tokens: 600, runs: 200}"


def test_rollback_during_a_benchmark(world: World) -> None:
    world.detach(world.write("b.yaml", book(UP, BENCH)))
    world.until(lambda: world.at("bench").said, "the benchmark runs")
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
    assert outage.view().verbs[-1]["verb"] == "rollback"
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


def test_a_run_restores_without_its_warm_ladder(outage: World) -> None:
    outage.kill("ladder")
    done = outage.console("abort", outage.run.id)
    assert done.code == 6, done
    restored(outage)


def test_a_run_restores_without_its_warm_ladder_and_its_plan(outage: World) -> None:
    outage.kill("ladder")
    outage.run.sealed.unlink()
    assert outage.tell("abort").code == 0
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
        site = json.loads(outage.site.read_text())
        port = free_port()
        site["baseline"]["process"]["argv"] = outage.engine(outage.model, port)
        site["baseline"]["url"] = url = f"http://127.0.0.1:{port}"
        outage.site.write_text(json.dumps(site))
        assert outage.console("rollback").code == 0
    assert outage.serves(url)
    outage.until(lambda: not outage.pids("ladder"), "the ladder of the old plan leaves", 20.0)
    outage.until(lambda: str(outage.view().state) == "rolled_back", "it is on record", 20.0)
    outage.until(lambda: not points(outage), "no rollback is owed any more", 20.0)


@pytest.fixture
def frozen() -> Iterator[str]:
    """An engine socket that takes connections and never says a word."""
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/engine.sock"
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(path)
            door.listen(64)
            yield f"unix://{path}"


def test_with_the_container_engine_frozen(bare: World, frozen: str) -> None:
    site = json.loads(host_site(bare, frozen))
    site["services"]["box"] = {"container": {"image": "never:pulled"}, "url": "http://127.0.0.1:9"}
    bare.site.write_text(json.dumps(site))
    bare.bring_up()
    bare.detach(bare.write("b.yaml", book(UP, LONG)))
    bare.step("long", "running")
    roll_back(bare)
    closed(bare)
