"""A program in a pseudo terminal, every byte with its time, and the run that the console shows."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from console.common.paths import APP
from console.journal.run_dir import RunMeta
from console.journal.state import RunState
from console.journal.store import Journal
from console.recovery.rollback.sealed_plan import Baseline
from console.runner.control import Control, Server
from console.runtime import probe
from tests.benchmarks import surroundings
from tests.benchmarks.sealed_run import SealedRun
from tests.benchmarks.surroundings import CannotRun
from tests.ports import free_port
from tests.rollback.conftest import standin
from tests.ui.terminal import Terminal
from tests.waiting import until

LIMIT_S = 30.0
NAME = "bench-run"
STEPS, PAUSED = 12, 5
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_TITLES = ("Is the image there?", "Is port 8001 free?", "Measure the baseline", "Stop the baseline",
           "Start ik_llama.cpp on :8001", "Warm it up", "Measure it", "Fast enough to switch?",
           "Read three answers", "Stop the candidate", "Restore the baseline",
           "Write the report")  # fmt: skip
_SAID = (
    "INFO 11-05 12:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 102.3 tokens/s, "
    "Avg generation throughput: 42.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs",
    "slot update_slots: id  0 | task 17 | prompt done, n_past = 512, n_tokens = 512",
    '\x1b[32mINFO\x1b[0m:     127.0.0.1:52314 - \x1b[1m"POST /v1/completions HTTP/1.1"\x1b[0m 200',
    "srv  log_server_r: request: POST /completion 127.0.0.1 200 — 完了 ✓",
    "ERROR 11-05 12:00:02 [engine.py:9] RuntimeError: CUDA error: out of memory",
)


class Opened(Terminal):
    """A program in a pty; what it writes is stamped at once and not interpreted."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], *, columns: int = 80, rows: int = 24
    ) -> None:
        self.chunks: list[tuple[float, bytes]] = []
        """Monotonic time of every read, and what it read."""
        self.begun = time.monotonic()
        super().__init__(argv, env, columns=columns, rows=rows)

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while not self._over.is_set():
                if select.select([self.master], [], [], 0.2)[0]:
                    data = os.read(self.master, 65536)
                    self.chunks.append((time.monotonic(), data))

    def written(self, since: float = 0.0, until: float = float("inf")) -> bytes:
        """What came between two monotonic times."""
        return b"".join(data for at, data in list(self.chunks) if since <= at < until)

    def seen(self, *marks: str, since: float = 0.0) -> float:
        """Seconds from the start until all marks stood in the bytes. Raises CannotRun."""
        until(
            lambda: self.child.poll() is not None or _has(self.written(since), marks),
            f"{marks} on the screen", where=lambda: repr(self.written(since)[-2000:]),
        )  # fmt: skip
        sofar = b""
        for at, data in list(self.chunks):
            sofar += data if at >= since else b""
            if _has(sofar, marks):
                return at - self.begun
        raise CannotRun(f"it ended: {self.written()[-2000:]!r}")

    def __enter__(self) -> Opened:
        return self

    def close(self) -> None:
        """Kill it with all it started; nothing of it is wanted any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        super().close()


class Show(SealedRun):
    """A run with a baseline of its own: it is over or, if `alive`, paused before its sixth step."""

    def __init__(
        self, place: Path, port: int, alive: bool, plan: dict[str, Any], **baseline: Any
    ) -> None:
        """`baseline`: its fields in the sealed plan, where they are others."""
        base = {
            "name": "baseline", "kind": "process", "url": f"http://127.0.0.1:{port}",
            "process": standin(port), "records_dir": str(place / "records"),
            "log": str(place / "base.log"), "ready_timeout_s": LIMIT_S, **baseline,
        }  # fmt: skip
        path = place / "state" / APP / "runs" / f"20261120-140312-{NAME}-1a2b"
        super().__init__(
            place, path, Baseline(**base), site_name="workstation", sealed_at=time.time(),
            grace_s=1.0, **plan,
        )  # fmt: skip
        for part in ("logs", "attempts"):
            (path / part).mkdir()
        about = RunMeta(path.name, f"/x/{NAME}.yaml", "/x", "", "/x/site.yaml", "/x", owner="ann")
        self.run.write_meta(about)
        journal = Journal(self.run.journal)
        for kind, step, data in _events(path.name, alive):
            journal.append(time.time(), kind, step, int(bool(step)), data)
        journal.close()
        self.output = self.run.attempt_log(f"step-{PAUSED if alive else STEPS}", 1)
        """The output of the step that ran last: what the log pane shows."""
        self.output.write_bytes(sample(200))

    def environment(self, **extra: str) -> dict[str, str]:
        """An ordinary terminal's variables with them, the same for everybody."""
        language = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
        env = super().environment(**language, **extra)
        for name in ("COLORTERM", "NO_COLOR", "TMUX", "DOCKER_HOST"):
            env.pop(name, None)
        return env

    def console(self, columns: int = 80, rows: int = 24, **extra: str) -> Opened:
        environment = self.environment(**extra)
        return Opened(surroundings.command(), environment, columns=columns, rows=rows)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """The runner's side of the paused run: it says where it stands when it is asked."""
        control = Control()
        control.set(state=RunState.PAUSED, reason="operator", step="step-6", attempt=0, mode="step")
        server = Server(self.run.socket, control)
        try:
            until(self.run.socket.exists, "a control socket")
            yield
        finally:
            server.close()


@contextmanager
def shown(
    place: Path, *, alive: bool = False, plan: dict[str, Any] | None = None, **baseline: Any
) -> Iterator[Show]:
    """A run on show with its baseline serving and, if `alive`, its runner."""
    port = free_port()
    show = Show(place, port, alive, plan or {}, **baseline)
    argv = list(standin(port).argv)
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: probe.health(url)[0] is probe.Health.SERVING, "the baseline serves")
        with ExitStack() as stack:
            if alive:
                stack.enter_context(show.running())
                stack.enter_context(show.answering())
            yield show
    finally:
        server.kill()
        server.wait()


def _has(raw: bytes, marks: tuple[str, ...]) -> bool:
    """Whether all marks stand in it: an emulator would be too slow, colours are passed over."""
    text = _CONTROL.sub(b"", raw)
    return all(mark.encode() in text for mark in marks)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def sample(lines: int) -> bytes:
    """A log as engines write it, each line its own."""
    stamp = "2026-05-05T12:{:02}:{:02}.123456789Z"
    return "".join(
        f"{stamp.format(n // 6000 % 60, n // 100 % 60)} {_SAID[n % len(_SAID)]} #{n}\n"
        for n in range(lines)
    ).encode()


def _events(run_id: str, alive: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A journal's events: all steps succeeded, or paused before the sixth."""
    names = [f"step-{number}" for number in range(1, STEPS + 1)]
    rows = [
        {"id": name, "title": title, "phase": "Trial", "kind": "run", "takes_s": 20.0}
        for name, title in zip(names, _TITLES, strict=True)
    ]
    head = {
        "run_id": run_id, "title": "Replace llama.cpp", "playbook": NAME, "site": "workstation",
        "owner": "ann", "restore_s": 74.0, "steps": rows,
    }  # fmt: skip
    yield "run.created", "", head
    yield "run.state", "", {"state": "running"}
    for name in names[:PAUSED] if alive else names:
        yield "step.state", name, {"state": "running", "effects": ["argv"]}
        yield "step.state", name, {"state": "succeeded", "duration_s": 18.5}
    if alive:
        yield "run.state", "", {"state": "paused", "reason": "operator"}
    else:
        yield "run.state", "", {"state": "succeeded"}
        yield "run.finished", "", {}
