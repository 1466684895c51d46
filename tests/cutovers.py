"""A cutover in force of real processes: a candidate, its run's record, and the relay to it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.common import paths
from console.host import process
from console.host.ports import listeners, owners
from console.host.process import ProcessSpec
from console.recovery.rollback import live
from console.recovery.rollback.sealed_plan import ROLLBACK
from console.runtime import proxy
from tests.ports import free_port
from tests.waiting import until

RUN = "20260101-cut"
SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"
    def say(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.say(200 if self.path == "/health" else 404, {})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"content": sys.argv[3]}
        self.say(int(sys.argv[2]), {"choices": [{"message": message, "finish_reason": "length"}],
                                    "usage": {"completion_tokens": 40}})
    def log_message(self, *_): pass
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@dataclass
class Cutover:
    """`cand` and `relay` are pid and start time; `url` is where clients are."""

    url: str
    to: str
    root: Path
    cand: tuple[int, int]
    relay: tuple[int, int]

    def another(self, status: int = 200, text: str = "ok") -> tuple[int, int]:
        """The candidate dies, and a stranger's server takes its port."""
        process.send(*self.cand, signal.SIGKILL)
        until(lambda: not owners(self.to), "its port is free")
        return served(self.to, self.root, status, text, cookie="")


def served(url: str, root: Path, status: int, text: str, cookie: str) -> tuple[int, int]:
    argv = (sys.executable, "-S", "-c", SERVER, url.rpartition(":")[2], str(status), text)
    found = process.spawn(ProcessSpec(argv), log=root / "log", cookie=cookie)
    until(lambda: owners(url), "it listens")
    return found


@contextmanager
def cut_over(root: Path, site: str, status: int = 200, text: str = "ok") -> Iterator[Cutover]:
    url, to = (f"http://127.0.0.1:{free_port()}" for _ in "ab")
    cand = served(to, root, status, text, cookie=RUN)
    listed = paths.runs_dir() / RUN / ROLLBACK / live.LIVE
    listed.parent.mkdir(parents=True, exist_ok=True)
    live.append(listed, live.Live("process", "cand", *cand))
    spec = ProcessSpec(proxy.argv(proxy.address(url), proxy.address(to), "cand"))
    relay = process.spawn(spec, log=root / "relay.log", cookie=RUN)
    process.write_record(paths.records_dir(site), proxy.NAME, spec, *relay)
    made = Cutover(url, to, root, cand, relay)
    try:
        until(lambda: owners(url), "the relay listens")
        yield made
    finally:
        for port in (url, to):
            for one in list(listeners(port)):
                process.send(one.pid, process.start_time(one.pid) or 0, signal.SIGKILL)
