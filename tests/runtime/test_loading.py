"""How far a load is: by a server's log, by the memory that its processes hold, or not known."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import EngineError
from console.common.progress import Figures
from console.host import process
from console.host.memory import Resident
from console.host.process import ProcessSpec, start_time
from console.runtime import loading
from console.runtime.loading import MIN_WEIGHTS, Loading, Work, of_container, of_service, weights_of
from console.runtime.spec import ContainerSpec, ExistingContainer, Handle, Mount
from tests.clock import FakeClock

GIB = 1 << 30


def by_memory(size: int, clock: FakeClock | None = None) -> Loading:
    return Loading(lambda: [os.getpid()], size, None, clock or FakeClock())


def test_memory_beside_the_size_of_the_weights() -> None:
    far = by_memory(900 * GIB).look()
    assert far is not None
    assert (far.total, far.unit) == (900 * GIB, "B")
    assert 1 << 20 < far.done < 900 * GIB
    held = by_memory(0).look()
    assert held is not None
    assert (held.total, held.unit) == (None, "B"), "weights that are not known are no whole"
    small = by_memory(MIN_WEIGHTS - 1).look()
    assert small is not None
    assert small.total is None, "an interpreter alone holds as much"


def test_what_holds_more_than_its_weights_has_loaded_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "MIN_WEIGHTS", 1)
    assert by_memory(4096).look() == Figures(4096, 4096, "B")


def test_what_the_log_says_since_the_load_began_counts_first(tmp_path: Path) -> None:
    log, clock = tmp_path / "log", FakeClock()
    log.write_text("an earlier load\n" + "." * 90)
    load = Loading(lambda: [os.getpid()], 0, log, clock)
    before = load.look()
    assert before is not None
    assert before.unit == "B"
    with log.open("a") as file:
        file.write("\nload_tensors: CPU\n" + "." * 43)
    assert load.look() == before, "once a second is enough"
    clock.sleep(1.0)
    assert load.look() == Figures(43, 100, "%")


def test_nothing_that_can_be_seen_is_not_known(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    load = Loading(lambda: [gone.pid], 0, tmp_path / "no log", FakeClock())
    assert load.look() is None
    nobody = of_service(Handle("x", "process"), ExistingContainer(""), None, FakeClock())
    assert nobody.look() is None


def test_the_processes_of_a_service_that_is_one() -> None:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        handle = Handle("x", "process", pid=child.pid, start=start_time(child.pid) or 0)
        far = of_service(handle, ProcessSpec(("sleep", "600")), None, FakeClock()).look()
    finally:
        child.kill()
        child.wait()
    assert far is not None
    assert 0 < far.done < 1 << 30


def test_the_weights_that_are_named_count_once(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"m-0000{number}-of-00002.gguf").write_bytes(b"x" * 100)
    first = tmp_path / "m-00001-of-00002.gguf"
    (tmp_path / "link.gguf").hardlink_to(first)
    (tmp_path / "words.txt").write_bytes(b"x" * 7)
    more = (f"--draft={tmp_path}/link.gguf", f"{tmp_path}/words.txt")
    argv = ("llama-server", "-m", str(first), *more)
    assert weights_of(ProcessSpec(argv)) == 200
    mounts = (Mount(str(tmp_path), "/models"),)
    inside = ("--model", "/models/m-00002-of-00002.gguf")
    assert weights_of(ContainerSpec("i", inside, mounts=mounts)) == 200
    assert weights_of(ProcessSpec(("llama-server", "-m", f"{tmp_path}/none.gguf"))) == 0


@pytest.mark.parametrize("described", [{}, {"Mounts": None, "Args": None, "Config": None}])
def test_a_container_that_says_nothing_names_no_weights(described: dict[str, Any]) -> None:
    assert weights_of(of_container(described)) == 0


def test_a_container_made_elsewhere_is_described_by_its_engine(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"x" * 100)
    described = {
        "Path": "llama-server", "Args": ["-c", "8192"],
        "Mounts": [{"Source": str(tmp_path), "Destination": "/models"}],
        "Config": {"Env": ["LLAMA_ARG_MODEL=/models/m.gguf", "EMPTY"]},
    }  # fmt: skip
    assert weights_of(of_container(described)) == 100

    def silent() -> dict[str, Any]:
        raise EngineError("no answer")

    handle = Handle("x", "container", "0" * 64)
    load = of_service(handle, ExistingContainer("x"), None, FakeClock(), inspected=silent)
    assert load.look() is None


@pytest.mark.parametrize(("cpu_s", "held", "moved", "works"), [
    (0.2, 0, 0, True), (0.05, 0, 0, False), (0.0, 1 << 20, 0, True), (0.0, 0, 1 << 20, True),
    (0.0, 1000, 2000, False), (0.0, -(1 << 30), 0, False),
])  # fmt: skip
def test_what_computes_grows_or_reads_works(
    cpu_s: float, held: int, moved: int, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([(9.0, 1 << 30, 7), (9.0 + cpu_s, (1 << 30) + held, 7 + moved)])
    now = [0.0, 0, 0]
    monkeypatch.setattr(loading.process, "cpu_s", lambda _: now[0])
    monkeypatch.setattr(loading, "resident", lambda _: Resident(int(now[1]), 0))
    monkeypatch.setattr(loading.process, "bytes_moved", lambda _: now[2])
    work = Work()
    for at in (100.0, 102.0):
        now[:] = next(looks)
        work.look([1], at)
    assert (work.seen_at, work.known) == (102.0 if works else None, True)


def test_of_processes_that_nobody_sees_nothing_is_known() -> None:
    work = Work()
    work.look([], 1.0)
    assert (work.known, work.seen_at) == (False, None)


def test_what_this_process_moves_is_counted(tmp_path: Path) -> None:
    before, took = process.bytes_moved([os.getpid()]), process.cpu_s([os.getpid()])
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    assert process.bytes_moved([os.getpid()]) >= before + 100_000
    assert process.cpu_s([os.getpid()]) >= took
    assert process.bytes_moved([0]) == process.cpu_s([0]) == 0
