"""A machine that systemd runs: a container whose first process is Debian 12's own systemd.

Logins are PAM's and logind's (`su -l`). The source tree, the virtual environment and the
interpreter lie in it at the paths they have outside, read-only. It needs CAP_SYS_ADMIN and no more:
where an engine may not give every capability, a container with `--privileged` does not start.

What stands in for a real machine's part:

- The boot id. The kernel is the host's and goes on, so each start mounts a new one over
  /proc/sys/kernel/random/boot_id, as systemd-nspawn does. `/proc/stat` still tells the host's boot.
- A reboot is a SIGKILL of everything, and a start: /run, /dev/shm and all pids are new, the disk is
  what it was. What the kernel had not written to the disk yet is not lost.
- Cgroups are version 2, also where the host has its controllers in version 1 (a mixed host). There
  systemd has no memory controller: it hears of no OOM kill and sets no limit.
"""

import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import Unavailable, command
from tests.testbed.engine import Engine
from tests.testbed.image import _ensure, _Recipe
from tests.waiting import until

USER, UID = "ann", 1777
LOGIND = "/etc/systemd/logind.conf.d"
HOME = Path("/home") / USER
ROOT = Path(__file__).resolve().parents[2]
TAG = "omni-test/systemd:2"
PACKAGES = (
    "systemd-sysv", "libpam-systemd", "dbus", "dbus-user-session", "login", "procps", "sudo",
    # Debian's Python brings the libraries that another build of Python needs, these two what
    # llama.cpp needs
    "python3", "libstdc++6", "libgomp1", "openssh-server",
)  # fmt: skip
SET_UP = (
    f'chroot "$1" useradd --uid {UID} --create-home --shell /bin/bash {USER}',
    f'echo "{USER} ALL=(ALL) NOPASSWD: ALL" > "$1/etc/sudoers.d/{USER}"',
    # the interpreter may lie below
    'chmod 755 "$1/root"',
    # /tmp is not emptied at boot: source trees of this machine may be mounted below it
    ': > "$1/etc/tmpfiles.d/tmp.conf"',
    # a user manager ends with the last logout of its user, not ten seconds later
    f'mkdir -p "$1{LOGIND}"',
    f'printf "[Login]\\nUserStopDelaySec=0\\n" > "$1{LOGIND}/50-test.conf"',
)
_SYSTEMD = _Recipe(TAG, (*PACKAGES, *SET_UP), debian.codename, True)
BEGIN = """
set -eu
cat /proc/sys/kernel/random/uuid > /etc/omni-boot-id
mount --bind /etc/omni-boot-id /proc/sys/kernel/random/boot_id
if [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; then
  mount -o remount,rw /sys/fs/cgroup
else
  umount -R /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
exec /sbin/init
"""
MEMORY = "/run/omni-memory"
CONFINED = f"{MEMORY}/confined"
UP = ("running", "degraded")
Done = subprocess.CompletedProcess[str]


def ensure_systemd_image(engine: Engine) -> str:
    """The tag of a Debian with systemd and sshd, whose packages ran their scripts; a user, sudo."""
    return _ensure(engine, _SYSTEMD, _bootstrapped)


def _bootstrapped(recipe: _Recipe, made: Path) -> None:
    program = debian.require_program("mmdebstrap", ["mmdebstrap"])
    suite = recipe.suite()
    signed = f"[signed-by={debian.KEYRING}] " if debian.KEYRING.exists() else ""
    hooks = [f"--customize-hook={line}" for line in SET_UP]
    argv = [program, "--quiet", "--variant=essential", f"--include={','.join(PACKAGES)}", *hooks]
    command([*argv, suite, str(made), f"deb {signed}{debian.mirror()} {suite} main"], timeout=600)


class Machine:
    """One such machine. `shown`: directories of the host that it sees, read-only; `ssh_port`: the
    port of this machine's loopback at which its sshd is reached, else it has no network."""

    def __init__(self, engine: Engine, image: str, *shown: Path, ssh_port: int = 0) -> None:
        self.engine, self.ssh_port = engine, ssh_port
        self.name = f"omni-systemd-{uuid.uuid4().hex[:10]}"
        mounts = [f"--volume={path}:{path}:ro" for path in [*_program(), *shown]]
        engine.run(
            "create", "--name", self.name, "--label", "omni.test=systemd", *mounts,
            *(("--publish", f"127.0.0.1:{ssh_port}:22") if ssh_port else ("--network", "none")),
            "--cgroupns", "private", "--cap-add", "SYS_ADMIN",
            *(f"--security-opt={what}=unconfined" for what in ("seccomp", "apparmor")),
            "--security-opt=systempaths=unconfined", "--tmpfs", "/run:exec",
            "--tmpfs", "/run/lock", "--env", "container=docker", image, "sh", "-c", BEGIN,
        )  # fmt: skip

    def power_on(self) -> None:
        """Start it, and wait until systemd says that it is up."""
        self.engine.run("start", self.name)
        until(self._up, "systemd is up", where=self.where)

    def power_off(self) -> None:
        """As if the power had been cut: nothing is asked, everything is dead."""
        self.engine.run("kill", self.name)

    def _up(self) -> bool:
        if self.engine.run("inspect", "-f", "{{.State.Running}}", self.name).strip() != "true":
            raise Unavailable(f"systemd does not start here: {self.engine.run('logs', self.name)}")
        return self.root("systemctl", "is-system-running").stdout.strip() in UP

    def root(self, *argv: str, said: str = "", **env: str) -> Done:
        """A command of root's beside all logins: logind knows nothing of it."""
        return self._exec("root", argv, said, env)

    def user(self, *argv: str, said: str = "") -> Done:
        """A command of the user's beside all logins, that finds the user's manager."""
        env = {"HOME": str(HOME), "USER": USER, "XDG_RUNTIME_DIR": f"/run/user/{UID}"}
        return self._exec(USER, argv, said, env)

    def login(self, script: str) -> Done:
        """The user logs in as by ssh, runs these lines of shell and logs out."""
        by_ssh = {"XDG_SESSION_CLASS": "user", "XDG_SESSION_TYPE": "tty"}
        return self._exec("root", ("su", "-l", USER, "-c", script), "", by_ssh)

    def _exec(self, user: str, argv: Sequence[str], said: str, env: Mapping[str, str]) -> Done:
        given = [f"--env={key}={value}" for key, value in env.items()]
        return subprocess.run(
            [self.engine.docker, "exec", "-i", "--user", user, *given, self.name, *argv],
            env={**os.environ, **self.engine.env()}, input=said, capture_output=True, text=True,
            timeout=280, check=False,
        )  # fmt: skip

    def linger(self) -> None:
        done = self.root("loginctl", "enable-linger", USER)
        assert done.returncode == 0, done

    def kill_at_logout(self) -> None:
        """logind from now on ends all processes of a login with it, as systemd does by default.

        The file that says so lies in the place of the least weight, and wins by its name.
        """
        script = """
        mkdir -p /run/systemd/logind.conf.d
        printf '[Login]\\nKillUserProcesses=no\\n' > "$1/60-lives.conf"
        printf '[Login]\\nKillUserProcesses=yes\\n' > /run/systemd/logind.conf.d/70-ends.conf
        systemctl restart systemd-logind
        """
        done = self.root("sh", "-ec", script, "logind", LOGIND)
        assert done.returncode == 0, done

    def stop_timeout(self) -> None:
        """What systemd does a minute and a half after the logout to what took no SIGTERM."""
        names = self.root("systemctl", "list-units", "--plain", "--no-legend", "session-*.scope")
        for line in names.stdout.splitlines():
            self.root("systemctl", "kill", "--signal=KILL", line.split()[0])
        until(lambda: not self._state(), f"nothing of {USER} is left", where=self.where)

    def confine(self, pid: int, memory_bytes: int) -> bool:
        """Put a process into a memory group of its own, of cgroup version 1, with this limit; False
        where the host's memory controller is of version 2."""
        mount = f"mkdir -p {MEMORY} && mount -t cgroup -o memory memory {MEMORY}"
        if self.root("sh", "-c", mount).returncode != 0:
            return False
        limit = 'mkdir "$1" && echo $2 > "$1/memory.limit_in_bytes" && echo $3 > "$1/cgroup.procs"'
        done = self.root("sh", "-ec", limit, "limit", CONFINED, str(memory_bytes), str(pid))
        assert done.returncode == 0, done
        return True

    def oom_kills(self) -> int:
        """How many processes the kernel has killed in that group for want of memory."""
        lines = self.root("cat", f"{CONFINED}/memory.oom_control").stdout.splitlines()
        return int(dict(line.split() for line in lines)["oom_kill"])

    def told(self, unit: str, *names: str, system: bool = False) -> dict[str, str]:
        """Properties of a unit of the user's manager, or of the machine's, as systemd has them."""
        asked = [f"--property={name}" for name in names]
        call = self.root if system else self.user
        done = call("systemctl", *([] if system else ["--user"]), "show", unit, *asked)
        pairs = (line.partition("=") for line in done.stdout.splitlines())
        return {name: value for name, _, value in pairs}

    def logged_out(self) -> None:
        """Wait until logind has closed every login of the user; processes of one may live on."""
        closed = ("", "closing", "lingering")
        until(lambda: self._state() in closed, f"{USER} is logged out", where=self.where)

    def _state(self) -> str:
        """The user's state in logind's words; empty for one whom it has forgotten."""
        return self.root("loginctl", "show-user", USER, "-p", "State", "--value").stdout.strip()

    @property
    def boot_id(self) -> str:
        return self.root("cat", "/proc/sys/kernel/random/boot_id").stdout.strip()

    def where(self) -> str:
        """What runs, what failed, and what the journal said last."""
        parts = [("systemctl", "list-units", "--failed", "--no-legend"), ("loginctl", "list-users"),
                 ("ps", "-eo", "pid,user,args", "--width", "150"),
                 ("journalctl", "--no-pager", "--quiet", "-n", "25")]  # fmt: skip
        said = [f"$ {shlex.join(argv)}\n{self.root(*argv).stdout}" for argv in parts]
        units = self.user("systemctl", "--user", "list-units", "--all", "--no-legend", "omni-*")
        return "\n".join([*said, "$ systemctl --user list-units omni-*", units.stdout])

    def close(self) -> None:
        self.engine.run("rm", "-f", "-v", self.name)


@contextmanager
def machine(engine: Engine, *shown: Path, ssh_port: int = 0) -> Iterator[Machine]:
    """A machine that is up. Raises Unavailable."""
    made = Machine(engine, ensure_systemd_image(engine), *shown, ssh_port=ssh_port)
    try:
        made.power_on()
        yield made
    finally:
        made.close()


def _program() -> Sequence[Path]:
    """What the console is made of: sources, environment, and an interpreter that is not Debian's
    own, which is in the image. Raises Unavailable where Debian's own is another there."""
    base = Path(sys.base_prefix).resolve()
    if base == Path("/usr") and debian.codename() != "bookworm":
        raise Unavailable("the image's Python is Debian 12's, this machine's is another one")
    parts = [ROOT]
    for path in (Path(sys.prefix).resolve(), base):
        if path != Path("/usr") and ROOT not in path.parents and path not in parts:
            parts.append(path)
    return parts
