"""Whole runs that tell somebody: each event once, whatever is killed, and no run waits for it."""

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from console.notify.event import missed
from console.notify.outbox import SENDER
from tests.notify.hook import Hook, serving
from tests.runner.e2e.sites import UP, book, gate
from tests.runner.e2e.test_guard import HOG_UP, LIMIT, go
from tests.runner.e2e.world import World

__all__ = ["go"]

TOKEN = "Bearer hunter2hunter2"
ASK = "id: ask, approval: {prompt: Go on?}"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with serving() as one:
        yield one


@pytest.fixture
def told(world: World, hook: Hook) -> Hook:
    """The world's site tells a webhook of everything."""
    site = json.loads(world.site.read_text())
    told = {"webhook": hook.url, "headers": {"Authorization": {"env": "HOOK_TOKEN"}}}
    world.site.write_text(json.dumps({**site, "notify": [told]}))
    world.env["HOOK_TOKEN"] = TOKEN
    for name in [one for one in world.env if one.lower().endswith("_proxy")]:
        del world.env[name]
    return hook


def senders(world: World) -> list[psutil.Process]:
    found = []
    for pid, _ in world.mine():
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.cmdline()[-2:] == [*SENDER[1:]]:
                found.append(process)
    return found


def content(path: Path) -> bytes:
    """What a file holds; nothing where it is none, or was the first half of a write."""
    with suppress(FileNotFoundError):
        return path.read_bytes() if path.is_file() else b""
    return b""


def expected(world: World) -> list[str]:
    """The keys of all that the journal has to tell."""
    return [one.key for one in missed(world.events(), 0.0)]


def kinds(hook: Hook) -> list[str]:
    return [one.json["kind"] for one in hook.came if one.status == 200]


def all_told(world: World, hook: Hook) -> None:
    """Everything was taken, each once, and in its order."""
    world.until(lambda: set(hook.answered) == set(expected(world)), f"all is told: {hook.answered}")
    assert hook.answered == expected(world)


def kill_sender(world: World, told: Hook, number: int) -> None:
    """Kill the sender in the middle of the request with the run's event of this number."""
    key = world.until(lambda: expected(world)[number:], "there is something to tell")[0]
    world.until(lambda: key in [one.key for one in told.came], f"{key} is on its way")
    for sender in senders(world):
        sender.kill()
    world.until(lambda: not senders(world), "the sender is gone")


def test_each_event_is_told_once_across_kills_of_runner_and_sender(
    world: World, told: Hook
) -> None:
    """The server holds each first request back; meanwhile runner and sender are killed."""
    told.holds_first = True
    world.detach(world.write("b.yaml", book(ASK)))
    for number in range(3):
        kill_sender(world, told, number)
        world.interrupt()
        resumed = world.console("resume", world.run.id, "--detach")
        assert resumed.code == 0, resumed
    kill_sender(world, told, 3)
    assert world.tell("approve").code == 0
    assert str(world.over().state) == "succeeded"
    kill_sender(world, told, 4)
    world.console("notify")
    all_told(world, told)
    assert kinds(told) == [*["approval"] * 4, "run-end"]
    assert [one.key for one in told.came] == [key for key in expected(world) for _ in range(2)]
    assert told.came[-1].json["data"]["baseline_serves"] is True


def test_a_server_that_hangs_costs_the_run_nothing(world: World, told: Hook) -> None:
    """The run has ended before the first request is answered."""
    told.status = None
    done = world.go(world.write("b.yaml", book(*gate("3", 'go: ">= 2", no_go: "< 1"'))))
    assert done.code == 0, done
    assert told.answered == []
    listed = world.console("notify", "--json").json
    assert [row["queued"] for row in listed["channels"]] == [1]


def test_the_end_that_a_dead_runner_could_not_tell(world: World, told: Hook) -> None:
    """An emergency ends the runner; what closes its journal tells the end, with the secret of the
    run's own environment, which is in no file."""
    world.detach(world.write("b.yaml", book(UP, ASK)))
    world.state("waiting_approval")
    done = world.console("rollback", "--json", HOOK_TOKEN="")
    assert (done.code, done.json["serving"]) == (0, True), done
    assert str(world.over().state) == "rolled_back"
    all_told(world, told)
    assert kinds(told) == ["approval", "run-end"]
    end = told.came[-1].json
    assert "ROLLED BACK" in end["title"]
    assert end["data"]["baseline_serves"] is True
    assert {one.headers["Authorization"] for one in told.came} == {TOKEN}
    assert not [path for path in world.root.rglob("*") if TOKEN.encode() in content(path)]


def test_a_runner_that_died_before_it_could_post_is_made_up_for(world: World, told: Hook) -> None:
    world.runner_with(
        "import os, signal\nfrom console.notify import outbox\n"
        f"if not os.path.exists({str(world.root / 'died')!r}):\n"
        "    def die(*words):\n"
        f"        open({str(world.root / 'died')!r}, 'w').close()\n"
        f"        os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
        "    outbox.post = die\n"
    )
    world.detach(world.write("b.yaml", book(ASK)))
    world.until(lambda: (world.root / "died").exists(), "the runner has died")
    world.dead()
    assert told.came == []
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: len(expected(world)) == 2, "it asks again")
    all_told(world, told)


def test_a_kill_of_the_guard_is_told_with_its_reason(world: World, go: Path, told: Hook) -> None:
    world.detach(world.write("b.yaml", LIMIT + book(HOG_UP, ASK)))
    world.state("waiting_approval")
    go.touch()
    assert str(world.over().state) == "rolled_back"
    all_told(world, told)
    assert kinds(told) == ["approval", "guard-kill", "run-end"]
    killed = told.came[1].json
    assert "300" in killed["text"]
    assert [name for name in killed["data"]["killed"] if name.startswith("hog")]


def test_what_waits_for_another_server_is_sent_when_it_is_there(world: World, told: Hook) -> None:
    """The server refuses the end of a run; the command shows why, and what is queued is kept."""
    told.status, told.said = 503, b"later"
    done = world.go(world.write("b.yaml", book(*gate("3", 'go: ">= 2", no_go: "< 1"'))))
    assert done.code == 0, done
    (row,) = world.until(
        lambda: [
            row for row in world.console("notify", "--json").json["channels"] if row["failed"]
        ],
        "it was refused",
    )
    assert (row["queued"], row["failed"]) == (1, "status 503 later")
    tested = world.console("notify", "--test", "--json")
    assert (tested.code, tested.json["tested"][0]["delivered"]) == (1, False)
    told.status = 200
    assert world.console("notify", "--test").code == 0
    all_but_tests = [one for one in told.came if one.json["kind"] != "test"]
    assert {one.key for one in all_but_tests} == set(expected(world))
    world.until(lambda: expected(world)[0] in told.answered, "it is sent again, and taken")
