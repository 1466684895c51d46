"""The operator's end of a line, with a program in the place of ssh."""

import errno
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from console.common.errors import UsageError
from console.fleet import line as near
from console.fleet.inventory import Host
from console.fleet.line import Line, control_dir, options
from console.fleet.protocol import BridgeError, LineLost
from console.recovery.rollback.shell.program_gone import NO_SCRIPT

HELLO = """echo '{"omni-bridge":1,"version":"x","host":"h","limit":9}'\n"""
ECHO = """while read -r frame; do
  n=$((n+1))
  echo '{"id":'$n',"said":"\\u001b[2Jworking"}'
  echo '{"id":'$n',"ok":true,"frame":'"$frame"'}'
done
"""
Ssh = Callable[[str], Line]


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ssh]:
    """What makes a line whose `ssh` is this shell script."""
    lines = []

    def make(script: str) -> Line:
        program = tmp_path / "ssh"
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\n{script}')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        lines.append(Line(Host("box", "ops@box", "~/omni"), None))
        return lines[-1]

    yield make
    for one in lines:
        one.close()


def test_a_question_is_answered_behind_what_a_login_shell_prints(ssh: Ssh, tmp_path: Path) -> None:
    said: list[str] = []
    line = ssh(f"echo welcome; echo '{{}}'; {HELLO}{ECHO}")
    answer = line.ask("state", said=said.append, more=7)
    assert answer["frame"] == {"id": 1, "v": 1, "ask": "state", "more": 7}
    assert said == ["working"], "what a host says is clean"
    assert line.ask("state")["frame"]["id"] == 2
    argv = (tmp_path / "argv").read_text().splitlines()
    assert argv[-2:] == ["ops@box", "exec ~/omni bridge"]
    assert "BatchMode=yes" in argv


def test_what_a_login_has_left_running_is_no_answer(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word of it, right before an answer, ended a rollout and made a rollback a failure."""
    answer = json.dumps({"id": 1, "ok": True, "token": "abc"})
    assert ssh(f"{HELLO}read -r one; echo; echo mail; echo '[1]'; echo '{answer}'").token() == "abc"
    monkeypatch.setattr(near, "MAX_NOISE", 1000)
    monkeypatch.setattr(near, "END_S", 0.1)
    with pytest.raises(BridgeError, match="no frame"):
        ssh(f"{HELLO}read -r one; exec yes noise").token()


def test_what_acts_has_a_token_that_was_just_asked_for(ssh: Ssh) -> None:
    line = ssh(
        HELLO + 'read -r one; echo \'{"id":1,"ok":true,"token":"abc"}\'\n'
        'read -r two; echo \'{"id":2,"ok":true,"frame":\'"$two"\'}\'\n'
    )
    assert line.act("start", hash="h")["frame"]["token"] == "abc"


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo 'ops@box: Permission denied' >&2; exit 255", LineLost, "Permission denied"),
        (f"{HELLO}exit 0", LineLost, "the connection ended"),
        ("echo 'sh: exec: omni: not found' >&2; exit 127", BridgeError, "no omni-console"),
        ("echo 'there is no command' >&2; exit 2", BridgeError, "no bridge"),
        ("echo 'python: No module named console.cli' >&2; exit 1", BridgeError, "no omni-console"),
    ],
)
def test_why_a_line_has_ended(ssh: Ssh, script: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ssh(script).ask("state")


def test_the_newest_sealed_script_of_a_host_is_run(
    ssh: Ssh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its own console is gone; `ssh` runs the last word as a login shell does."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "my state"))
    said: list[str] = []
    line = ssh('shift $(($# - 1)); exec /bin/sh -c "$1"')
    assert line.run_script(said.append) == NO_SCRIPT
    place = tmp_path / "my state/omni-console/rollback"
    place.mkdir(parents=True)
    for at, (name, text) in enumerate({
        "old.sh": "exit 7", "new.sh": "echo it serves; echo and more >&2",
        "new.without-python.sh": "exit 7",
    }.items()):  # fmt: skip
        (place / name).write_text(text)
        os.utime(place / name, (at, at))
    said.clear()
    assert line.run_script(said.append) == 0
    assert said == ["it serves", "and more"]


def test_the_last_words_say_why_whatever_was_said_before(ssh: Ssh) -> None:
    """A long banner, or what a bridge has printed in hours, hid them."""
    banner = "yes 'for authorized use alone' | head -1000 >&2"
    line = ssh(f"{banner}; echo 'Permission denied' >&2; exit 255")
    with pytest.raises(LineLost, match="Permission denied") as lost:
        line.ask("state")
    assert "without a question" in lost.value.hint


def test_a_refusal_is_an_error_and_the_line_stays(ssh: Ssh) -> None:
    refused = json.dumps({"id": 1, "ok": False, "error": {"code": "moved_on", "title": "no"}})
    line = ssh(f"{HELLO}read -r one; echo '{refused}'; n=1; {ECHO}")
    with pytest.raises(BridgeError) as error:
        line.ask("tell")
    assert (error.value.code, error.value.title) == ("moved_on", "box: no")
    assert line.ask("state")["ok"]


def test_a_host_that_is_silent_is_out_of_reach_and_its_ssh_is_ended(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "END_S", 0.1)
    line = ssh(f"{HELLO}exec sleep 600")
    line.open()
    child = line._child
    with pytest.raises(LineLost, match="no answer within"):
        line.ask("state", 0.1)
    assert child is not None
    assert child.returncode is not None


def test_a_login_shell_that_prints_without_end_is_no_bridge(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "MAX_NOISE", 1000)
    with pytest.raises(BridgeError, match="no bridge answers"):
        ssh("while :; do echo noise noise noise; done").open()


@pytest.mark.parametrize(
    ("noise", "hello_s", "error"),
    [("exec yes ''", 600.0, BridgeError), ("yes | tr -d '\\n'", 600.0, BridgeError),
     ("while :; do echo; sleep 0.05; done", 1.0, LineLost)],
)  # fmt: skip
def test_no_noise_is_waited_for_without_end(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch, noise: str, hello_s: float, error: type[Exception]
) -> None:
    """Each line had a time limit of its own, and blank ones counted for nothing."""
    monkeypatch.setattr(near, "HELLO_S", hello_s)
    monkeypatch.setattr(near, "END_S", 0.1)
    monkeypatch.setattr(near, "MAX_NOISE", 16 * 1024)
    with pytest.raises(error, match=r"no bridge answers|no answer within 1 s"):
        ssh(noise).open()


def test_a_line_that_was_given_up_is_not_opened(ssh: Ssh, tmp_path: Path) -> None:
    """Ctrl-C may come before a rollback's ssh is there: it must not go on behind the words."""
    line = ssh(f"{HELLO}{ECHO}")
    line.abandon()
    with pytest.raises(LineLost, match="given up"):
        line.ask("ready")
    assert not (tmp_path / "argv").exists()


def test_a_line_that_is_given_up_while_its_ssh_starts_is_lost(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, start = ssh(f"{HELLO}exec sleep 600"), near.subprocess.Popen

    def starts(*argv: Any, **more: Any) -> Any:
        line.abandon()
        return start(*argv, **more)

    monkeypatch.setattr(near.subprocess, "Popen", starts)
    with pytest.raises(LineLost, match="the connection ended"):
        line.open().ask("ready", 5.0)


def test_a_full_disk_keeps_nobody_from_a_host(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/full")
    assert ssh(f"{HELLO}{ECHO}").ask("state")["ok"]
    with pytest.raises(LineLost, match="no route"):
        ssh("echo no route >&2; exit 255").ask("state")


def test_no_descriptor_left_is_said_and_ends_no_thread(
    ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's thread for a host ended with it, and its row stood still for ever."""
    line = ssh("")

    def full() -> BinaryIO:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(near, "in_memory", full)
    with pytest.raises(UsageError, match="Too many open files") as refused:
        line.open()
    assert not refused.value.hint


def test_no_ssh_is_said(ssh: Ssh, monkeypatch: pytest.MonkeyPatch) -> None:
    line = ssh("")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match="ssh cannot be started"):
        line.open()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory with a short path: in place of a long one, the one in /tmp is taken that
    every checkout on this machine shares."""
    with tempfile.TemporaryDirectory(prefix="of", dir="/tmp") as made:
        monkeypatch.setenv("XDG_RUNTIME_DIR", made)
        yield Path(made)


def test_connections_are_shared_only_in_a_directory_that_nobody_else_can_enter(
    runtime: Path,
) -> None:
    place = control_dir()
    assert place == runtime / "omni-console"
    assert os.stat(place).st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as door:  # as long as ssh makes it: %C and what it appends
        door.bind(str(place / ("c" * 40 + ".abcdefghijklmnop")))
    (place / ("c" * 40 + ".abcdefghijklmnop")).unlink()
    place.chmod(0o755)
    assert control_dir() != place
    place.chmod(0o700)
    assert "ControlMaster=auto" in options(place)
    assert "ControlMaster=no" in options(None)


def test_json_of_something_else_gives_a_question_no_more_time(ssh: Ssh) -> None:
    """A status line that a login has left running, every moment, and never an answer."""
    status = "while :; do echo '{\"cpu\": 3}'; sleep 0.05; done"
    with pytest.raises(LineLost, match="no answer within"):
        ssh(f"{HELLO}read -r one; exec sh -c '{status}'".replace("'{\"cpu\": 3}'", '"{}"')).ask(
            "state", 0.5
        )


def test_words_of_the_answer_itself_give_it_more_time(ssh: Ssh) -> None:
    words = """for n in 1 2 3 4 5; do echo '{"id":1,"said":"stage"}'; sleep 0.2; done\n"""
    end = """echo '{"id":1,"ok":true}'\n"""
    heard: list[str] = []
    assert ssh(f"{HELLO}read -r one\n{words}{end}").ask("rollback", 0.8, said=heard.append)["ok"]
    assert heard == ["stage"] * 5
