"""The viewer's parts together, on real runs with real llama.cpp servers."""

from collections.abc import Iterator

import pytest

from console.config.site.site import load_site
from console.frontends.tui.watch import history
from console.frontends.tui.watch.actions import ask, why_not
from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.recovery.rollback.evidence import last_proof
from console.runner.launch import begin
from console.runner.prepare import catalog
from tests.runner.e2e.sites import REPORT, book
from tests.runner.e2e.world import World
from tests.test_architecture import loaded
from tests.waiting import some, until

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


@pytest.mark.alone
def test_a_run_is_begun_stepped_answered_and_read(inside: World, watch: RunWatch) -> None:
    assert seen(watch, "none").run is None
    path = inside.write("b.yaml", book("id: one, note: hi", QUESTION, REPORT))
    said, site = list[str](), load_site(inside.site)
    made = begin(site, catalog.load(path, {}, site), {}, step=True, say=said.append)
    assert (made.path, made.meta().headless) == (inside.run.path, False)
    assert said[0].startswith("run ")
    proven = some(last_proof("local", inside.base_url))
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
    assert ended.view.verbs[-1].why == "fine"
    row = history.rows()[0]
    assert (row.state, row.playbook) == ("succeeded", "trial")


def test_what_a_first_frame_loads_is_cheap() -> None:
    heavy = {"pydantic", "ruamel", "httpx", "docker", "psutil", "asyncio", "textual", "rich"}
    watch = ("run", "baseline", "emergency", "actions", "history")
    modules = [f"console.frontends.tui.watch.{name}" for name in watch]
    modules += ["console.runner.prepare.catalog", "console.runner.launch", "console.config.locate"]
    (found,) = loaded(f"import {', '.join(modules)}")
    assert "console" in found
    assert found & {*heavy, "pynvml", "http", "ssl"} == set()
