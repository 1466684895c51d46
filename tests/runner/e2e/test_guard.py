"""Whole runs under a real sentinel: a load past its limit, a sentinel that dies, a lease."""

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from console.host import process
from console.journal.breach import crossed, ready
from console.recovery.guard import config
from console.recovery.guard.record.read import open_newest
from tests.runner.e2e.sites import UP, book, guards, service
from tests.runner.e2e.world import COMMAND, World
from tests.runner.scenes import LONG
from tests.ui.terminal import Terminal
from tests.waiting import some

MOST = 12
HOG = f"""
import http.server, os, sys, threading, time
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *words): pass
door = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Health)
threading.Thread(target=door.serve_forever, daemon=True).start()
held = []
while True:
    if len(held) < {MOST} and os.path.exists(sys.argv[2]):
        held.append(b"x" * (64 << 20))
        print("holding", len(held) * 64, "MiB", flush=True)
    time.sleep(0.05)
"""
LIMIT = "guards: [{metric: service.ram_used, above: 300MiB, of: hog}]\n"
HOG_UP = "id: up, service: {start: hog}"
LOST = ["restarted", "gone"]
ASK = "id: ask, approval: {prompt: Go on?}"


@pytest.fixture
def go(world: World) -> Path:
    """The world has a service `hog`, which grows once this file is there."""
    file = world.root / "grow"
    site = json.loads(world.site.read_text())
    argv = [sys.executable, "-S", "-c", HOG, str(world.cand_port), str(file)]
    site["services"]["hog"] = service(argv, world.cand_url, exclusive=True)
    world.site.write_text(json.dumps(site))
    return file


def restored(world: World, reason: str = "guard") -> None:
    """As a breach leaves it."""
    view = world.over()
    assert (str(view.state), view.reason) == ("rolled_back", reason), world.words
    assert world.serves()
    assert not view.outage
    assert not world.listens(world.cand_url)
    for kind in ("sentinel", "ladder", "process", "step"):
        world.until(lambda kind=kind: not world.pids(kind), f"no {kind} is left")
    assert not list(Path("/dev/shm").glob(f"*{world.run.id}*"))


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.view().guards]


def breached(world: World) -> None:
    """The journal, the report and the recorder say it."""
    view = world.view()
    assert view.breach is not None
    assert "300" in view.breach.words, view.breach.words
    (killed,) = [row for row in view.breach.body.killed if row["name"].startswith("hog")]
    assert killed["empty_s"] is not None
    assert killed["held"]["ram"] > 300 << 20
    curve = some(crossed(view.breach.body))
    assert curve.name == "RAM of hog"
    assert max(size or 0 for _, size in curve.points) > 300 << 20
    assert [s.cause for s in view.steps if s.state == "cancelled"] == ["guard"]
    assert not [s.id for s in view.steps if s.state == "failed"]
    assert view.restored_s is not None
    assert view.verbs[-1].who == "the sentinel"
    text = world.run.report.read_text()
    assert "## Guard" in text
    assert "killed hog" in text
    assert (world.run.path / "report" / "guard.svg").exists()
    recording = some(open_newest(world.run.path))
    assert any(event["what"] == "kill" for event in recording.events())


def test_a_load_past_its_limit_is_killed_and_the_baseline_serves(world: World, go: Path) -> None:
    go.touch()
    up = f"{HOG_UP}, retry: {{attempts: 3, backoff: 1s}}"
    done = world.go(world.write("b.yaml", LIMIT + book(up, LONG)))
    assert done.code == 6, done
    restored(world)
    breached(world)
    stopped = next(s for s in world.view().steps if s.state == "cancelled")
    assert (stopped.cause, stopped.attempt) == ("guard", 1), "nothing is tried again"
    assert done.json["guards"][-1]["cause"] == "guard"
    shown = world.console("show", world.run.id)
    assert "GUARD BREACH" in shown.out, shown
    assert shown.code == 6


def test_a_breach_during_an_approval_acts(world: World, go: Path) -> None:
    world.detach(world.write("b.yaml", LIMIT + book(HOG_UP, ASK)))
    world.state("waiting_approval")
    assert "breach" not in kinds(world)
    go.touch()
    restored(world)
    breached(world)
    assert "RAM of hog rose to" in world.run.report.read_text()
    assert (world.at("ask").state, world.at("ask").cause) == ("cancelled", "guard")


def test_a_breach_without_a_runner_acts(world: World, go: Path) -> None:
    world.detach(world.write("b.yaml", LIMIT + book(HOG_UP, LONG)))
    world.until(lambda: world.at("long").state == "running" and world.pids("step"), "the outage")
    world.interrupt()
    go.touch()
    world.until(lambda: world.view().over and world.view().finished, "the closer wrote the end")
    restored(world)
    breached(world)


def outage(world: World, *options: str) -> None:
    world.detach(world.write("b.yaml", book(UP, LONG)), *options)
    world.until(lambda: world.at("long").state == "running" and world.pids("step"), "the outage")


def waiting(world: World, *options: str) -> Path:
    """A run whose outage begins once this file is there: whoever is to attach has done so."""
    begin = world.root / "begin"
    wait = f'id: wait, script: "until test -e {begin}; do sleep 0.02; done"'
    world.detach(world.write("b.yaml", book(wait, UP, LONG)), *options)
    return begin


def test_a_sentinel_that_dies_twice_ends_the_run(world: World) -> None:
    outage(world)
    (first,) = world.pids("sentinel")
    world.kill("sentinel")
    world.until(lambda: ready(world.run) not in (None, first), "a new one watches")
    assert "restarted" in kinds(world)
    assert world.at("long").state == "running"
    world.kill("sentinel")
    restored(world)
    assert [k for k in kinds(world) if k in LOST] == LOST
    assert (world.at("long").state, world.at("long").cause) == ("cancelled", "guard")


def test_a_sentinel_that_is_stopped_is_replaced(world: World) -> None:
    outage(world)
    (first,) = world.pids("sentinel")
    world.kill("sentinel", signal.SIGSTOP)
    world.until(lambda: ready(world.run) not in (None, first), "a new one watches")
    world.until(lambda: not process.alive(*first), "the stopped one is gone")
    assert any("said nothing" in event.words for event in world.view().guards)
    assert world.tell("abort").code == 0
    restored(world, "abort")


def test_a_resumed_run_keeps_its_sentinel(world: World) -> None:
    world.detach(world.write("b.yaml", book(UP, ASK)))
    world.state("waiting_approval")
    first = world.pids("sentinel")
    world.interrupt()
    assert world.console("resume", world.run.id, "--detach").code == 0
    world.until(lambda: world.status().get("state") == "waiting_approval", "it waits again")
    assert world.pids("sentinel") == first
    assert "watching" in kinds(world)
    assert "restarted" not in kinds(world)
    assert world.tell("approve").code == 0
    assert str(world.over().state) == "succeeded", world.words
    world.until(lambda: not world.pids("sentinel"), "it went with the run")


def test_without_a_sentinel_no_run_starts(world: World) -> None:
    world.runner_with("from console.runner.guard import process\nprocess.module_argv = "
                      "lambda *names: ('false',)\n")  # fmt: skip
    before = world.baseline()
    done = world.go(world.write("b.yaml", book(UP)))
    assert done.code == 1, done
    assert "the sentinel did not start" in done.json["error"]
    assert not world.runs
    assert world.baseline() == before
    world.until(lambda: len(world.mine()) == 1, "the baseline alone is left")


@contextmanager
def at_a_terminal(world: World, words: str, *argv: str) -> Iterator[Terminal]:
    """A command of the console's in the foreground, once it shows these words."""
    env = {**world.env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    made = Terminal([COMMAND, *argv], env, cwd=str(world.root))
    try:
        made.until(words, 60)
        yield made
    finally:
        made.close()


def test_a_lease_runs_out_when_nobody_is_attached(world: World) -> None:
    begin = waiting(world, "--lease", "4s")
    with at_a_terminal(world, "Ctrl-C", "attach", world.run.id):
        begin.touch()
        world.until(lambda: (world.status().get("lease") or 0) > 3.0, "it counts")
        time.sleep(5.0)
        world.step("long", "running")
        assert world.status()["lease"] > 0, "somebody was there for longer than the lease"
    restored(world, "lease")
    found = some(world.view().breach)
    assert found.body.cause == "lease"
    assert (world.at("long").state, world.at("long").cause) == ("cancelled", "expired")


def test_the_directory_of_a_guard_is_its_files(world: World) -> None:
    """A relative path is looked at where the playbook lies, not where somebody stands."""
    rows = guards("metric: disk.free, below: 1MiB, of: .")
    done = world.detach(world.write("b.yaml", rows + book("id: ask, approval: {prompt: Go on?}")))
    world.state("waiting_approval")
    (limit,) = json.loads((done.guard / config.CONFIG_FILE).read_text())["limits"]
    assert limit["of"] == str(world.root)
    assert world.tell("abort").code == 0
    world.over()
