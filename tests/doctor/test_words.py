"""What the doctor says, word for word: `make golden` writes it anew."""

from __future__ import annotations

import errno
import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.checks.doctor import guard, user
from console.checks.doctor.facts import Finding, Level
from console.common.paths import restore_file
from console.frontends.cli.machine import last_line, lines
from console.host import systemd
from console.host.systemd import Detachment
from console.recovery.rollback import proof
from tests.doctor.conftest import CONTAINER, HEAD, PROCESS, Look, tree
from tests.doctor.histories import GONE, history, on_now
from tests.doctor.test_baseline import BASE, INVALID, engine_of
from tests.doctor.test_declared import CPU, MEMORY, site
from tests.doctor.test_engine import COMPOSE, GPUS, VERSION, routes
from tests.doctor.test_guard import ALL, GROUPS, NONE, PRIVILEGES, PSI, privileged
from tests.doctor.test_login import LINES, TERMS
from tests.doctor.test_machine import FIGURES
from tests.services.test_engine_raw import daemon


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Iterable[Finding]], list[str]]:
    """Findings as lines, the same in every directory."""

    def told(found: Iterable[Finding]) -> list[str]:
        text = [f"{one.level} {one.what}: {one.detail} -> {one.hint}" for one in found]
        return [line.replace(str(tmp_path), "DIR") for line in text]

    return told


Tell = Callable[[Iterable[Finding]], list[str]]


def test_the_site_file(tell: Tell, look: Look, snapshot: SnapshotAssertion) -> None:
    many = CONTAINER + "".join(f"k{n}: 1\n" for n in range(30))
    found = [look("baseline.site"), look("baseline.site", INVALID), look("baseline.site", many)]
    assert [tell(one) for one in found] == snapshot
    for check in ("service", "models", "health", "restore", "proof", "reference"):
        assert look(f"baseline.{check}", INVALID) == []


def test_the_baseline(
    tmp_path: Path, tell: Tell, look: Look, snapshot: SnapshotAssertion,
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
        said[words] = tell(look("baseline.service", text))
    (found,) = tell(look("baseline.service", PROCESS))
    assert found.startswith("ok service: the program /"), "in PATH, wherever that is"
    said["no engine"] = tell(look("baseline.service", CONTAINER))
    said["no file"] = tell(look("baseline.service", COMPOSE))
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
            said[name] = tell(look("baseline.service", CONTAINER))
            said[f"{name}, composed"] = tell(look("baseline.service", COMPOSE))
    models = PROCESS.replace("9'}", "9', models: [a.gguf, b.gguf], reference: {tok_s: 10.9}}")
    (tmp_path / "a.gguf").touch()
    for check in ("models", "restore", "proof", "reference", "health"):
        said[check] = tell(look(f"baseline.{check}", models))
    (tmp_path / "b.gguf").touch()
    said["models are there"] = tell(look("baseline.models", models))
    assert look("baseline.models", PROCESS) == []
    proof.remember_restore(restore_file("ws"), "baseline", 74.0, time.time())
    said["measured"] = tell(look("baseline.restore", PROCESS))
    said["no reference"] = tell(look("baseline.reference", PROCESS))
    for degraded in (False, True):
        proof.remember(proof.proof_file("ws"), time.time() - 7200, 10.94, degraded)
        said[f"proof {degraded}"] = tell(look("baseline.proof", PROCESS))
    on_now()
    said["a run is on"] = tell(look("baseline.health", PROCESS))
    assert said == snapshot


def test_the_engine(
    tmp_path: Path, tell: Tell, look: Look, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch, path_of: Callable[[str, str], Path],
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    for name, text in (("no site", None), ("process", PROCESS), ("container", CONTAINER)):
        said[f"none, {name}"] = tell(look("engine.answers", text))
    socket = tmp_path / "e.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{socket}")
    card = {"Source": "cdi", "ID": "nvidia.com/gpu=0"}
    for name, version, info in (
        ("new", VERSION, {"Runtimes": {"runc": {}, "nvidia": {}}}),
        ("old", {"Version": "19.03.8", "ApiVersion": "1.40"}, {"Runtimes": {"runc": {}}}),
        ("CDI", VERSION, {"Runtimes": {"runc": {}}, "DiscoveredDevices": [card]}),
        ("silent", VERSION, None),
    ):
        socket.unlink(missing_ok=True)
        with daemon(socket, routes(version=version, info=info)):
            said[name] = tell(look("engine.answers"))
            said[f"{name}, cards"] = tell(look("engine.nvidia", CONTAINER + GPUS))
            assert look("engine.nvidia", CONTAINER) == look("engine.nvidia", PROCESS + GPUS) == []
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.1:2375")
    said["far"] = tell(look("engine.answers", CONTAINER))
    for script in (
        "echo 2.40.3-desktop.1", "echo 2.5.1", "echo v2.6.0", "echo 1.29.2",
        "echo 'unknown flag: --short' >&2; exit 125",
        "echo \"docker: 'compose' is not a docker command.\" >&2; exit 1",
        "printf '\\033[31mboom' >&2; exit 3",
    ):  # fmt: skip
        path_of("docker", script)
        said[script] = [tell(look("engine.compose", text)) for text in (None, PROCESS, COMPOSE)]
    assert said == snapshot


def test_the_machine(
    tmp_path: Path, tell: Tell, look: Look, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    for name, (check, files) in FIGURES.items():
        said[name] = tell(look(f"machine.{check}", facts=tree(tmp_path / name, **files)))
    bare = tree(tmp_path / "bare", proc__cpuinfo="".join(CPU.format(n, n) for n in range(2)))
    for facts in (bare, tree(tmp_path / "nothing")):
        for check in ("processor", "limits"):
            said[f"{facts.root.name} {check}"] = tell(look(f"machine.{check}", facts=facts))
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    for release in ("6.12.1-arch", "4.18.0-553.el8"):
        monkeypatch.setattr("platform.release", lambda release=release: release)
        said[release] = tell(look("machine.kernel"))
    here = tree(tmp_path / "declared", proc__meminfo=MEMORY, proc__cpuinfo=CPU.format(0, 0)).root
    for line in ("ram: 512GiB", "swap: 207GiB", "cpu: AMD Ryzen 7995WX", "cores: 96",
                 "cpu_flags: [avx2, amx_int8]", "ram: 377GiB"):  # fmt: skip
        said[line] = tell(look("machine.declared", facts=site(tmp_path, here, line)))
    assert said == snapshot


def test_the_guard(
    tmp_path: Path, tell: Tell, look: Look, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: dict[str, Any] = {}
    monkeypatch.setattr("console.checks.doctor.guard.helper_is_there", lambda: False)
    for check, capabilities, most in PRIVILEGES:
        monkeypatch.setattr(resource, "getrlimit", lambda which, most=most: (most, most))
        facts = privileged(tmp_path, capabilities)
        said[f"{check} {capabilities} {most}"] = tell(look(f"guard.{check}", facts=facts))
    for member in (False, True):
        monkeypatch.setattr(guard, "in_docker_group", lambda member=member: member)
        facts = [privileged(tmp_path / str(n), one) for n, one in enumerate((NONE, ALL))]
        said[f"docker {member}"] = [tell(look("guard.signals", facts=one)) for one in facts]
    monkeypatch.setattr("console.checks.doctor.guard.helper_is_there", lambda: True)
    said["helper"] = [tell(look("guard.signals", facts=one)) for one in facts]
    for name, files in GROUPS.items():
        said[name] = tell(look("guard.cgroup", facts=tree(tmp_path / name, **files)))
    for name, files in (("PSI", {"proc__pressure__memory": PSI}), ("no PSI", {})):
        said[name] = tell(look("guard.pressure", facts=tree(tmp_path / name, **files)))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    said["not mine"] = tell(look("guard.cgroup", facts=tree(tmp_path / "v2, kill")))
    monkeypatch.setattr(guard, "call", lambda number: errno.ENOSYS)
    said["no calls"] = tell(look("guard.release"))
    assert said == snapshot


@pytest.mark.usefixtures("terminfo")
def test_the_login(
    tell: Tell, look: Look, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: dict[str, Any] = {}
    for term in TERMS:
        monkeypatch.setenv("TERM", term)
        said[f"terminal {term}"] = tell(look("login.terminal"))
    for more in (
        {"COLORTERM": "truecolor"}, {"NO_COLOR": "1"}, {}, {"TERM": "xterm-256color"},
        {"TERM": "xterm-direct"}, {"TERM": "xterm-256color", "NO_COLOR": "1"},
    ):  # fmt: skip
        said[f"colours {more}"] = user.colours({"TERM": "xterm", **more})
    for lang in ("C", "C.utf8"):
        monkeypatch.setenv("LC_ALL", lang)
        said[f"text {lang}"] = tell(look("login.text"))
    for env, warning in LINES:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            patch.setattr(systemd, "detachment", lambda w=warning: Detachment(False, w))
            said[f"{env} {warning}"] = tell(look("login.line") + look("login.logout"))
    monkeypatch.setattr(systemd, "detachment", lambda: Detachment(True))
    assert said | {"a unit": tell(look("login.logout"))} == snapshot


def test_its_own_things(
    tmp_path: Path, tell: Tell, look: Look, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    running = ("run.state", {"state": "running"})
    said: dict[str, Any] = {"new": []}
    for check in ("state", "config", "lock", "runs"):
        said["new"] += tell(look(f"console.{check}"))
    history("20260101-over", ("run.state", {"state": "succeeded"}))
    said["over"] = tell(look("console.runs"))
    history("20260102-lost", running)
    said["lost"] = tell(look("console.runs"))
    history("20260103-down", running, ("outage", {"down": True}))
    said["down"] = tell(look("console.runs"))
    on_now("r1", directory=str(tmp_path))
    said["no ladder"] = tell(look("console.ladder"))
    on_now("r2", pid=GONE, directory=str(tmp_path))
    said["pointer"] = tell(look("console.pointer"))
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
