"""An engine in this process: Docker's HTTP on a socket, and containers that are host processes.

Enough of it for the library and for the raw client. Limits, labels and names are kept as they were
asked for; what a kernel, an image or a network would do is left to the real engine.
"""

import json
import os
import re
import signal
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from console.host import process
from tests.runtime.made_job import Job
from tests.runtime.serving import Quiet, at_work

IMAGE, IMAGE_ID = "made/busy:1", "sha256:" + "1" * 64
DEFAULTS = {"Privileged": False, "CapAdd": None, "OomScoreAdj": 0}
Found = tuple[int, Any]


class Refused(Exception):
    """An answer of the engine that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def stamp(seconds: float) -> str:
    """As the engine writes times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


@dataclass
class Container:
    id: str
    name: str
    config: dict[str, Any]
    job: Job
    created: float = field(default_factory=time.time)
    error: str = ""
    paused: bool = False
    inside: list[Job] = field(default_factory=list)

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.config.get("Labels") or {})

    def commands(self) -> list[str]:
        """The command lines of all that runs in it."""
        jobs = [job for job in (self.job, *self.inside) if job.child]
        sessions = {job.child.pid for job in jobs if job.child}
        found = []
        for one in process.all_stats():
            if one.session in sessions:
                with suppress(OSError):  # it has ended meanwhile
                    found.append(Path(f"/proc/{one.pid}/cmdline").read_bytes().decode())
        return found

    def inspected(self) -> dict[str, Any]:
        job = self.job
        status = "running" if job.running else "exited" if job.begun else "created"
        never = "0001-01-01T00:00:00Z"
        state = {
            "Status": "paused" if self.paused else status, "Running": job.running,
            "Paused": self.paused, "Restarting": False, "OOMKilled": False, "Error": self.error,
            "Pid": job.child.pid if job.child and job.running else 0, "ExitCode": job.code or 0,
            "StartedAt": stamp(job.begun) if job.begun else never,
            "FinishedAt": stamp(job.ended) if job.ended else never,
        }  # fmt: skip
        host = {**DEFAULTS, **(self.config.get("HostConfig") or {})}
        return {
            "Id": self.id, "Name": f"/{self.name}", "Created": stamp(self.created),
            "Path": job.argv[0] if job.argv else "", "Args": list(job.argv[1:]), "Mounts": [],
            "NetworkSettings": {"Ports": host.get("PortBindings") or {}},
            "Image": IMAGE_ID, "RestartCount": 0, "State": state,
            "Config": self.config,
            "HostConfig": host,
        }  # fmt: skip


class MadeEngine:
    """`calls`: every request, as "POST /containers/…/start"; `answer` may refuse one first."""

    def __init__(self, path: str) -> None:
        self.path, self.host = path, f"unix://{path}"
        self.images = {IMAGE}
        self.warnings: list[str] = []
        self.version: dict[str, Any] = {"ApiVersion": "1.44"}
        self.containers: dict[str, Container] = {}
        self.execs: dict[str, Job] = {}
        self.calls: list[str] = []
        self.answer: Callable[[str], None] = lambda call: None
        self._lock = threading.Lock()

    def make(
        self, name: str, argv: list[str], labels: dict[str, str] | None = None, **more: Any
    ) -> str:
        """A container that was created some other way."""
        config = {"Image": IMAGE, "Tty": False, "Cmd": argv, "Labels": labels or {}, **more}
        return str(self._create({"name": name}, config)[1]["Id"])

    def find(self, ref: str) -> Container:
        for one in self.containers.values():
            if ref in (one.name, one.id) or (len(ref) >= 6 and one.id.startswith(ref)):
                return one
        raise Refused(404, f"No such container: {ref}")

    def route(self, method: str, path: str, query: dict[str, str], body: Any) -> Found:
        """The answer to anything but a stream."""
        self.calls.append(f"{method} {path}")
        self.answer(f"{method} {path}")
        match [method, *path.strip("/").split("/")]:
            case ["GET", "_ping"]:
                return 200, "OK"
            case ["GET", "version"]:
                return 200, self.version
            case ["GET", "info"]:
                return 200, {"Runtimes": {}}
            case ["GET", "images", *ref, "json"]:
                return self._image("/".join(ref))
            case ["GET", "volumes" | "networks" as kind]:
                return 200, {"Volumes": []} if kind == "volumes" else []
            case ["POST", "containers", "create"]:
                return self._create(query, body)
            case ["GET", "containers", "json"]:
                return 200, self._listed(query)
            case ["GET", "containers", ref, "top"]:
                return 200, {"Processes": self.find(ref).commands()}
            case ["GET", "containers", ref, "json"]:
                return 200, self.find(ref).inspected()
            case ["POST", "containers", ref, "exec"]:
                return self._exec(self.find(ref), body)
            case ["POST", "containers", ref, verb]:
                return getattr(self, f"_{verb}")(self.find(ref), query)  # type: ignore[no-any-return]
            case ["DELETE", "containers", ref]:
                one = self.find(ref)
                one.job.send(signal.SIGKILL)
                del self.containers[one.id]
                return 204, None
            case ["GET", "exec", ref, "json"]:
                job = self.execs[ref]
                pid = job.child.pid if job.child else 0
                return 200, {"Running": job.running, "ExitCode": job.code, "Pid": pid}
        raise Refused(404, f"page not found: {path}")

    def _image(self, ref: str) -> Found:
        if ref not in (*self.images, IMAGE_ID):
            raise Refused(404, f"No such image: {ref}")
        known = {"Id": IMAGE_ID, "Os": "linux", "Architecture": "amd64", "Size": 5_000_000}
        return 200, known

    def _create(self, query: dict[str, str], body: dict[str, Any]) -> Found:
        name, host = query.get("name", ""), body.get("HostConfig") or {}
        self._image(body["Image"])
        if not -1000 <= int(host.get("OomScoreAdj") or 0) <= 1000:
            raise Refused(400, "Invalid value, range for oom score adj is [-1000, 1000]")
        with self._lock:
            if any(one.name == name for one in self.containers.values()):
                raise Refused(409, f'Conflict. The container name "/{name}" is already in use')
            identity = os.urandom(32).hex()
            env = dict(row.split("=", 1) for row in body.get("Env") or [])
            argv = [*(body.get("Entrypoint") or []), *(body.get("Cmd") or [])]
            job = Job(argv, env, body.get("WorkingDir"))
            body.setdefault("Tty", False)
            self.containers[identity] = Container(identity, name or identity[:12], body, job)
        return 201, {"Id": identity, "Warnings": self.warnings}

    def _listed(self, query: dict[str, str]) -> list[dict[str, Any]]:
        labels = json.loads(query.get("filters", "{}")).get("label", [])
        wanted = [row.partition("=")[::2] for row in labels]
        return [
            {"Id": one.id, "Names": [f"/{one.name}"], "Labels": one.labels,
             "State": one.inspected()["State"]["Status"], "Created": int(one.created)}
            for one in self.containers.values()
            if (one.job.running or query.get("all") not in (None, "0", "false"))
            and all(key in one.labels and value in ("", one.labels[key]) for key, value in wanted)
        ]  # fmt: skip

    def _start(self, one: Container, query: dict[str, str]) -> Found:
        if one.paused:
            raise Refused(409, "cannot start a paused container, try unpause instead")
        if one.job.running:
            return 304, None
        host = one.config.get("HostConfig") or {}
        if host.get("DeviceRequests"):
            one.error = 'could not select device driver "" with capabilities: [[gpu]]'
            raise Refused(500, one.error)
        for binding in _published(one):
            if any(binding in _published(other) for other in self.containers.values()
                   if other is not one and other.job.running):  # fmt: skip
                raise Refused(500, f"Bind for {binding} failed: port is already allocated")
        one.job.begin()
        return 204, None

    def _stop(self, one: Container, query: dict[str, str]) -> Found:
        if not one.job.running:
            return 304, None
        self._unpause(one, query)
        one.job.send(signal.SIGTERM)
        if not one.job.over.wait(float(query.get("t", 10))):
            one.job.send(signal.SIGKILL)
        return self._gone(one)

    def _gone(self, one: Container) -> Found:
        """What was run inside ends with it."""
        one.job.over.wait(60)
        for job in one.inside:
            job.send(signal.SIGKILL)
        return 204, None

    def _kill(self, one: Container, query: dict[str, str]) -> Found:
        if not one.job.running:
            raise Refused(409, f"container {one.id} is not running")
        name = query.get("signal", "KILL")
        one.job.send(signal.Signals[f"SIG{name.removeprefix('SIG')}"])
        if name.endswith("KILL"):
            self._gone(one)
        return 204, None

    def _pause(self, one: Container, query: dict[str, str]) -> Found:
        one.paused = True
        one.job.send(signal.SIGSTOP)
        return 204, None

    def _unpause(self, one: Container, query: dict[str, str]) -> Found:
        one.paused = False
        one.job.send(signal.SIGCONT)
        return 204, None

    def _rename(self, one: Container, query: dict[str, str]) -> Found:
        if any(other.name == query["name"] for other in self.containers.values()):
            raise Refused(409, f'Conflict. The container name "/{query["name"]}" is already in use')
        one.name = query["name"]
        return 204, None

    def _exec(self, one: Container, body: dict[str, Any]) -> Found:
        if not one.job.running:
            raise Refused(409, f"container {one.id} is not running")
        identity = os.urandom(32).hex()
        env = dict(row.split("=", 1) for row in body.get("Env") or [])
        self.execs[identity] = Job(list(body["Cmd"]), env, body.get("WorkingDir"))
        one.inside.append(self.execs[identity])
        return 201, {"Id": identity}

    def close(self) -> None:
        for job in [one.job for one in self.containers.values()] + list(self.execs.values()):
            job.send(signal.SIGKILL)
            job.send(signal.SIGCONT)
            if job.begun:
                job.over.wait(60)


def _published(one: Container) -> list[str]:
    ports = (one.config.get("HostConfig") or {}).get("PortBindings") or {}
    return [f"{at.get('HostIp')}:{at['HostPort']}" for rows in ports.values() for at in rows]


class _Handler(Quiet):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        engine = cast("_Server", self.server).engine
        parts = urlsplit(self.path)
        path = re.sub(r"^/v1\.\d+", "", unquote(parts.path))
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if match := re.fullmatch(r"/containers/([^/]+)/logs", path):
                engine.calls.append(f"GET {path}")
                engine.answer(f"GET {path}")
                return self._logs(engine.find(match[1]), query)
            if match := re.fullmatch(r"/exec/([^/]+)/start", path):
                return self._hijacked(engine.execs[match[1]])
            status, value = engine.route(self.command, path, query, json.loads(body or b"null"))
        except Refused as error:
            status, value = error.status, {"message": str(error)}
        data = (
            b""
            if value is None
            else value.encode()
            if value == "OK"
            else json.dumps(value).encode()
        )
        self.send_response(status)
        self.send_header("Api-Version", "1.44")
        self.send_header("Content-Type", "application/json")
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    do_POST = do_DELETE = do_GET

    def _streams(self, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.docker.raw-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _frame(self, data: bytes, bare: bool = False) -> None:
        head = b"" if bare else b"\1\0\0\0" + len(data).to_bytes(4, "big")
        self.wfile.write(head + data)
        self.wfile.flush()

    def _logs(self, one: Container, query: dict[str, str]) -> None:
        self._streams(200)
        frames = one.job.frames(
            query.get("follow") in ("1", "true", "True"), float(query.get("since", 0))
        )
        if query.get("tail", "all") != "all":
            frames = iter(list(frames)[-int(query["tail"]) :])
        stamped = query.get("timestamps") in ("1", "true", "True")
        for at, data in frames:
            self._frame((stamp(at).encode() + b" " if stamped else b"") + data, one.config["Tty"])

    def _hijacked(self, job: Job) -> None:
        job.begin()
        self._streams(200)
        for _, data in job.frames(True):
            self._frame(data)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads, block_on_close, request_queue_size = True, False, 64
    engine: MadeEngine

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up, or a socket that is cut, is no error here."""


@contextmanager
def made_engine() -> Iterator[MadeEngine]:
    """An engine with one image, IMAGE, and no container."""
    with tempfile.TemporaryDirectory(prefix="omni-made-") as folder:
        engine = MadeEngine(f"{folder}/docker.sock")
        server = _Server(engine.path, _Handler)
        server.engine = engine
        with at_work(server), closing(engine):
            yield engine
