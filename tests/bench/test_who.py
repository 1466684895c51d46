"""Who answers at an address: the process that listens, or whoever stands behind it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from console.bench.beside import who
from console.bench.beside.who import server_at
from console.bench.interference import Engine, Surroundings
from console.common.errors import EngineError
from console.host.ports import listener
from console.runtime.engine_api import RawEngine
from tests.bench.machine import Host, NoWatch, still
from tests.children import running
from tests.ports import free_port
from tests.waiting import until

LISTEN = "import signal, socket; s = socket.create_server(('127.0.0.1', {port})); signal.pause()"


@contextmanager
def listening(folder: Path, name: str, *words: str) -> Iterator[tuple[str, int]]:
    """A process whose script has this name listens; its address and pid."""
    port, script = free_port(), folder / name
    script.write_text(LISTEN.format(port=port))
    with running([sys.executable, str(script), *words]) as child:
        url = f"http://127.0.0.1:{port}"
        until(lambda: listener(url) is not None, "it listens")
        yield url, child.pid


def no_engine() -> RawEngine:
    raise EngineError("no engine")


def engine_with(**container: Any) -> Callable[[], RawEngine]:
    """An engine with one container, which `inspect` describes."""
    found = SimpleNamespace(
        list_containers=lambda: [SimpleNamespace(id="abcdefabcdef" * 5)],
        inspect=lambda _: container,
    )
    return lambda: cast(RawEngine, found)


def published(port: int, pid: int) -> dict[str, Any]:
    door = [{"HostIp": "127.0.0.1", "HostPort": str(port)}]
    return {
        "Name": "/llama", "State": {"Pid": pid, "Running": True},
        "HostConfig": {"PortBindings": {"8080/tcp": door}},
        "NetworkSettings": {"Ports": {"8080/tcp": door}},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["koboldcpp.py", "llama_serve.py", "vllm_server.py"])
def test_an_engine_that_listens_is_the_server(tmp_path: Path, name: str) -> None:
    with listening(tmp_path, name) as (url, pid):
        found = server_at(url, no_engine)
        assert (found.pid, found.behind, found.url) == (pid, "", url)


def test_a_program_that_names_a_model_file_is_the_server(tmp_path: Path) -> None:
    with listening(tmp_path, "serve.py", "--model", "/models/router.gguf") as (url, pid):
        assert server_at(url, no_engine).pid == pid


@pytest.mark.parametrize(
    "name", ["forward.py", "llama-swap.py", "vllm-router.py", "sglang_router.py", "litellm.py"]
)
def test_behind_whoever_passes_on_nobody_is_known(tmp_path: Path, name: str) -> None:
    with listening(tmp_path, name, "--api-key", "s3cret") as (url, pid):
        found = server_at(url, no_engine)
        assert (found.pid, found.url) == (0, url)
        assert found.behind.startswith(f"pid {pid}, ")
        assert name in found.behind
        assert "s3cret" not in found.behind


def test_a_published_port_leads_to_its_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(who, "is_here", lambda pid, _: pid == 77)
    with listening(tmp_path, "docker-proxy.py") as (url, _):
        port = int(url.rpartition(":")[2])
        assert server_at(url, engine_with(**published(port, 77))) == Engine(
            "container llama", 77, url=url
        )
        assert server_at(url, engine_with(**published(port + 1, 77))).pid == 0
        assert server_at(url, engine_with(**published(port, 78))).pid == 0, "not of this host"
    alone = f"http://127.0.0.1:{port}"
    assert server_at(alone, engine_with(**published(port, 77))).pid == 77, "by the firewall alone"


def test_another_machine_and_nobody_at_all() -> None:
    assert server_at("http://192.0.2.1:8000", no_engine) == Engine("", url="http://192.0.2.1:8000")
    nobody = f"http://127.0.0.1:{free_port()}"
    assert server_at(nobody, no_engine) == Engine("", url=nobody)


def test_behind_an_unknown_proxy_no_name_makes_a_run_void(tmp_path: Path) -> None:
    """The busy engine is the very server that was measured (field B4)."""
    host: Host = still(tmp_path)
    around = Surroundings(
        Engine("", url="", behind="pid 9, nginx"), proc=host.proc,
        monotonic=lambda: host.now, watch=NoWatch(),
    )  # fmt: skip
    assert host.run(around, p100=3.9).void == ""
    said = around.flags()
    assert said[0] == "which server answered is not known: pid 9, nginx, is asked"
    assert len(said) == 2


def test_a_pid_is_of_a_container_only_where_its_group_says_so() -> None:
    assert not who.is_here(0, "abcdefabcdef")
    assert not who.is_here(os.getpid(), "abcdefabcdef")
