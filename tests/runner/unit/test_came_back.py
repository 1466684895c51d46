"""A baseline that an operator brings back during its outage, in a container made anew: the run
stops it again, and what starts there that is no baseline is named and left alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.common.errors import ServiceError
from console.config.site.site import load_site
from console.host import ports
from console.journal.events import Outage as Outage_
from console.journal.events import RunNote
from console.journal.store import read_events
from console.render.report.document import as_json, markdown
from console.runner import services as services_module
from console.runner.context import Attempt, outage
from console.runner.disturbed import Restarts
from console.runner.services import RunServices, keep_baseline_down
from console.runtime.engine_api import COMPOSE_PROJECT, COMPOSE_SERVICE, CONFIG_FILES
from console.runtime.spec import Handle, Status
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runner.unit.conftest import Bench
from tests.runtime.made_engine import MadeEngine, made_engine
from tests.waiting import until

SITE = """\
schema: omni.site/v1
name: ws
engine: {{host: "{host}"}}
baseline: {{{runs}, url: "http://127.0.0.1:{port}"}}
"""
BY_COMPOSE, BY_NAME = "compose: {file: c.yaml, service: llm}", "container: stack-llm-1"
SERVER = [sys.executable, "-S", str(STANDIN)]


class Outage:
    """A run in its outage whose candidate is loaded, on an engine in this process."""

    def __init__(self, bench: Bench, engine: MadeEngine, path: Path, runs: str) -> None:
        self.engine, self.context, self.file = engine, bench.context, path / "c.yaml"
        self.context.clock = SystemClock()
        (path / "c.yaml").write_text("services: {llm: {image: x}}\n")
        (path / "here.yaml").write_text(SITE.format(host=engine.host, runs=runs, port=free_port()))
        site = load_site(path / "here.yaml")
        self.context.plan = replace(self.context.plan, site=site)
        self.url = site.model.baseline.url
        self.services = RunServices(self.context)
        self.context.services = self.services
        self.attempt = Attempt(self.context, "cmd", 1, 60.0)

    def made(self, name: str = "stack-llm-1", **more: str) -> str:
        labels = {
            COMPOSE_PROJECT: "stack", COMPOSE_SERVICE: "llm", CONFIG_FILES: str(self.file), **more,
        }  # fmt: skip
        identity = self.engine.make(name, ["sleep", "600"], labels)
        self.engine.route("POST", f"/containers/{identity}/start", {}, None)
        return identity

    def remove(self, identity: str) -> None:
        self.engine.route("DELETE", f"/containers/{identity}", {}, None)

    def step(self) -> list[str]:
        """What the next step of the outage notes before it acts."""
        before = len(self.notes)
        keep_baseline_down(self.context, self.attempt, starts=False)
        return self.notes[before:]

    @property
    def notes(self) -> list[str]:
        bodies = [event.body for event in read_events(self.context.run.journal)]
        return [body.text for body in bodies if isinstance(body, RunNote)]


@pytest.fixture(params=[BY_COMPOSE, BY_NAME])
def taken_down(
    request: pytest.FixtureRequest, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Outage, str]]:
    monkeypatch.setattr(services_module, "wait_released", lambda context, attempt: "released")
    with made_engine() as engine:
        run = Outage(bench, engine, tmp_path, request.param)
        identity = run.made()
        with closing(run.services):
            outage(run.context, "cmd", 1)
            assert run.services.stop("baseline", run.attempt)
            run.services.handles["cand"] = Handle("cand", "process", name="cand", pid=1, start=1)
            yield run, identity


def test_a_container_that_was_made_anew_is_stopped_again(taken_down: tuple[Outage, str]) -> None:
    """`docker compose up -d --force-recreate`, by the operator, while the candidate is loaded."""
    run, identity = taken_down
    run.remove(identity)
    fresh = run.made()
    assert run.step() == ["the baseline came back: it is stopped again"]
    assert not run.engine.find(fresh).job.running
    assert run.context.view.outage


def test_a_service_without_a_container_has_not_come_back(taken_down: tuple[Outage, str]) -> None:
    """`docker compose down` takes away what had been stopped, and the step goes on."""
    run, identity = taken_down
    run.remove(identity)
    assert run.step() == []


def test_what_compose_ran_once_is_no_baseline(taken_down: tuple[Outage, str]) -> None:
    run, identity = taken_down
    run.remove(identity)
    once = run.made("stack-llm-run-1", **{"com.docker.compose.oneoff": "True"})
    assert run.step() == []
    assert run.engine.find(once).job.running


def test_another_server_in_its_place_is_named_once_and_left_alone(
    taken_down: tuple[Outage, str],
) -> None:
    run, _ = taken_down
    with subprocess.Popen([*SERVER, str(ports.port_of(run.url))]) as child:
        try:
            until(lambda: ports.listener(run.url), "it listens")
            notes = run.step()
            assert [f"pid {child.pid}, " in note for note in notes] == [True], notes
            assert f"answers at {run.url} during the outage" in notes[0]
            assert run.step() == []
            assert child.poll() is None
            assert run.context.view.outage
        finally:
            child.kill()


# -- started again by others, while this run has it not stopped ------------------------------------

BASE = Handle("baseline", "container", "c1", "llm", 0, 0)


class Looks:
    """What `RunServices` says of the baseline, look by look."""

    def __init__(self, bench: Bench) -> None:
        self.context, self.restarts = bench.context, Restarts()
        self.context.services = self  # type: ignore[assignment]
        self.answer: tuple[Handle, Status, float] | ServiceError | None = None

    def baseline_now(self) -> tuple[Handle, Status, float] | None:
        if isinstance(self.answer, ServiceError):
            raise self.answer
        return self.answer

    def see(self, handle: Handle, restarts: int, began: float) -> list[str]:
        self.answer = (handle, Status(True, restarts=restarts), began)
        return self.look()

    def look(self) -> list[str]:
        before = len(self.context.view.by_others)
        self.restarts.look(self.context)
        return [words for _, words in self.context.view.by_others[before:]]


def test_a_supervisors_restarts_between_two_looks_are_named_once(bench: Bench) -> None:
    """The report of a run said nothing of a baseline that had died twice beside it."""
    looks, now = Looks(bench), bench.context.clock.now()
    assert looks.see(BASE, 3, now - 900) == []
    assert looks.see(BASE, 3, now - 899.9) == [], "two readings of one start"
    [words] = looks.see(BASE, 5, now - 60)
    assert words.startswith("the baseline died, and its supervisor started it again 2 times, last")
    assert looks.see(BASE, 5, now - 60) == []
    [words] = looks.see(BASE, 5, now - 5)
    assert "it was started by others" in words
    [words] = looks.see(replace(BASE, container="c2"), 0, now)
    assert "its container was made anew by others" in words
    looks.answer = ServiceError("it does not say")
    assert looks.look() == []
    text = markdown(bench.context.view)
    assert "## Started again by others" in text
    assert text.count("its supervisor started it again 2 times") == 1
    assert len(as_json(bench.context.view)["started_by_others"]) == 3


def test_what_this_run_has_started_itself_is_not_by_others(bench: Bench) -> None:
    looks, now = Looks(bench), bench.context.clock.now()
    looks.see(BASE, 0, now - 900)
    bench.context.record(Outage_(down=True))
    assert looks.see(BASE, 0, now - 30) == []
    bench.context.record(Outage_(down=False, restore_s=3.0))
    assert looks.see(BASE, 0, now - 30) == []
    bench.context.record(Outage_(down=True))  # both within one step
    bench.context.record(Outage_(down=False, restore_s=4.0))
    assert looks.see(BASE, 0, now) == []
    assert looks.see(BASE, 1, now + 9)


def test_one_that_is_away_for_a_look_is_compared_with_how_it_was(bench: Bench) -> None:
    looks, now = Looks(bench), bench.context.clock.now()
    looks.see(BASE, 0, now - 900)
    looks.answer = None
    assert looks.look() == []
    assert looks.see(BASE, 1, now)
