"""A program in a pseudo terminal, every byte with its time, and the run that the console shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.paths import APP
from console.host import process
from console.host.process import ProcessSpec
from console.journal.run_dir import RunDir, RunMeta
from console.journal.store import Journal
from console.recovery.rollback import live, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runtime import probe
from tests.benchmarks import surroundings
from tests.benchmarks.surroundings import CannotRun
from tests.rollback.conftest import free_port, standin

COLUMNS, ROWS = 80, 24
LIMIT_S = 30.0
NAME = "bench-run"
STEPS = 12
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


class Opened:
    """A program in a pty of its own; a thread reads what it writes and stamps it at once."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        self.chunks: list[tuple[float, bytes]] = []
        """Monotonic time of every read, and what it read."""
        self.master, slave = pty.openpty()
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
        self.begun = time.monotonic()
        self.child = subprocess.Popen(
            argv, stdin=slave, stdout=slave, stderr=slave, env=dict(env), start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, name="opened", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
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
            lambda: f"never seen {marks}: {self.written(since)[-2000:]!r}",
        )
        sofar = b""
        for at, data in list(self.chunks):
            sofar += data if at >= since else b""
            if _has(sofar, marks):
                return at - self.begun
        raise CannotRun(f"it ended: {self.written()[-2000:]!r}")

    def press(self, key: bytes) -> float:
        """Write a key to the terminal; Unix time just before."""
        at = time.time()
        os.write(self.master, key)
        return at

    def close(self) -> None:
        """Kill it with all it started; nothing of it is wanted any more."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self._reader.join(1.0)
        os.close(self.master)
        self._reader.join(1.0)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass
class Show:
    """State, host and configuration of its own with one run in it, and a baseline that serves.

    `alive`: a stand-in runner waits, as a live run's does, and the user's pointer names it.
    """

    place: Path
    port: int
    alive: bool = False
    changes: dict[str, Any] = field(default_factory=dict)
    """Fields of the sealed plan's baseline and, under `plan`, of the plan itself."""
    runner: tuple[int, int] = (0, 0)

    @property
    def run(self) -> RunDir:
        return RunDir(self.place / "state" / APP / "runs" / f"20261120-140312-{NAME}-1a2b")

    @property
    def output(self) -> Path:
        """The output of the step that ran last: what the log pane shows."""
        return self.run.attempt_log("step-5" if self.alive else f"step-{STEPS}", 1)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, **extra: str) -> dict[str, str]:
        """What the console is started with; a peer gets the same."""
        places = {"OMNI_HOST_DIR": "host", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
        mine = {key: str(self.place / name) for key, name in places.items()}
        env = surroundings.environment(self.place.parent, **mine, **terminal(), **extra)
        for name in ("COLORTERM", "NO_COLOR", "TMUX", "DOCKER_HOST"):
            env.pop(name, None)
        return env

    def console(self, **extra: str) -> Opened:
        return Opened(surroundings.command(), self.environment(**extra))

    def write(self) -> None:
        """Directories, sealed plan and journal, as a run leaves them."""
        for name in ("host", "config"):
            (self.place / name).mkdir(parents=True)
        for part in ("logs", "attempts", "rollback"):
            (self.run.path / part).mkdir(parents=True)
        about = RunMeta(self.run.id, f"/x/{NAME}.yaml", "/x", "", "/x/site.yaml", "/x", owner="ann")
        self.run.write_meta(about)
        self.seal()
        journal = Journal(self.run.journal)
        for kind, step, data in _events(self.run.id, done=not self.alive):
            journal.append(time.time(), kind, step, int(bool(step)), data)
        journal.close()
        self.output.write_bytes(sample(200))
        if self.alive:
            self.runs()

    def seal(self) -> None:
        changes = dict(self.changes)
        more = changes.pop("plan", {})
        base = {
            "name": "baseline", "kind": "process", "url": self.url, "process": standin(self.port),
            "records_dir": str(self.place / "records"), "log": str(self.place / "base.log"),
            "ready_timeout_s": LIMIT_S, **changes,
        }  # fmt: skip
        plan = SealedPlan(
            run_id=self.run.id, run_dir=str(self.run.path), baseline=Baseline(**base),
            site_name="workstation", sealed_at=time.time(), grace_s=1.0,
            memory_file=str(self.place / "restore.json"), **more,
        )  # fmt: skip
        sealed.write(plan, self.run.sealed)

    def runs(self) -> None:
        """A runner that lives, recorded and pointed to; the one before it is forgotten."""
        self.rests()
        before = [entry for entry in live.read(self.run.live) if entry.kind != "runner"]
        self.run.live.unlink(missing_ok=True)
        for entry in before:
            live.append(self.run.live, entry)
        nobody = Path(os.devnull)
        self.runner = process.spawn(_SLEEP, log=nobody, cookie=self.run.id)
        live.append(self.run.live, live.Live("runner", "runner", *self.runner))
        mine = records.Pointer(
            self.run.id, str(self.run.path), "ann", os.getuid(), *self.runner,
            started_at=time.time(),
        )  # fmt: skip
        with surroundings.variable("OMNI_HOST_DIR", str(self.place / "host")):
            records.write(mine)

    def rests(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.runner[0]:
                process.send(*self.runner, signal.SIGKILL)


_SLEEP = ProcessSpec(("sleep", "600"))


@contextmanager
def shown(place: Path, *, alive: bool = False, **changes: Any) -> Iterator[Show]:
    """A run on show with its baseline serving, until the end of the block."""
    port = free_port()
    show = Show(place, port, alive, changes)
    argv = list(standin(port).argv)
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        show.write()
        until(lambda: probe.health(show.url)[0] is probe.Health.SERVING, "no baseline")
        yield show
    finally:
        show.rests()
        server.kill()
        server.wait()


def until(
    condition: Callable[[], bool], what: str | Callable[[], str], limit_s: float = LIMIT_S
) -> None:
    """Wait for a condition. Raises CannotRun."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise CannotRun(what if isinstance(what, str) else what())
        time.sleep(0.01)


def terminal() -> dict[str, str]:
    """The variables of an ordinary terminal, the same for everybody."""
    return {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}


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


def _events(run_id: str, *, done: bool) -> list[tuple[str, str, dict[str, Any]]]:
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
    found: list[tuple[str, str, dict[str, Any]]] = [
        ("run.created", "", head),
        ("run.state", "", {"state": "running"}),
    ]
    for name in names if done else names[:5]:
        found.append(("step.state", name, {"state": "running", "effects": ["argv"]}))
        found.append(("step.state", name, {"state": "succeeded", "duration_s": 18.5}))
    if done:
        found += [("run.state", "", {"state": "succeeded"}), ("run.finished", "", {})]
    else:
        found.append(("run.state", "", {"state": "paused", "reason": "operator"}))
    return found
