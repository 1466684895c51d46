"""The viewer's parts together, on real runs with real llama.cpp servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.common.errors import BaselineNotReady, ConsoleError
from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.frontends.tui.watch import history
from console.frontends.tui.watch.actions import ask, why_not
from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.recovery.rollback.proof import last, proof_file
from console.runner.launch import NotStarted, begin
from console.runner.prepare import catalog
from tests.run.e2e.sites import REPORT, book
from tests.run.e2e.world import World
from tests.viewer.conftest import live_in
from tests.waiting import until

QUESTION = "id: ask, approval: {prompt: 'go on?', expires: 10m}"


@pytest.fixture
def watch(inside: World) -> Iterator[RunWatch]:
    found = RunWatch(lambda snapshot: None, poll_s=0.05)
    found.start()
    yield found
    found.close()


def seen(watch: RunWatch, *words: str) -> Snapshot:
    """Wait until the run on show is in one of these states and its runner agrees."""

    def there() -> Snapshot | None:
        now = watch.latest
        if now is None or now.word not in words:
            return None
        return now if not now.alive or now.control.get("state") == str(now.view.state) else None

    found: Snapshot = until(there, f"{words}: {watch.latest}", 60.0)
    return found


def start(world: World, path: Path, *, step: bool = False) -> list[str]:
    said: list[str] = []
    site = load_site(world.site)
    made = begin(site, catalog.load(path, {}, site), {}, step=step, say=said.append)
    assert made.path == world.run.path
    assert made.meta().headless is False
    return said


@pytest.mark.alone
def test_a_run_is_begun_stepped_answered_and_read(inside: World, watch: RunWatch) -> None:
    assert seen(watch, "none").run is None
    path = inside.write("b.yaml", book("id: one, note: hi", QUESTION, REPORT))
    said = start(inside, path, step=True)
    assert said[0].startswith("run ")
    proven = last(proof_file("local"))
    assert proven is not None
    assert not proven.degraded
    until(lambda: watch.latest and watch.latest.live, "its pointer is seen")
    now = seen(watch, "paused")
    assert (now.live, now.view.reason, now.control["step"]) == (True, "operator", "one")
    assert why_not(now, "approve")
    assert ask(now, "next") == ""
    until(lambda: watch.latest and watch.latest.control.get("step") == "ask", str(watch.latest))
    now = seen(watch, "paused")
    assert ask(now, "auto") == ""
    now = seen(watch, "waiting_approval")
    assert now.view.detail == "go on?"
    assert ask(now, "approve", why="fine") == ""
    until(lambda: watch.latest and watch.latest.word != "waiting_approval", "the answer is taken")
    assert ask(now, "approve") != "", "what was answered is not answered twice"
    ended = seen(watch, "succeeded")
    until(lambda: watch.latest and watch.latest.view.finished and not watch.latest.live)
    assert ended.view.verbs[-1]["why"] == "fine"
    row = history.rows()[0]
    assert (row.state, row.playbook) == ("succeeded", "trial")


def test_what_is_refused_leaves_no_trace(bare: World, monkeypatch: pytest.MonkeyPatch) -> None:
    live_in(bare, monkeypatch)
    path = bare.write("b.yaml", book("id: one, note: hi"))
    site = load_site(bare.site)
    playbook = catalog.load(path, {}, site)
    with pytest.raises(NotStarted, match="the baseline does not serve") as refused:
        begin(site, playbook, {}, step=False, say=lambda text: None)
    assert refused.value.exit_code == BaselineNotReady.exit_code
    assert history.rows() == []
    assert not bare.runs
    needy = bare.write("c.yaml", book("id: one, note: hi", inputs="n: {type: int, required: true}"))
    with pytest.raises(ConsoleError, match="for its plan only"):
        begin(site, load_playbook(needy, planning=True), {}, step=False, say=lambda text: None)
    assert not bare.runs


def test_what_a_first_frame_loads_is_cheap() -> None:
    heavy = {"pydantic", "ruamel", "httpx", "docker", "psutil", "asyncio", "textual", "rich"}
    heavy |= {"pynvml", "http", "ssl"}
    watch = ("run", "baseline", "emergency", "actions", "history")
    modules = [f"console.frontends.tui.watch.{name}" for name in watch]
    modules += ["console.runner.prepare.catalog", "console.runner.launch", "console.config.locate"]
    code = (
        f"import json, sys, {', '.join(modules)}\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**env, "PYTHONPATH": root},
    )  # fmt: skip
    loaded = set(json.loads(done.stdout))
    assert "console" in loaded
    assert loaded & heavy == set()
