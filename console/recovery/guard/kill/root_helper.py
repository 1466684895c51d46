"""The root helper: kills a container for users who are in the docker group and may not signal it.

    python -m console.recovery.guard.kill.root_helper [--group docker] [--socket PATH]
        [--protected PATH] | --unit

A request is `kill CONTAINER_ID`, and one JSON line is the answer. The kernel says who asks
(SO_PEERCRED, SO_PEERGROUPS). The helper kills the control group of a container, by its full id, and
nothing else. It runs only if an administrator installs the unit; see docs/how-to/root-helper.md.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import grp
import json
import os
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from console.common.text import one_line
from console.host import cgroup
from console.host.cgroup import FULL_ID, Hierarchy
from console.recovery.guard.kill import signals
from console.runtime.root_helper import HELPER

PROTECTED = "/etc/omni-console/protected"
UNIT = "omni-guard-helper.service"
QUESTION = 128
"""The most bytes that a request may have."""
TALK_S = 0.5
"""How long one caller may take in total; the next caller waits meanwhile."""
SIGNALS_S = 2.0
PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)
MAX_BYTES = 1024
"""Room for 256 groups; Python asks for no more."""
SHORTEST = 12
"""The fewest digits that a line of the protected file may have."""


class Refused(Exception):
    """The request is refused; the text is shown to the caller."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller, as the kernel identified it at the time of the connection."""

    pid: int
    uid: int
    groups: frozenset[int]


def peer_of(link: socket.socket) -> Peer:
    """Return the caller of a connection. Raises OSError if the kernel does not tell."""
    pid, uid, gid = struct.unpack(
        "3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    groups = {gid}
    # Before Linux 4.13, and for a user with too many groups, only the primary group counts.
    with contextlib.suppress(OSError):
        data = link.getsockopt(socket.SOL_SOCKET, PEERGROUPS, MAX_BYTES)
        groups |= set(struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4]))
    return Peer(pid, uid, frozenset(groups))


class Helper:
    """Answers one request at a time. Members of the group `gid`, and root, may ask."""

    def __init__(
        self,
        gid: int,
        protected: str = PROTECTED,
        *,
        trees: tuple[Hierarchy, ...] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.gid = gid
        self.protected = protected
        self.trees = cgroup.hierarchies() if trees is None else trees
        self._clock = clock

    def serve_one(self, listener: socket.socket) -> None:
        """Take one connection, read its request, answer and close it, whatever the caller does."""
        with contextlib.suppress(OSError):
            link, _ = listener.accept()
            with link:
                answer = self._answer(link)
                link.settimeout(TALK_S)
                link.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, link: socket.socket) -> dict[str, object]:
        who = "a caller whom the kernel does not name"
        try:
            peer = peer_of(link)
            who = f"uid {peer.uid}, pid {peer.pid}"
            # The request is read first: a socket that is closed with unread data discards the
            # answer.
            container = self._read_request(link)
            if peer.uid != 0 and self.gid not in peer.groups:
                raise Refused("this user may not ask")
            result = self.kill(container)
        except Refused as error:
            _log(f"refused {who}: {error}")
            return {"ok": False, "error": str(error)}
        except OSError as error:
            words = os.strerror(error.errno) if error.errno else "failed"
            _log(f"failed for {who}: {words}")
            return {"ok": False, "error": words}
        _log(f"killed {container} for {who}: {result}")
        return {"ok": True, "killed": container, "by": result}

    def _read_request(self, link: socket.socket) -> str:
        until = self._clock() + TALK_S
        data = b""
        while b"\n" not in data:
            left = until - self._clock()
            if left <= 0 or len(data) > QUESTION:
                raise Refused("no request in time" if left <= 0 else "the request is too long")
            link.settimeout(left)
            try:
                part = link.recv(QUESTION)
            except TimeoutError:
                raise Refused("no request in time") from None
            if not part:
                raise Refused("no request")
            data += part
        words = data.split(b"\n", 1)[0].decode("ascii", "replace").split(" ")
        if len(words) != 2 or words[0] != "kill" or not FULL_ID.fullmatch(words[1]):
            raise Refused("the only request is: kill and a full container id")
        return words[1]

    def kill(self, container: str) -> str:
        """Kill the control group of a container. Returns how, in words. Raises Refused and
        OSError."""
        if any(container.startswith(word) for word in self._protected()):
            raise Refused("that container is protected")
        groups = cgroup.find(container, self.trees, scan=False)
        if not groups:
            raise Refused("there is no running container with that id")
        code = errno.ENOENT
        for group in groups:
            code = signals.write_kill(group)[0] if not group.kind else code
            if code == 0:
                return "cgroup.kill"
        return self._signals(groups[0], container)

    def _signals(self, group: cgroup.Cgroup, container: str) -> str:
        """Kill by signals, for Linux before 5.14 and for version 1 of control groups."""
        until = self._clock() + SIGNALS_S
        while not cgroup.is_empty(group):
            done = signals.signal_group(group, container)
            if done.not_permitted:
                raise OSError(errno.EPERM, os.strerror(errno.EPERM))
            if self._clock() >= until:
                return "signals; it is not empty yet"
            time.sleep(0.005)
        return "signals"

    def _protected(self) -> list[str]:
        """Read the protected file: one id a line, whole or at least its first 12 digits; # begins a
        comment.

        A file that cannot be read or holds anything else protects everything: Refused.
        """
        try:
            text = Path(self.protected).read_text("ascii")
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            raise Refused(f"{self.protected} cannot be read") from None
        words = [line.partition("#")[0].strip() for line in text.splitlines()]
        words = [word for word in words if word]
        for word in words:
            if len(word) < SHORTEST or not FULL_ID.fullmatch(word.ljust(64, "0")):
                raise Refused(f"{self.protected} holds a line that is no container id")
        return words


def listen(path: str, gid: int) -> socket.socket:
    """Make the socket, which is root:group 0660 from its first moment. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "not a socket", path)
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
        if os.stat(path).st_gid != gid:
            os.chown(path, -1, gid)
        os.chmod(path, 0o660)
        listener.listen(16)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(before)
    return listener


def unsafe(path: Path) -> str:
    """Return in words who else could change a file that root runs; empty if only root can."""
    path = path.resolve()
    for place in (path, *path.parents):
        file_stat = place.stat()
        if file_stat.st_uid != 0:
            return f"{place} belongs to uid {file_stat.st_uid}"
        if file_stat.st_mode & 0o022 and not file_stat.st_mode & stat.S_ISVTX:
            return f"{place} can be written by others"
    return ""


def unit(group: str = "docker") -> str:
    """Return the systemd unit with this installation's interpreter in it."""
    text = Path(__file__).with_name(UNIT).read_text("utf-8")
    return text.replace("@PYTHON@", sys.executable).replace("@GROUP@", group)


def _log(words: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(one_line(words, 300) + "\n")
        sys.stderr.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the service. Returns 2 if it cannot or should not run."""
    parser = argparse.ArgumentParser(prog="omni-guard-helper", description=__doc__)
    parser.add_argument("--socket", default=HELPER)
    parser.add_argument("--group", default="docker")
    parser.add_argument("--protected", default=PROTECTED)
    parser.add_argument("--unit", action="store_true", help="print the systemd unit and end")
    chosen = parser.parse_args(arguments)
    if chosen.unit:
        sys.stdout.write(unit(chosen.group))
        return 0
    try:
        gid = grp.getgrnam(chosen.group).gr_gid
    except KeyError:
        sys.stderr.write(f"there is no group {one_line(chosen.group, 40)}\n")
        return 2
    for path in (Path(sys.executable), Path(sys.prefix), Path(__file__)):
        words = unsafe(path)
        if words:
            sys.stderr.write(f"not run as root from here: {one_line(words)}\n")
            return 2
    return _serve(chosen.socket, gid, chosen.protected)


def _serve(path: str, gid: int, protected: str) -> int:
    helper = Helper(gid, protected)
    try:
        listener = listen(path, gid)
    except OSError as error:
        sys.stderr.write(f"{one_line(path)}: {error.strerror}\n")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with listener:
        _log(f"listening on {path} for group {gid}")
        while True:
            helper.serve_one(listener)


if __name__ == "__main__":
    sys.exit(main())
