"""A real Docker engine for tests: a private one, or the one that the caller names."""

import hashlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.testbed import cache, compose, debian
from tests.testbed.cache import Shared, Unavailable, command, folder, locked

START_SECONDS = 120.0
STOP_SECONDS = 30.0
# A unix socket's address holds 107 characters, and dockerd makes longer ones beneath this one.
SOCKET_LIMIT = 80
LABELS = ("omni.test", "omni.role")
# Each test session holds a share of this lock while it may have containers in the engine.
SESSIONS = "sessions"


@dataclass(frozen=True)
class Engine:
    host: str
    socket: str
    docker: str
    docker_config: str
    private: bool

    def env(self) -> dict[str, str]:
        """What a process needs to reach this engine and no other."""
        first = _client_folder(self.docker)
        path = os.environ.get("PATH", os.defpath)
        return {
            "DOCKER_HOST": self.host,
            "DOCKER_CONFIG": self.docker_config,
            "PATH": path if path.split(":")[0] == first else f"{first}:{path}",
        }

    def run(self, *arguments: str, timeout: float = 120) -> str:
        """The output of ``docker ARGUMENTS`` on this engine; a failure is Unavailable."""
        return command([self.docker, *arguments], env=self.env(), timeout=timeout)


@dataclass(frozen=True)
class _Places:
    data: Path
    exec: Path
    socket: Path
    pid: Path
    log: Path

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"


def ensure_engine() -> Engine:
    named = os.environ.get("OMNI_TEST_DOCKER_HOST")
    if named:
        return _reach(named, private=False)
    places = _places()
    with locked("engine"):
        if _our_pid(places) is None:
            _require_start_is_safe()
            debian.require_program("iptables", ["iptables"])
            dockerd = debian.require_program("dockerd", ["docker.io", "iptables"])
            _start(dockerd, places)
        _spare_loopback("-A")
        _wait_until_it_answers(places)
    return _reach(places.host, private=True)


def in_use() -> str:
    """Who would be cut off if the private engine stopped now; empty for nobody."""
    places = _places()
    if _our_pid(places) is None:
        return ""
    share = Shared(SESSIONS)
    try:
        if not share.alone():
            return "a test session uses it"
    finally:
        share.close()
    names = _reach(places.host, private=True).run("ps", "--format", "{{.Names}}").split()
    return f"containers run in it: {' '.join(names)}" if names else ""


def stop_engine() -> bool:
    """Stop the private engine by its recorded pid; False where it was not running."""
    places = _places()
    with locked("engine"):
        pid = _our_pid(places)
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while _our_pid(places) is not None:
            if time.monotonic() > deadline:
                raise Unavailable(f"the private engine (pid {pid}) does not stop")
            time.sleep(0.1)
        _spare_loopback("-D")
    return True


def clean(engine: Engine) -> int:
    """Remove what tests left in a private engine; the number of containers removed."""
    if not engine.private:
        return 0
    found: set[str] = set()
    for label in LABELS:
        found.update(engine.run("ps", "-aq", "--filter", f"label={label}").split())
    if found:
        engine.run("rm", "-f", "-v", *sorted(found))
    # Compose leaves a network per project, and an engine has addresses for about thirty.
    engine.run("network", "prune", "-f")
    return len(found)


def _places() -> _Places:
    base = folder("engine")
    short = base
    if len(str(base / "docker.sock")) > SOCKET_LIMIT:
        key = hashlib.sha256(str(cache.root()).encode()).hexdigest()[:8]
        short = Path(tempfile.gettempdir()) / f"omni-testbed-{os.getuid()}-{key}"
        short.mkdir(mode=0o700, exist_ok=True)
        if short.stat().st_uid != os.getuid():
            raise Unavailable(f"{short} belongs to somebody else")
    return _Places(
        data=base / "data",
        exec=short / "exec",
        socket=short / "docker.sock",
        pid=base / "dockerd.pid",
        log=base / "dockerd.log",
    )


def _our_pid(places: _Places) -> int | None:
    """The recorded pid, if the process that bears it is still our dockerd."""
    try:
        pid = int(places.pid.read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return None
    return pid if str(places.pid).encode() in words else None


def _require_start_is_safe() -> None:
    debian.codename()
    if os.geteuid() != 0:
        raise Unavailable("only root can start a private Docker engine")
    if debian.find("dockerd") is None and Path("/run/systemd/system").exists():
        raise Unavailable("installing docker.io here would start the machine's own engine")
    # Two engines in one network namespace overwrite each other's firewall chains.
    mine = os.readlink("/proc/self/ns/net")
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            same = os.readlink(entry / "ns" / "net") == mine
            if same and (entry / "comm").read_text().strip() == "dockerd":
                raise Unavailable(
                    f"another Docker engine runs here (pid {entry.name}); "
                    "name it with OMNI_TEST_DOCKER_HOST to use it"
                )
        except OSError:
            continue


def _start(dockerd: str, places: _Places) -> None:
    _forget_stale(places)
    argv = [dockerd, "--host", places.host, "--pidfile", str(places.pid)]
    argv += ["--data-root", str(places.data), "--exec-root", str(places.exec)]
    # the engine's own pools hold 31 networks, which two test runs at once can use up
    argv += ["--default-address-pool", "base=10.213.0.0/16,size=26"]
    env = {**os.environ, "PATH": f"{debian.SYSTEM_PATH}:{os.environ.get('PATH', os.defpath)}"}
    env.pop("DOCKER_HOST", None)
    with places.log.open("w") as log:
        process = subprocess.Popen(
            argv,
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Its own session: the end of a test run, or Ctrl-C in it, leaves the engine up.
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while _our_pid(places) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise Unavailable(f"dockerd did not start: {_last_words(places)}")
        time.sleep(0.05)
    # The engine outlives this process on purpose, so its exit status is nobody's to collect.
    process.returncode = 0


def _spare_loopback(action: str) -> None:
    """Keep (`-A`), or leave (`-D`), connections of loopback between ports that the kernel chose out
    of the engine's address translation: now and then it lets one of them hang for good, whose ports
    are those of one that has just ended. Published ports are below those, and are translated."""
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    for chain, way in (("OUTPUT", "-o"), ("PREROUTING", "-i")):
        rule = [chain, way, "lo", "-p", "tcp", "--sport", f"{low}:{high}",
                "--dport", f"{low}:{high}", "-j", "NOTRACK"]  # fmt: skip
        iptables = ["iptables", "-w", "-t", "raw"]
        there = subprocess.run([*iptables, "-C", *rule], capture_output=True, check=False)
        if (there.returncode == 0) == (action == "-D"):
            # a kernel without the table does without
            subprocess.run([*iptables, action, *rule], capture_output=True, check=False)


def _forget_stale(places: _Places) -> None:
    """After a crash or a reboot, recorded pids may belong to other programs by now."""
    places.pid.unlink(missing_ok=True)
    recorded = places.exec / "containerd" / "containerd.pid"
    try:
        name = Path(f"/proc/{int(recorded.read_text())}/comm").read_text().strip()
    except (OSError, ValueError):
        name = ""
    if name != "containerd":
        recorded.unlink(missing_ok=True)


def _wait_until_it_answers(places: _Places) -> None:
    clients = _clients()
    if not clients:
        raise Unavailable("there is no docker client on this machine")
    deadline = time.monotonic() + START_SECONDS
    while not _answers(clients[0], places.host):
        if _our_pid(places) is None or time.monotonic() > deadline:
            raise Unavailable(f"dockerd does not answer: {_last_words(places)}")
        time.sleep(0.1)


def _last_words(places: _Places) -> str:
    try:
        text = places.log.read_text(errors="replace").strip()
    except OSError:
        text = ""
    # The reason may span lines, of which the last one says least.
    reason = text[text.rfind("failed to start daemon") :] if "failed to start" in text else ""
    words = reason or text[text.rfind("\n") + 1 :]
    return " ".join(words.split())[:300] or "it wrote nothing"


def _reach(host: str, *, private: bool) -> Engine:
    client, _ = compose.ensure_compose(_clients())
    if not _answers(client, host):
        raise Unavailable(f"no Docker engine answers at {host}")
    return Engine(
        host=host,
        socket=host.removeprefix("unix://") if host.startswith("unix://") else "",
        docker=client,
        docker_config=str(compose.docker_config()),
        private=private,
    )


def _answers(client: str, host: str) -> bool:
    # The host is passed as an option because it must win over the caller's DOCKER_CONTEXT.
    argv = [client, "--host", host, "version", "--format", "{{.Server.Version}}"]
    env = {"DOCKER_CONFIG": str(compose.docker_config())}
    try:
        return bool(command(argv, env=env, timeout=60).strip())
    except Unavailable:
        return False


def _clients() -> list[str]:
    places = [*os.environ.get("PATH", os.defpath).split(":"), "/usr/bin", "/usr/local/bin"]
    ours = str(cache.root())
    found = [f"{place}/docker" for place in places if place and not place.startswith(ours)]
    return [path for path in dict.fromkeys(found) if os.access(path, os.X_OK)]


def _client_folder(client: str) -> str:
    """A folder with nothing but the client: to go first in PATH without moving other tools."""
    bin_folder = folder(f"bin/{cache.fingerprint(client)}")
    link = bin_folder / "docker"
    if not link.is_symlink() or os.readlink(link) != client:
        fresh = bin_folder / f".docker-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(client)
        fresh.replace(link)
    return str(bin_folder)
