"""Several hosts on one machine: each a real sshd with a home, an engine and a baseline of its own;
and an operator, who knows them by their aliases."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.runner.e2e.sites import host_site
from tests.runner.e2e.world import COMMAND, LIMIT_S, Outcome, World
from tests.testbed.ssh import Ssh, sshd

KEPT = ("OMNI_", "XDG_", "PYTHON", "SLURM_")
CUTTER = Path(__file__).with_name("cutter.py")


@dataclass
class Box:
    """One host; `command` is what its login shell runs."""

    name: str
    world: World
    ssh: Ssh
    command: Path


@dataclass
class Operator:
    """A machine with nothing but ssh and the console. `runtime`: where connections are shared."""

    root: Path
    runtime: Path
    boxes: dict[str, Box] = field(default_factory=dict)
    children: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMNI_", "XDG_"))}
        places = {f"XDG_{x.upper()}_HOME": str(self.root / x) for x in ("config", "state", "cache")}
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return {**kept, **places, "XDG_RUNTIME_DIR": str(self.runtime), "PATH": path}

    @property
    def state(self) -> Path:
        return self.root / "state/omni-console"

    def fleet(self, *args: str) -> Outcome:
        done = subprocess.run(
            [COMMAND, "fleet", *args], env=self.env, cwd=self.root, timeout=LIMIT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """The command in the background; ended with the test."""
        child = subprocess.Popen(
            [COMMAND, "fleet", *args], env=self.env, cwd=self.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def close(self) -> None:
        for child in self.children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()

    @property
    def cuts(self) -> Path:
        """The breaks of the line that are still to come, for tests/fleet/cutter.py."""
        return self.root / "cuts"

    def write(self, name: str, text: str) -> str:
        path = self.root / name
        path.write_text(text)
        return str(path)

    def cut(self, name: str) -> None:
        """End the shared connection to a host, as a dead line does."""
        control = self.runtime / "omni-console/%C"
        subprocess.run(
            ["ssh", "-o", f"ControlPath={control}", "-O", "exit", name],
            env=self.env, capture_output=True, check=False,
        )  # fmt: skip


@contextmanager
def operating(root: Path, reached: Mapping[str, tuple[Ssh, Path]]) -> Iterator[Operator]:
    """An operator who reaches these hosts: each by its login, and where its console lies there."""
    with tempfile.TemporaryDirectory(prefix="of") as runtime:
        operator = Operator(root, Path(runtime))
        for part in ("bin", "config/omni-console"):
            (root / part).mkdir(parents=True)
        _ssh(operator, reached)
        try:
            yield operator
        finally:
            operator.close()
            for name in reached:
                operator.cut(name)


@contextmanager
def hosts(
    root: Path, model: Path, names: Sequence[str], *, baseline: bool = True,
    env: Mapping[str, str] = {},
) -> Iterator[Operator]:  # fmt: skip
    """The operator of hosts with these names, whose baselines serve. `env`: more of each host's
    environment. Raises Unavailable."""
    with ExitStack() as stack:
        boxes: dict[str, Box] = {}
        for name in names:
            place = root / name
            (place / "ssh").mkdir(parents=True)
            (place / "world").mkdir()
            world = World(place / "world", model)
            world.env |= env
            stack.callback(world.close)
            world.site.write_text(host_site(world))
            if baseline:
                world.bring_up()
            login = stack.enter_context(sshd(place / "ssh"))
            boxes[name] = Box(name, world, login, _command(place, world))
        reached = {name: (box.ssh, box.command) for name, box in boxes.items()}
        operator = stack.enter_context(operating(root / "operator", reached))
        operator.boxes.update(boxes)
        yield operator


def _command(place: Path, world: World) -> Path:
    """The console of a host: it is given its own home and the kind of its terminal, and nothing of
    this process's."""
    (place / "home").mkdir()
    kept = {k: v for k, v in world.env.items() if k.startswith(KEPT)}
    env = {**kept, "HOME": str(place / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
    words = shlex.join(f"{key}={value}" for key, value in env.items())
    path = place / "omni-console"
    where, run = shlex.quote(str(world.root)), shlex.quote(COMMAND)
    path.write_text(f'#!/bin/sh\ncd {where}\nexec env -i TERM="$TERM" {words} {run} "$@"\n')
    path.chmod(0o755)
    return path


def _ssh(operator: Operator, reached: Mapping[str, tuple[Ssh, Path]]) -> None:
    """The operator's ssh configuration, and the fleet file that names its aliases."""
    rows, listed = [], []
    for name, (login, command) in reached.items():
        options = {
            "HostName": "127.0.0.1", "Port": login.port, "User": login.user,
            "IdentityFile": login.key, "IdentitiesOnly": "yes", "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR",
        }  # fmt: skip
        rows += [f"Host {name}", *(f"  {key} {value}" for key, value in options.items())]
        listed.append(f"  {name}: {{command: {command}}}")
    config = operator.root / "ssh_config"
    config.write_text("\n".join(rows) + "\n")
    program = operator.root / "bin/ssh"
    operator.cuts.write_text("")
    words = [sys.executable, "-S", "-E", CUTTER, operator.cuts, shutil.which("ssh"), "-F", config]
    program.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, words))} "$@"\n')
    program.chmod(0o755)
    file = operator.root / "config/omni-console/fleet.yaml"
    file.write_text("schema: omni.fleet/v1\nhosts:\n" + "\n".join(listed) + "\n")
