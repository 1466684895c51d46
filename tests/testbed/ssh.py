"""A real sshd on a loopback port with a throwaway key, for one test. As root it needs /run/sshd,
and notes each login with a terminal in wtmp and lastlog."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from console.host import process
from tests.ports import free_port
from tests.testbed.cache import Unavailable

LOGIN_S = 60.0
TRIES = 3
"""A free port may be taken by somebody else before the server binds it."""


@dataclass(frozen=True, slots=True)
class Ssh:
    port: int
    key: Path
    user: str

    def argv(self, command: str, *, terminal: bool = True) -> list[str]:
        """A client's command line that runs `command` in the user's login shell over there."""
        return [
            "ssh", "-tt" if terminal else "-T", "-e", "none", "-F", "/dev/null",
            "-i", str(self.key), "-p", str(self.port),
            "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes",
            "-o", "ConnectTimeout=60", f"{self.user}@127.0.0.1", command,
        ]  # fmt: skip

    def through(self, port: int) -> Ssh:
        """The same server, reached through another port: a proxy's."""
        return replace(self, port=port)


@contextmanager
def sshd(place: Path) -> Iterator[Ssh]:
    """Start one in `place`; a login was tried. Raises Unavailable where that does not work."""
    server = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(server) or shutil.which("ssh") is None:
        raise Unavailable("no OpenSSH: apt-get install openssh-server openssh-client")
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        raise Unavailable(f"uid {os.getuid()} has no name: nobody to log in as") from None
    _keys(place)
    (place / "authorized").write_bytes((place / "key.pub").read_bytes())
    for left in reversed(range(TRIES)):
        child = _start(server, place, port := free_port())
        try:
            _until_open(port, child, place / "sshd.log")
        except Unavailable:
            _end(child)
            if not left:
                raise
        else:
            break
    try:
        made = Ssh(port, place / "key", user)
        _log_in(made, place / "sshd.log")
        yield made
    finally:
        _end(child)


def key_pair(path: Path) -> None:
    """A throwaway key at `path`, and its public half beside it."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)


def _keys(place: Path) -> None:
    for name in ("key", "host"):
        key_pair(place / name)
    if os.getuid() == 0:
        # where sshd separates its privileges; it does not start without
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _start(server: str, place: Path, port: int) -> subprocess.Popen[bytes]:
    options = {
        "ListenAddress": "127.0.0.1", "HostKey": place / "host", "PidFile": "none",
        "AuthorizedKeysFile": place / "authorized", "StrictModes": "no", "UsePAM": "no",
        "PermitRootLogin": "yes", "PasswordAuthentication": "no", "UseDNS": "no",
        "PermitUserRC": "no", "PrintMotd": "no", "PrintLastLog": "no",
    }  # fmt: skip
    argv = [server, "-D", "-e", "-f", "/dev/null", "-p", str(port)]
    for name, value in options.items():
        argv += ["-o", f"{name}={value}"]
    with (place / "sshd.log").open("wb") as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _until_open(port: int, child: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(0.02)
    raise Unavailable(f"sshd does not start: {_tail(log)}")


def _log_in(made: Ssh, log: Path) -> None:
    """One login without a terminal: a locked account or a shell that refuses is known at once."""
    argv = made.argv("echo in", terminal=False)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LOGIN_S,
            check=False,
        )  # fmt: skip
        words = done.stderr.strip()
    except subprocess.TimeoutExpired:
        words = "no answer"
    else:
        if done.stdout.split()[-1:] == ["in"]:
            return
    raise Unavailable(f"nobody can log in over ssh: {words}; {_tail(log)}")


def _tail(log: Path) -> str:
    return " ".join(log.read_text(errors="replace")[-300:].split())


def _end(child: subprocess.Popen[bytes]) -> None:
    """The listener, then its logins: they outlive it for as long as their clients do."""
    logins = _children(child.pid)
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(20)
    for pid, start in logins:
        with contextlib.suppress(OSError):
            process.send(pid, start, signal.SIGTERM)


def _children(pid: int) -> list[tuple[int, int]]:
    """The sshd processes below this one, as (pid, start ticks); what they run is left alone."""
    found: list[tuple[int, int]] = []
    below, stats = {pid}, process.all_stats()
    while more := [s for s in stats if s.parent in below and _is_sshd(s.pid)]:
        below = {s.pid for s in more}
        found += [(s.pid, s.start) for s in more]
    return found


def _is_sshd(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")
    except OSError:
        return False
