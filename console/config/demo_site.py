"""The embedded demo: a site whose baseline and candidates are real llama.cpp servers."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from console.common import paths
from console.common.errors import UsageError
from console.common.files import write_atomically

PORTS = range(18080, 18180)
NAMES = ("baseline", "fast", "slow")


def demo_site() -> Path:
    """The demo's site file, made at first use together with its models. Raises UsageError."""
    path = paths.demo_dir() / "site.yaml"
    if not path.exists():
        ports = _free_ports(len(NAMES))
        paths.make(path.parent)
        write_atomically(path, _site(dict(zip(NAMES, ports, strict=True))))
    return path


def _free_ports(count: int) -> list[int]:
    """Ports of the demo's range nobody listens on."""
    found: list[int] = []
    for port in PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise UsageError("no free port for the demo", f"looked at {PORTS.start}-{PORTS.stop - 1}")


def _process(name: str, port: int) -> str:
    argv = [
        *paths.module_argv("console.rehearsal.demo.engine"), "--model", f"models/{name}.gguf",
        "--port", str(port), "--alias", f"demo-{name}", "--cache-ram", "0",
    ]  # fmt: skip
    return f"process: {{argv: {json.dumps(argv)}}}"


def _site(ports: dict[str, int]) -> str:
    services = "".join(
        f"  {name}:\n    {_process(name, ports[name])}\n"
        f"    url: http://127.0.0.1:{ports[name]}\n    ready: {{timeout: 60s}}\n"
        for name in NAMES[1:]
    )
    return (
        "# Written by `omni-console demo`; `omni-console demo --stop` removes it.\n"
        "schema: omni.site/v1\n"
        "name: demo\n"
        "baseline:\n"
        f"  {_process('baseline', ports['baseline'])}\n"
        f"  url: http://127.0.0.1:{ports['baseline']}\n"
        "  ready: {timeout: 60s}\n"
        "  models: [models/baseline.gguf]\n"
        f"services:\n{services}"
    )
