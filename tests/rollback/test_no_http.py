"""A baseline that is well and that the console cannot ask: it speaks TLS, or no HTTP at all, or it
listens at another address than its url says. It is named, and nothing ends it."""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from console.common.options.engines import LLAMA
from console.host import ports, process
from console.host.ports import ways
from console.journal.watch_record import SUSPECT, UNJUDGED
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import Looker
from console.recovery.rollback.stages import verify, whose
from console.runtime.discovery import servers
from console.runtime.probe import TLS, TLS_REMEDY, Health, health, remedy
from console.watch.look import Looker as Watch
from console.watch.plan import Settings
from console.watch.watcher import evidence_of
from tests.rollback.conftest import Stage, run_script, standin
from tests.tls import made_certificate
from tests.waiting import some, until

BANNER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("stand-in listens", flush=True)
while True:
    peer = server.accept()[0]
    peer.recv(99)
    peer.sendall(b"220 mail.example ESMTP\\r\\n")
    peer.close()
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def by_tls(stage: Stage, certificate: Path) -> tuple[int, int]:
    """A baseline on record that serves by TLS, with a url that says http."""
    stage.base(process=standin(stage.port, "--tls", str(certificate)))
    who = stage.start_baseline()
    until(lambda: "listens" in (stage.root / "base.log").read_text(), "it listens")
    return who


def test_a_server_that_speaks_tls_is_alive_and_never_restarted(
    stage: Stage, by_tls: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stage.plan.baseline.url
    state, words = health(url)
    assert (state, words.startswith(TLS), remedy(words)) == (Health.REFUSING, True, TLS_REMEDY)
    seen = Looker().look(stage.plan)
    assert (seen.word, TLS in seen.detail) == (Word.REFUSING, True), seen
    found = servers.look(servers.Server(LLAMA, url))
    assert (found.unfit, found.hint, found.state) == (TLS, TLS_REMEDY, Health.REFUSING)
    monkeypatch.setitem(sys.modules, "ssl", None)  # as the watch has it, for its memory
    watched = Watch(stage.plan, Settings()).look(by_tls[0])
    assert some(evidence_of(watched, time.time())).word is Word.REFUSING
    assert (watched.word, TLS in watched.detail) == (UNJUDGED, True), watched
    monkeypatch.setattr(verify, "HUNG_S", 0.5)
    monkeypatch.setattr(verify, "REFUSING_S", 1.0)
    result = stage.roll_back()
    assert (result.exit_code, TLS in result.detail) == (7, True), result
    assert stage.running() == by_tls
    assert process.alive(*by_tls)
    assert not [line for line in stage.lines if "restarting" in line["detail"]]


def test_a_server_that_speaks_tls_is_not_restarted_when_the_time_is_over(
    stage: Stage, by_tls: tuple[int, int]
) -> None:
    stage.base(ready_timeout_s=1.0)
    result = stage.roll_back()
    assert (result.exit_code, TLS in result.detail) == (7, True), result
    assert stage.running() == by_tls
    assert process.alive(*by_tls)


@pytest.mark.parametrize("client", ["curl", "python3", "wget"])
def test_the_script_restarts_nothing_that_speaks_tls(
    stage: Stage, by_tls: tuple[int, int], client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    path = only(stage, client)
    done = run_script(stage, path)
    assert (done.returncode, f"{TLS}: it is alive" in done.stdout) == (7, True), done.stdout
    assert stage.running() == by_tls
    assert process.alive(*by_tls)


def only(stage: Stage, client: str) -> str:
    """A PATH on which only this one of rollback.sh's clients is found."""
    import os
    import shutil

    if shutil.which(client) is None:
        pytest.skip(f"needs {client}")
    tools = stage.root / "tools"
    tools.mkdir()
    others = {"curl", "python3", "wget"} - {client}
    for place in os.environ["PATH"].split(":"):
        for tool in Path(place).glob("*") if place.startswith(("/usr", "/bin", "/sbin")) else ():
            if tool.name not in others and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    return str(tools)


@pytest.mark.parametrize("way", ["ladder", "python3"])
def test_what_answers_without_http_is_alive_and_never_restarted(
    stage: Stage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.base(process=process.ProcessSpec((sys.executable, "-c", BANNER, str(stage.port))))
    who = stage.start_baseline()
    until(lambda: "listens" in (stage.root / "base.log").read_text(), "it listens")
    state, words = health(stage.plan.baseline.url)
    assert (state, "speaks no HTTP" in remedy(words)) == (Health.REFUSING, True), words
    monkeypatch.setattr(verify, "HUNG_S", 1.0)
    monkeypatch.setattr(verify, "REFUSING_S", 1.0)
    if way == "ladder":
        assert stage.roll_back().exit_code == 7, stage.lines
    else:
        assert run_script(stage, only(stage, way)).returncode == 7
    assert stage.running() == who
    assert process.alive(*who)


@pytest.mark.parametrize(
    ("host", "named", "limit_s"),
    [("127.0.0.2", "127.0.0.2", 60.0), ("::1", "[::1]", 60.0), ("127.0.0.3", "127.0.0.3", 1.0)],
)
def test_a_baseline_at_another_address_of_the_same_port_is_left_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, host: str, named: str, limit_s: float
) -> None:
    if limit_s > 2:
        monkeypatch.setattr(whose, "ELSEWHERE_S", 0.0)
    url = f"http://{'localhost' if ':' in host else '127.0.0.1'}:{stage.port}"
    monkeypatch.setattr(ports, "_localhost", lambda: ("127.0.0.1",))
    monkeypatch.setattr("socket.create_connection", by_ipv4())
    stage.base(process=standin(stage.port, "--host", host), url=url, ready_timeout_s=limit_s)
    who = stage.start_baseline()
    until(lambda: "listens" in (stage.root / "base.log").read_text(), "it listens")
    where = f"it listens at {named}:{stage.port}, and the url says {url.removeprefix('http://')}"
    seen = Looker().look(stage.plan)
    assert (seen.word, where in seen.detail) == (Word.DOWN, True), seen
    watched = Watch(stage.plan, Settings()).look(who[0])
    assert (watched.word, where in watched.detail) == (SUSPECT, True), watched
    result = stage.roll_back()
    assert result.exit_code == 7
    assert f"{where}: `url` and `--host` differ" in result.detail, result
    assert result.manual == (), "what starts it by hand would end it first"
    assert stage.running() == who
    assert process.alive(*who)
    assert not [line for line in stage.lines if "restarting" in line["detail"]]


def by_ipv4() -> Callable[..., object]:
    """Connections of a machine whose `localhost` is 127.0.0.1 alone."""
    import socket

    connect = socket.create_connection

    def connected(address: tuple[str, int], *more: object) -> object:
        host = "127.0.0.1" if address[0] == "localhost" else address[0]
        return connect((host, address[1]), *more)  # type: ignore[arg-type]

    return connected


def test_localhost_means_what_this_machine_says(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(2, 1, 6, "", ("127.0.0.1", 0))]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: rows)
    assert [row[0] for row in ways("http://localhost:8000")] == ["0100007F"]
    rows.append((10, 1, 6, "", ("::1", 0)))  # type: ignore[arg-type]
    assert len(ways("http://localhost:8000")) == 2
