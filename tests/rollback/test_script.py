"""rollback.sh under dash: the same story with sh, coreutils, sed and curl only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from console.rollback import script
from console.services import process
from console.services.base import ProcessSpec
from tests.ports import free_port
from tests.rollback.conftest import STANDIN, Stage, standin
from tests.testbed.plugin import lacking
from tests.waiting import until

DASH = shutil.which("dash")
pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")


def run_script(stage: Stage, path: str = "") -> subprocess.CompletedProcess[str]:
    made = script.write(stage.plan, stage.plan.rollback_dir)
    assert made.stat().st_mode & 0o777 == 0o755
    env = {"PATH": path or os.environ["PATH"], "HOME": str(stage.root)}
    return subprocess.run(
        [str(DASH), str(made)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=env,
        timeout=120,
    )


def test_restores_and_a_second_time_changes_nothing(stage: Stage) -> None:
    first = run_script(stage)
    assert first.returncode == 0, first.stdout
    running = stage.baseline_process()
    assert running is not None, "the record is the driver's own"
    second = run_script(stage)
    assert second.returncode == 0, second.stdout
    assert stage.baseline_process() == running


def test_fence_and_stop(stage: Stage) -> None:
    stage.seal(protected=("cand",))  # a container's name; the service of that name is another
    base = stage.start_baseline()
    runner, step, stray = stage.sleeper(), stage.sleeper("no"), stage.sleeper()
    candidate, stranger, reused = stage.sleeper("no"), stage.sleeper("xx"), stage.sleeper("yy")
    stage.record("runner", "runner", runner)
    stage.record("step", "build", step)
    stage.record("process", "cand", candidate)
    stage.record("process", "baseline", base)
    stage.record("process", "other", base)
    stage.record("process", "old", (reused[0], reused[1] - 1))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    for gone in (runner, step, stray, candidate):
        assert not process.alive(*gone)
    for kept in (base, stranger, reused):
        assert process.alive(*kept)


def test_stubborn_candidate_is_killed_with_its_children(stage: Stage) -> None:
    stage.seal(grace_s=1.0)
    body = "trap '' TERM; sleep 600 & echo up; wait; wait; sleep 600"
    candidate = stage.spawn(["sh", "-c", body], cookie="no")
    until(lambda: "up" in (stage.root / "log").read_text(), "it says up")
    stage.record("process", "cand", candidate)
    assert run_script(stage).returncode == 0
    assert process.members(*candidate) == []


def test_pids_of_another_boot_are_left_alone(stage: Stage) -> None:
    kept, old, ended = stage.sleeper("a"), stage.sleeper("b"), stage.sleeper("c")
    pid, start = kept
    line = f'{{"pid":{pid},"start":{start},"kind":"process","name":"x","boot":"another"}}\n'
    with stage.live.open("a") as file:
        file.write(line + line.replace('"process"', '"runner"'))
        file.write(f'{{"pid":{old[0]},"start":{old[1]},"kind":"step","name":"without"}}\n')
    stage.record("process", "cand", ended)
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    assert process.alive(*kept)
    assert not process.alive(*old)
    assert not process.alive(*ended)


def test_group_without_its_leader_is_known_by_start_times(stage: Stage) -> None:
    """The number of a group that is gone may be another group's by now."""
    body = "trap '' TERM; (trap '' TERM; echo up; sleep 600; sleep 600) & exit 0"
    mine, other = (stage.spawn(["sh", "-c", body], cookie="no") for _ in range(2))
    until(lambda: (stage.root / "log").read_text().count("up") == 2)
    until(lambda: not process.alive(*mine) and not process.alive(*other), "it is dead")
    stage.seal(grace_s=1.0)
    stage.record("process", "cand", mine)
    later = min(s.start for s in process.members(*other)) + 1000
    stage.record("process", "reused", (other[0], later))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    assert process.members(*mine) == []
    assert process.members(*other) != []


def test_argv_and_paths_are_quoted_safely(stage: Stage) -> None:
    nasty = stage.root / "a $(touch owned) 'b' \"c\" `d`;\n e"
    nasty.mkdir()
    server = nasty / "stand-in.py"
    shutil.copy(STANDIN, server)
    port = free_port()
    argv = (sys.executable, "-S", str(server), str(port), "$HOME", "a b", "", "*", "--")
    spec = ProcessSpec(argv, (("ODD", "x'y $z\n"),), str(nasty))
    base = replace(stage.plan.baseline, process=spec, url=f"http://127.0.0.1:{port}")
    stage.seal(baseline=replace(base, log=str(nasty / "log"), name="base line"))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout
    running = stage.baseline_process()
    assert running is not None
    sent = Path(f"/proc/{running[0]}/cmdline").read_bytes().split(b"\0")[:-1]
    assert sent == [os.fsencode(word) for word in argv]
    environ = Path(f"/proc/{running[0]}/environ").read_bytes().split(b"\0")
    assert b"ODD=x'y $z\n" in environ
    assert b"OMNI_RUN=baseline" in environ
    assert not list(stage.root.rglob("owned"))


def test_waits_while_it_loads(stage: Stage) -> None:
    port = free_port()
    base = replace(stage.plan.baseline, url=f"http://127.0.0.1:{port}")
    stage.seal(baseline=replace(base, process=standin(port, "--loading", "6")))
    done = run_script(stage)
    assert done.returncode == 0, done.stdout


def test_failure_is_seven_with_commands(stage: Stage) -> None:
    spec = ProcessSpec(("/nowhere/server",))
    stage.seal(baseline=replace(stage.plan.baseline, process=spec))
    done = run_script(stage)
    assert done.returncode == 7, done.stdout
    assert "curl -sS" in done.stdout


@pytest.mark.parametrize("client", ["python3", "wget", ""])
def test_without_curl(stage: Stage, client: str) -> None:
    tools = stage.root / "bin"
    tools.mkdir()
    names = [
        "sh",
        "sed",
        "cut",
        "tr",
        "cat",
        "date",
        "sleep",
        "sort",
        "timeout",
        "mkdir",
        "env",
        "nohup",
        "printf",
        "head",
    ]
    for name in [*names, *([client] if client else [])]:
        found = sys.executable if name == "python3" else shutil.which(name)
        if found is None:
            lacking(f"needs {name}")
        (tools / name).symlink_to(os.path.realpath(found))
    done = run_script(stage, str(tools))
    if client:
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 7


def test_torn_script_does_nothing(stage: Stage) -> None:
    made = script.write(stage.plan, stage.plan.rollback_dir)
    text = made.read_text()
    made.write_text(text[: text.rindex('main "$@"')])
    done = subprocess.run(
        [str(DASH), str(made)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"")
    assert stage.baseline_process() is None


def test_removes_nothing() -> None:
    from console.rollback.shell import BODY

    words = BODY.split()
    assert "rm" not in words
    assert "docker rm" not in BODY
    assert "prune" not in BODY
