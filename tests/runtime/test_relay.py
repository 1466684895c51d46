"""The relay: bytes both ways, ends and cuts told apart, known by its own command line."""

import contextlib
import hashlib
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.common.paths import module_argv
from console.host import process
from console.host.ports import listener, wide
from console.runtime import proxy
from tests.children import end, running
from tests.ports import free_port
from tests.runtime.serving import serving
from tests.waiting import some, until

HOST = "127.0.0.1"
Ports, Relay = tuple[int, int], subprocess.Popen[bytes]
Handler = Callable[[socket.socket], None]


@contextlib.contextmanager
def server(port: int, handler: Handler) -> Iterator[None]:
    """A candidate: one thread a connection; a relay that is killed cuts hard."""
    with serving(socket.create_server((HOST, port)), handler):
        yield


@pytest.fixture
def ports() -> Ports:
    return free_port(), free_port()


@pytest.fixture
def relayed(ports: Ports, tmp_path: Path) -> Iterator[Relay]:
    """A relay between the two ports, listening; its log is tmp_path/log."""
    listen, to = (f"{HOST}:{port}" for port in ports)
    with (tmp_path / "log").open("wb") as log:
        env = {**os.environ, "OMNI_RUN": "run-1"}
        with running(proxy.argv(listen, to, "cand"), stdout=log, stderr=log, env=env) as child:
            until(lambda: listener(f"http://{listen}") or child.poll() is not None, "it listens")
            assert child.poll() is None
            yield child


def echo(peer: socket.socket) -> None:
    with peer:
        while data := peer.recv(65536):
            peer.sendall(data)


def call(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), 60)


def cut(client: socket.socket) -> bool:
    """Whether the other end is gone, by a reset or an end."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_big_answer_through_a_slow_reader_is_whole(ports: Ports, relayed: Relay) -> None:
    body = os.urandom(1 << 20) * 16

    def send(peer: socket.socket) -> None:
        with peer:
            peer.recv(10)
            peer.sendall(body)

    with server(ports[1], send), call(ports[0]) as client:
        client.sendall(b"go")
        time.sleep(0.3)  # nobody reads: the relay must not take it all into its memory
        held = int(Path(f"/proc/{relayed.pid}/statm").read_text().split()[1]) * 4096
        assert held < 40 << 20
        seen = hashlib.sha256()
        while data := client.recv(1 << 16):
            seen.update(data)
    assert seen.digest() == hashlib.sha256(body).digest()


def test_a_half_closed_side_still_gets_its_answer(ports: Ports, relayed: Relay) -> None:
    def all_first(peer: socket.socket) -> None:
        with peer:
            said = b""
            while data := peer.recv(100):
                said += data
            peer.sendall(said.upper())

    with server(ports[1], all_first), call(ports[0]) as client:
        client.sendall(b"hello")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b"HELLO"
        assert client.recv(100) == b""


def test_a_candidate_that_refuses_is_a_reset_and_a_line(
    ports: Ports, relayed: Relay, tmp_path: Path
) -> None:
    with pytest.raises(ConnectionResetError), call(ports[0]) as client:
        client.recv(1)  # an end without a word would look like an answer
    assert f"{HOST}:{ports[1]}: Connection refused (1 so far)" in (tmp_path / "log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("option", [socket.SO_REUSEPORT, socket.SO_REUSEADDR])
def test_its_port_is_free_at_once_for_any_server(
    ports: Ports, relayed: Relay, number: int, option: int
) -> None:
    """Connections that linger must not hold the baseline up: some bind with one option alone."""
    with server(ports[1], echo):
        for _ in range(5):
            with call(ports[0]) as client:
                client.sendall(b"x")
                assert client.recv(1) == b"x"
        with call(ports[0]) as still_open:
            relayed.send_signal(number)
            relayed.wait(60)
            with socket.socket() as baseline:
                baseline.setsockopt(socket.SOL_SOCKET, option, 1)
                baseline.bind((HOST, ports[0]))
                baseline.listen()
            assert cut(still_open), "whoever waits for an answer is told"


def test_it_is_known_by_what_it_is(ports: Ports, relayed: Relay, tmp_path: Path) -> None:
    url = f"http://localhost:{ports[0]}"
    found = some(proxy.at(url))
    assert (found.pid, found.service, found.run, found.port) == (
        relayed.pid, "cand", "run-1", ports[0],
    )  # fmt: skip
    assert proxy.at(f"http://{HOST}:{ports[1]}") is None
    assert proxy.recorded(tmp_path, url) is None
    (tmp_path / "cutover.json").write_text(
        f'{{"pid": {found.pid}, "start": {found.start}, "boot_id": "{process.boot_id()}"}}'
    )
    assert proxy.recorded(tmp_path, url) == found
    end(relayed)
    assert proxy.at(url) is None
    assert proxy.recorded(tmp_path, url) is None


def test_where_it_listens_is_compared_and_not_the_port_alone() -> None:
    near, far, six = "127.0.0.1", "192.168.1.5", "[::1]"
    table = {
        (near, near): True, (far, near): False, (near, far): False, (far, far): True,
        ("0.0.0.0", near): True, ("[::]", far): True, (far, "0.0.0.0"): True, (near, "[::]"): True,
        ("localhost", near): True, (near, "localhost"): True, (six, "localhost"): True,
        ("localhost", far): False, (six, near): False, (far, "localhost"): False,
        ("workstation", far): True, (near, "workstation"): True,
    }  # fmt: skip
    found = {pair: proxy.is_at(f"{pair[0]}:80", f"http://{pair[1]}:80/v1") for pair in table}
    assert found == table
    assert not proxy.is_at(f"{near}:81", f"http://{near}:80")


def test_a_command_line_that_only_mentions_it_is_none(ports: Ports) -> None:
    child = subprocess.Popen(["sleep", "60"], executable="/bin/sleep")
    talk = subprocess.Popen(
        ["sh", "-c", "sleep 60; :", proxy.MODULE, "not an address", "x"], start_new_session=True
    )
    try:
        assert {one.pid for one in proxy.every()} & {child.pid, talk.pid} == set()
    finally:
        child.kill()
        os.killpg(talk.pid, signal.SIGKILL)
        child.wait()
        talk.wait()


@pytest.mark.parametrize("module", ["console.services.relay", "console.runtime.proxy"])
def test_it_is_found_by_either_name(ports: Ports, module: str) -> None:
    listen, to = (f"{HOST}:{port}" for port in ports)
    words = (*module_argv(module), listen, to, "cand")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as relay:
        try:
            until(lambda: relay.pid in {one.pid for one in proxy.all_at(f"http://{listen}")})
        finally:
            relay.terminate()


def test_more_clients_than_a_shell_may_open_files(ports: Ports, tmp_path: Path) -> None:
    """Each takes two descriptors; the soft limit of a login is 1,024."""
    listen, to = (f"{HOST}:{port}" for port in ports)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with subprocess.Popen(
        ["sh", "-c", 'ulimit -S -n 32; exec "$@"', "sh", *proxy.argv(listen, to, "cand")],
        stdout=subprocess.DEVNULL,
    ) as child, server(ports[1], echo), contextlib.ExitStack() as open_ones:  # fmt: skip
        open_ones.callback(child.kill)
        until(lambda: listener(f"http://{listen}") or child.poll() is not None, "it is up")
        assert hard > 200
        for _ in range(60):
            peer = open_ones.enter_context(call(ports[0]))
            peer.sendall(b"hello")
            assert peer.recv(5) == b"hello"


def test_a_taken_port_is_said_and_ends_it(ports: Ports, tmp_path: Path) -> None:
    with server(ports[0], echo):
        done = subprocess.run(
            proxy.argv(*(f"{HOST}:{port}" for port in ports), "cand"), capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert str(ports[0]) in done.stdout


def test_who_listens_at_every_address(ports: Ports) -> None:
    with server(ports[0], echo):
        assert not wide(ports[0])
    with socket.create_server(("0.0.0.0", ports[1])):
        assert wide(ports[1])


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_process_that_listens_is_found(
    family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.host.ports._localhost", lambda: ("127.0.0.1", "::1"))
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        port = server.getsockname()[1]
        found = listener(f"http://localhost:{port}/v1")
    assert found is not None
    assert found.pid == os.getpid()
    assert "python" in found.words


def test_nobody_and_another_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert listener(url.replace("127.0.0.1", "10.1.2.3")) is None
        assert listener(url, tmp_path) is None, "a system without /proc"
    assert listener(url) is None
    assert listener("http://127.0.0.1:99999999") is None
