"""A login of its own for each test: directories, environment, and one check asked at a time."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor import baseline, facts, machine, reach, run, runtime
from console.checks.doctor import user as doctor_login
from console.checks.doctor.facts import Facts, Finding
from console.checks.doctor.run import CHECKS, iterate
from console.common import paths
from console.host import process
from console.journal.run_dir import RunDir, RunMeta
from console.journal.store import Journal
from console.recovery.rollback import records
from console.recovery.rollback.records import Pointer

Look = Callable[..., list[Finding]]
BY_ID = {check.id: check for check in CHECKS}
PATIENT_S = 60.0
"""A deadline that no test meets by being slow."""


@pytest.fixture(autouse=True)
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOME, state, config and host directory under `tmp_path`; no engine, no ssh, no site; nothing
    counts as silent for being slow."""
    for name in ("state", "config", "host", "home"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    for name in ("OMNI_SITE", "TMUX", "STY", "SSH_CONNECTION", "SSH_TTY", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    _wait(monkeypatch, PATIENT_S)
    assert iterate.__kwdefaults__ is not None
    monkeypatch.setitem(iterate.__kwdefaults__, "deadline_s", PATIENT_S)
    for limit in ("SHARED_S", "RUNS_S"):
        monkeypatch.setattr(facts, limit, PATIENT_S)
    return tmp_path


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """One check by its id; `site` is the text of a site file, `facts` what is known already."""

    def ask(check: str, site: str | None = None, facts: Facts | None = None) -> list[Finding]:
        if site is not None:
            path = tmp_path / "site.yaml"
            path.write_text(site, "utf-8")
            facts = Facts(str(path))
        (answer,) = iterate(
            checks=(BY_ID[check],), facts=facts or Facts(), deadline_s=PATIENT_S
        )  # fmt: skip
        assert all(found.id == check for found in answer.findings)
        return list(answer.findings)

    return ask


@pytest.fixture
def path_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a shell script of a name first in PATH."""
    places = tmp_path / "bin"
    places.mkdir()
    monkeypatch.setenv("PATH", f"{places}:{os.environ['PATH']}")

    def make(name: str, text: str) -> Path:
        script = places / name
        script.write_text(f"#!/bin/sh\n{text}\n")
        script.chmod(0o755)
        return script

    return make


def tree(root: Path, **files: str) -> Facts:
    """Facts of a machine with these files; `__` stands for `/`, `DOT` for `.`."""
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Facts(root=root)


@pytest.fixture
def terminfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal, on a machine that knows one by name."""
    monkeypatch.setattr(doctor_login, "on_terminal", lambda: True)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "xterm-256color").touch()
    monkeypatch.setenv("TERMINFO", str(tmp_path))
    monkeypatch.delenv("COLORTERM", raising=False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions give up soon, so that a test of one that hangs is short."""
    _wait(monkeypatch, 0.5)
    assert run.DEADLINE_S > 0.5


def _wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """For the answer to one question."""
    for module in (baseline, runtime, facts, machine, reach):
        monkeypatch.setattr(module, "ASK_S", seconds)


HEAD = "schema: omni.site/v1\nname: ws\n"
CONTAINER = HEAD + "baseline: {container: base, url: 'http://127.0.0.1:9'}\n"
PROCESS = HEAD + "baseline: {process: {argv: [sh, -c, x]}, url: 'http://127.0.0.1:9'}\n"


GONE = 1 << 22
"""A pid that no process has: the kernel counts up to one less."""


def history(name: str, *events: tuple[str, dict[str, Any]], site: str = "/s") -> RunDir:
    """A run with a journal of these events, written now, and no runner."""
    run = RunDir(paths.runs_dir() / name)
    run.path.mkdir(parents=True)
    run.path.chmod(0o700)
    run.write_meta(RunMeta(name, "x", "/b", "0", site, "/b"))
    journal = Journal(Path(run.journal))
    for kind, data in (("run.created", {"run_id": name}), *events):
        journal.append(time.time(), kind, "", 0, data)
    journal.close()
    return run


def on_now(run: str = "r1", *, pid: int | None = None, directory: str = "/r") -> Pointer:
    """This user's pointer to a run whose runner is this process, or `pid`."""
    pid = pid or os.getpid()
    start = process.start_time(pid) or 1
    found = Pointer(run, directory, "op", os.getuid(), pid, start, "book", "ws", time.time())
    records.write(found)
    return found
