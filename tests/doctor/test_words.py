"""What the doctor says, word for word: `make golden` writes it anew."""

import errno
import os
import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.checks.doctor import guard, user
from console.checks.doctor.facts import Facts, Finding, Level
from console.common.paths import restore_file
from console.frontends.cli.machine import last_line, lines
from console.host import systemd
from console.host.systemd import Detachment
from console.recovery.rollback import evidence, restores
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from tests.doctor.conftest import CONTAINER, GONE, HEAD, PROCESS, Look, history, on_now, tree
from tests.doctor.test_engine import COMPOSE, GPUS, VERSION, routes
from tests.doctor.test_gpu import CPU, MEMORY, site
from tests.runtime.test_engine_raw import Answer, daemon, reply

TERMS = ("dumb", "", "no-such-terminal", "../../etc", "xterm-256color")


LINES: list[tuple[dict[str, str], str]] = [
    ({"TMUX": "/tmp/t", "SSH_TTY": "/dev/pts/1"}, ""),
    ({"TMUX": "/tmp/t"}, "ends; x"), ({"STY": "1.x"}, ""),
    ({"SSH_CONNECTION": "a"}, ""), ({"SSH_CONNECTION": "a"}, "ends; x"),
    ({}, "ends; x"), ({}, ""),
]  # fmt: skip


ALL, NONE = "000001ffffffffff", "0" * 16


PRIVILEGES = [
    ("lock", ALL, 0), ("lock", NONE, 8 << 20), ("lock", NONE, -1),
    ("lock", NONE, 64 << 20), ("lock", NONE, (64 << 20) - 1),
    ("lock", "garbage", 0), ("priority", ALL, 0), ("priority", NONE, 40),
    ("priority", NONE, 0), ("priority", NONE, 30),
]  # fmt: skip


GROUPS: dict[str, dict[str, str]] = {
    "none": {}, "v1": {"sys__fs__cgroup__memory__tasks": ""},
    "v1, v2 beside it": {"sys__fs__cgroup__unified__cgroupDOTprocs": "",
                          "sys__fs__cgroup__unified__docker__cgroupDOTkill": ""},
    "v2, kill": {"sys__fs__cgroup__cgroupDOTcontrollers": "",
                  "sys__fs__cgroup__systemDOTslice__cgroupDOTkill": ""},
    "v2": {"sys__fs__cgroup__cgroupDOTcontrollers": ""},
}  # fmt: skip


PSI = "some avg10=0 total=5\nfull avg10=0 total=3\n"


def privileged(root: Path, capabilities: str) -> Facts:
    return tree(root, proc__self__status=f"Name:\tx\nCapEff:\t{capabilities}\n")


GIB = 1 << 20


def meminfo(**gib: int) -> str:
    return "".join(f"{name}: {value * GIB} kB\n" for name, value in gib.items())


def psi(full: str) -> str:
    rest = "avg60=0.00 avg300=0.00 total=1"
    return f"some avg10=80.00 {rest}\nfull avg10={full} {rest}\n"


NODE = "sys__devices__system__node__"


FIGURES: dict[str, tuple[str, dict[str, str]]] = {
    "memory": ("memory", {"proc__meminfo": meminfo(MemTotal=768, MemAvailable=640)}),
    "little memory": ("memory", {"proc__meminfo": meminfo(MemTotal=768, MemAvailable=30)}),
    "no memory": ("memory", {"proc__meminfo": "nonsense\nMemTotal: x kB\n"}),
    "no swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=0, SwapFree=0)}),
    "swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=64, SwapFree=60)}),
    "full swap": ("swap", {"proc__meminfo": meminfo(SwapTotal=64, SwapFree=4)}),
    "swap unknown": ("swap", {"proc__meminfo": ""}),
    "quiet": ("pressure", {"proc__pressure__memory": psi("0.00")}),
    "thrashing": ("pressure", {"proc__pressure__memory": psi("37.50")}),
    "no PSI": ("pressure", {}),
    "a node": ("numa", {f"{NODE}node0__cpulist": "0", f"{NODE}possible": "0"}),
    "nodes": ("numa", {f"{NODE}node{n}__cpulist": "0" for n in range(4)}),
    "no node": ("numa", {}),
}  # fmt: skip


INVALID = HEAD + "baseline: {container: base, url: 'ftp://x'}\nservces: {}\n"


def engine_of(**inspected: Any) -> Answer:
    """A daemon with one container `base` of the image `sha256:1`, which exists or not."""

    def answer(peer: socket.socket, request: str) -> None:
        path = request.partition(" ")[2]
        rows = inspected.get("rows", [])
        known: dict[str, Any] = {
            "/version": {"ApiVersion": "1.50"},
            "/containers/base/json": inspected.get("base"),
            "/images/sha256%3A1/json": inspected.get("image"),
        }
        value = rows if path.startswith("/containers/json") else known.get(path)
        peer.sendall(reply(404, {"message": "no"}) if value is None else reply(200, value))

    return answer


BASE = {"State": {"Status": "running"}, "Image": "sha256:1"}


Told = Callable[..., list[str]]


@pytest.fixture
def told(tmp_path: Path, look: Look) -> Told:
    """What one check finds as lines, the same in every directory."""

    def tell(*asked: Any, **more: Any) -> list[str]:
        found = look(*asked, **more)
        text = [f"{one.level} {one.what}: {one.detail} -> {one.hint}" for one in found]
        return [line.replace(str(tmp_path), "DIR") for line in text]

    return tell


def test_the_site_file(told: Told, snapshot: SnapshotAssertion) -> None:
    many = CONTAINER + "".join(f"k{n}: 1\n" for n in range(30))
    assert [told("baseline.site", *site) for site in ((), (INVALID,), (many,))] == snapshot
    for check in ("service", "models", "health", "restore", "proof", "reference"):
        assert told(f"baseline.{check}", INVALID) == []


def test_the_baseline(
    tmp_path: Path, told: Told, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    (tmp_path / "notes").touch(0o644)
    (tmp_path / "tool").touch(0o755)
    for words in (
        "argv: [no-such-program]", "argv: [./notes]", "argv: [./tool], cwd: nowhere",
        "argv: [./tool]",
    ):  # fmt: skip
        text = HEAD + f"baseline: {{process: {{{words}}}, url: 'http://127.0.0.1:9'}}\n"
        said[words] = told("baseline.service", text)
    (found,) = told("baseline.service", PROCESS)
    assert found.startswith("ok service: the program /"), "in PATH, wherever that is"
    said["no engine"] = told("baseline.service", CONTAINER)
    said["no file"] = told("baseline.service", COMPOSE)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/e")
    (tmp_path / "c.yaml").touch()
    labels = {"com.docker.compose.project.config_files": f"/other,{tmp_path}/c.yaml"}
    row = {"Id": "2", "Names": ["/stack-llm-1"], "State": "exited", "Labels": labels}
    other = {"Id": "1", "Names": ["/other-llm-1"], "State": "running", "Labels": {}}
    for name, base, image, rows in (
        ("there", BASE, {}, [other, row]), ("no image", BASE, None, [other]),
        ("none", None, {}, []), ("--rm", BASE | {"HostConfig": {"AutoRemove": True}}, {}, []),
    ):  # fmt: skip
        (tmp_path / "e").unlink(missing_ok=True)
        with daemon(tmp_path / "e", engine_of(base=base, image=image, rows=rows)):
            said[name] = told("baseline.service", CONTAINER)
            said[f"{name}, composed"] = told("baseline.service", COMPOSE)
    models = PROCESS.replace("9'}", "9', models: [a.gguf, b.gguf], reference: {tok_s: 10.9}}")
    (tmp_path / "a.gguf").touch()
    for check in ("models", "restore", "proof", "reference", "health"):
        said[check] = told(f"baseline.{check}", models)
    (tmp_path / "b.gguf").touch()
    said["models are there"] = told("baseline.models", models)
    assert told("baseline.models", PROCESS) == []
    restores.remember_restore(restore_file("ws"), "baseline", 74.0, time.time())
    said["measured"] = told("baseline.restore", PROCESS)
    said["no reference"] = told("baseline.reference", PROCESS)
    for degraded in (False, True):
        kind = Kind.MEASURED if degraded else Kind.PROOF
        seen = Evidence(
            kind, Word.SERVING, time.time() - 7200, Witness.ROLLBACK, "", 10.94, degraded
        )
        evidence.keep("ws", "http://127.0.0.1:9", seen)
        said[f"proof {degraded}"] = told("baseline.proof", PROCESS)
    on_now()
    said["a run is on"] = told("baseline.health", PROCESS)
    assert said == snapshot


def test_the_engine(
    tmp_path: Path, told: Told, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch, path_of: Callable[[str, str], Path],
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    for name, text in (("no site", None), ("process", PROCESS), ("container", CONTAINER)):
        said[f"none, {name}"] = told("engine.answers", text)
    path = tmp_path / "e.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    card = {"Source": "cdi", "ID": "nvidia.com/gpu=0"}
    for name, version, info in (
        ("new", VERSION, {"Runtimes": {"runc": {}, "nvidia": {}}}),
        ("old", {"Version": "19.03.8", "ApiVersion": "1.40"}, {"Runtimes": {"runc": {}}}),
        ("CDI", VERSION, {"Runtimes": {"runc": {}}, "DiscoveredDevices": [card]}),
        ("silent", VERSION, None),
    ):
        path.unlink(missing_ok=True)
        with daemon(path, routes(version=version, info=info)):
            said[name] = told("engine.answers")
            said[f"{name}, cards"] = told("engine.nvidia", CONTAINER + GPUS)
            assert told("engine.nvidia", CONTAINER) == told("engine.nvidia", PROCESS + GPUS) == []
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    said["far"] = told("engine.answers", CONTAINER)
    for script in (
        "echo 2.40.3-desktop.1", "echo 2.5.1", "echo v2.6.0", "echo 1.29.2",
        "echo 'unknown flag: --short' >&2; exit 125",
        "echo \"docker: 'compose' is not a docker command.\" >&2; exit 1",
        "printf '\\033[31mboom' >&2; exit 3",
    ):  # fmt: skip
        path_of("docker", script)
        said[script] = [told("engine.compose", text) for text in (None, PROCESS, COMPOSE)]
    assert said == snapshot


def test_the_machine(
    tmp_path: Path, told: Told, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    for name, (check, files) in FIGURES.items():
        said[name] = told(f"machine.{check}", facts=tree(tmp_path / name, **files))
    bare = tree(tmp_path / "bare", proc__cpuinfo="".join(CPU.format(n, n) for n in range(2)))
    for facts in (bare, tree(tmp_path / "nothing")):
        for check in ("processor", "limits"):
            said[f"{facts.root.name} {check}"] = told(f"machine.{check}", facts=facts)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    for release in ("6.12.1-arch", "4.18.0-553.el8"):
        monkeypatch.setattr("platform.release", lambda release=release: release)
        said[release] = told("machine.kernel")
    here = tree(tmp_path / "declared", proc__meminfo=MEMORY, proc__cpuinfo=CPU.format(0, 0),
                **{f"{NODE}node0__cpulist": "0"}).root  # fmt: skip
    for line in ("ram: 512GiB", "ram: 128GiB", "swap: 207GiB", "cpu: AMD Ryzen 7995WX", "cores: 96",
                 "numa_nodes: 4", "cpu_flags: [avx2, amx_int8]", "ram: 377GiB"):  # fmt: skip
        said[line] = told("machine.declared", facts=site(tmp_path, here, line))
    assert said == snapshot


def test_the_guard(
    tmp_path: Path, told: Told, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    monkeypatch.setattr("console.checks.doctor.guard.helper_is_there", lambda: False)
    for check, capabilities, most in PRIVILEGES:
        monkeypatch.setattr(resource, "getrlimit", lambda which, most=most: (most, most))
        facts = privileged(tmp_path, capabilities)
        said[f"{check} {capabilities} {most}"] = told(f"guard.{check}", facts=facts)
    for member in (False, True):
        monkeypatch.setattr(guard, "in_docker_group", lambda member=member: member)
        facts = [privileged(tmp_path / str(n), one) for n, one in enumerate((NONE, ALL))]
        said[f"docker {member}"] = [told("guard.signals", facts=one) for one in facts]
    monkeypatch.setattr("console.checks.doctor.guard.helper_is_there", lambda: True)
    said["helper"] = [told("guard.signals", facts=one) for one in facts]
    for name, files in GROUPS.items():
        said[name] = told("guard.cgroup", facts=tree(tmp_path / name, **files))
    for name, files in (("PSI", {"proc__pressure__memory": PSI}), ("no PSI", {})):
        said[name] = told("guard.pressure", facts=tree(tmp_path / name, **files))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    said["not mine"] = told("guard.cgroup", facts=tree(tmp_path / "v2, kill"))
    monkeypatch.setattr(guard, "call", lambda number: errno.ENOSYS)
    said["no calls"] = told("guard.release")
    assert said == snapshot


@pytest.mark.usefixtures("terminfo")
def test_the_login(
    told: Told, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {}
    for term in TERMS:
        monkeypatch.setenv("TERM", term)
        said[f"terminal {term}"] = told("login.terminal")
    for more in (
        {"COLORTERM": "truecolor"}, {"NO_COLOR": "1"}, {}, {"TERM": "xterm-256color"},
        {"TERM": "xterm-direct"}, {"TERM": "xterm-256color", "NO_COLOR": "1"},
    ):  # fmt: skip
        said[f"colours {more}"] = user.colours({"TERM": "xterm", **more})
    for lang in ("C", "C.utf8"):
        monkeypatch.setenv("LC_ALL", lang)
        said[f"text {lang}"] = told("login.text")
    for env, warning in LINES:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr(systemd, "detachment", lambda w=warning: Detachment(False, w))
            said[f"{env} {warning}"] = told("login.line") + told("login.logout")
    monkeypatch.setattr(systemd, "detachment", lambda: Detachment(True))
    assert said | {"a unit": told("login.logout")} == snapshot


def test_its_own_things(
    tmp_path: Path, told: Told, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    running = ("run.state", {"state": "running"})
    said: dict[str, Any] = {"new": []}
    for check in ("state", "config", "lock", "runs"):
        said["new"] += told(f"console.{check}")
    history("20260101-over", ("run.state", {"state": "succeeded"}))
    said["over"] = told("console.runs")
    history("20260102-lost", running)
    said["lost"] = told("console.runs")
    history("20260103-down", running, ("outage", {"down": True}))
    said["down"] = told("console.runs")
    on_now("r1", directory=str(tmp_path))
    said["no ladder"] = told("console.ladder")
    on_now("r2", pid=GONE, directory=str(tmp_path))
    said["pointer"] = told("console.pointer")
    assert said == snapshot


def test_the_page(snapshot: SnapshotAssertion) -> None:
    found = [
        Finding("gpu.x", Level.FAILED, "cards", "word " * 20, "do this\n  two: deeper"),
        Finding("gpu.x", Level.WARNING, "x", "", "w\nmore"), Finding("gpu.x", Level.OK, "y", "z"),
    ]  # fmt: skip
    assert [line for one in found for line in lines(one, 60)] == snapshot
    found += [Finding("gpu.x", Level.FAILED, "x", ""), Finding("gpu.x", Level.NOTE, "x", "", "n")]
    chosen = (found, found[1:], found[1:3], found[2:3], found[3:], [found[1], found[3], found[0]])
    assert [last_line(some) for some in chosen] == snapshot
    assert lines(Finding("gpu.cards", Level.OK, "cards", ""), 60) == ["   ok   cards"]
