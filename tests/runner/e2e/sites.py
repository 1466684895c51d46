"""Site files and playbooks of these tests."""

import json
import sys
from typing import Any

from tests.runner.world import WorldBase


def service(argv: list[str], url: str, **more: Any) -> dict[str, Any]:
    return {"process": {"argv": argv}, "url": url, "ready": {"timeout": "30s"}, **more}


def host_site(world: WorldBase, engine: str = "", **baseline: Any) -> str:
    """Baseline and candidates as host processes. JSON is YAML.

    cand: exclusive; side: runs beside the baseline; broken: a model llama.cpp refuses;
    crash: ends right after its start; garbage: something else answers on the port.
    """
    unknown = world.model.with_name("unknown.gguf")
    cand = world.engine(world.model, world.cand_port)
    serve = f"""
import socket
door = socket.create_server(("127.0.0.1", {world.cand_port}))
while True:
    peer, _ = door.accept()
    peer.sendall(b"\\x00\\xff\\x1b[31mwhat? \\r\\n\\r\\n")
    peer.close()
"""
    site = {
        "schema": "omni.site/v1",
        "name": "local",
        "baseline": service(world.engine(world.model, world.base_port), world.base_url, **baseline),
        "services": {
            "cand": service(cand, world.cand_url, exclusive=True),
            "side": service(cand, world.cand_url),
            "broken": service(world.engine(unknown, world.cand_port), world.cand_url),
            "crash": service(["sh", "-c", "echo last words; exit 3"], world.cand_url),
            "garbage": service(
                [sys.executable, "-S", "-c", serve], world.cand_url, ready={"timeout": "2s"}
            ),
        },
    }
    if engine:
        site["engine"] = {"host": engine}
    return json.dumps(site, indent=1)


def book(*steps: str, name: str = "trial", inputs: str = "", final: str = "") -> str:
    """A playbook of one phase; `steps`, `inputs` and `final` are lines in flow style."""
    lines = [
        "schema: omni.playbook/v1", f"name: {name}", f"title: The {name}",
        f"inputs: {{{inputs}}}", "phases:", "  - title: Trial", "    steps:",
        *(f"      - {{{step}}}" for step in steps),
    ]  # fmt: skip
    if final:
        lines += ["finally:", f"  - {{{final}}}"]
    return "\n".join(lines) + "\n"


def gate(value: str, thresholds: str, more: str = "") -> tuple[str, str]:
    """A step that says a figure and a gate that judges it; for a verdict without a benchmark."""
    say = f'id: say, run: [echo, "rate: {value}"], '
    say += 'outputs: {rate: {pattern: "rate: ([0-9.]+)", unit: tok/s}}'
    return say, f"id: go, gate: [{{metric: say.rate, {thresholds}}}]{more}"


UP = "id: up, service: {start: cand}"
SIDE = "id: up, service: {start: side}"
REPORT = "id: rep, report: {}"


def guards(*rows: str) -> str:
    return "guards:\n" + "".join(f"  - {{{row}}}\n" for row in rows)
