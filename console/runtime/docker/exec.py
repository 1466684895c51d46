"""Commands in containers: in one that runs already, or in one of their own (a one-off)."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from console.common.clock import SystemClock
from console.common.errors import EngineError, ServiceError
from console.common.files import read_text
from console.common.text import one_line
from console.common.units import format_duration
from console.host.cgroup import die_together, pid_namespace
from console.host.children import Cancelled
from console.host.licence import Licence, Reason
from console.runtime.docker.client import RECEIVE_S, ask, inspect, require_image, send
from console.runtime.docker.container import (
    START_S,
    bounded,
    check_mounts,
    create,
    spec_hash,
    with_cookie,
)
from console.runtime.docker.engine_state import Say, marks, silent, status_of, stop_container
from console.runtime.docker.log_stream import LogStream
from console.runtime.spec import ContainerSpec, Handle, Launch

if TYPE_CHECKING:
    import docker
    import psutil
    import requests

Sink = Callable[[bytes], None]
"""Receives output as it comes, stdout and stderr in the engine's order; raw bytes."""

POLL_S = 0.1
END_S = 3.0
"""Seconds that a command may take to end after a signal."""


def run_in(
    client: docker.DockerClient, container_id: str, argv: Sequence[str], *,
    env: Mapping[str, str] | None = None, workdir: str = "", timeout_s: float,
    cancelled: threading.Event, sink: Sink,
) -> int:  # fmt: skip
    """Run a command in a running container; return its exit code.

    Raises ServiceError after `timeout_s` and Cancelled on the event, both after stopping the
    command; ServiceError with the cause if stopping fails. Raises EngineError.
    """
    api: Any = client.api
    what = one_line(f"`{' '.join(argv)}`", 80)

    def make() -> str:
        made = api.exec_create(
            container_id, list(argv), environment=dict(env or {}), workdir=workdir or None
        )
        return str(made["Id"])

    command = _Command(client, container_id, ask(f"Preparing {what}", make), what)
    pump = _Pump(ask(f"Starting {what}", command.start, START_S))
    deadline = time.monotonic() + timeout_s
    try:
        while not pump.ended:
            pump.deliver(sink, POLL_S)
            if cancelled.is_set():
                command.end("cancelled")
                raise Cancelled(what)
            if time.monotonic() >= deadline:
                words = f"did not finish within {format_duration(timeout_s)}"
                command.end(words)
                raise ServiceError(f"{what} {words}", "it was stopped")
    finally:
        pump.close()
    return command.exit_code()


class _Command:
    """One exec in a container, as the engine and the kernel see it."""

    def __init__(
        self, client: docker.DockerClient, container: str, exec_id: str, what: str
    ) -> None:
        self.client = client
        self.api: Any = client.api
        self.container = container
        self.exec_id = exec_id
        self.what = what

    def start(self) -> requests.Response:
        """The engine's streaming reply.

        Not the library's `exec_start`: that one bypasses the buffer in which the reply's head
        arrived, and loses what the command wrote at once (45 of 200 `echo`, when measured). And
        without its `Upgrade`, so that the reply has a body that can be read as any other.
        """
        return send(
            self.client, "POST", f"/exec/{self.exec_id}/start",
            json={"Tty": False, "Detach": False}, stream=True,
            timeout=(RECEIVE_S, None),  # a command may be silent for as long as it likes
        )  # fmt: skip

    def look(self) -> dict[str, Any]:
        state = ask(f"Looking at {self.what}", lambda: self.api.exec_inspect(self.exec_id))
        return dict(state)

    def exit_code(self) -> int:
        """The exit code, once the output has ended."""
        if not self._gone_within(END_S):
            raise EngineError(
                f"The connection to {self.what} was lost",
                "the command may still run in the container",
                f"docker top {self.container[:12]}",
            )
        code = self.look().get("ExitCode")
        if code is None:
            raise EngineError(f"{self.what} ended without an exit code", "its container ended")
        return int(code)

    def end(self, why: str) -> None:
        """Stop the command and everything it started. Raises ServiceError if that fails."""
        pid = self._running_pid()
        if pid is None:
            return
        tree: dict[int, psutil.Process] = {}
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                if self._is_ours(pid):
                    _signal_tree(pid, number, tree)
            except PermissionError:
                self._kill_inside(pid)
            if self._gone_within(END_S):
                _kill_rest(tree)
                return
        raise ServiceError(
            f"{self.what} {why}, but it could not be stopped",
            f"it still runs as process {pid} of container {self.container[:12]}",
            f"`sudo kill -9 {pid}` ends the command alone",
        )

    def _running_pid(self) -> int | None:
        """Its pid, None once it has ended; raises ServiceError if neither is known, because a slow
        engine accepts the request long before the command runs."""
        deadline = time.monotonic() + START_S
        while True:
            state = self.look()
            pid = int(state.get("Pid") or 0)
            if state.get("Running") and pid > 0:
                return pid
            if state.get("ExitCode") is not None:
                return None
            if time.monotonic() >= deadline:
                raise ServiceError(
                    f"{self.what} could not be stopped",
                    f"the engine has not said within {format_duration(START_S)} that it runs",
                    f"docker top {self.container[:12]}",
                )
            time.sleep(0.02)

    def _is_ours(self, pid: int) -> bool:
        """Whether a pid is of this container: it may have been reused by now, and an engine on
        another machine has other pids.

        Judged by its control group; without one, as with a rootless engine on cgroup v1, by the pid
        namespace, if that is the container's first process's and not this one's.
        """
        if self.container in read_text(f"/proc/{pid}/cgroup"):
            return True
        container = inspect(self.client, self.container) or {}
        first = int((container.get("State") or {}).get("Pid") or 0)
        space = pid_namespace(pid)
        return space not in ("", pid_namespace("self")) and space == pid_namespace(first)

    def _kill_inside(self, pid: int) -> None:
        """Kill from inside, for a user who may use the engine but not signal its processes."""
        inner = _inner_pids(pid)
        if not inner:
            return
        argv = ["sh", "-c", 'kill -KILL "$@"', "sh", *map(str, inner)]

        def call() -> None:
            made = self.api.exec_create(self.container, argv)
            self.api.exec_start(made["Id"], detach=True)

        with contextlib.suppress(EngineError):  # whether it helped is looked at next
            ask("Killing the command from inside", call)

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.look().get("Running"):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.05)
        return True


class _Pump:
    """A thread that decodes the engine's frames, so that its reader can watch the time."""

    def __init__(self, response: requests.Response) -> None:
        self.ended = False
        self._response = response
        self._chunks: queue.Queue[bytes] = queue.Queue(maxsize=256)
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="command output", daemon=True).start()

    def deliver(self, sink: Sink, seconds: float) -> None:
        """Pass on what has come, waiting for at most `seconds`; sets `ended` at the end."""
        with contextlib.suppress(queue.Empty):
            data = self._chunks.get(timeout=seconds)
            if data:
                sink(data)
            else:
                self.ended = True

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # it has ended by itself
            self._response.raw.shutdown()

    def _run(self) -> None:
        from urllib3.exceptions import HTTPError

        read = self._response.raw.read
        try:
            while header := read(8):
                if len(header) < 8:
                    break
                if data := read(struct.unpack(">BxxxL", header)[1]):
                    self._put(data)
        except (OSError, ValueError, HTTPError):
            pass  # closed, or lost; the engine's view of the command says which
        finally:
            self._put(b"")
            self._response.close()

    def _put(self, data: bytes) -> None:
        while not self._closed.is_set():
            try:
                self._chunks.put(data, timeout=0.5)
                return
            except queue.Full:
                continue


def _signal_tree(pid: int, number: signal.Signals, tree: dict[int, psutil.Process]) -> None:
    """Signal a process and its descendants, which are added to `tree`. Raises PermissionError."""
    import psutil

    try:
        _freeze(psutil.Process(pid), tree)
    except psutil.AccessDenied as error:
        raise PermissionError(pid) from error
    except psutil.Error:
        pass
    for process in tree.values():
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
            process.resume()


def _freeze(root: psutil.Process, tree: dict[int, psutil.Process]) -> None:
    """Stop a process and its descendants, until none has forked while they were listed.

    Raises psutil.Error if the root is gone or not ours.
    """
    import psutil

    while True:
        new = [p for p in (root, *root.children(recursive=True)) if p.pid not in tree]
        if not new:
            return
        for process in new:
            tree[process.pid] = process
            try:
                process.suspend()
            except psutil.NoSuchProcess:
                continue


def _kill_rest(tree: dict[int, psutil.Process]) -> None:
    """End what a finished command started and left behind."""
    import psutil

    rest = list(tree.values())
    for process in psutil.wait_procs(rest, END_S)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _inner_pids(pid: int) -> list[int]:
    """The pids that a process and its descendants have inside their container, where readable."""
    import psutil

    tree = [pid]
    with contextlib.suppress(psutil.Error):
        tree += [child.pid for child in psutil.Process(pid).children(recursive=True)]
    rows = (row for tree_pid in tree for row in read_text(f"/proc/{tree_pid}/status").splitlines())
    return [int(row.split()[-1]) for row in rows if row.startswith("NSpid:")]


def run_oneoff(
    client: docker.DockerClient,
    spec: ContainerSpec,
    *,
    service: str,
    launch: Launch,
    timeout_s: float,
    cancelled: threading.Event,
    sink: Sink,
    labels: Mapping[str, str] | None = None,
    grace_s: float = 5.0,
    say: Say = silent,
) -> int:
    """Run a command in a container of its own (role `oneoff`, no ports); return its exit code.

    The container is kept. Raises ServiceError after `timeout_s`, Cancelled on the event, both after
    stopping it; EngineError.
    """
    spec = bounded(client, replace(spec, ports=()))
    image = require_image(client, spec.image)
    check_mounts(client, spec.mounts)
    digest = spec_hash(spec, image.id)
    name = spec.name or f"omni-{service}-{os.urandom(4).hex()}"
    all_labels = {**(labels or {}), **marks("oneoff", launch.run_id, service, digest, launch.site)}
    container = create(client, with_cookie(spec, launch), name, all_labels, say=say)
    handle = Handle(service, "oneoff", container=container, name=name)
    launch.record(handle)
    ask(f"Starting {name}", lambda: client.api.start(container), START_S)
    die_together(container)
    stream = LogStream(client, container, entry=lambda _, line: sink(line), note=say)
    reader = threading.Thread(target=stream.follow, name=f"output of {name}", daemon=True)
    reader.start()
    deadline = time.monotonic() + timeout_s
    while reader.is_alive():
        reader.join(POLL_S)
        if cancelled.is_set() or time.monotonic() >= deadline:
            late_s = None if cancelled.is_set() else timeout_s
            _end_oneoff(client, handle, grace_s, stream, reader, late_s)
    return _oneoff_code(client, handle, say)


def _end_oneoff(
    client: docker.DockerClient, handle: Handle, grace_s: float, stream: LogStream,
    reader: threading.Thread, timeout_s: float | None,
) -> NoReturn:  # fmt: skip
    """Stop it, take its last output, and raise the error that ended it."""
    try:
        why = Licence(Reason.STEP, handle.service)
        stop_container(client, why, handle, grace_s, SystemClock())
        reader.join(2.0)
    finally:
        stream.stop()
    if timeout_s is None:
        raise Cancelled(handle.name)
    words = f"did not finish within {format_duration(timeout_s)}"
    raise ServiceError(f"{handle.name} {words}", "it was stopped", f"docker logs {handle.name}")


def _oneoff_code(client: docker.DockerClient, handle: Handle, say: Say) -> int:
    container = inspect(client, handle.container)
    if container is None:
        raise ServiceError(f"{handle.name} is gone", "its container was removed")
    seen = status_of(container)
    if seen.exit_code is None:
        raise EngineError(f"{handle.name} has no exit code", seen.detail)
    if seen.oom_killed:
        say(f"{handle.name} was {seen.detail}")
    return seen.exit_code
