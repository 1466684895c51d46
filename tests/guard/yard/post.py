"""A run's directory with a real sentinel process, as a runner would keep it."""

import contextlib
import json
import os
import select
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.paths import module_argv
from console.host import process
from console.recovery.guard import config
from console.recovery.guard.config import GuardConfig, Limit
from console.recovery.guard.record import read
from console.recovery.guard.record.read import Recording
from console.recovery.rollback import live
from console.recovery.rollback.live import Live
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.trigger import FIFO
from tests.waiting import some, until

BEAT_S = 1.0
Json = dict[str, Any]


def floor(value: int) -> Limit:
    """Return a limit on RAM available below `value`, without a delay."""
    return Limit(metric="host.ram_available", below=float(value), source="yard")


@dataclass
class Post:
    """One run directory and its sentinel. `extra` changes fields of the guard config."""

    run_dir: Path
    limits: tuple[Limit, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    child: subprocess.Popen[bytes] | None = None
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Everything that a test started here; what still runs is killed at the end."""
    _over: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _fifo: int = -1

    @property
    def run_id(self) -> str:
        return self.run_dir.name

    @property
    def guard(self) -> Path:
        return self.run_dir / config.DIRECTORY

    @property
    def live(self) -> Path:
        return self.run_dir / "rollback" / live.LIVE

    @property
    def pid(self) -> int:
        return some(self.child).pid

    def prepare(self) -> None:
        """Make the directories, the guard config, and the place of a standby: this process answers,
        because one that says nothing is replaced by a command that acts."""
        self.make_directories()
        os.mkfifo(self.live.parent / FIFO, 0o600)
        self._fifo = os.open(self.live.parent / FIFO, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        me = os.getpid()
        live.append(self.live, Live("ladder", "warm", me, process.start_time(me) or 0))
        self._thread(self._answer_trigger)
        self.write_config(*self.limits)

    def make_directories(self) -> None:
        self.guard.mkdir(parents=True, mode=0o700)
        self.live.parent.mkdir()

    def _thread(self, target: Callable[[], None]) -> None:
        made = threading.Thread(target=target, name="post", daemon=True)
        self._threads.append(made)
        made.start()

    def _answer_trigger(self) -> None:
        while not self._ended.is_set():
            if not select.select([self._fifo], [], [], 0.2)[0]:
                continue
            os.read(self._fifo, 64)
            with (self.live.parent / PROGRESS_FILE).open("a") as file:
                file.write('{"rung": "yard", "state": "ok"}\n')

    def write_config(self, *limits: Limit) -> None:
        me = (os.getpid(), process.start_time(os.getpid()) or 0)
        made = GuardConfig(
            **{
                "run_id": self.run_id, "run_dir": str(self.run_dir), "limits": limits,
                "ring": f"omni-yard.{os.getuid()}.{self.run_id}.ring", "runner": me, **self.extra,
            }
        )  # fmt: skip
        path = self.guard / config.CONFIG_FILE
        path.with_suffix(".new").write_text(json.dumps(made.to_json()))
        path.with_suffix(".new").replace(path)

    def spawn(self) -> subprocess.Popen[bytes]:
        """Start the real process, which may end at once."""
        argv = module_argv("console.recovery.guard.daemon")
        with (self.guard / "sentinel.log").open("ab") as log:
            child = subprocess.Popen(
                [*argv, str(self.guard)], env=self._environment(),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.children.append(child)
        return child

    def start(self) -> subprocess.Popen[bytes]:
        """Start a sentinel and wait until it says that it watches."""
        self.child = child = self.spawn()
        until(lambda: self.ready or child.poll() is not None, "the sentinel watches")
        assert child.poll() is None, self.words()
        self.tell(do="beat")
        self._thread(self._beat)
        return child

    def words(self) -> str:
        """Return everything that sentinels wrote for people."""
        return (self.guard / "sentinel.log").read_text()

    def _environment(self) -> dict[str, str]:
        """Return an environment without this user's own runs and sites."""
        names = ("OMNI_HOST_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        own = {name: str(self.run_dir / name.lower()) for name in names}
        return {**os.environ, "OMNI_SITE": str(self.run_dir / "no-site.yaml"), **own, **self.env}

    @property
    def ready(self) -> Json | None:
        found = _table(self.guard / config.READY)
        return found if found and self.child and found.get("pid") == self.child.pid else None

    def tell(self, **message: Any) -> None:
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.guard / config.INBOX, flags)
        try:
            os.write(descriptor, json.dumps(message).encode() + b"\n")
        finally:
            os.close(descriptor)

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            with contextlib.suppress(OSError):
                self.tell(do="beat")

    def arm(self, *entries: Live) -> None:
        """Record what is alive from now on."""
        for entry in entries:
            live.append(self.live, entry)
        self.tell(do="arm")

    def recording(self) -> Recording:
        return some(read.open_newest(self.run_dir))

    def events(self, what: str) -> list[str]:
        return [one["text"] for one in self.recording().events() if one["what"] == what]

    @property
    def status(self) -> Json:
        """Return its status page, as viewers read it; empty before the first."""
        recording = read.open_newest(self.run_dir)
        return (recording.status() if recording else None) or {}

    @property
    def armed(self) -> bool:
        """Return whether it says that it may kill, and whom."""
        page = self.status
        return bool(page.get("armed") and page.get("targets"))

    @property
    def breach(self) -> Json | None:
        return _table(self.guard / config.BREACH)

    def breached(self) -> Json:
        found: Json = until(lambda: self.breach, f"a breach: {self.status}", 60.0)
        return found

    def close(self) -> None:
        """End it and its children; the run directory stays."""
        self._over.set()
        if self.child is not None:
            with contextlib.suppress(OSError):
                self.tell(do="quit")
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(20)
        for child in self.children:
            child.kill()
            child.wait(60)
        self._ended.set()
        for thread in self._threads:
            thread.join(5)
        if self._fifo >= 0:
            os.close(self._fifo)
        (Path("/dev/shm") / f"omni-yard.{os.getuid()}.{self.run_id}.ring").unlink(missing_ok=True)


@contextmanager
def posted(place: Path, *limits: Limit, **more: Any) -> Iterator[Post]:
    """Run a sentinel on a run directory below `place`."""
    post = Post(place / f"run-{uuid.uuid4().hex[:12]}", limits, **more)
    try:
        post.prepare()
        post.start()
        yield post
    finally:
        post.close()


def _table(path: Path) -> Json | None:
    with contextlib.suppress(OSError, ValueError):
        value: Json = json.loads(path.read_bytes())
        return value
    return None
