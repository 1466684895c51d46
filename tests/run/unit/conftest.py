"""Plans over a fixed site, and a machine that guards are held against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from console.config.playbook.load import load_playbook
from console.config.site.site import load_site
from console.host.gpu.inventory import Cards
from console.host.sample import Card
from console.recovery.guard.config import Limit
from console.runner.guard import limits
from console.runner.guard.limits import Finding, findings
from console.runner.prepare.plan import Plan, make_plan
from tests.clock import FakeClock

SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: base, url: "http://127.0.0.1:8000"}
services:
  big: {process: {argv: [serve, big]}, url: "http://127.0.0.1:9001", exclusive: true}
"""
SERVICES = """\
services:
  cand: {process: {argv: [serve, "a b"]}, url: "http://127.0.0.1:8001", exclusive: true}
  other: {process: {argv: [serve]}, url: "http://127.0.0.1:8002", exclusive: true}
  beside: {process: {argv: [serve]}, url: "http://127.0.0.1:8003"}
  kept: {process: {argv: [serve]}, url: "http://127.0.0.1:8004", keep: true}
  box:
    url: "http://127.0.0.1:8005"
    ready: {http: /v1, timeout: 2h, stable_for: 10s}
    container:
      image: img
      command: [serve, --x]
      mounts: ["m:/m", "/n:/n:rw"]
      ports: ["1:2"]
      memory: 1GiB
  stack:
    url: "http://127.0.0.1:8006"
    compose: {file: c.yaml, service: llm, profile: p}
"""

MakePlan = Callable[..., Plan]
Look = Callable[..., list[Finding]]
GIB = 1 << 30
TWO = Cards((Card("A", "GPU-aaaa", 96 * GIB, 6 * GIB), Card("B", "GPU-bbbb", 32 * GIB, 31 * GIB)))
MEMINFO = "MemTotal: {} kB\nMemFree: 0 kB\nMemAvailable: {} kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"


@pytest.fixture
def plan(tmp_path: Path) -> MakePlan:
    """A plan of steps written as flow mappings, over a fixed site and fixed services."""

    def make(*steps: str, final: str = "", restore_s: float | None = None) -> Plan:
        site = tmp_path / "site.yaml"
        site.write_text(SITE)
        text = "schema: omni.playbook/v1\nname: x\ntitle: t\n" + SERVICES
        text += "phases:\n- title: Work\n  steps:\n" + "".join(f"  - {step}\n" for step in steps)
        text += f"finally: [{final}]\n"
        path = tmp_path / "book.yaml"
        path.write_text(text)
        loaded = load_site(site)
        playbook = load_playbook(path, site_services=frozenset(loaded.model.services))
        return make_plan(playbook, loaded, restore_s)

    return make


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root with 377 GiB of RAM, 40 GiB of it available."""
    root = tmp_path / "root"
    (root / "proc/pressure").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MEMINFO.format(377 << 20, 40 << 20))
    return root


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def held(plan: MakePlan, machine: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Look:
    made = plan("{id: cmd, run: [x]}")

    def look(
        limit: Limit, cards: Cards = TWO, *, outage: bool = True, **more: int
    ) -> list[Finding]:
        monkeypatch.setattr(limits, "ask", lambda seconds: cards)
        one = replace(made, playbook=replace(made.playbook, guards=(limit,)))
        monkeypatch.setattr(Plan, "takes_down", property(lambda self: outage))
        return findings(one, clock=clock, root=machine, **more)

    return look
