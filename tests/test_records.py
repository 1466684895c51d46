"""Our own files are read as records: `json.loads` is for what others have written."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("console", "screens", "widgets")
RECORD = "console/common/record.py"
FOREIGN = {
    "console/bench/contract/answer.py": "what a server answers",
    "console/bench/sse.py": "what a server streams",
    "console/checks/doctor/facts.py": "what another process of the console prints",
    "console/checks/preflight/architecture/in_image.py": "what the engine says of a file",
    "console/checks/preflight/image.py": "what a container prints",
    "console/checks/preflight/on_start.py": "a model's tools",
    "console/common/logs/level.py": "a line of a log",
    "console/common/options/beside.py": "values of options that are JSON",
    "console/common/options/values.py": "a value of a command line",
    "console/common/spans.py": "what another process of the console asks",
    "console/fleet/bridge.py": "what an operator's console asks",
    "console/fleet/protocol.py": "what a host answers",
    "console/frontends/web/terminal.py": "what a browser says",
    "console/host/gpu/clocks.py": "what another process of the console prints",
    "console/host/gpu/figures.py": "what another process of the console prints",
    "console/host/gpu/inventory.py": "what another process of the console prints",
    "console/host/matching.py": "what another process of the console prints",
    "console/models/gguf/byte_source.py": "the beginning of a model's file",
    "console/models/gguf/read.py": "a model's file",
    "console/models/hub/listing.py": "what the hub answers",
    "console/models/hub/local_files.py": "a model's files",
    "console/models/hub/model_config.py": "a model's config.json",
    "console/models/safetensors/header.py": "a model's file",
    "console/models/sizing/flags/reading.py": "a value of a command line",
    "console/models/sizing/flags/vllm.py": "a value of a command line",
    "console/recovery/guard/observe/slow_io.py": "what another process of the console prints",
    "console/recovery/guard/observe/slow_io_child.py": "what another process of the console asks",
    "console/recovery/rollback/stages/drain.py": "what another process of the console prints",
    "console/rehearsal/inside/command.py": "what a stand-in answers",
    "console/rehearsal/inside/relay.py": "what a stand-in is asked",
    "console/rehearsal/inside/settings.py": "what a stand-in in an image is told",
    "console/rehearsal/prepare.py": "a copy of a site file's values",
    "console/rehearsal/rewrite.py": "what docker compose prints",
    "console/runner/cleanup/leftover.py": "what docker compose prints",
    "console/runner/control.py": "what a console says to a runner",
    "console/runner/launch.py": "what a runner says to its console",
    "console/runtime/answers/completion.py": "what a server answers",
    "console/runtime/answers/stream.py": "what a server streams",
    "console/runtime/discovery/servers.py": "what a server answers",
    "console/runtime/docker/compose.py": "what docker compose prints",
    "console/runtime/engine_address.py": "Docker's own files",
    "console/runtime/engine_api.py": "what the engine answers",
    "console/runtime/occupancy.py": "what a server answers",
    "console/runtime/probe.py": "what a server answers",
    "console/runtime/root_helper.py": "what the root helper answers",
    "console/watch/loop.py": "what another process of the console prints",
}
"""Modules that read JSON of others, and whose it is."""
TO_COME = {
    "console/common/files.py": "lines of gauges, points and the watch's memory",
    "console/models/loader/tables.py": "a table that comes with the program",
}
"""Own files that are not read as records yet. The list may only become shorter."""


def reads_json(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("loads", "load")
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
    )


def test_only_records_read_our_own_files() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*.py")]
    reading = {str(file.relative_to(ROOT)) for file in files if reads_json(file)}
    assert reading == {RECORD, *FOREIGN, *TO_COME}
