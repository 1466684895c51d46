"""A host's side alone: its bridge, its site, and the runs that it was asked to begin."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook
from console.config.site.site import Site, load_site
from console.fleet.bridge import Bridge
from console.fleet.protocol import VERSION, BridgeError
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.store import Journal
from console.runner.launch import REQUEST
from tests.clock import FakeClock

BOOK = """\
schema: omni.playbook/v1
name: trial
title: A trial
inputs: {n: {type: int, default: 1}}
phases:
  - title: A
    steps:
      - {id: up, service: {start: cand}}
      - {id: a, note: "hello ${{ inputs.n }}"}
"""
SITE = """\
schema: omni.site/v1
name: local
baseline: {process: {argv: [cat]}, url: "http://127.0.0.1:1"}
services:
  cand: {process: {argv: [cat]}, url: "http://127.0.0.1:2", exclusive: true}
"""
Json = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"


def written(root: Path) -> tuple[Playbook, Site]:
    """This playbook and this site, from files in a directory."""
    (root / "site.yaml").write_text(SITE)
    (root / "trial.yaml").write_text(BOOK)
    site = load_site(root / "site.yaml")
    return load_playbook(root / "trial.yaml", {"n": "1"}, site_services=frozenset({"cand"})), site


def documented(page: str, row: str) -> set[str]:
    """The words in code spans of the last table's row that begins with `row`."""
    lines = (DOCS / page).read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith(f"| `{row}` |")]
    return set(re.findall(r"`([a-z_]+)`", found[-1])) if found else set()


@dataclass
class Far:
    """A bridge on a host, and the runs that `begin` was asked for."""

    root: Path
    clock: FakeClock
    bridge: Bridge
    begun: list[Json] = field(default_factory=list)
    fails: list[BaseException] = field(default_factory=list)
    alive: bool = True

    def ask(self, question: str, **more: Any) -> Json:
        return self.bridge.answer({"ask": question, "v": VERSION, **more})

    def act(self, question: str, **more: Any) -> Json:
        return self.ask(question, token=self.ask("ready")["token"], **more)

    def refused(self, question: str, **more: Any) -> BridgeError:
        with pytest.raises(BridgeError) as error:
            self.ask(question, **more)
        return error.value

    def begin(self, site: Site, playbook: Any, inputs: Any, **more: Any) -> RunDir:
        """A run's directory, as `begin` leaves it; or how the bridge died in the middle."""
        run = new_run(more["request"])
        self.begun.append({"run": run.id, **more})
        if self.fails:
            raise self.fails.pop()
        return run


def new_run(request: str = "") -> RunDir:
    run = create("trial", RunMeta("", "trial", "/", "d", "s", "/"), BOOK, SITE)
    if request:
        (run.path / REQUEST).write_text(request)
    journal = Journal(run.journal)
    steps = [{"id": "a", "title": "A", "phase": "A", "kind": "note"}]
    journal.append(1.0, "run.created", "", 0, {"run_id": run.id, "title": "T", "steps": steps})
    journal.append(2.0, "run.state", "", 0, {"state": "running"})
    journal.close()
    return run


def plan(host: Far, **more: Any) -> Json:
    return host.ask("plan", **{"name": "trial", "text": BOOK, "inputs": {"n": "3"}, **more})
