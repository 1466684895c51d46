"""Another local user: no file, lock or process of that user changes what a rollback does."""

from __future__ import annotations

import encodings.idna  # noqa: F401  loaded while this process is root
import os
import shlex
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common import paths
from console.common.errors import HostBusy
from console.host import ports, process
from console.host.process import COOKIE, ProcessSpec
from console.journal import lock
from console.recovery.rollback import observe, records
from console.recovery.rollback.script import write
from console.recovery.rollback.trigger import flocks
from console.runtime import proxy
from tests.children import SLEEP
from tests.ports import free_port
from tests.rollback.conftest import (
    NOBODY,
    STANDIN,
    Stage,
    as_root,
    open_up,
    run_script,
    standin,
)
from tests.runtime.serving import in_child
from tests.waiting import host_is_free, until

pytestmark = as_root


@pytest.fixture
def sticky(tmp_path: Path) -> Path:
    """The host directory, made sticky and writable for everybody."""
    path = paths.host_dir()
    path.chmod(0o1777)
    open_up(tmp_path)
    return path


def theirs(path: Path) -> Path:
    os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return path


@pytest.mark.parametrize("thing", ["fifo", "file", "link", "directory"])
def test_what_is_planted_holds_no_run_up(stage: Stage, sticky: Path, thing: str) -> None:
    """Another user's file is in the place of the lock and of the pointer, and cannot be removed."""
    for path in (paths.host_lock(os.getuid()), paths.pointer(os.getuid())):
        make = {"fifo": os.mkfifo, "directory": os.mkdir, "file": Path.touch}
        if thing == "link":
            path.symlink_to(stage.root / "victim")
        else:
            make[thing](path)
        theirs(path)
    held = lock.HostLock()
    with pytest.raises(HostBusy):
        lock.HostLock()
    stage.point()
    assert [one.run_id for one in records.find_all()] == [stage.plan.run_id]
    records.clear(stage.plan.run_id)
    assert records.find_all() == []
    held.release()
    assert host_is_free()
    assert not (stage.root / "victim").exists()


def test_a_lock_that_is_only_held_is_no_run(stage: Stage, sticky: Path) -> None:
    """A run counts only where the process that its pointer names holds its user's own lock."""
    path = theirs(lock_of_theirs())
    pid, start = stage.holder(path)
    assert host_is_free()
    made = stage.point(uid=NOBODY, run_id="theirs", pid=pid, start=start)
    theirs(made)
    with pytest.raises(HostBusy, match="another run holds this host"):
        lock.HostLock()
    theirs(stage.point(uid=NOBODY, run_id="theirs", alive=True))
    assert host_is_free()


def test_what_is_planted_in_the_place_of_a_lock_hides_no_run(stage: Stage, sticky: Path) -> None:
    """The runner then locks another file, which its pointer names."""
    lock_of_theirs()
    path = stage.root / "own.lock"
    path.touch()
    pid, start = stage.holder(theirs(path))
    [name] = [name for holder, name in flocks() if holder == pid]
    for named, free in (("", True), (f"{name}0", True), (name, False)):
        made = stage.point(uid=NOBODY, run_id="theirs", pid=pid, start=start, lock=named)
        theirs(made)
        assert host_is_free() == free


def lock_of_theirs() -> Path:
    path = paths.host_lock(NOBODY)
    path.touch()
    return path


def test_a_command_line_of_another_user_is_no_relay(stage: Stage) -> None:
    """It counts only where that user really has the port; its environment never counts."""
    port = free_port()
    url = f"http://localhost:{port}"
    words = ("-m", proxy.MODULE, f"127.0.0.1:{port}", "127.0.0.1:9", "cand")
    pid, _ = stage.holder("-", *words[1:])
    assert proxy.at(url) is None
    assert pid in {one.pid for one in proxy.every()}
    with socket.create_server(("127.0.0.2", port)):
        assert proxy.at(url) is None
    pid, _ = stage.holder(port, *words[1:], cookie="../../evil")
    found = proxy.at(url)
    assert found is not None
    assert (found.uid, found.run) == (NOBODY, "")
    assert COOKIE in Path(f"/proc/{pid}/environ").read_text()


SERVER = """
import encodings.idna, os, sys
sys.path.insert(0, sys.argv[1])
import standin
os.setgroups([])
os.setuid(65534)
standin.main(sys.argv[2:])
"""


def test_another_users_server_is_not_the_baseline(stage: Stage) -> None:
    """It answers as the baseline would: before the baseline is started, and while one loads."""
    port = stage.port
    words = ("-S", "-c", SERVER, str(STANDIN.parent), str(port))
    stage.spawn([sys.executable, *words], cookie="theirs")
    until(lambda: ports.foreign(stage.plan.baseline.url) == NOBODY, "it listens")
    stage.base(process=ProcessSpec(SLEEP))
    assert "another user's server holds its port" in stage.roll_back().detail or os.getuid() == 0
    assert stage.baseline_process() is None, "nothing is started beside it"
    loads = stage.start_baseline()
    assert not stage.roll_back().serving, stage.lines
    assert run_script(stage).returncode == 7
    assert process.alive(*loads), "it has not ended of the taken address"


@pytest.mark.parametrize("what", ["server", "relay", "a stranger's proxy", "its own proxy"])
def test_roots_server_is_a_users_baseline_only_where_an_engine_holds_the_port_for_it(
    stage: Stage, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline is a start script; only the proxy of an engine whose client it runs can belong
    to it."""
    port = proxy.port_of(stage.plan.baseline.url)
    argv = list(standin(port).argv)
    if what == "relay":
        at = free_port()
        stage.spawn(list(standin(at).argv), cookie="roots")
        monkeypatch.setenv("PYTHONPATH", os.getcwd())
        argv = [sys.executable, "-m", proxy.MODULE, f"127.0.0.1:{port}", f"127.0.0.1:{at}", "cand"]
        spec = ProcessSpec(tuple(argv), (("PYTHONPATH", os.getcwd()),))
        stage.groups.append(process.spawn(spec, log=stage.root / "log", cookie="roots"))
    else:
        if what.endswith("proxy"):
            (stage.root / "docker-proxy").symlink_to(os.path.realpath(sys.executable))
            argv[0] = str(stage.root / "docker-proxy")
        stage.spawn([*argv, "-proto", "tcp", "-host-port", str(port)], cookie="roots")
    until(lambda: ports.listener(stage.plan.baseline.url), "it listens")
    its_own = what == "its own proxy"
    stage.base(process=script(stage, its_own), ready_timeout_s=120.0 if its_own else 2.0)
    for one in (stage.root, *stage.root.rglob("*")):
        os.chown(one, NOBODY, NOBODY, follow_symlinks=False)
    open_up(stage.root)

    def act() -> list[bool]:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return [stage.roll_back().serving, run_script(stage).returncode == 0]

    assert in_child(act) == [its_own] * 2


def script(stage: Stage, runs_container: bool) -> ProcessSpec:
    """A start script that waits: for nothing, or for an engine's client that runs a container."""
    sleep = "sleep"
    if runs_container:
        sleep = str(stage.root / "docker")
        Path(sleep).symlink_to(shutil.which("sleep") or "/bin/sleep")
    return ProcessSpec(("sh", "-c", f"setsid -w env -i {sleep} 600; true"))  # as `sudo` does


def test_a_start_script_between_two_clients_of_its_engine_is_waited_for(
    stage: Stage, restore: Callable[[], None]
) -> None:
    """It has started its container, asks until that answers, and then follows its log."""
    proxy_, docker = stage.root / "docker-proxy", stage.root / "docker"
    proxy_.symlink_to(os.path.realpath(sys.executable))
    docker.symlink_to(shutil.which("sleep") or "/bin/sleep")
    server = [str(proxy_), *standin(stage.port).argv[1:], "-host-port", str(stage.port)]
    begins = f"setsid -f env -i OMNI_TEST_ROOT={stage.root} {shlex.join(server)}"
    script = f"{begins}; sleep 1; {docker} 600; true"
    stage.base(process=ProcessSpec(("sh", "-c", script)), ready_timeout_s=30.0)
    try:
        restore()
    finally:
        for pid in ports.engine_proxies(stage.port):
            process.send(pid, process.start_time(pid) or 0, signal.SIGKILL)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("runs_container", [True, False])
def test_root_too_takes_a_strangers_container_for_no_process_baseline(
    stage: Stage, runs_container: bool, known: bool
) -> None:
    """Root sees the proxy that holds the port; a baseline started by hand is not on record."""
    (stage.root / "docker-proxy").symlink_to(os.path.realpath(sys.executable))
    argv = [*standin(stage.port).argv, "-proto", "tcp", "-host-port", str(stage.port)]
    stage.spawn([str(stage.root / "docker-proxy"), *argv[1:]], cookie="roots")
    until(lambda: ports.listener(stage.plan.baseline.url), "it listens")
    assert f"`docker ps --filter publish={stage.port}`" in ports.held_words(stage.plan.baseline.url)
    limit_s = 120.0 if runs_container else 2.0
    stage.base(process=script(stage, runs_container), ready_timeout_s=limit_s)
    if known:
        stage.start_baseline()
    ours = runs_container and known
    assert observe.answers(stage.plan, known=False) is ours
    assert (run_script(stage).returncode == 0) is runs_container, "it starts one not on record"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "box.localhost"])
def test_a_process_of_ones_own_beside_a_loading_baseline_is_not_the_baseline(
    stage: Stage, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process baseline is on this machine, whatever name its URL uses."""
    port = stage.port
    url = f"http://{host}:{port}"
    stage.base(process=ProcessSpec(SLEEP), ready_timeout_s=3.0, url=url)
    stage.start_baseline()
    bound = "127.0.0.1" if host[0].isalpha() else host
    stage.spawn(list(standin(port, "--host", bound).argv), cookie="other")
    stage.until_said("listens")
    known(host, bound, monkeypatch)
    assert not stage.roll_back().serving, stage.lines
    quoted = {"QUOTING_STYLE": "c"} if host == "127.0.0.1" else {}
    assert run_script(stage, **quoted).returncode == 7, "whatever ls is told to print"


@pytest.mark.parametrize(
    ("host", "restore"),
    [("127.0.1.1", "ladder"), ("127.0.1.1", "script"), ("127.0.1.1", "copy"),
     ("box.localhost", "ladder"), ("box.localhost", "script")],
    indirect=["restore"],
)  # fmt: skip
def test_a_baseline_by_another_name_of_this_machine_is_the_baseline(
    stage: Stage, host: str, restore: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = stage.port
    bound = "127.0.0.1" if host[0].isalpha() else host
    stage.base(process=standin(port, "--host", bound), url=f"http://{host}:{port}")
    known(host, bound, monkeypatch)
    restore()


def known(host: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Resolve this name to this address, whatever /etc/hosts says."""
    connect = socket.create_connection

    def connected(to: tuple[str, int], *more: float) -> socket.socket:
        return connect((address if to[0] == host else to[0], to[1]), *more)

    monkeypatch.setattr(socket, "create_connection", connected)


def test_a_server_that_left_the_session_of_its_starter_is_the_baseline(
    stage: Stage, restore: Callable[[], None]
) -> None:
    port = stage.port
    words = " ".join(standin(port).argv)
    stage.base(process=ProcessSpec(("sh", "-c", f"setsid {words} & exec sleep 600")))
    restore()
    who = ports.listener(stage.plan.baseline.url)
    assert who is not None
    start = process.start_time(who.pid)
    assert start is not None
    stage.groups.append((who.pid, start))


def test_whose_socket_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel prefers a socket at the exact address to one at every address."""
    monkeypatch.setattr(ports, "_localhost", lambda: ("127.0.0.1", "::1"))
    rows = "  0: {}:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {}  0 {}\n"
    net = tmp_path / "net"
    net.mkdir()

    def owners(host: str, *sockets: str) -> set[int]:
        for name, long in (("tcp", False), ("tcp6", True)):
            mine = [one.split() for one in sockets if (len(one.split()[0]) > 8) is long]
            text = "".join(rows.format(at, uid, n) for n, (at, uid) in enumerate(mine))
            (net / name).write_text("head\n" + text)
        return ports.owners(f"http://{host}:8080", tmp_path)

    exact, anywhere = "0100007F 7", "00000000 8"
    anywhere6, loop6 = f"{'0' * 32} 9", f"{'0' * 24}01000000 6"
    assert owners("127.0.0.1", exact, anywhere, anywhere6) == {7}
    assert owners("127.0.0.1", anywhere, anywhere6) == {8}
    assert owners("127.0.0.1", anywhere6, loop6) == {9}
    assert owners("127.0.0.1", loop6) == set()
    assert owners("localhost", exact, loop6) == {7, 6}
    monkeypatch.setattr(ports, "_localhost", lambda: ("127.0.0.1",))
    assert owners("localhost", exact, loop6) == {7}
    assert owners("10.0.0.1", exact, anywhere) == {8}


def test_a_relay_at_another_address_is_left_alone(
    stage: Stage, restore: Callable[[], None]
) -> None:
    """A relay at another address is another site's; one at every address is this site's, too."""
    port = proxy.port_of(stage.plan.baseline.url)
    argv = (sys.executable, "-S", "-c", "import time; time.sleep(600)", proxy.MODULE)
    far, near, wide = (
        stage.spawn([*argv, f"{host}:{port}", "127.0.0.1:9", "cand"], cookie="other")
        for host in ("192.168.1.5", "127.0.0.1", "0.0.0.0")
    )
    until(lambda: {far[0], near[0], wide[0]} <= {one.pid for one in proxy.every()}, "they are up")
    assert {one.pid for one in proxy.all_at(stage.plan.baseline.url)} == {near[0], wide[0]}
    restore()
    assert [process.alive(*one) for one in (far, near, wide)] == [True, False, False]


INSPECT = """case "$*" in
  "ps -q") exit {up} ;;
  inspect*{old}*) exit 1 ;;
  *.State.Running*base) echo "true false false 7 now" ;;
  *PortBindings*base) echo "{ports}" ;;
  *) exit 1 ;;
esac
"""


ASKED = "8080/tcp/asked "


@pytest.mark.parametrize(("name", "ports", "up", "code"), [
    ("base", "", 0, 0), ("base", ASKED + "8080/tcp/127.0.0.1/{port} ", 0, 0),
    ("base", ASKED + "8080/tcp//{port} 8080/tcp/::/{port}", 0, 0),
    ("base", ASKED + "8080/tcp/127.0.0.1/1", 0, 7), ("base", ASKED, 0, 7),
    ("base", ASKED + "8080/tcp/127.0.0.2/{port}", 0, 7),
    ("base", "8080/udp/asked 8080/udp/127.0.0.1/{port}", 0, 7),
    ("gone", "", 0, 7), ("gone", "", 1, 7),
])  # fmt: skip
def test_a_container_that_is_gone_or_published_elsewhere_is_not_what_answers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, ports: str, up: int, code: int
) -> None:
    """It was made again under its name, or not at all; or its engine does not answer."""
    monkeypatch.setattr(write, "ENGINE_WAIT_S", 1)
    stage.spawn(list(standin(stage.port).argv), cookie="no")
    body = INSPECT.format(up=up, old="a" * 64, ports=ports.format(port=stage.port))
    path = stage.tool("docker", body)
    stage.until_it_is()
    stage.base(kind="container", container_id="a" * 64, container_name=name, ready_timeout_s=60.0)
    done = run_script(stage, path)
    assert done.returncode == code, done.stdout


RESTARTS = """echo >>{mark}
[ "$(wc -l <{mark})" -gt 12 ] || {{ printf 'no\\033[31m daemon\\n' >&2; exit 1; }}
case "$*" in
  "start base") : >{mark}.up ;;
  *.State.Running*base) if [ -e {mark}.up ]; then echo "true false false 7 now"; fi ;;
  *PortBindings*base) echo , ;;
  ps*) ;;
  *) exit 1 ;;
esac
"""
JOINS = """case "$*" in
  "start dep") : >{mark}.dep ;;
  "start base") [ -e {mark}.dep ] || exit 1; : >{mark}.up ;;
  *.State.Running*base) if [ -e {mark}.up ]; then echo "true false false 7 now"; fi ;;
  *NetworkMode*base) echo container:dep ;;
  *) echo , ;;
esac
"""


@pytest.mark.parametrize(("docker", "told"), [
    (RESTARTS, ["the engine does not answer", "docker start base failed: no[31m daemon\n"]),
    (JOINS, ["container dep, whose network it joins, started"]),
])  # fmt: skip
def test_an_engine_that_restarts_is_waited_for_and_a_network_is_started_first(
    stage: Stage, docker: str, told: list[str]
) -> None:
    """The script says why a start failed, without the control characters of what failed."""
    stage.spawn(list(standin(stage.port).argv), cookie="no")
    path = stage.tool("docker", docker.format(mark=stage.root / "mark"))
    stage.until_it_is()
    stage.base(kind="container", container_name="base", ready_timeout_s=10.0)
    done = run_script(stage, path)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count(told[0]) == 1
    assert told[-1] in done.stdout
