"""Engines beside Debian 12's own: a newer Docker, the same one without root, and Podman.

Packages of a newer Debian are unpacked outside the tree. An engine lives as long as the tests that
asked for it, one of each kind on a machine at a time. None of them touches a firewall that another
one has written: Docker gets a bridge of its own and no rules, Podman has tables of its own.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from console.host.process import alive, start_time
from tests.testbed import compose, debian
from tests.testbed.cache import Unavailable, command, fingerprint, folder, locked
from tests.testbed.engine import Engine
from tests.waiting import until

USUAL = "docker"
"""The engine that all other tests have: the machine's own docker.io."""
CURRENT, ROOTLESS, PODMAN = OTHERS = "docker-current", "docker-rootless", "podman"
DOCKER_PARTS = ("docker.io", "docker-cli", "containerd", "tini-static", "rootlesskit")
"""These need no newer C library than Debian 12's; runc and slirp4netns are Debian 12's own."""
PODMAN_PARTS = ("podman", "netavark", "aardvark-dns", "runc", "nftables", "catatonit")
"""With everything they depend on: they run on the libraries of their own release."""
OLDEST_API = "1.44"
"""What Docker 29 answers to; Debian's newest still speaks to older clients unless told so."""
USER = "omni-testbed"
BRIDGES = {CURRENT: "omni-current", PODMAN: "omni-podman"}
"""Of their own: another engine's may be up, and two writers of one disagree about its address."""
NETWORK = {
    "name": "podman", "id": "2f259bab93aaaaa2542ba43ef33eb990d0999ee1b9924b557b7be53c0b7a1bb9",
    "driver": "bridge", "network_interface": BRIDGES[PODMAN], "created": "2026-01-01T00:00:00Z",
    "subnets": [{"subnet": "10.215.0.0/24", "gateway": "10.215.0.1"}],
    "ipv6_enabled": False, "internal": False, "dns_enabled": False,
    "ipam_options": {"driver": "host-local"},
}  # fmt: skip
OVER = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
"""A program that sees one directory in the place of another; nobody else does."""


@contextmanager
def engine_of(kind: str) -> Iterator[Engine]:
    """A fresh engine of this kind, with nothing in it. Raises Unavailable."""
    if os.geteuid() != 0:
        raise Unavailable(f"only root can start an engine of kind {kind}")
    start = {CURRENT: _current, ROOTLESS: _rootless, PODMAN: _podman}[kind]
    with locked(f"engine-{kind}"):
        docker = _unpacked("docker", DOCKER_PARTS, depends=False)
        client, _ = compose.ensure_compose([str(docker / "usr/bin/docker")])
        place = Path(tempfile.gettempdir()) / f"omni-testbed-{kind}"
        _end(place, kind)
        place.mkdir(mode=0o755)
        socket = place / "s"
        engine = Engine(f"unix://{socket}", str(socket), client, str(compose.docker_config()), True)
        with (place / "log").open("wb") as log:
            child = start(place, docker, log.fileno())
        try:
            until(lambda: _answers(engine, child, place / "log"), f"{kind} answers")
            yield engine
            if found := engine.run("ps", "-aq").split():
                engine.run("rm", "-f", "-v", *found)
        finally:
            _end(place, kind)
            child.wait(30)


def _unpacked(name: str, parts: tuple[str, ...], *, depends: bool) -> Path:
    """A directory with these packages, made once; of an older release where those of the newest are
    in motion, or need a newer C library."""
    problems = []
    for suite in compose.SUITES:
        target = folder("engines") / f"{name}-{suite}-{fingerprint(*parts)}"
        try:
            with locked("engines"):
                if not target.exists():
                    _unpack(suite, parts, target, depends)
            if not depends:
                command([str(target / "usr/sbin/dockerd"), "--version"])
            return target
        except Unavailable as error:
            problems.append(error.reason)
    raise Unavailable(f"no engine to unpack: {'; '.join(problems)}")


def _unpack(suite: str, parts: tuple[str, ...], target: Path, depends: bool) -> None:
    with tempfile.TemporaryDirectory(dir=folder("work")) as work:
        packages = debian.fetch(suite, parts, Path(work), depends=depends)
        debian.unpack(packages, Path(work) / "root")
        (Path(work) / "root").rename(target)


def _current(place: Path, docker: Path, log: int) -> subprocess.Popen[bytes]:
    debian.require_program("runc", ["runc"])
    debian.require_program("ip", ["iproute2"])
    bridge = BRIDGES[CURRENT]
    for words in (["add", bridge, "type", "bridge"], ["set", bridge, "up"]):
        command(["ip", "link", *words])
    command(["ip", "addr", "add", "10.214.0.1/24", "dev", bridge])
    env = _path(place, docker) | {"DOCKER_MIN_API_VERSION": OLDEST_API}
    argv = [*_dockerd(docker / "usr", place), "--bridge", bridge, "--iptables=false"]
    argv += ["--ip6tables=false", "--ip-masq=false"]
    argv += ["--default-address-pool", "base=10.214.128.0/17,size=26"]
    return _spawn(argv, env, log)


def _rootless(place: Path, docker: Path, log: int) -> subprocess.Popen[bytes]:
    """As a user of its own, who cannot see the cache: its programs are shown to it at `place`."""
    for program, package in (("newuidmap", "uidmap"), ("slirp4netns", "slirp4netns")):
        debian.require_program(program, [package])
    try:
        user = pwd.getpwnam(USER)
    except KeyError:
        command(["useradd", "--no-create-home", "--shell", "/usr/sbin/nologin", USER])
        user = pwd.getpwnam(USER)
    usr, tun = place / "usr", place / "tun"
    usr.mkdir()
    os.mknod(tun, 0o600 | 0o020000, os.makedev(10, 200))  # what udev makes open to everybody
    tun.chmod(0o666)
    for name in ("home", "run"):
        (place / name).mkdir()
    for path in (place, place / "home", place / "run"):
        os.chown(path, user.pw_uid, user.pw_gid)
    env = _path(place, place) | {
        "HOME": str(place / "home"), "XDG_RUNTIME_DIR": str(place / "run"),
        "DOCKERD": str(usr / "sbin/dockerd"),
    }  # fmt: skip
    script = usr / "share/docker.io/contrib/dockerd-rootless.sh"
    argv = _over(docker / "usr", usr) + _over(tun, Path("/dev/net/tun"))
    argv += ["setpriv", "--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)]
    argv += ["--clear-groups", "sh", str(script), *_dockerd(usr, place)[1:]]
    return _spawn(argv, env, log)


def _podman(place: Path, docker: Path, log: int) -> subprocess.Popen[bytes]:
    root = _unpacked("podman", PODMAN_PARTS, depends=True)
    policy = place / "home/.config/containers/policy.json"
    policy.parent.mkdir(parents=True)
    policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
    (place / "networks").mkdir()
    (place / "networks/podman.json").write_text(json.dumps(NETWORK))
    storage, settings = place / "storage.conf", place / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{place}/data"\nrunroot = "{place}/run"\n'
    )
    settings.write_text(
        '[containers]\ninit_path = "/usr/libexec/podman/catatonit"\n'
        '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        f'tmp_dir = "{place}/tmp"\nstatic_dir = "{place}/data/libpod"\n'
        f'volume_path = "{place}/data/volumes"\n'
        f'[network]\nnetwork_config_dir = "{place}/networks"\nfirewall_driver = "nftables"\n'
    )
    env = {
        "HOME": str(place / "home"), "PATH": "/usr/sbin:/usr/bin",
        "CONTAINERS_CONF": str(settings), "CONTAINERS_STORAGE_CONF": str(storage),
        "PODMAN_IGNORE_CGROUPSV1_WARNING": "1",
    }  # fmt: skip
    serve = ["podman", "system", "service", "--time=0", f"unix://{place}/s"]
    return _spawn(_over(root / "usr", Path("/usr")) + serve, env, log)


def _over(source: Path, target: Path) -> list[str]:
    return [
        "unshare", "--mount", "--propagation", "slave", "sh", "-c", OVER, "over",
        str(source), str(target),
    ]  # fmt: skip


def _path(place: Path, root: Path) -> dict[str, str]:
    """Where dockerd looks for its parts; its init has another name in Debian."""
    (place / "bin").mkdir()
    (place / "bin/docker-init").symlink_to(root / "usr/bin/tini-static")
    return {"PATH": f"{place}/bin:{root}/usr/sbin:{root}/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


def _dockerd(usr: Path, place: Path) -> list[str]:
    return [
        str(usr / "sbin/dockerd"), "--host", f"unix://{place}/s", "--pidfile", f"{place}/pid",
        "--data-root", f"{place}/data", "--exec-root", f"{place}/exec",
    ]  # fmt: skip


def _spawn(argv: list[str], env: dict[str, str], log: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        start_new_session=True,
    )  # fmt: skip


def _answers(engine: Engine, child: subprocess.Popen[bytes], log: Path) -> bool:
    if child.poll() is not None:
        words = " ".join(log.read_text(errors="replace").split())
        raise Unavailable(f"an engine does not start: {words[-300:]}")
    with contextlib.suppress(Unavailable):
        command([engine.docker, "version"], env=engine.env(), timeout=10)
        return True
    return False


def _end(place: Path, kind: str) -> None:
    """End every process that has this place on its command line, then remove it and its bridge:
    of this session, or of one that was killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        found = _processes(place)
        for pid, _ in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        with contextlib.suppress(AssertionError):
            until(lambda found=found: not any(alive(*one) for one in found), "they end", 15)
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if (point := line.split()[1]).startswith(f"{place}/"):
            subprocess.run(["umount", "-l", point], check=False, capture_output=True)
    shutil.rmtree(place, ignore_errors=True)
    if kind in BRIDGES:
        with contextlib.suppress(Unavailable):
            command(["ip", "link", "del", BRIDGES[kind]])


def _processes(place: Path) -> list[tuple[int, int]]:
    """(pid, start) of those that run for the engine there."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{place}/".encode() in (entry / "cmdline").read_bytes():
                found.append((int(entry.name), start_time(int(entry.name)) or 0))
    return found
