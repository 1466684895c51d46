"""Real processes around a rollback: a stand-in baseline, a stand-in runner, and their clean end."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.common.clock import SystemClock
from console.common.errors import ServiceError
from console.host import process
from console.host.process import ProcessSpec
from console.recovery.rollback import live, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.finder import Finder, SelectedPlan
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import Line, Result, new_trigger
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.script import write
from console.recovery.rollback.sealed_plan import Baseline, Proof, SealedPlan
from console.recovery.rollback.shell import launcher, sealed_copy
from console.recovery.rollback.stages import start, verify
from console.runtime.probe import Health, health
from tests.clock import FakeClock
from tests.ports import free_port
from tests.waiting import until

STANDIN = Path(__file__).with_name("standin.py")
NOBODY = 65534
HOLDER = f"""
import fcntl, os, socket, sys, time
os.setgroups([])
os.setuid({NOBODY})
if sys.argv[1].isdigit():
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
elif sys.argv[1] != "-":
    fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


class RollsBack:
    """Something that has a plan: it rolls back and keeps the lines of the rollback."""

    plan: SealedPlan
    lines: list[Line]

    def roll_back(self, emergency: bool = True) -> Result:
        clock = SystemClock()
        trigger = new_trigger(clock, emergency)
        return Procedure(self.plan, clock=clock, trigger=trigger, emit=self.lines.append).run()

    def said(self, stage: str, state: str) -> list[str]:
        return [x["detail"] for x in self.lines if (x["rung"], x["state"]) == (stage, state)]


@dataclass
class Stage(RollsBack):
    """A test's own stage: a run directory with a sealed plan, and every process that it starts."""

    root: Path
    plan: SealedPlan
    groups: list[tuple[int, int]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    @property
    def live(self) -> Path:
        return self.plan.rollback_dir / live.LIVE

    @property
    def port(self) -> int:
        return int(self.plan.baseline.url.rpartition(":")[2])

    def of_site(self, **changes: Any) -> SealedPlan:
        """The plan as a site file says it, without a run."""
        return replace(self.plan, **{"run_id": "", "run_dir": "", **changes})

    def seal(self, **changes: object) -> SealedPlan:
        self.plan = replace(self.plan, **changes)  # type: ignore[arg-type]
        sealed.write(self.plan, self.plan.rollback_dir / sealed.PLAN)
        return self.plan

    def base(self, **changes: Any) -> None:
        self.seal(baseline=replace(self.plan.baseline, **changes))

    def spawn(self, argv: list[str], cookie: str = "") -> tuple[int, int]:
        """A real process in a session of its own, ended when the test ends."""
        spec = ProcessSpec(tuple(argv))
        found = process.spawn(spec, log=self.root / "log", cookie=cookie or self.plan.run_id)
        self.groups.append(found)
        return found

    def sleeper(self, cookie: str = "") -> tuple[int, int]:
        return self.spawn(["sleep", "600"], cookie)

    def up(self, body: str, cookie: str = "no") -> tuple[int, int]:
        """A process that runs this shell script, once it has printed "up"."""
        found = self.spawn(["sh", "-c", body], cookie)
        self.until_said("up")
        return found

    def until_said(self, word: str) -> None:
        until(lambda: word in (self.root / "log").read_text(), f"it says {word}")

    def until_it_is(self, state: Health = Health.SERVING) -> None:
        until(lambda: health(self.plan.baseline.url)[0] is state, f"its health is {state}")

    def holder(self, what: object, *words: str, cookie: str = "theirs") -> tuple[int, int]:
        """A process of another user that holds a file's lock or listens on a port."""
        (self.root / "log").unlink(missing_ok=True)
        found = self.spawn([sys.executable, "-S", "-c", HOLDER, str(what), *words], cookie)
        self.until_said("held")
        return found

    def tool(self, name: str, body: str) -> str:
        """A PATH on which a shell script of this body comes first under this name."""
        tools = self.root / "bin"
        tools.mkdir(exist_ok=True)
        (tools / name).unlink(missing_ok=True)
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
        return f"{tools}:{os.environ['PATH']}"

    def record(self, kind: str, name: str, who: tuple[int, int]) -> None:
        live.append(self.live, live.Live(kind, name, *who))

    def recorded(self, kind: str, name: str, cookie: str = "no") -> tuple[int, int]:
        """A sleeping process that is on record in live.jsonl."""
        found = self.sleeper(cookie)
        self.record(kind, name, found)
        return found

    def point(self, *, alive: bool = False, **changes: Any) -> Path:
        """Point this user's pointer at the run; its runner is gone or, if `alive`, still lives."""
        runner = self.sleeper("no") if alive else (1, 1)
        plan = self.plan
        made = Pointer(plan.run_id, plan.run_dir, "me", os.getuid(), *runner, started_at=1.0)
        return records.write(replace(made, **changes))

    def usual_site(self) -> Path:
        path = paths.default_site()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    def baseline_process(self) -> tuple[int, int] | None:
        base = self.plan.baseline
        if base.process is None:
            return None
        return process.read_record(self.plan.records_dir, base.name, base.process)

    def running(self) -> tuple[int, int]:
        """The baseline's process, which is on record."""
        found = self.baseline_process()
        assert found is not None
        return found

    def start_baseline(self) -> tuple[int, int]:
        """Start the baseline as an earlier run left it: running and with a record."""
        base = self.plan.baseline
        assert base.process is not None
        pid, start = process.spawn(base.process, log=self.root / "base.log", cookie="earlier")
        self.groups.append((pid, start))  # its record may be replaced by that of a later one
        process.write_record(self.plan.records_dir, base.name, base.process, pid, start)
        return pid, start

    def close(self) -> None:
        running = self.baseline_process()
        for group in [*self.groups, *([running] if running else [])]:
            with contextlib.suppress(ServiceError):
                process.stop_group(*group, grace_s=0.0, clock=SystemClock())
        leaders = dict(self.groups)
        for one in process.all_stats():  # whose leader has ended, whatever cookie they have
            if one.start >= leaders.get(one.session, one.start + 1):
                process.send(one.pid, one.start, signal.SIGKILL)


def standin(port: int, *arguments: str) -> ProcessSpec:
    return ProcessSpec((sys.executable, "-S", str(STANDIN), str(port), *arguments))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    port = free_port()
    run_dir = tmp_path / "runs" / "r1"
    (run_dir / "rollback").mkdir(parents=True)
    base = Baseline(
        name="baseline",
        kind="process",
        url=f"http://127.0.0.1:{port}",
        ready_timeout_s=120.0,  # a loaded disk once kept a stand-in silent for 30 s
        process=standin(port),
        records_dir=str(tmp_path / "records"),
        log=str(tmp_path / "base.log"),
    )
    plan = SealedPlan(
        run_id=f"run-{uuid.uuid4().hex}",  # unique: fences of other workers look for cookies, too
        run_dir=str(run_dir),
        baseline=base,
        memory_file=str(tmp_path / "restore.json"),
        grace_s=3.0,
    )
    stage = Stage(tmp_path, plan)
    stage.seal()
    yield stage
    stage.close()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory that other users may enter: whenever a session starts, pytest closes its own
    directory to them, and with it that of every other session."""
    with tempfile.TemporaryDirectory(prefix="omni-rollback-", ignore_cleanup_errors=True) as place:
        os.chmod(place, 0o755)
        yield Path(place)


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the pointers, the state and the configuration of this machine out of the test."""
    (tmp_path / "host").mkdir()
    monkeypatch.setenv("OMNI_HOST_DIR", str(tmp_path / "host"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SUDO_UID", raising=False)


@pytest.fixture(autouse=True)
def _a_process_takes_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait on the machine's clock for a process to end, even where a test has a fake clock."""
    stop_group = process.stop_group

    def stopped(pid: int, start: int, **more: Any) -> bool:
        if isinstance(more.get("clock"), FakeClock):
            more["clock"] = SystemClock()
        return stop_group(pid, start, **more)

    monkeypatch.setattr(process, "stop_group", stopped)


def kill_now(who: tuple[int, int]) -> None:
    process.send(*who, signal.SIGKILL)
    until(lambda: not process.alive(*who), "it is dead")


def selected(seal: Callable[[], SealedPlan] | None, *given: Any, **more: Any) -> SelectedPlan:
    """What the finder selects; `given`: whether the site was asked for, and who gets the notes."""
    found = Finder(seal, *(given or (False, print)), **more).find()
    assert found is not None
    return found


def open_up(path: Path) -> None:
    for parent in [path, *path.parents]:
        if parent.stat().st_uid == os.getuid() and parent != Path("/tmp"):
            parent.chmod(parent.stat().st_mode | 0o055)


DASH = shutil.which("dash")


def begin_script(
    stage: Stage, path: str = "", limits: dict[int, int] | None = None, user: int | None = None,
    **more: str,
) -> subprocess.Popen[str]:  # fmt: skip
    """Start rollback.sh in a session of its own, with this PATH and `more` variables."""
    made = write.write(stage.plan, stage.plan.rollback_dir)
    assert made.stat().st_mode & 0o777 == 0o700
    if user is not None:
        os.chown(made, user, user)
    env = {"PATH": path or os.environ["PATH"], "HOME": str(stage.root), **more}

    def limited() -> None:
        for kind, most in (limits or {}).items():
            resource.setrlimit(kind, (most, most))

    return subprocess.Popen(
        [str(DASH), str(made)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=env, start_new_session=True, user=user,
        preexec_fn=limited if limits else None,
    )  # fmt: skip


def run_script(stage: Stage, path: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """Run rollback.sh to its end; see `begin_script`."""
    with begin_script(stage, path, **more) as script:
        try:
            said = script.communicate(timeout=120)[0]
        except BaseException:
            os.killpg(script.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(script.args, script.returncode, said)


def script_proves(stage: Stage, more: str = "") -> tuple[int, str]:
    """What the proof of rollback.sh returns, and says, of the server that the stage has now, with
    `more` set by the shell. Who answers there is not asked: it counts as the baseline."""
    client = next(name for name in ("curl", "python3") if shutil.which(name))
    return in_script(
        stage, f"CLIENT={client}; LEFT=''; is_ours() {{ :; }}; {more}\nprove; exit $?\n"
    )  # fmt: skip


def in_script(stage: Stage, body: str, shell: str = str(DASH)) -> tuple[int, str]:
    """What these commands return and print behind the functions of the stage's rollback.sh."""
    whole = write.render(stage.plan)
    file = stage.root / "proof.sh"
    file.write_text(whole[: whole.rindex('main "$@"')] + body)
    done = subprocess.run([*shell.split(), str(file)], capture_output=True, text=True, timeout=120)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def run_launcher(stage: Stage, **more: str) -> subprocess.CompletedProcess[str]:
    """Run the rollback.sh that runs the sealed copy, with `more` variables, to its end."""
    stage.seal(copy=stage.plan.copy or str(sealed_copy.make()))
    launcher.write(stage.plan, stage.plan.rollback_dir / sealed.SCRIPT)
    return subprocess.run(
        [str(DASH), str(stage.plan.rollback_dir / sealed.SCRIPT)], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(stage.root), **more}, cwd="/",
    )  # fmt: skip


@pytest.fixture(params=["ladder", "script", "copy"])
def restore(request: pytest.FixtureRequest, stage: Stage) -> Callable[[], None]:
    """Restores the baseline: by the rollback procedure, by rollback.sh under dash, which runs the
    sealed copy, and by the script that needs no Python."""

    def by_procedure() -> None:
        assert stage.roll_back().serving, stage.lines

    def by_script() -> None:
        done = run_script(stage)
        assert done.returncode == 0, done.stdout

    def by_copy() -> None:
        done = run_launcher(stage)
        assert done.returncode == 0, done.stdout
        assert "without Python" not in done.stdout

    if request.param != "ladder" and DASH is None:
        pytest.skip("needs dash")
    return {"ladder": by_procedure, "script": by_script, "copy": by_copy}[request.param]


@pytest.fixture
def lines(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that tells the baseline of the stage what to answer."""
    file = stage.root / "lines.json"
    stage.base(process=standin(stage.port, "--lines", str(file)), completion=Proof(timeout_s=5.0))
    monkeypatch.setattr(start, "RESTART_GRACE_S", 0.0)
    monkeypatch.setattr(verify, "LAST_PAUSE_S", 0.05)
    return file


def serving(stage: Stage, lines: Path, **told: Any) -> tuple[int, int]:
    """The pid and start of a baseline that serves and answers as told."""
    running = stage.start_baseline()
    stage.until_it_is()
    lines.write_text(json.dumps(told))
    return running
