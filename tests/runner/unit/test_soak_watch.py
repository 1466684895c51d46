"""What a soak sees of its server: real processes, log files, and the engine's statistics."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import HTTPServer
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from console.host import process
from console.runner.executors.soak_monitor import (
    ContainerEyes,
    CriticalLog,
    ProcessEyes,
    SoakWatch,
    group_memory,
    start_header,
)
from console.runtime.docker.log_stream import UNREADABLE
from console.runtime.spec import Handle, Status
from tests.clock import FakeClock
from tests.runtime.serving import Quiet, at_work
from tests.waiting import some, until

MIB = 2**20
PATTERN = r"CUDA error|out of memory"
SERVER = "x = b'x' * (64 << 20); print('up', flush=True); import time; time.sleep(600)"


@pytest.fixture
def script() -> Iterator[Handle]:
    """A script that starts a server of 64 MiB again whenever it dies."""
    loop = f'while :; do {sys.executable} -S -c "{SERVER}"; done'
    child = subprocess.Popen(["sh", "-c", loop], stdout=subprocess.DEVNULL, start_new_session=True)
    start = some(process.start_time(child.pid))
    yield Handle("s", "process", pid=child.pid, start=start)
    process.stop_group(child.pid, start, grace_s=0.0)
    child.wait()


def large(eyes: ProcessEyes) -> tuple[int, str]:
    def look() -> tuple[int, str] | None:
        memory, start = eyes.look()
        rss = memory["rss"] or 0
        return (rss, start["process"]) if rss > 64 * MIB else None

    return until(look, "the server of the script has its memory")


def test_a_process_that_is_gone_has_no_memory_at_all() -> None:
    child = subprocess.Popen(["true"])
    start = process.start_time(child.pid) or 1
    child.wait()
    eyes = ProcessEyes(Handle("s", "process", pid=child.pid, start=start))
    assert eyes.look() == ({"rss": None, "anon": None}, {})
    assert eyes.state() == ""


@pytest.mark.parametrize(
    ("table", "rss", "anon"),
    [
        ({"anon": 7, "file_mapped": 5, "file": 900, "total_rss": 1}, 12, 7),
        ({"total_rss": 7, "total_mapped_file": 5, "cache": 900, "rss": 1, "mapped_file": 1}, 12, 7),
        ({"anon": 7}, None, None), ({}, None, None), ([], None, None), (None, None, None),
        ({"anon": "x", "file_mapped": 5}, None, None),
    ],
)  # fmt: skip
def test_the_memory_of_a_control_group(table: object, rss: object, anon: object) -> None:
    assert group_memory({"memory_stats": {"stats": table}}) == {"rss": rss, "anon": anon}
    assert group_memory({"memory_stats": {}}) == group_memory(None) == {"rss": None, "anon": None}


def container(**state: object) -> dict[str, Any]:
    return {"State": {"StartedAt": "noon", **state}, "RestartCount": 2}


@pytest.mark.parametrize(
    ("found", "start", "words"),
    [
        (container(Running=True, Status="running"), {"container": "noon 2"}, "running"),
        (container(Running=True, Restarting=True, Status="restarting"), {}, "restarting"),
        (container(Running=True, Paused=True), {"container": "noon 2"}, "its container is paused"),
        (container(Running=False, Status="exited"), {}, "exited"),
        (OSError("gone"), {}, "gone"),
    ],
)
def test_when_a_container_started(found: Any, start: dict[str, str], words: str) -> None:
    """An engine that does not answer tells nothing."""
    client = Mock()
    client.api.inspect_container.side_effect = repeat(found)
    client.api.stats.return_value = {"memory_stats": {"stats": {"anon": 7, "file_mapped": 5}}}
    eyes = ContainerEyes(client, Handle("s", "container", container="c"))
    known = {"rss": 12, "anon": 7} if isinstance(found, dict) else {"rss": None, "anon": None}
    assert eyes.look() == (known, start)
    assert words in eyes.state()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_only_lines_that_come_later_count(path: Path) -> None:
    append(path, "CUDA error: before the soak\n")
    log = CriticalLog(path, PATTERN)
    assert log.read() == ()
    append(path, "fine\n2026-11-21T10:00:00.000000000Z CUDA error: \x1b[31mfirst\nout of mem")
    assert log.read() == ("CUDA error: first",)
    append(path, "ory, second\n")
    assert log.read() == ("out of memory, second",)
    assert log.read() == ()
    append(path, "out of memory, without an end")
    assert log.close() == ("out of memory, without an end",)


def test_a_log_that_the_engine_does_not_give_is_not_read(path: Path) -> None:
    append(path, f"fine\n--- {UNREADABLE}: no driver ---\n")
    log = CriticalLog(path, PATTERN)
    assert log.read() is None, "also where it was so before"
    append(path, "CUDA error: one\n")
    assert [log.read(), log.read()] == [("CUDA error: one",), ()]
    append(path, f"--- {UNREADABLE}: no driver ---\n")
    assert log.read() is None


def test_a_look_that_the_system_refuses_is_not_the_last(path: Path) -> None:
    looks = chain([OSError("too many open files")], repeat(({"rss": 1, "anon": 1}, {})))
    eyes = Mock(look=Mock(side_effect=looks), state=lambda: "")
    handle, driver = Handle("s", "process"), SimpleNamespace(status=lambda _: Status(True))
    watch = SoakWatch(
        "http://127.0.0.1:9", driver, handle, CriticalLog(path, PATTERN),
        eyes=eyes, clock=FakeClock(), gpus=lambda: None, every_s=0.01,
    )  # fmt: skip
    with watch:
        until(lambda: eyes.look.call_count > 1, "it looks again")
    assert any(look.rss == 1 for look in watch.drain())


def test_a_log_that_is_replaced_goes_on(path: Path) -> None:
    append(path, "a\n")
    log = CriticalLog(path, PATTERN)
    append(path, "CUDA error: one\n")
    fresh = path.with_name("fresh")
    append(fresh, "b\nCUDA error: two\n")
    fresh.replace(path)
    assert log.read() == ("CUDA error: one", "CUDA error: two")


class Metrics(Quiet):
    status, start = 200, "14232316576"

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/metrics" else 404)
        self.send_header("Process-Start-Time-Unix", self.start)
        self.end_headers()


@pytest.mark.parametrize(("status", "told"), [(200, "14232316576"), (501, ""), (401, "")])
def test_when_a_server_started_by_its_own_word(status: int, told: str) -> None:
    handler = type("M", (Metrics,), {"status": status})
    with HTTPServer(("127.0.0.1", 0), handler) as server, at_work(server):
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert start_header(f"{url}/v1") == told
    assert start_header(url) == "", "nobody listens"


def test_a_log_that_comes_later_is_read_from_its_start(path: Path) -> None:
    log = CriticalLog(path, PATTERN)
    assert log.read() is None, "no log is not a log without errors"
    append(path, "CUDA error: one\nCUDA error: two\n")
    assert log.read() == ("CUDA error: one", "CUDA error: two")


def test_a_process_is_all_that_it_started(script: Handle) -> None:
    """Its memory is theirs; and a server that its script starts again is another one."""
    large(ProcessEyes(script))  # eyes keep to the process that was the largest at their first look
    eyes = ProcessEyes(script)
    _, before = large(eyes)
    until(lambda: eyes.look() == eyes.look(), "it has all that it wants")
    memory, now = eyes.look()
    assert memory["rss"] is not None
    assert 64 * MIB < memory["rss"] < 200 * MIB
    assert 56 * MIB < some(memory["anon"]) <= memory["rss"], "the kernel counts by the handful"
    pid, start = (int(part) for part in before.split())
    assert pid != script.pid
    assert now["process"] == ProcessEyes(script, before).look()[1]["process"] == before
    process.send(pid, start, signal.SIGSTOP)
    until(lambda: eyes.state() == "stopped by a signal", "the stop is seen", where=eyes.state)
    process.send(pid, start, signal.SIGKILL)
    until(lambda: not process.alive(pid, start), "the server is dead")
    for later in (eyes, ProcessEyes(script, before)):
        assert later.look()[1].get("process") != before
