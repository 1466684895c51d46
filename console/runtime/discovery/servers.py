"""Every model server that runs on this machine, as a host process, a unit or a container."""

from __future__ import annotations

import json
import os
import pwd
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePath

from console.common import paths
from console.common.errors import EngineError
from console.common.options.engines import LLAMA, OTHER, Engine, engine_of, port_of
from console.common.text import one_line
from console.host import process
from console.host.ports import MAX_NAMED, Door, doors, shares_ports
from console.host.process import BASELINE_COOKIE, sockets_of
from console.host.units import UnitSpec
from console.runtime.discovery import processes
from console.runtime.discovery.containers import Box, boxes
from console.runtime.discovery.processes import Running
from console.runtime.discovery.supervisors import parent_of
from console.runtime.engine_api import RawEngine
from console.runtime.probe import TLS, TLS_REMEDY, Health, ProbeError, fetch, health

PROBE_S = 2.0
MODELS = "/v1/models"
COMPLETIONS = "/v1/chat/completions"
OWN_PORT = "give each a port of its own"
DEMO = "console.rehearsal.demo.engine"


@dataclass(frozen=True, slots=True)
class Server:
    """A model server: a container, or else the process that answers. `model`, the name under which
    it serves, is foreign and not clean. `unfit` says why it cannot be the baseline as it is, and
    `hint` what to do; both are clean."""

    engine: Engine
    url: str
    running: Running | None = None
    box: Box | None = None
    model: str = ""
    ready: str = ""
    state: Health = Health.REFUSED
    wants_key: bool = False
    """Whether it refuses completions without a key, though its health path may be open."""
    unfit: str = ""
    hint: str = ""

    @property
    def unit(self) -> UnitSpec | None:
        if self.box is not None:
            return self.box.unit
        return self.running.unit if self.running is not None else None

    @property
    def kind(self) -> str:
        """The kind of baseline that it would be."""
        if self.unit is not None:
            return "unit"
        if self.box is not None:
            return "compose" if self.box.compose is not None else "container"
        return "process"

    @property
    def words(self) -> str:
        """What it is on this machine, in a few clean words."""
        unit = f", {self.unit.words}" if self.unit else ""
        if self.box is not None:
            return f"{self.box.words}{unit}"
        if self.running is None:
            return "nothing"
        user = f" of {user_name(self.running.uid)}" if self.running.uid != os.getuid() else ""
        return f"pid {self.running.pid}{user}{unit}"

    @property
    def names(self) -> set[str]:
        """By which it may be picked, besides its number in the list and its URL."""
        port = self.url.rpartition(":")[2]
        identifiers = {self.url, self.url.replace("127.0.0.1", "localhost"), port, f":{port}"}
        identifiers |= {self.model} - {""}
        if self.unit is not None:
            identifiers |= {self.unit.name, self.unit.name.removesuffix(".service")}
        if self.box is not None:
            return identifiers | {self.box.name, self.box.id, self.box.id[:12]}
        return identifiers | ({str(self.running.pid)} if self.running is not None else set())


@dataclass(frozen=True, slots=True)
class Search:
    """What was found, and in clean words what was looked at and what could not be."""

    servers: tuple[Server, ...]
    looked: tuple[str, ...]
    trouble: tuple[str, ...]


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def search(socket: str = "") -> Search:
    """Look for servers; `socket`: where the container engine listens, if not at its usual place.
    Each is asked whether it serves, all at the same time."""
    listening, pids, trouble = doors(), process.pids(), list[str]()
    try:
        engine: RawEngine | None = RawEngine(socket)
        found_boxes = boxes(engine) if engine is not None else []
    except EngineError as error:
        found_boxes, engine = [], None
        trouble.append(f"containers were not looked at: {one_line(str(error))}")
    servers = [_of_box(box) for box in found_boxes]
    known = {box.id for box in found_boxes}
    servers += [
        server for server in _of_processes(pids, listening) if _container(server) not in known
    ]
    with ThreadPoolExecutor(max_workers=8) as pool:
        judged = _without_shared(list(pool.map(look, servers)), listening)
    looked = [f"{len(pids)} processes", f"{len(listening)} ports that listen"]
    if engine is not None:
        looked.append(f"the running containers of {one_line(engine.path, 80)}")
    return Search(tuple(sorted(judged, key=_order)), tuple(looked), tuple(trouble))


def shared_by(pids: Sequence[int]) -> str:
    """That processes share one address, of which none can be the baseline."""
    named = ", ".join(map(str, pids[:MAX_NAMED])) + (" …" if len(pids) > MAX_NAMED else "")
    return f"pids {named} share its address, and clients get either"


def _without_shared(candidates: list[Server], listening: list[Door]) -> list[Server]:
    """The servers, of which those that share one address (SO_REUSEPORT) lose what was asked there:
    either may have answered for the other."""
    rows = Counter((door.address, door.port) for door in listening)
    urls = {door.url for door in listening if rows[door.address, door.port] > 1}
    judged_servers = list[Server]()
    for server in candidates:
        pids = [
            other.running.pid for other in candidates
            if other.running is not None and other.box is None and other.url == server.url
        ]  # fmt: skip
        if server.url in urls and server.box is None and len(pids) > 1:
            unfit, hint = server.unfit or shared_by(pids), server.hint or OWN_PORT
            server = replace(server, model="", unfit=unfit, hint=hint)
        judged_servers.append(server)
    return judged_servers


def of_process(running: Running) -> Server | None:
    """The server that one process is; None if it is none that is known."""
    server = _server(running, doors())
    return look(server) if server is not None else None


def look(server: Server) -> Server:
    """Ask a server whether it serves and what; a program that was not known may say what it is."""
    if server.running is not None and any(_out_of_reach(server.running)):
        return server  # whoever answers at that port here is another one
    ready = server.ready or server.engine.ready
    state, detail = health(server.url, ready, PROBE_S)
    engine, model = server.engine, ""
    if state is not Health.REFUSED:
        engine, model = _ask_models(server)
    if engine is OTHER and state in (Health.REFUSING, Health.SLOW, Health.UNHEALTHY) and model:
        ready, state, detail = MODELS, *health(server.url, MODELS, PROBE_S)
    wants_key = state in (Health.SERVING, Health.REFUSING) and _wants_key(server.url)
    unfit, hint = server.unfit, server.hint
    if not unfit and detail.startswith(TLS):  # a run could not ask it, nor a rollback prove it
        unfit, hint = TLS, TLS_REMEDY
    return replace(
        server, engine=engine, model=model, ready=ready, state=state,
        wants_key=wants_key, unfit=unfit, hint=hint,
    )  # fmt: skip


def _wants_key(url: str) -> bool:
    """Whether completions are refused without a key. A GET asks for none and is answered before
    that with 401 or 403 by engines and proxies that want one, else with 404 or 405."""
    try:
        return fetch(f"{url}{COMPLETIONS}", timeout_s=PROBE_S).status in (401, 403)
    except ProbeError:
        return False


def _ask_models(server: Server) -> tuple[Engine, str]:
    """The engine and the first model as `/v1/models` tells; "" if it does not."""
    try:
        reply = fetch(f"{server.url}{MODELS}", timeout_s=PROBE_S)
        rows = json.loads(reply.body)["data"]
        model = str(rows[0]["id"])
    except (ProbeError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return server.engine, ""
    llama = rows[0].get("owned_by") == "llamacpp" or reply.headers.get("Server") == "llama.cpp"
    return (LLAMA if llama and server.engine is OTHER else server.engine), model


def _order(server: Server) -> tuple[bool, bool, str]:
    """Those that can be the baseline and serve come first."""
    return bool(server.unfit), server.state is not Health.SERVING, server.url


def _of_box(box: Box) -> Server:
    return Server(box.engine, box.url, box=box, unfit=box.unfit, hint=box.hint)


def _container(server: Server) -> str:
    return server.running.container if server.running is not None else ""


def _of_processes(pids: Iterable[int], listening: list[Door]) -> Iterator[Server]:
    """The servers among these processes; of a server and its workers only the first process."""
    servers: dict[int, Server] = {}
    for pid in sorted(pids):
        if engine_of(processes.argv_of(pid)) is None:
            continue
        running = processes.read(pid)
        made = _server(running, listening) if running is not None else None
        if made is not None:
            servers[pid] = made
    for pid, server in servers.items():
        if not (process.ancestry(pid) - {pid}) & servers.keys():
            yield server


def _server(running: Running, listening: list[Door]) -> Server | None:
    engine = engine_of(running.argv)
    if engine is None:
        return None
    port = port_of(engine, running.argv, running.environ)
    own = _own_doors(running, listening, port)
    if engine is OTHER and not own:
        return None  # a program that merely names a model's file: a copy, a download, an editor
    door = next((own_door for own_door in own if own_door.port == port), next(iter(own), None))
    unfit, hint = unfit_process(running)
    return Server(engine, door.url if door else f"http://127.0.0.1:{port}", running,
                  unfit=unfit, hint=hint)  # fmt: skip


def _own_doors(running: Running, listening: list[Door], port: int) -> list[Door]:
    """Where a process or one of its workers listens. Of another user's process only the user of the
    socket is known, and the port that the command line names."""
    inodes = sockets_of(running.pid)
    for member in process.members(running.pid, running.start):
        inodes |= sockets_of(member.pid)
    if inodes:
        return [door for door in listening if door.inode in inodes]
    return [door for door in listening if door.uid == running.uid and door.port == port]


def unfit_process(running: Running) -> tuple[str, str]:
    """Why a process cannot be the baseline, and what to do; ("", "") if it can."""
    tests: tuple[Callable[[Running], tuple[str, str]], ...] = (
        _in_a_container, _out_of_reach, _of_another_user, _of_a_run, _supervised, _of_the_demo,
        _not_again,
    )  # fmt: skip
    return next(filter(any, (test(running) for test in tests)), ("", ""))


def _in_a_container(running: Running) -> tuple[str, str]:
    if not running.container or running.container == process_container():
        return "", ""
    what = f"it runs in the container {running.container[:12]}"
    return what, "where its engine answers (DOCKER_HOST), the container itself can be chosen"


def _out_of_reach(running: Running) -> tuple[str, str]:
    if process.stat(running.pid) is None or shares_ports(running.pid):
        return "", ""
    what = "it runs in another network namespace (`ip netns`, `unshare -n`): its port is not "
    return f"{what}reachable from here", "start it in the network of this machine"


def process_container() -> str:
    """The container that the console itself runs in."""
    from console.host.memory import container_of

    return container_of(os.getpid())


def _of_another_user(running: Running) -> tuple[str, str]:
    theirs = running.unit is not None and running.unit.user and running.uid != os.getuid()
    if os.getuid() in (0, running.uid) and not theirs:
        return "", ""
    if running.unit is not None and not running.unit.user:
        return "", ""  # polkit may allow this user to stop and start it
    name = one_line(user_name(running.uid), 40)
    what = f"it belongs to {name}, and this user may neither stop nor start it"
    return what, f"use the console as {name}"


def _of_a_run(running: Running) -> tuple[str, str]:
    if running.run in ("", BASELINE_COOKIE):
        return "", ""
    return f"run {one_line(running.run, 60)} of this console started it, and ends it", ""


def _supervised(running: Running) -> tuple[str, str]:
    """Whose child it is: a supervisor would start it again beside an exclusive candidate."""
    parent = parent_of(running.pid)
    if parent is None or not parent.known:
        return "", ""
    what = f"it is a child of {parent.words} (pid {parent.pid}), which starts it again when a run "
    hint = f"start it without {parent.words}, by itself or as a systemd unit"
    return f"{what}stops it", hint


def _of_the_demo(running: Running) -> tuple[str, str]:
    """A demo's baseline is in nobody's everyday use, and is removed with the demo."""
    if DEMO not in running.argv or PurePath(running.cwd).parts[-2:] != paths.demo_dir().parts[-2:]:
        return "", ""
    return "it is the embedded demo's", "omni-console demo --stop ends it"


def _not_again(running: Running) -> tuple[str, str]:
    why = "" if running.unit is not None else processes.not_again(running)
    hint = "start it by its whole path, at a port of its own, from a directory that stays"
    return (f"nothing could start it again: {why}", hint) if why else ("", "")
