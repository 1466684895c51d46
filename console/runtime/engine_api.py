"""The Docker Engine API over its own socket, with a total deadline for every call.

The emergency side cannot wait for an SDK whose timeouts count per received piece: this client
speaks to the socket itself. Paths carry no version, so the engine answers in its own newest
form; 20.10 (API 1.41) and later know all of these calls.
"""

from __future__ import annotations

import http.client
import itertools
import json
import math
import os
import re
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from console.common.errors import EngineError, EngineTimeout
from console.common.text import clean_lines, decode, one_line
from console.common.units import format_duration
from console.host.licence import Licence, require_container
from console.host.ports import is_local, port_of
from console.runtime import proxy
from console.runtime.engine_address import address, socket_of
from console.runtime.probe import Link, Reply
from console.runtime.spec import role_label

CALL_S = 2.0
"""Deadline of an ordinary call; starting may take START_S, stopping its grace plus STOP_EXTRA_S."""
START_S = 30.0
PROGRAMS = ("dockerd", "docker", "podman")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin"
OLDEST_PODMAN = 5
"""Older major versions silently give a container no cards."""
MESSAGE_LIMIT = 600
STOP_EXTRA_S = 5.0
_START = "`sudo systemctl start docker` starts it; DOCKER_HOST names another socket"


NEVER = "0001-"
"""How a time begins that the engine has not set."""
COMPOSE_PROJECT = "com.docker.compose.project"
COMPOSE_SERVICE = "com.docker.compose.service"
ONE_OFF = "com.docker.compose.oneoff"
CONFIG_FILES = f"{COMPOSE_PROJECT}.config_files"
OVERRIDES = ("compose.override.yaml", "compose.override.yml", "docker-compose.override.yaml",
             "docker-compose.override.yml")  # fmt: skip
"""What compose reads beside its usual file, unless it is told which files to read."""


_NETWORK = (
    "docker network create N; docker network disconnect -f N CONTAINER; "
    "docker network connect N CONTAINER; then start it"
)


class EngineDenied(EngineError):
    """The engine's socket is not open to this user. That passes only where an engine just opens it,
    so it is not waited for as for an engine that is away."""


class EngineRefused(EngineError):
    """The engine is there and answered no (a port in use, a missing device …)."""


class NoSuchContainer(EngineRefused):
    """The engine answered that it knows no such container."""


_NO_PLUGIN = ("is not a docker command", "unknown shorthand flag: 'f'", "unknown flag: --profile")


def compose_is_missing(words: str) -> EngineError | None:
    """The error to raise if a docker command failed because it has no compose plugin: it says that
    as a complaint about a flag, before a page of usage. None if it failed for another reason."""
    if not any(sign in words for sign in _NO_PLUGIN):
        return None
    return EngineError(
        "Docker Compose is missing",
        "the docker command has no compose plugin",
        "install the docker-compose-plugin package (Compose v2)",
    )


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One line of the engine's list; texts are foreign and not clean."""

    id: str
    name: str
    state: str
    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)


def socket_path(docker_host: str = "") -> str:
    """The socket that a DOCKER_HOST names; empty means the engine that the docker command means.

    Raises EngineError for anything but a unix socket.
    """
    if docker_host.startswith("/"):
        return docker_host
    return socket_of(address(docker_host))


def podman(version: Mapping[str, Any]) -> str:
    """The version of Podman, which answers to Docker's API, by the engine's own `/version`; "" for
    another engine."""
    parts = version.get("Components")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and part.get("Name") == "Podman Engine":
            return one_line(str(part.get("Version") or "?"))
    return ""


def too_old(version: Mapping[str, Any]) -> str:
    """Why an engine with this version is not used, in one sentence; "" if it is."""
    number = podman(version)
    major = number.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_PODMAN:
        return f"Podman {OLDEST_PODMAN} or newer is needed, or Docker Engine 20.10 or newer"
    return ""


def is_installed() -> bool:
    """Whether a program of a container engine is on this machine; a client alone counts, because
    somebody may forward an engine's socket to it."""
    path = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_PATH}"
    return any(shutil.which(name, path=path) for name in PROGRAMS)


class RawEngine:
    """The few engine calls a rollback needs. Safe to use from several threads.

    Raises EngineError, EngineTimeout, EngineRefused and NoSuchContainer, in an operator's words.
    """

    def __init__(self, path: str = "", call_s: float = CALL_S) -> None:
        self.path = socket_path(path)
        self.call_s = call_s

    def ping(self, timeout_s: float | None = None) -> str:
        """The newest API version the engine speaks, as it says; empty when it says nothing."""
        reply = self._exchange("ping", timeout_s or self.call_s, "GET", "/_ping")
        return one_line(reply.headers.get("Api-Version", ""))

    def list_containers(
        self, labels: dict[str, str] | None = None, running_only: bool = True
    ) -> list[ListedContainer]:
        """Containers that carry all of `labels`; an empty value means "any value"."""
        wanted = [f"{key}={value}" if value else key for key, value in (labels or {}).items()]
        filters = quote(json.dumps({"label": wanted} if wanted else {}))
        every = 0 if running_only else 1
        reply = self._call("list", "GET", f"/containers/json?all={every}&filters={filters}")
        rows = self._json("list", reply)
        if not isinstance(rows, list):
            raise EngineError("the container engine's answer makes no sense", "its list is no list")
        return [_read_row(row) for row in rows if isinstance(row, dict) and row.get("Id")]

    def of_compose(self, argv: Sequence[str]) -> str:
        """The id of the container that this `docker compose … up … SERVICE` made, running or not,
        by its labels; "" where that cannot be told. Raises NoSuchContainer if there is none of any
        such service, whatever file it was made from: its directory may have moved. One that
        `docker compose run` made is not the service's; the hint names it."""
        every, files, project = self._of_service(argv)
        rows = [row for row in every if not is_one_off(row.labels)]
        if not rows:
            names = ", ".join(one_line(row.name or row.id[:12], 60) for row in every)
            hint = f"{names} is of `docker compose run`, not the service's container"
            what = f"of service {argv[-1]}"
            raise NoSuchContainer("compose has made no container", what, hint if names else "")
        theirs = [row.id for row in rows if is_of_compose(row.labels, files, project)]
        return theirs[0] if len(theirs) == 1 else ""

    def one_offs(self, argv: Sequence[str]) -> list[ListedContainer]:
        """The running containers that `docker compose run` made of the service of this `up`."""
        rows, _, _ = self._of_service(argv)
        return [row for row in rows if is_one_off(row.labels) and row.state != "exited"]

    def _of_service(self, argv: Sequence[str]) -> tuple[list[ListedContainer], list[Path], str]:
        """All containers of the service of this `docker compose … up … SERVICE`, whatever they were
        made from, its files and its project."""
        word_pairs = list(itertools.pairwise(argv))
        files = [Path(word) for flag, word in word_pairs if flag == "-f"]
        project = next((word for flag, word in word_pairs if flag == "-p"), "")
        wanted = {COMPOSE_SERVICE: argv[-1], **({COMPOSE_PROJECT: project} if project else {})}
        return self.list_containers(wanted, running_only=False), files, project

    def inspect(self, name: str) -> dict[str, Any]:
        """Everything the engine knows about a container (id or name), in its own JSON."""
        value = self._json(f"inspect {name}", self._call("inspect", "GET", _of(name, "json")))
        if not isinstance(value, dict):
            raise EngineError(
                "the container engine's answer makes no sense", "an inspect is no object"
            )
        return value

    def image_exists(self, image: str) -> bool:
        try:
            path = f"/images/{quote(image, safe='')}/json"
            self._call("inspect image", "GET", path, limit=8 << 20)
        except NoSuchContainer:
            return False
        return True

    def image_labels(self, image: str) -> dict[str, Any]:
        """The labels of an image, which all its containers inherit; {} for one that is gone."""
        try:
            path = f"/images/{quote(image, safe='')}/json"
            value = self._json("image", self._call("inspect image", "GET", path, limit=8 << 20))
        except NoSuchContainer:
            return {}
        return dict(_table(_table(value, "Config"), "Labels")) if isinstance(value, dict) else {}

    def start(self, name: str, timeout_s: float = START_S) -> bool:
        """Start a container; False when it ran already."""
        reply = self._call("start", "POST", _of(name, "start"), timeout_s)
        return reply.status != 304

    def stop(self, licence: Licence, name: str, grace_s: float) -> bool:
        """Stop with a grace period, for the reason that the licence names; False when it was
        stopped already. Deadline grace + 5 s."""
        require_container(licence, name)
        path = _of(name, "stop") + f"?t={max(0, math.ceil(grace_s))}"
        return self._call("stop", "POST", path, grace_s + STOP_EXTRA_S).status != 304

    def kill(self, licence: Licence, name: str) -> bool:
        """SIGKILL, for the reason that the licence names; False when it was not running.

        The engine sends the signal first and then waits: EngineTimeout does not mean "not sent".
        """
        require_container(licence, name)
        path = _of(name, "kill") + "?signal=KILL"
        return self._call("kill", "POST", path, ok=(409,)).status != 409

    def unpause(self, name: str) -> None:
        """Resume a paused container with everything it has in memory."""
        self._call("unpause", "POST", _of(name, "unpause"))

    def last_lines(self, name: str, count: int = 20, since: float = 0.0) -> list[str]:
        """The last lines a container wrote since that Unix time, clean: the engine keeps one log
        for all of its lives."""
        path = _of(name, "logs") + f"?stdout=1&stderr=1&tail={count}"
        path += f"&since={since:.6f}" if since else ""
        body = self._call("logs", "GET", path).body
        return [line for line in clean_lines(decode(_demultiplex(body))) if line][-count:]

    def _dial(self, left_s: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(left_s)
            sock.connect(self.path)
        except BaseException:
            sock.close()
            raise
        return sock

    def _call(
        self, what: str, method: str, path: str, timeout_s: float | None = None,
        ok: tuple[int, ...] = (), limit: int = 4 << 20,
    ) -> Reply:  # fmt: skip
        seconds = timeout_s or self.call_s
        reply = self._exchange(what, seconds, method, path, headers=_JSON, limit=limit)
        if reply.status < 300 or reply.status == 304 or reply.status in ok:
            return reply
        message = _message(reply.body)
        if reply.status == 404 and what == "start" and "network" in message:
            # The container is there; its network was removed, as `docker network prune` does.
            raise EngineRefused("the container's network is gone", f"{message}: {_NETWORK}")
        if reply.status == 404:
            raise NoSuchContainer(f"the container engine cannot {what}", message)
        words = f"HTTP {reply.status}: {message}"
        raise EngineRefused(f"the container engine cannot {what}", words)

    def _exchange(self, what: str, seconds: float, method: str, path: str, **more: Any) -> Reply:
        """Send one request; turn the ways a daemon can be away into words."""
        try:
            return Link("docker", self._dial, seconds).exchange(method, path, **more)
        except (TimeoutError, BlockingIOError):
            detail = f"{what}: nothing from {self.path} within {format_duration(seconds)}"
            raise EngineTimeout("the container engine did not answer", detail) from None
        except FileNotFoundError:
            raise EngineError("no container engine", f"no socket at {self.path}", _START) from None
        except PermissionError:
            title = "the container engine is not open to this user"
            detail = f"no permission for {self.path}"
            raise EngineDenied(title, detail, "the docker group, or root, may use it") from None
        except ConnectionRefusedError:
            detail = f"nothing listens on {self.path}"
            raise EngineError("the container engine is not running", detail, _START) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            detail = f"{what}: {one_line(str(error)) or type(error).__name__}"
            raise EngineError("the container engine broke off", detail) from None

    def _json(self, what: str, reply: Reply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            detail = f"{what}: {one_line(decode(reply.body[:200]), 80)}"
            raise EngineError("the container engine's answer makes no sense", detail) from None


_JSON = {"Content-Type": "application/json"}


def _of(name: str, verb: str) -> str:
    return f"/containers/{quote(name, safe='')}/{verb}"


def is_one_off(labels: Mapping[str, str]) -> bool:
    """Whether `docker compose run` made a container with these labels: it has the labels of the
    service, and is not its container."""
    return labels.get(ONE_OFF) == "True"


def is_of_compose(labels: Mapping[str, str], files: Iterable[Path], project: str) -> bool:
    """Whether a container with these labels is a service of somebody's compose project: of
    `project`, or without one of any that was made from one of `files`; never a candidate."""
    if role_label() in labels or is_one_off(labels):
        return False
    made_from = str(labels.get(CONFIG_FILES) or "").split(",")
    # compose writes a path as it was typed, with its symlinks
    real = {os.path.realpath(path) for path in made_from if path}
    return bool(project) or not real.isdisjoint(os.path.realpath(file) for file in files)


def made_of_others(labels: Mapping[str, str], files: Iterable[Path]) -> str:
    """The files besides `files` of which compose made a container, in clean words; "" for none, or
    if the container does not say it, or they are no longer there. Made anew from `files` alone, it
    would lack what an override gave it: cards, limits, ports."""
    named = {os.path.realpath(file) for file in files}
    made_from = filter(None, str(labels.get(CONFIG_FILES) or "").split(","))
    others = [name for name in made_from if os.path.realpath(name) not in named]
    return one_line(", ".join(filter(os.path.isfile, others)), 300)


def _read_row(row: dict[str, Any]) -> ListedContainer:
    names = row.get("Names")
    labels = row.get("Labels")
    return ListedContainer(
        id=str(row["Id"]),
        name=str(names[0]).lstrip("/") if isinstance(names, list) and names else "",
        state=str(row.get("State", "")),
        image=str(row.get("ImageID", "")),
        labels={str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {},
    )


def _message(body: bytes) -> str:
    try:
        value = json.loads(body)
        text = value.get("message") if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        text = None
    # The cause stands at the end of the engine's long sentences.
    return one_line(str(text) if text else decode(body[:400]), MESSAGE_LIMIT)


def _demultiplex(body: bytes) -> bytes:
    """Log frames (stream byte, three zeros, length) as plain bytes; a TTY's stream has none."""
    out = bytearray()
    at = 0
    while at + 8 <= len(body):
        if body[at] > 2 or body[at + 1 : at + 4] != b"\0\0\0":
            return body if at == 0 else bytes(out)
        size = int.from_bytes(body[at + 4 : at + 8], "big")
        out += body[at + 8 : at + 8 + size]
        at += 8 + size
    return bytes(out) if at else body


def unfit_as_baseline(container: Mapping[str, Any], url: str) -> tuple[str, str]:
    """Why an inspected container cannot be the baseline at `url`, and what to do; ("", "") if it
    can."""
    host = _table(container, "HostConfig")
    again = "make it again with a port of its own (-p HOST:CONTAINER) and without --rm"
    if host.get("AutoRemove") is True:
        return "it was made with --rm: its engine deletes it when it stops", again
    ports = _table(_table(container, "NetworkSettings"), "Ports")
    for inner, bindings in _table(host, "PortBindings").items():
        chosen = [
            binding for binding in bindings or () if binding.get("HostPort") in ("", "0", None)
        ]
        now = {str(binding.get("HostPort")) for binding in ports.get(inner) or ()}
        if chosen and str(port_of(url)) in now:
            return "its engine chose its port, and chooses another one at the next start", again
    other = published_elsewhere(container, url)
    if other:
        return f"it is published at {other}, and not at {url}", elsewhere_hint(other)
    return "", ""


NO_PORT = "no port"


def can_answer(container: Mapping[str, Any]) -> bool:
    """Whether an inspected container has a process that runs right now."""
    state = container.get("State")
    if not isinstance(state, dict) or state.get("Pid") == 0:
        return False
    held = state.get("Paused") is True or state.get("Restarting") is True
    return state.get("Running") is True and not held


def time_of(state: Mapping[str, Any], key: str) -> float | None:
    """A time of a container's state in Unix seconds; None where the engine has none."""
    from datetime import UTC, datetime  # loaded by whoever needs it: not every rollback does

    written = str(state.get(key, ""))
    if not written or written.startswith(NEVER):
        return None
    try:
        # the engine writes up to nine digits behind the seconds, and Z
        whole, digits = written[:19], re.match(r"\.\d{1,9}", written[19:])
        seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return seconds + float(digits[0] if digits else 0)


def started_at(container: Mapping[str, Any] | None) -> float:
    """When a container was started last, in Unix seconds; 0.0 where that is unknown."""
    return time_of(_table(container or {}, "State"), "StartedAt") or 0.0


def published_elsewhere(container: Mapping[str, Any], url: str) -> str:
    """Where on this machine an inspected container is published instead of a local URL, in words;
    "" otherwise, and if unknown."""
    host = _table(container, "HostConfig")
    bindings = _table(host, "PortBindings")
    if not bindings or not is_local(url) or host.get("NetworkMode") == "host":
        return ""
    declared_doors = _doors(bindings)
    settings, state = _table(container, "NetworkSettings"), _table(container, "State")
    # One that its engine starts again at this moment counts as running, and has no ports yet.
    has_ports = state.get("Restarting") is not True and state.get("Pid") != 0
    if state.get("Running") is True and has_ports and "Ports" in settings:
        doors = _doors(_table(settings, "Ports"))
    elif all(port.isdigit() and port != "0" for _, port in declared_doors):
        doors = declared_doors
    else:
        return ""  # its engine chooses the port when it starts
    wanted, hosts = str(port_of(url)), proxy.hosts(url)
    if any(port == wanted and (not hosts or at in hosts) for at, port in doors):
        return ""
    return ", ".join(sorted(f"{at}:{port}" for at, port in doors)) or NO_PORT


def is_published_at(container: Mapping[str, Any], url: str) -> bool:
    """Whether an inspected container is known to be published at a URL of this machine."""
    bindings = _table(_table(container, "HostConfig"), "PortBindings")
    return bool(bindings) and is_local(url) and not published_elsewhere(container, url)


def elsewhere_hint(place: str) -> str:
    """What to do about a container that is published at `place` instead (published_elsewhere)."""
    if place == NO_PORT:
        return "connect it to its network (`docker network connect`), or make it again"
    return "correct `url` in the site file, or make the container again"


def _doors(table: Mapping[str, Any]) -> set[tuple[str, str]]:
    """(host, port) of an engine's table of ports, TCP only; hosts as in a relay's command line."""
    return {
        (f"[{at}]" if ":" in at else at or "0.0.0.0", str(row.get("HostPort")))
        for inner, rows in table.items() for row in rows or ()
        if not inner.endswith(("/udp", "/sctp")) for at in [str(row.get("HostIp") or "")]
    }  # fmt: skip


def _table(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = value.get(key)
    return table if isinstance(table, dict) else {}
