"""A real llama.cpp server in a process of its own."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.children import running
from tests.waiting import until

SERVES = re.compile(r"engine: serving \S+ on (http://\S+)\n")


@contextmanager
def embedded(model: Path) -> Iterator[str]:
    """The demo's engine on this model, with one thread; its address, once it serves."""
    log = model.with_suffix(".log")
    argv = [sys.executable, "-m", "console.rehearsal.demo.engine", "--model", str(model)]
    argv += ["--port", "0", "--threads", "1", "--ctx", "4096"]
    with log.open("wb") as out, running(argv, stdout=out, stderr=out) as server:

        def serves() -> re.Match[str] | None:
            assert server.poll() is None, log.read_text()[-2000:]
            return SERVES.search(log.read_text())

        yield until(serves, "the server is ready", where=log.read_text)[1]
