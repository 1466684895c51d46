"""The root helper: a real root process, and clients who are not root."""

import configparser
import grp
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from console.host import cgroup, process
from console.recovery.guard.kill import root_helper
from console.recovery.guard.kill.root_helper import Helper, Refused
from tests.guard.conftest import ID, as_user, kill_as_user, made_up
from tests.runtime.serving import serving
from tests.testbed.plugin import lacking
from tests.waiting import until

ASK = """
import time
from console.recovery.guard.kill.signals import UnixRequest
path, *questions = arguments
found = []
for question in questions:
    ask = UnixRequest(path, question.encode(), time.monotonic(), 60.0)
    while not ask.advance(time.monotonic()): time.sleep(0.005)
    found.append([ask.why, ask.answer.decode()])
print(json.dumps(found))
"""


@dataclass
class Box:
    """Control groups as an engine makes them for a container, with a process in them."""

    identity: str
    child: subprocess.Popen[bytes]
    place: Path

    @property
    def dead(self) -> bool:
        return self.child.poll() is not None


@dataclass
class Post:
    """A helper's process, its socket and its files."""

    folder: Path
    gid: int
    child: subprocess.Popen[bytes] | None = None
    boxes: list[Box] = field(default_factory=list)

    @property
    def socket(self) -> str:
        return str(self.folder / "guard.sock")

    @property
    def protected(self) -> Path:
        return self.folder / "protected"

    def begin(self) -> None:
        argv = [sys.executable, "-m", root_helper.__name__, "--socket", self.socket]
        argv += ["--group", grp.getgrgid(self.gid).gr_name, "--protected", str(self.protected)]
        with (self.folder / "log").open("wb") as log:
            self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log)
        until(lambda: "listening" in self.said(), "it says listening")

    def said(self) -> str:
        return (self.folder / "log").read_text()

    def box(self) -> Box:
        identity = secrets.token_hex(32)
        place = Path(cgroup.hierarchies()[0].mount, "docker", identity)
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.boxes.append(Box(identity, child, place))
        place.mkdir(parents=True)
        (place / "cgroup.procs").write_text(str(child.pid))
        return self.boxes[-1]

    def ask(self, question: str, groups: list[int] | None = None) -> dict[str, Any]:
        (value,) = self.ask_all([question], [self.gid] if groups is None else groups)
        return value

    def ask_all(self, questions: list[str], groups: list[int]) -> list[dict[str, Any]]:
        found = as_user(ASK, groups, self.socket, *questions)
        assert [why for why, _ in found] == [""] * len(questions), found
        return [dict(json.loads(answer)) for _, answer in found]

    def close(self) -> None:
        if self.child is not None:
            self.child.terminate()
            assert self.child.wait(60) == 0
        for box in self.boxes:
            box.child.kill()
            box.child.wait()
            box.place.rmdir()
        shutil.rmtree(self.folder)


@pytest.fixture
def post() -> Iterator[Post]:
    if os.geteuid() != 0:
        lacking("the helper runs as root")
    folder = Path(tempfile.mkdtemp(prefix="omni-helper-"))
    folder.chmod(0o755)
    made = Post(folder, grp.getgrnam("daemon").gr_gid)
    try:
        made.begin()
        yield made
    finally:
        made.close()


def test_a_user_of_the_group_gets_a_container_killed(post: Post) -> None:
    box = post.box()
    code = "print(json.dumps([os.getuid(), os.access(arguments[0], os.W_OK)]))"
    assert as_user(code, [post.gid], post.socket) == [54321, True]
    assert post.ask(f"kill {box.identity}\n") == {
        "ok": True, "killed": box.identity, "by": "cgroup.kill"
    }  # fmt: skip
    until(lambda: box.dead, "it is dead")
    assert box.child.returncode == -signal.SIGKILL
    assert f"killed {box.identity} for uid 54321" in post.said()


def test_nobody_else_may_ask(post: Post) -> None:
    box = post.box()
    info = os.stat(post.socket)
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (0, post.gid, 0o660)
    found = as_user(ASK, [], post.socket, f"kill {box.identity}\n")
    assert found == [["Permission denied", ""]]
    os.chmod(post.socket, 0o666)  # the caller's group counts, whatever the file's mode
    assert post.ask(f"kill {box.identity}\n", [])["ok"] is False
    assert "refused uid 54321, pid " in post.said()
    assert not box.dead


def test_a_protected_container_is_refused(post: Post) -> None:
    box, other = post.box(), post.box()
    post.protected.write_text(f"# the baseline\n{box.identity[:12]}  # short\n\n")
    assert post.ask(f"kill {box.identity}\n")["ok"] is False
    assert post.ask(f"kill {other.identity}\n")["ok"] is True
    post.protected.write_text("baseline\n")
    assert post.ask(f"kill {box.identity}\n")["ok"] is False
    assert not box.dead


BAD = (
    "kill 1\n", "kill ../../system.slice\n", "\n", "kill\n", "stop {id}\n", "kill {id} now\n",
    "kill {short}\n", "kill {id}x\n", "KILL {id}\n", "kill  {id}\n", "x" * 130, "kill /\n",
    "kill {upper}\n", "kill " + ID + "\n",
)  # fmt: skip


def test_there_is_one_question_only(post: Post) -> None:
    box = post.box()
    names = {"id": box.identity, "short": box.identity[:12], "upper": box.identity.upper()}
    questions = [words.format(**names) for words in BAD]
    for question, answer in zip(questions, post.ask_all(questions, [post.gid]), strict=True):
        assert answer["ok"] is False, question
        assert answer["error"], question
    assert not box.dead


def test_one_who_says_nothing_or_hangs_up_holds_nobody_up_for_long(post: Post) -> None:
    box = post.box()
    with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as gone:
        silent.connect(post.socket)
        gone.connect(post.socket)
        gone.close()
        assert post.ask(f"kill {box.identity}\n")["ok"] is True
        assert b"no request in time" in silent.recv(4096)


def test_the_killer_asks_it_when_signals_are_not_permitted(post: Post) -> None:
    box = post.box()
    empty, report = kill_as_user([post.gid], box.identity, helper=post.socket)
    until(lambda: box.dead, "it is dead")
    assert empty
    (killed,) = report["killed"]
    assert killed["rungs"] == ["helper"]
    assert any("cgroup.kill" in words for words in killed["why"])
    assert len(killed["why"]) >= 2, "and signals were not permitted"


def test_without_cgroup_kill_it_signals(tmp_path: Path) -> None:
    trees = made_up(tmp_path, version=1)
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        (tmp_path / "docker" / ID / "cgroup.procs").write_text(f"{child.pid}\n")
        made, now = Helper(0, str(tmp_path / "none"), trees=trees), iter(range(100))
        made._clock = lambda: float(next(now))
        words = made.kill(ID)
        # The group is made of plain files: the kernel does not list its process as a member, so it
        # lives.
        assert words.startswith("signals")
        assert child.poll() is None
        child.kill()
    with pytest.raises(Refused):
        made.kill("0" * 64)


def test_who_else_could_change_it_is_found(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        lacking("only root owns files as root")
    file = tmp_path / "helper.py"
    file.write_text("")
    assert root_helper.unsafe(file) == ""
    file.chmod(0o666)
    assert str(file) in root_helper.unsafe(file)
    file.chmod(0o644)
    os.chown(tmp_path, 54321, -1)
    assert "54321" in root_helper.unsafe(file)


def test_the_unit_is_hardened_and_names_this_installation() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(root_helper.unit("wheel"))
    service = unit["Service"]
    assert service["ExecStart"] == (
        f"{sys.executable} -I -m console.recovery.guard.kill.root_helper --group wheel"
    )
    assert service["Group"] == "wheel"
    assert service["CapabilityBoundingSet"] == "CAP_KILL"
    for key in ("NoNewPrivileges", "PrivateNetwork", "RestrictNamespaces", "PrivateDevices"):
        assert service[key] == "yes"
    done = subprocess.run(
        [sys.executable, "-m", "console.recovery.guard.kill.root_helper", "--unit"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == root_helper.unit()


def test_a_file_in_its_place_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "guard.sock"
    file.write_text("precious")
    with pytest.raises(FileExistsError):
        root_helper.listen(str(file), os.getgid())
    assert file.read_text() == "precious"


def test_peers_are_known_by_the_kernel(tmp_path: Path) -> None:
    path, found = str(tmp_path / "s"), list[root_helper.Peer]()
    listener = root_helper.listen(path, os.getgid())
    hear = serving(listener, lambda link: found.append(root_helper.peer_of(link)))
    with hear, socket.socket(socket.AF_UNIX) as link:
        link.connect(path)
        until(lambda: found, "it is known")
    assert (found[0].pid, found[0].uid) == (os.getpid(), os.getuid())
    assert set(os.getgroups()) <= found[0].groups
    assert process.alive(found[0].pid, process.start_time(found[0].pid) or 0)
