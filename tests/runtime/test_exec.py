"""Commands in real containers: output whole, exit codes, stopped when time is up."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker
import pytest

from console.common.errors import EngineError, ServiceError
from console.host.children import Cancelled
from console.host.process import COOKIE
from console.runtime.docker import exec as exec_module
from console.runtime.docker.client import connect
from console.runtime.docker.container import unix_host
from console.runtime.docker.engine_state import labels_of
from console.runtime.docker.exec import _Command, run_in, run_oneoff
from console.runtime.spec import ROLE_LABEL, RUN_LABEL, Mount
from tests.runtime.containers import (
    FOREVER,
    Line,
    Place,
    also_real,
    busy,
    fake_daemon,
    on_every_engine,
    only_real,
    unique,
)
from tests.runtime.serving import in_child
from tests.waiting import until

OneOff = Callable[..., tuple[int, bytes]]


class Box:
    def __init__(self, place: Place) -> None:
        self.place, self.client = place, place.client
        self.id = place.create(*FOREVER)
        self.client.api.start(self.id)
        self.event, self.out = threading.Event(), list[bytes]()
        """Set by `cancels`; what the commands wrote."""

    def run(self, *argv: str, **more: Any) -> tuple[int, bytes]:
        usual = {"timeout_s": 600, "cancelled": self.event, "sink": self.out.append}
        self.out.clear()
        code = run_in(more.pop("client", self.client), self.id, argv, **{**usual, **more})
        return code, b"".join(self.out)

    def cancels(self, _: bytes) -> None:
        """A sink: with the first words it is enough."""
        self.event.set()

    def processes(self) -> str:
        try:
            return str(self.client.api.top(self.id))
        except docker.errors.APIError:  # an engine without control groups does not know them
            return str(self.run("ps", cancelled=threading.Event()))

    def gone(self) -> None:
        ended = "its command has ended"
        until(lambda: "86399" not in self.processes(), ended, where=self.processes)


@pytest.fixture
def box(place: Place) -> Box:
    return Box(place)


@also_real
def test_output_and_exit_code(box: Box) -> None:
    script = 'echo "$WORD" in $(pwd); echo trouble >&2; exit 7'
    code, out = box.run("sh", "-c", script, env={"WORD": "a b"}, workdir="/tmp")
    assert code == 7
    assert sorted(out.splitlines()) == [b"a b in /tmp", b"trouble"]


def test_what_is_written_at_once_is_not_lost(box: Box) -> None:
    """The library's own way loses about one in four of these."""
    for _ in range(20):
        assert box.run("echo", "$(id); a  b") == (0, b"$(id); a  b\n"), "it is no shell line"


def test_a_lot_of_output_comes_whole(box: Box) -> None:
    code, out = box.run("sh", "-c", "head -c 20000000 /dev/zero")
    assert (code, len(out)) == (0, 20_000_000)


def test_a_missing_program_is_not_success(box: Box) -> None:
    code, out = box.run("no-such-program")
    assert code in (126, 127)
    assert b"no-such-program" in out


def test_a_container_that_is_gone(box: Box) -> None:
    box.id = "no-such-container"
    with pytest.raises(EngineError, match="no-such-container"):
        box.run("true")


STUBBORN = ("sh", "-c", "trap '' TERM; echo up; while :; do sleep 86399; done")


def test_time_is_up(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is up as soon as the command has said something: the clock is put forward then."""

    def now() -> float:
        return time.monotonic() + (600.0 if box.out else 0.0)

    monkeypatch.setattr(exec_module, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    # the first signal is ignored, and the second one may take its time
    limits, gone = iter((0.2, 60.0)), _Command._gone_within
    monkeypatch.setattr(_Command, "_gone_within", lambda one, _: gone(one, next(limits)))
    with pytest.raises(ServiceError, match=r"10 min 00 s"):
        box.run(*STUBBORN)
    assert b"".join(box.out) == b"up\n"
    box.gone()


@on_every_engine
def test_cancelling_stops_it(box: Box) -> None:
    with pytest.raises(Cancelled):
        box.run("sh", "-c", "echo up; sleep 86399", sink=box.cancels)
    box.gone()


@pytest.mark.parametrize("client", ["made"], indirect=True)
def test_who_may_not_signal_it_kills_it_from_inside(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int, *_: object) -> None:
        raise PermissionError(pid)

    monkeypatch.setattr(exec_module, "_signal_tree", refuse)
    with pytest.raises(Cancelled):
        box.run(*STUBBORN, sink=box.cancels)
    box.gone()


@pytest.mark.parametrize("late_s", [30.0, 900.0])
@pytest.mark.parametrize("client", ["made"], indirect=True)
def test_a_command_that_the_engine_has_not_begun_yet_is_not_called_stopped(
    box: Box, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    """Each look takes ten seconds; the engine tells of the command after `late_s`."""
    look, passed_s = _Command.look, [0.0]

    def late(command: _Command) -> dict[str, Any]:
        if passed_s[0] < late_s:
            passed_s[0] += 10.0
            return {"Running": False, "Pid": 0, "ExitCode": None}
        return look(command)

    def now() -> float:
        return time.monotonic() + passed_s[0]

    monkeypatch.setattr(_Command, "look", late)
    monkeypatch.setattr(exec_module, "time", SimpleNamespace(monotonic=now, sleep=time.sleep))
    if late_s < exec_module.START_S:
        with pytest.raises(Cancelled):
            box.run(*STUBBORN, sink=box.cancels)
        box.gone()
    else:
        with pytest.raises(ServiceError, match="could not be stopped"):
            box.run(*STUBBORN, sink=box.cancels)


@only_real
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_without_permission_to_signal_it_is_killed_from_inside(box: Box) -> None:
    """A user who may use the engine, but not signal what it runs."""
    line = Line(unix_host(box.client).removeprefix("unix://"))

    def as_nobody() -> object:
        client = connect(host)
        os.setuid(65534)
        try:
            return box.run(*STUBBORN, client=client, timeout_s=0.5)[0]
        except ServiceError as error:
            return error.lines()

    with fake_daemon(line.answer) as host:
        path = Path(host.removeprefix("unix://"))
        path.parent.chmod(0o755)
        path.chmod(0o666)
        said = str(in_child(as_nobody))
    assert "it was stopped" in said, said
    box.gone()


def test_a_lost_engine_is_not_an_exit_code(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec_module, "END_S", 0.2)
    line = Line(unix_host(box.client).removeprefix("unix://"))

    def sink(data: bytes) -> None:
        line.cut()
        line.up.set()

    lost = pytest.raises(EngineError, match="echo up")
    with fake_daemon(line.answer) as host, closing(connect(host)) as through, lost:
        box.run("sh", "-c", "echo up; sleep 600", client=through, sink=sink)


def test_a_container_that_dies_meanwhile(box: Box) -> None:
    code, _ = box.run("sh", "-c", "echo up; sleep 600", sink=lambda _: box.client.api.kill(box.id))
    assert code == 137


@pytest.fixture
def oneoff(place: Place) -> Callable[..., tuple[int, bytes]]:
    def call(*argv: str, **more: Any) -> tuple[int, bytes]:
        out: list[bytes] = []
        spec = busy(place.image, *argv, **more.pop("spec", {}))
        usual = {"cancelled": threading.Event(), "sink": out.append, "timeout_s": 120}
        code = run_oneoff(
            place.client, spec, service=unique("bench"), launch=place.launch, labels=place.mine,
            grace_s=1, **{**usual, **more},
        )  # fmt: skip
        return code, b"".join(out)

    return call


def test_a_oneoff_has_labels_limits_and_no_port(
    place: Place, oneoff: OneOff, tmp_path: Path
) -> None:
    mounts, memory = (Mount(str(tmp_path), "/data"),), 32 * 1024 * 1024
    spec = {"mounts": mounts, "ports": ((8080, 80),), "memory_bytes": memory}
    code, out = oneoff("sh", "-c", "echo content; echo $OMNI_RUN; exit 4", spec=spec)
    assert code == 4
    assert {b"content", b"run-1"} <= set(out.splitlines())
    (handle,) = place.handles
    assert handle.kind == "oneoff"
    found = place.look(handle.container)
    assert (labels_of(found)[ROLE_LABEL], labels_of(found)[RUN_LABEL]) == ("oneoff", "run-1")
    assert f"{COOKIE}=run-1" in found["Config"]["Env"]
    assert found["HostConfig"]["Memory"] == found["HostConfig"]["MemorySwap"] == memory
    assert not found["HostConfig"]["PortBindings"]
    assert [mount["ReadOnly"] for mount in found["HostConfig"]["Mounts"]] == [True]


def test_a_oneoff_streams_while_it_runs(place: Place, oneoff: OneOff) -> None:
    event, seen = threading.Event(), list[bytes]()

    def sink(data: bytes) -> None:
        seen.append(data)
        event.set()

    with pytest.raises(Cancelled):
        oneoff("sh", "-c", "echo first; sleep 600", cancelled=event, sink=sink)
    assert seen == [b"first\n"]
    (handle,) = place.handles
    assert place.look(handle.container)["State"]["Status"] == "exited"


def test_a_oneoff_that_takes_too_long(place: Place, oneoff: OneOff) -> None:
    with pytest.raises(ServiceError) as caught:
        oneoff(*FOREVER, timeout_s=0.5)
    (handle,) = place.handles
    assert caught.value.hint == f"docker logs {handle.name}"
    assert not place.look(handle.container)["State"]["Running"]


@only_real
def test_a_oneoff_killed_for_memory_is_said(oneoff: OneOff) -> None:
    said: list[str] = []
    spec = {"memory_bytes": 16 * 1024 * 1024}
    script = "x=0123456789abcdef; while :; do x=$x$x; done"
    code, _ = oneoff("sh", "-c", script, spec=spec, say=said.append)
    assert code != 0
    assert any("out of memory" in line for line in said)


def test_many_lines_of_a_oneoff_come_in_order(oneoff: OneOff) -> None:
    code, out = oneoff("sh", "-c", "i=0; while [ $i -lt 2000 ]; do echo $i; i=$((i+1)); done")
    assert code == 0
    assert out.split() == [str(number).encode() for number in range(2000)]
