"""Model servers are found by their command lines, their sockets, their groups and their engine."""

import os
import shlex
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ServiceError
from console.common.options.engines import (
    LLAMA,
    OLLAMA,
    OTHER,
    SGLANG,
    VLLM,
    Engine,
    engine_of,
    port_of,
    weights,
)
from console.frontends.cli.site.init import _state, listing
from console.host import ports, process, units
from console.host.process import ProcessSpec
from console.host.units import UnitSpec, UnitState
from console.runtime.discovery import processes
from console.runtime.discovery.processes import Running, unit_of
from console.runtime.discovery.servers import (
    DEMO,
    Search,
    Server,
    look,
    of_process,
    search,
    unfit_process,
)
from console.runtime.probe import Health
from console.runtime.spec import role_label
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.runtime.serving import serving
from tests.runtime.test_engine_raw import Answer, daemon, reply
from tests.waiting import some, until


@pytest.mark.parametrize(
    ("line", "engine", "port"),
    [
        ("/opt/llama.cpp/build/bin/llama-server -m a.gguf --port 8000", LLAMA, 8000),
        ("llama-server-cuda -m a.gguf", LLAMA, 8080),
        ("llama serve -m a.gguf --port=81", LLAMA, 81),
        ("llama-cli -m a.gguf", OTHER, 8080),
        ("/venv/bin/python3 /venv/bin/vllm serve Qwen/Q", VLLM, 8000),
        ("python3 -m vllm.entrypoints.openai.api_server --model Q --port 9", VLLM, 9),
        ("/c/bin/python3.11 -O -m sglang.launch_server --model-path Q", SGLANG, 30000),
        ("ollama serve", OLLAMA, 11434),
        ("ollama runner --model /blobs/sha256-1 --port 35001", None, 0),
        ("VLLM::EngineCore", None, 0),
        ("sglang::scheduler_TP0", None, 0),
        ("python3 serve.py /nvme/model.safetensors", OTHER, 8080),
        ("python3", None, 0),
        ("bash -c sleep", None, 0),
    ],
)
def test_the_engine_of_a_command_line(line: str, engine: Engine | None, port: int) -> None:
    argv = line.split()
    assert engine_of(argv) is engine
    assert engine is None or port_of(engine, argv) == port


@pytest.mark.parametrize(
    ("engine", "line", "env", "port"),
    [
        (LLAMA, "llama-server -m a.gguf", {"LLAMA_ARG_PORT": "9001"}, 9001),
        (LLAMA, "llama-server --port 9002", {"LLAMA_ARG_PORT": "9001"}, 9002),
        (LLAMA, "numactl -N 0 llama-server --port 1 --alias --port --port 9003", {}, 9003),
        (VLLM, "python -m vllm.entrypoints.openai.api_server --por 9004", {}, 9004),
        (VLLM, "sh -c 'exec vllm serve Q --port=9005'", {}, 9005),
        (SGLANG, "sglang serve Q --port 9006 --nccl-port 1", {}, 9006),
    ],
)
def test_a_port_is_read_as_the_engine_reads_it(
    engine: Engine, line: str, env: dict[str, str], port: int
) -> None:
    assert port_of(engine, shlex.split(line), env) == port


def test_a_model_that_a_variable_names_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").touch()
    env = {"LLAMA_ARG_MODEL": "a.gguf"}
    assert weights(["llama-server", "--jinja"], str(tmp_path), env) == [str(tmp_path / "a.gguf")]


def test_weights_that_are_there(tmp_path: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    (tmp_path / "hub").mkdir()
    argv = ["s", "-m", "a.gguf", f"--draft={tmp_path}/b.gguf", "--lora", "gone.gguf"]
    assert weights(argv, str(tmp_path)) == [str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf")]
    argv = ["vllm", "serve", f"{tmp_path}/hub", "--log-dir", str(tmp_path)]
    assert weights(argv, "/") == [str(tmp_path / "hub")]


@pytest.mark.parametrize(
    ("groups", "unit"),
    [
        ("0::/system.slice/llama.service\n", UnitSpec("llama.service", False)),
        ("1:name=systemd:/system.slice/llama.service\n0::/\n", UnitSpec("llama.service", False)),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/llm.service\n",
         UnitSpec("llm.service", True)),
        ("0::/system.slice/system-llama.slice/llama@big.service\n",
         UnitSpec("llama@big.service", False)),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/tmux-spawn-1.scope\n", None),
        ("4:memory:/system.slice/llama.service\n0::/\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_unit_of_a_process(groups: str, unit: UnitSpec | None) -> None:
    assert unit_of(groups) == unit


def test_a_real_server_is_found_by_its_socket(tmp_path: Path) -> None:
    """It names a model's file and answers; only then it counts, and its workers do not."""
    port = free_port()
    (tmp_path / "m.gguf").touch()
    argv = [sys.executable, "-S", str(STANDIN), str(port), "--once", "m.gguf"]
    with running(argv, cwd=tmp_path) as child:
        until(lambda: ports.listener(f"http://127.0.0.1:{port}"), "it listens")
        (found,) = [one for one in search().servers if one.url.endswith(f":{port}")]
        assert (found.engine, found.state, found.kind) == (OTHER, Health.SERVING, "process")
        assert (some(found.running).pid, found.unfit) == (child.pid, "")
        assert {str(child.pid), str(port), f"http://localhost:{port}"} <= found.names
        assert some(found.running).program == os.path.normpath(sys.executable)
    assert [one for one in search().servers if one.url.endswith(f":{port}")] == []


SHARES = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import SO_REUSEPORT, SOL_SOCKET

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = b'{"data": [{"id": "%s"}]}' % sys.argv[2].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(HTTPServer):
    def server_bind(self):
        self.socket.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        super().server_bind()

Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_of_two_servers_at_one_address_neither_has_the_others_model(tmp_path: Path) -> None:
    """The kernel chooses which of them is asked."""
    port = free_port()
    program = tmp_path / "server.py"
    program.write_text(SHARES)
    argv = [sys.executable, "-S", str(program), str(port)]
    with (
        running([*argv, "a.gguf"], stderr=-3) as first,
        running([*argv, "b.gguf"], stderr=-3) as second,
    ):
        url = f"http://127.0.0.1:{port}"
        until(lambda: len(ports.strangers(url)) == 2, "both listen")
        found = [one for one in search().servers if one.url == url]
    assert {some(one.running).pid for one in found} == {first.pid, second.pid}
    for one in found:
        assert (one.model, one.hint) == ("", "give each a port of its own")
        assert "share its address" in one.unfit
        assert str(first.pid) in one.unfit
        assert str(second.pid) in one.unfit


@pytest.mark.skipif(os.getuid() != 0, reason="only root may make a network namespace")
def test_what_runs_in_another_network_is_not_taken_for_whoever_has_its_port_here() -> None:
    port = free_port()
    beside = [sys.executable, "-S", str(STANDIN), str(port)]
    sleeps = [sys.executable, "-S", "-c", "import time; time.sleep(600)", "--port", str(port)]
    argv = ["unshare", "--net", "bash", "-c", f"exec -a llama-server {shlex.join(sleeps)}"]
    with running(beside), running(argv, start_new_session=True) as child:
        until(lambda: ports.listener(f"http://127.0.0.1:{port}"), "the other one listens")
        until(lambda: processes.argv_of(child.pid)[:1] == ("llama-server",), "it runs")
        found = of_process(some(processes.read(child.pid)))
        os.killpg(child.pid, signal.SIGKILL)
    assert found is not None
    assert (found.state, found.model) == (Health.REFUSED, "")
    assert "another network namespace" in found.unfit
    assert "not reachable from here" in found.unfit
    assert found.hint == "start it in the network of this machine"
    assert "not reachable from here" in " ".join(
        " ".join(listing(Search((found,), (), ()))).split()
    )


@pytest.mark.parametrize(
    ("address", "url"),
    [("0.0.0.0", "http://127.0.0.1:8"), ("::", "http://127.0.0.1:8"),
     ("127.0.1.1", "http://127.0.1.1:8"), ("10.0.0.9", "http://10.0.0.9:8"),
     ("::ffff:10.0.0.9", "http://10.0.0.9:8"), ("::1", "http://[::1]:8")],
)  # fmt: skip
def test_how_a_socket_is_reached(address: str, url: str) -> None:
    assert ports.Door(address, 8, "1", 0).url == url


def test_a_copy_of_a_model_is_no_server() -> None:
    with running(["tail", "-f", "/dev/null", "m.gguf"], stderr=-3) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == ("tail",), "it is started")
        assert of_process(some(processes.read(child.pid))) is None


WAITS = ("-c", "import time; time.sleep(600)")


def seen(argv: list[str], **more: Any) -> Running:
    with running(argv, **more) as child:
        until(lambda: processes.argv_of(child.pid) == tuple(argv), "it is what was started")
        return some(processes.read(child.pid))


def test_what_a_process_was_started_with(tmp_path: Path) -> None:
    program = str(shutil.which("sleep"))
    found = seen([program, "600"], cwd=tmp_path, env={"A": "b"})
    assert found.argv == (program, "600")
    assert (found.cwd, found.environ, found.terminal) == (str(tmp_path), {"A": "b"}, False)
    assert (found.uid, found.unit, found.run) == (os.getuid(), None, "")
    assert processes.not_again(found) == ""


def test_a_program_is_known_by_its_first_word_and_what_runs(tmp_path: Path) -> None:
    """A virtual environment's python is a link: what it leads to would lose the environment."""
    link = tmp_path / "python"
    link.symlink_to(os.path.realpath(sys.executable))
    assert seen([str(link), *WAITS]).program == str(link)
    assert seen(["./python", *WAITS], cwd=tmp_path).program == str(link)
    titled = seen(["VLLM::EngineCore", *WAITS], executable=sys.executable)
    assert "overwritten" in processes.not_again(titled)
    copy = tmp_path / "llama-server"
    shutil.copy(str(shutil.which("sleep")), copy)
    assert seen(["renamed", "600"], executable=str(copy)).program == str(copy)
    with running([str(copy), "600"]) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == (str(copy),), "it is started")
        copy.unlink()
        gone = some(processes.read(child.pid))
    assert "no program is found" in processes.not_again(gone)


@pytest.mark.parametrize("word", ["\udcff", "--port=0"])
def test_a_command_line_that_starts_something_else_next_time(word: str) -> None:
    argv = ["tail", "-f", "/dev/null", "--", word]
    assert processes.not_again(seen(argv, stderr=-3)) != ""


def test_what_a_signal_to_the_group_does_not_reach(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    body = f"sleep 600 & setsid sleep 600 & echo $! >{file}; wait"
    with running(["sh", "-c", body], start_new_session=True) as child:
        pid = int(until(lambda: file.exists() and file.read_text(), "it has two children"))
        until(lambda: some(process.stat(pid)).session == pid, "one is in its own session")
        found = some(processes.read(child.pid))
        assert processes.outside(found) == [pid]
        process.stop_group(pid, some(process.start_time(pid)), grace_s=1.0)
        process.stop_group(child.pid, found.start, grace_s=1.0)


def test_a_candidate_of_a_run_is_never_the_baseline(tmp_path: Path) -> None:
    pid, start = process.spawn(ProcessSpec(("sleep", "600")), log=tmp_path / "log", cookie="run-1")
    try:
        until(lambda: processes.argv_of(pid)[:1] == ("sleep",), "it is started")
        why, _ = unfit_process(some(processes.read(pid)))
    finally:
        process.stop_group(pid, start, grace_s=0.0)
    assert "run-1" in why


def in_unit(tmp_path: Path, pid: int, groups: str) -> Running:
    """A real process whose control group is this one: nothing but /proc/PID/cgroup is made up."""
    place = tmp_path / str(pid)
    place.mkdir()
    (place / "cgroup").write_text(groups)
    for name in ("cmdline", "environ", "stat", "status"):
        (place / name).symlink_to(f"/proc/{pid}/{name}")
    for name in ("cwd", "exe"):
        (place / name).symlink_to(os.readlink(f"/proc/{pid}/{name}"))
    return some(processes.read(pid, tmp_path))


@pytest.mark.parametrize(
    ("main", "user", "kind"),
    [("own", False, "unit"), ("own", True, "unit"), ("other", False, "process"),
     ("silent", False, "unit")],
)  # fmt: skip
def test_a_unit_is_the_baseline_only_where_it_started_the_server(
    tmp_path: Path, main: str, user: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody starts in the terminal of a service is in its control group, too. Where systemd
    is silent, the group counts: a process that it starts again must not be taken for any."""
    port = free_port()
    argv = [sys.executable, "-S", str(STANDIN), str(port), "--once", "m.gguf"]
    groups = "0::/user.slice/user-0.slice/user@0.service/llm.service" if user else (
        "0::/system.slice/llm.service"
    )  # fmt: skip
    with running(argv, cwd=tmp_path, start_new_session=True) as child:
        until(lambda: ports.listener(f"http://127.0.0.1:{port}"), "it listens")

        def look(spec: UnitSpec, seconds: float = 0.0) -> UnitState:
            if main == "silent":
                raise ServiceError("no systemd")
            assert spec == UnitSpec("llm.service", user)
            return UnitState("loaded", "active", child.pid if main == "own" else os.getpid())

        monkeypatch.setattr(units, "look", look)
        found = some(of_process(in_unit(tmp_path, child.pid, groups)))
    assert (found.kind, found.unfit) == (kind, "")
    assert ("llm" in found.names) == (kind == "unit")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root")
def test_another_users_unit_is_not_this_users(tmp_path: Path) -> None:
    groups = "0::/user.slice/user-65534.slice/user@65534.service/llm.service"
    with running(["sleep", "600"], user=65534) as child:
        until(lambda: processes.argv_of(child.pid)[:1] == ("sleep",), "it is started")
        why, _ = unfit_process(in_unit(tmp_path, child.pid, groups))
    assert "belongs to" in why


def test_the_demos_baseline_is_nobodys(tmp_path: Path) -> None:
    place = tmp_path / "omni-console" / "demo"
    place.mkdir(parents=True)
    argv = ["tail", "-f", "/dev/null", "--", DEMO]
    for cwd, unfit in ((place, True), (tmp_path, False)):
        assert ("demo" in unfit_process(seen(argv, cwd=cwd, stderr=-3))[0]) is unfit


LABELS = {
    "com.docker.compose.project": "llm", "com.docker.compose.service": "r1",
    "com.docker.compose.project.config_files": "FILE",
}  # fmt: skip


def container(tmp_path: Path, port: int, **more: Any) -> dict[str, Any]:
    """As an engine describes a llama-server whose port is published."""
    bound = {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(port)}]}
    labels = {key: value.replace("FILE", f"{tmp_path}/c.yaml") for key, value in LABELS.items()}
    host = {"PortBindings": bound, "AutoRemove": False, "NetworkMode": "bridge"}
    return {
        "Id": "c" * 64, "Name": "/r1", "Path": "/app/llama-server",
        "Args": ["-m", "/models/a.gguf", "--port", "8080", "--host", "0.0.0.0"],
        "Config": {"Image": "ghcr.io/ggml-org/llama.cpp:server", "Labels": labels},
        "HostConfig": host, "State": {"Running": True, "Pid": 1},
        "NetworkSettings": {"Ports": bound},
        "Mounts": [{"Source": str(tmp_path), "Destination": "/models"}], **more,
    }  # fmt: skip


def in_engine(tmp_path: Path, one: dict[str, Any]) -> Server:
    """What is found where an engine has this one container."""

    def answer(peer: socket.socket, request: str) -> None:
        listed = [{"Id": one["Id"], "Names": [one["Name"]], "State": "running"}]
        peer.sendall(reply(200, listed if "/containers/json" in request else one))

    talk: Answer = answer
    path = tmp_path / "e.sock"
    path.unlink(missing_ok=True)
    with daemon(path, talk):
        (found,) = [x for x in search(f"unix://{path}").servers if x.box is not None]
    return found


def test_a_container_is_found_with_its_compose_file_and_models(tmp_path: Path) -> None:
    port = free_port()
    for name in ("a.gguf", "c.yaml"):
        (tmp_path / name).touch()
    found = in_engine(tmp_path, container(tmp_path, port))
    box = some(found.box)
    assert (found.kind, found.url, found.unfit) == ("compose", f"http://127.0.0.1:{port}", "")
    assert (some(box.compose).service, some(box.compose).project) == ("r1", "llm")
    assert (box.models, found.engine) == ((str(tmp_path / "a.gguf"),), LLAMA)
    assert {"r1", "c" * 64, "c" * 12} <= found.names
    (tmp_path / "c.yaml").unlink()
    assert in_engine(tmp_path, container(tmp_path, port)).kind == "container"


def test_a_container_that_a_unit_runs_is_that_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ExecStart=docker run --rm --name r1 …`: stopped as a container, systemd would make it again;
    and the unit makes it again, although it is deleted when it stops."""
    one = container(tmp_path, free_port())
    one["HostConfig"]["AutoRemove"] = True
    assert in_engine(tmp_path, one).unfit
    argv = ["docker", *WAITS, "run", "--rm", "--name", "r1"]
    with running(argv, executable=sys.executable) as client:
        until(lambda: processes.argv_of(client.pid) == tuple(argv), "it is started")
        assert in_engine(tmp_path, one).unfit, "a client in a shell starts it once only"
        monkeypatch.setattr(processes, "unit_of", lambda _: UnitSpec("r1.service"))
        found = in_engine(tmp_path, one)
    assert (found.kind, found.unit, found.unfit) == ("unit", UnitSpec("r1.service"), "")
    assert "r1.service" in found.names


def test_the_root_directory_is_no_model_of_a_container(tmp_path: Path) -> None:
    """`-v /:/host`: the weights below it are known by their own path, the directory is none."""
    (tmp_path / "a.gguf").touch()
    one = container(tmp_path, free_port())
    one["Mounts"] = [{"Source": "/", "Destination": "/host"}]
    one["Args"] = ["-m", f"/host{tmp_path}/a.gguf", "--media-path", "/host", "--host", "0.0.0.0"]
    assert some(in_engine(tmp_path, one).box).models == (f"{tmp_path}/a.gguf",)


def test_a_container_that_is_paused_cannot_be_the_baseline_and_says_why(tmp_path: Path) -> None:
    one = container(tmp_path, free_port())
    one["State"]["Paused"] = True
    server = in_engine(tmp_path, one)
    assert (server.unfit, server.hint) == (
        "it is paused and answers nobody", "docker unpause r1"
    )  # fmt: skip


@pytest.mark.parametrize("fault", ["rm", "unpublished", "candidate", "rehearsal"])
def test_a_container_that_cannot_be_the_baseline(tmp_path: Path, fault: str) -> None:
    one = container(tmp_path, free_port())
    if fault == "rm":
        one["HostConfig"]["AutoRemove"] = True
    elif fault == "unpublished":
        one["NetworkSettings"]["Ports"] = one["HostConfig"]["PortBindings"] = {}
    else:
        label = role_label() if fault == "candidate" else "omni.rehearsal"
        one["Config"]["Labels"] = {label: fault}
    words = {"rm": "--rm", "unpublished": "published"}
    assert words.get(fault, "of this console made it") in in_engine(tmp_path, one).unfit


def test_an_engine_that_is_away_is_told_of(tmp_path: Path) -> None:
    found = search(f"unix://{tmp_path}/none.sock")
    assert "containers were not looked at" in found.trouble[0]
    assert not any("containers" in one for one in found.looked)


@pytest.mark.parametrize(
    ("status", "wants"), [(401, True), (403, True), (404, False), (405, False)]
)
def test_one_that_wants_a_key_is_no_server_that_serves(status: int, wants: bool) -> None:
    """Its health path and its list of models are open, its completions are not."""

    def talk(peer: socket.socket) -> None:
        asked = peer.recv(4096).split(b" ")[1]
        code = status if asked == b"/v1/chat/completions" else 200
        peer.sendall(b"HTTP/1.1 %d x\r\nContent-Length: 2\r\n\r\n{}" % code)

    listener = socket.create_server(("127.0.0.1", 0))
    with serving(listener, talk):
        found = look(Server(LLAMA, f"http://127.0.0.1:{listener.getsockname()[1]}"))
    assert (found.state, found.wants_key) == (Health.SERVING, wants)
    assert (_state(found) == "refuses: it wants a key") is wants
