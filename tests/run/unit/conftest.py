from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from console.playbook.load import load_playbook
from console.run.plan import Plan, make_plan
from console.site.load import load_site

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
