"""A baseline in a container that was renamed or paused by hand: it is known by its recorded id."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from console.host.ports import listeners, port_of
from console.recovery.rollback import evidence, observe
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.look import Looker, container_state
from console.runtime.engine_api import COMPOSE_PROJECT, COMPOSE_SERVICE
from tests.rollback.conftest import DASH, Stage, run_script, standin
from tests.rollback.test_ladder_engine import Yard, in_this_process
from tests.runtime.made_engine import MadeEngine
from tests.waiting import until


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    """A baseline that serves and was proven before any run: its plan has nothing but its name."""
    (tmp_path / "rollback").mkdir()
    with ExitStack() as stack:
        made = stack.enter_context(in_this_process(tmp_path, stack))
        made.raw.start(made.create_baseline(made.plan.baseline.container_name))
        made.plan = replace(made.plan, site_name="ws", run_id="", run_dir="")
        until(lambda: Looker().look(made.plan).word is Word.SERVING, "the baseline serves")
        seen = Evidence(Kind.PROOF, Word.SERVING, time.time(), Witness.ADOPT, tok_s=20.0)
        evidence.record(made.plan, observe.known_start(made.plan, seen))
        yield made


def renamed(yard: Yard) -> str:
    """The id of the baseline, which has another name from now on."""
    assert isinstance(yard.engine, MadeEngine)
    container = yard.engine.find(yard.plan.baseline.container_name)
    container.name = "other"
    return container.id


@pytest.mark.parametrize("is_taken", [False, True])
def test_it_serves_and_its_new_name_is_said(yard: Yard, is_taken: bool) -> None:
    renamed(yard)
    if is_taken:
        yard.create(yard.plan.baseline.container_name, ["sleep", "600"], {})
    state = Looker().state(yard.plan)
    assert (state.word, state.proven) == (Word.SERVING, True), state
    assert "named other now" in state.remark
    assert f"docker rename other {yard.plan.baseline.container_name}" in state.remark


def test_a_stopped_one_is_known_by_both_names(yard: Yard) -> None:
    assert isinstance(yard.engine, MadeEngine)
    yard.engine.route("POST", f"/containers/{renamed(yard)}/stop", {}, None)
    word, detail = container_state(yard.plan, 1.0)
    assert (word, "exited" in detail, "named other now" in detail) == (Word.DOWN, True, True)


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_rollback_starts_nothing_beside_it(yard: Yard, is_taken: bool) -> None:
    identity = renamed(yard)
    if is_taken:
        other = yard.create(yard.plan.baseline.container_name, ["sleep", "600"], {})
    begun = yard.raw.inspect(identity)["State"]["Pid"]
    assert yard.roll_back().serving, yard.lines
    assert yard.raw.inspect(identity)["State"]["Pid"] == begun
    assert "named other now" in str(yard.said("start", "note"))
    assert not is_taken or not yard.up(other)


def test_one_that_is_made_anew_under_the_name_is_the_baseline(yard: Yard) -> None:
    yard.remove(renamed(yard))
    fresh = yard.create_baseline(yard.plan.baseline.container_name)
    assert yard.roll_back().serving, yard.lines
    assert yard.up(fresh)
    assert not yard.said("start", "note"), yard.lines
    known = evidence.container_of("ws", yard.plan.baseline.url, yard.plan.baseline.container_name)
    assert known == fresh


@pytest.mark.parametrize("by", ["its name", "its service"])
def test_one_that_is_made_anew_during_a_run_is_the_baseline(yard: Yard, by: str) -> None:
    """`docker compose up --force-recreate`: the sealed id is gone, and nobody else answers."""
    assert isinstance(yard.engine, MadeEngine)
    base, service = yard.plan.baseline, {COMPOSE_PROJECT: "stack", COMPOSE_SERVICE: "llm"}
    identity = yard.engine.find(base.container_name).id
    argv = ("docker", "compose", "-p", "stack", "up", "-d", "llm")
    yard.plan = replace(yard.plan, baseline=replace(base, container_id=identity, compose_argv=argv))
    yard.remove(identity)
    name = base.container_name if by == "its name" else "other"
    fresh = yard.engine.make(name, list(standin(port_of(base.url)).argv), service)
    yard.raw.start(fresh)
    until(lambda: listeners(base.url), "it listens")
    assert observe.somebody_else(yard.plan) == ""
    until(lambda: observe.serves(yard.plan), "it is known and serves")
    assert yard.roll_back().serving, yard.lines
    assert yard.up(fresh)


@pytest.mark.skipif(DASH is None, reason="needs dash")
def test_the_script_says_the_new_name_and_starts_nothing(stage: Stage) -> None:
    server = stage.spawn(list(standin(stage.port).argv), "no")
    stage.until_it_is()
    tools = stage.root / "bin"
    tools.mkdir()
    (tools / "docker").write_text(
        f'#!/bin/sh\necho "$*" >>{tools}/calls\ncase "$*" in\n'
        f'*.State.Running*) echo "true false false {server[0]} then" ;;\n'
        "*.Name*) echo /other ;;\nesac\n"
    )
    (tools / "docker").chmod(0o755)
    stage.base(kind="container", container_id="a" * 64, container_name="base")
    done = run_script(stage, f"{tools}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stdout
    assert "named other now, and no longer base" in done.stdout
    assert "\nstart " not in (tools / "calls").read_text()


def test_a_paused_one_is_said_to_be_paused_and_how_to_unpause_it(yard: Yard) -> None:
    """Its kernel takes connections, and nothing answers them."""
    assert isinstance(yard.engine, MadeEngine)
    name = yard.plan.baseline.container_name
    yard.engine.route("POST", f"/containers/{name}/pause", {}, None)
    state = Looker().state(yard.plan)
    assert (state.word, state.detail) == (Word.DOWN, f"container paused: docker unpause {name}")


@pytest.mark.parametrize("holds", [True, False])
def test_one_whose_engine_is_gone_is_known_by_who_holds_its_port(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    """dockerd had been killed: its container served on, and its answer was "something else"."""
    identifier, own = "a" * 64, {os.getpid()} if holds else {1}
    monkeypatch.setattr(
        observe, "pids_of_container", lambda container: own if container == identifier else set()
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        stage.base(
            kind="container", process=None, container_name="everyday", container_id=identifier,
            url=url,
        )  # fmt: skip
        context = SimpleNamespace(plan=stage.plan, engine=None, stop_failed=True)
        baseline = observe.Observed(cast(Any, context))
        assert (baseline.can_answer(), baseline.is_ours()) == (None, holds)
