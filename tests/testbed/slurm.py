"""A real Slurm of one node for one test session: munged, slurmctld and slurmd of Debian's packages,
with ports, directories and a key of their own, as the user who runs the tests."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.testbed.cache import Unavailable

PACKAGES = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd",
            "sbatch": "slurm-client"}  # fmt: skip
UP_S = 60.0
NODE = "box"
PARTITION = "gpu"
DEVICES = ("/dev/null", "/dev/zero", "/dev/full")
"""What stands for the cards: the controller believes only in devices that are there."""
CONFIG = """\
ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge/socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/ctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/ctld.log
SlurmdLogFile={root}/slurmd.log
SlurmdDebug=info
ProctrackType=proctrack/{track}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmctldParameters=idle_on_node_suspend
SchedulerParameters=sched_interval=5,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=10
EpilogMsgTime=1
KillWait={kill_wait_s}
MinJobAge=3600
GresTypes=gpu
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={cpus} Gres=gpu:{cards}
PartitionName={partition} Nodes={node} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""


@dataclass(frozen=True)
class Slurm:
    """`env`: what a client of this Slurm needs in its environment."""

    root: Path
    kill_wait_s: int
    controller: list[subprocess.Popen[bytes]]

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    def say(self, *argv: str) -> str:
        """What a client prints. Raises CalledProcessError."""
        done = subprocess.run(
            argv, env={**os.environ, **self.env}, capture_output=True, text=True, timeout=60,
            check=True, stdin=subprocess.DEVNULL, cwd=self.root,
        )  # fmt: skip
        return done.stdout.strip()

    def submit(self, script: str, *options: str) -> str:
        """A job of somebody else's; returns its id."""
        path = self.root / f"job{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        return self.say("sbatch", "--parsable", "--output=/dev/null", *options, str(path))

    def job(self, job: str) -> dict[str, str]:
        """What the controller knows of a job, also after its end."""
        told = self.say("scontrol", "-o", "show", "job", job)
        return dict(one.partition("=")[::2] for one in told.split())

    def state(self, job: str) -> str:
        return self.job(job)["JobState"]

    def listed(self, job: str) -> bool:
        """Whether a job is in the queue: it waits, runs, or has not yet given up all it had."""
        return job in self.say("squeue", "-h", "-o", "%i").split()

    @contextmanager
    def without_controller(self) -> Iterator[None]:
        """Its controller is down meanwhile."""
        (gone,) = self.controller
        _end(gone)
        try:
            yield
        finally:
            self.controller[:] = [_child(["slurmctld", "-D"], self.root / "again.out", self.env)]
            _until(lambda: "idle" in _quietly(self, "sinfo", "-h", "-o", "%T"), _log(self.root))

    def empty(self) -> None:
        """End every job, and wait until the node is free."""
        me = f"--user={getpass.getuser()}"
        for job in self.say("squeue", "-h", "-t", "S", "-o", "%i").split():
            self.say("scontrol", "resume", job)
        self.say("scancel", "--full", "--signal=KILL", me)
        self.say("scancel", me)
        _until(lambda: not self.say("squeue", "-h"), "the jobs do not end")


@contextmanager
def slurm(root: Path, *, cards: int = 1, kill_wait_s: int = 30) -> Iterator[Slurm]:
    """One that takes jobs. Raises Unavailable where a package is missing or it does not start."""
    for program, package in PACKAGES.items():
        if _program(program) is None:
            raise Unavailable(f"no {program}: apt-get install {package}")
    for part in ("munge", "state", "spool"):
        (root / part).mkdir(parents=True, mode=0o755)
    made = Slurm(root, kill_wait_s, [])
    with ExitStack() as stack:
        _munge(stack, root)
        host = socket.gethostname().split(".")[0]
        (root / "slurm.conf").write_text(
            CONFIG.format(
                name=f"t{os.getpid()}",
                host=host,
                root=root,
                user=getpass.getuser(),
                node=NODE,
                control_port=free_port(),
                node_port=free_port(),
                cpus=os.cpu_count(),
                cards=cards,
                kill_wait_s=kill_wait_s,
                partition=PARTITION,
                track=_track(),
            )
        )
        (root / "gres.conf").write_text(
            "".join(f"NodeName={NODE} Name=gpu File={one}\n" for one in DEVICES[:cards])
        )
        (root / "cgroup.conf").write_text("CgroupAutomount=no\n")
        for argv in (["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", NODE]):
            child = _child(argv, root / f"{argv[0]}.out", made.env)
            if argv[0] == "slurmctld":
                made.controller.append(child)
                stack.callback(lambda: _end(made.controller[0]))
            else:
                stack.callback(_end, child)
        _until(lambda: "idle" in _quietly(made, "sinfo", "-h", "-o", "%T"), _log(root))
        yield made


def _track() -> str:
    """How Slurm knows a job's processes: by control group where it may make one, which is what
    kills whatever a job has started; else by the tree of its processes."""
    may = os.getuid() == 0 and os.access("/sys/fs/cgroup/freezer", os.W_OK)
    return "cgroup" if may else "linuxproc"


def _munge(stack: ExitStack, root: Path) -> None:
    place = root / "munge"
    (place / "key").write_bytes(os.urandom(128))
    (place / "key").chmod(0o400)
    argv = ["--foreground", "--force", f"--socket={place}/socket", f"--key-file={place}/key",
            f"--pid-file={place}/pid", f"--log-file={place}/log", f"--seed-file={place}/seed",
            "--num-threads=2"]  # fmt: skip
    stack.callback(_end, _child(["munged", *argv], place / "out", {}))
    _until((place / "socket").exists, "munged does not start")


def _child(argv: list[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    program = _program(argv[0])
    assert program is not None
    with log.open("wb") as out:
        return subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env={**os.environ, **env},
            start_new_session=True,
        )


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(20)


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def _quietly(made: Slurm, *argv: str) -> str:
    try:
        return made.say(*argv)
    except subprocess.CalledProcessError:
        return ""


def _until(condition: object, words: str) -> None:
    deadline = time.monotonic() + UP_S
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.05)
    raise Unavailable(words)


def _log(root: Path) -> str:
    found = [" ".join(path.read_text(errors="replace")[-300:].split())
             for path in (root / "ctld.log", root / "slurmd.log") if path.exists()]  # fmt: skip
    return f"Slurm does not start: {'; '.join(found)}"
