"""`omni-console web` as a process: what it refuses, the links that it prints, how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from console.cli import main
from console.frontends.cli import web as command
from console.frontends.web import server, xterm
from tests.runner.e2e.world import COMMAND
from tests.ui.place import Place
from tests.waiting import until
from tests.web.served import Served


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place.begin(tmp_path)
    try:
        yield made
    finally:
        made.close()


def enter(client: httpx.Client, base: str, token: str) -> int:
    answer = client.post(
        f"{base}/api/enter", headers={"Origin": base}, content=json.dumps({"token": token})
    )
    return answer.status_code


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_an_address_that_others_reach_is_refused(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["web", "--address", address, "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "is not a loopback address" in said
    assert "ssh -L" in said


@pytest.mark.parametrize(
    "words",
    [["web", "--socket", ""], ["web", "--fetch", ""], ["web", "--fetch="], ["web", "--site", ""],
     ["--site", "", "web"]],
)  # fmt: skip
def test_an_empty_path_is_refused_and_never_the_default(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(*_: object) -> None:
        pytest.fail("the default was taken")

    for module, name in ((server, "listen"), (server, "listen_at"), (xterm, "fetch")):
        monkeypatch.setattr(module, name, used)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "an empty path (a variable that is not set?)" in capsys.readouterr().err


def test_fetch_without_a_file_still_has_npm_download(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[str] = []
    monkeypatch.setattr(xterm, "fetch", lambda file="": given.append(file) or Path("/there"))
    assert [main(["web", "--fetch"]), main(["web", "--fetch", "a.tgz"])] == [0, 0]
    assert given == ["", "a.tgz"]
    assert "lies in /there" in capsys.readouterr().out


@pytest.mark.parametrize("address", ["::1", "127.0.0.1", "0.0.0.0", ""])
def test_a_socket_has_no_address(
    address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(server, "listen_at", lambda *_: pytest.fail("it listens"))
    path = tmp_path / "web.sock"
    assert main(["web", "--socket", str(path), "--address", address]) == 2
    assert "--socket and --address do not go together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [("absent", "absent:0:0: cannot be read"), ("dir", "dir:0:0: a directory"),
     ("binary", "binary:2:1: not UTF-8"), ("dir/absent", "cannot be read")],
)  # fmt: skip
def test_a_site_file_that_cannot_be_read_is_refused_before_anything_is_served(
    name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(server, "listen", lambda *_: pytest.fail("it listens"))
    (tmp_path / "dir").mkdir()
    (tmp_path / "binary").write_bytes(b"name: x\n\xff\xfe")
    assert main(["web", "--site", str(tmp_path / name), "--port", "0"]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.out == ""


@pytest.mark.parametrize("named", [True, False])
def test_a_site_file_with_faults_is_told_and_the_emergency_button_served_all_the_same(
    named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("OMNI_SITE", raising=False)

    def serve(made: server.Server, *_: object) -> None:
        made._listening.close()
        print("served")

    monkeypatch.setattr(command, "_serve", serve)
    site = tmp_path / "omni-console" / "site.yaml"
    site.parent.mkdir()
    site.write_text("schema: omni.site/v1\nname: x\nnonsense: 1\n")
    assert main(["web", "--port", "0", *(["--site", str(site)] if named else [])]) == 0
    told = capsys.readouterr().out
    assert f"{site}:3:1: " in told
    assert "a rollback brings the baseline of a run back without it" in told
    assert told.endswith("served\n")
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "absent"))
    assert main(["web", "--port", "0", *(["--site", str(site)] if named else [])]) == 0
    assert ("absent:0:0: cannot be read" in capsys.readouterr().out) is not named


def test_without_the_extra_it_says_which_line_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "EXTRA", ("uvicorn", "no_such_library"))
    assert main(["web", "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "no_such_library is not installed" in said
    assert f"{sys.executable} -m pip install 'omni-console[web]'" in said


def test_it_ends_when_nobody_reads_what_it_prints(place: Place) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    child = subprocess.Popen(
        [COMMAND, "web", "--port", "0"], env=place.env, cwd=place.root, stdin=subprocess.DEVNULL,
        stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(writing)
    _, said = child.communicate(timeout=60)
    assert (child.returncode, said) == (0, b"")


@pytest.mark.parametrize("words", [["web", "--write"], ["run", "x.yaml"], ["rollback"]])
def test_readonly_in_front_of_a_command_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--readonly", *words]) == 2
    assert "no command stands behind it" in capsys.readouterr().err


def test_each_line_that_is_typed_makes_a_new_link_and_voids_the_last(place: Place) -> None:
    served = Served(place, "--port", "0")
    try:
        first, base = served.token, served.base
        assert base.startswith("http://127.0.0.1:")
        assert served.link().startswith(f"{base}/enter#")
        second = served.token
        with httpx.Client(trust_env=False, verify=False) as client:
            assert [enter(client, base, one) for one in (first, second, second)] == [403, 200, 403]
        assert served.said.count(second) == 0, "it is printed once"
    finally:
        code = served.close()
    assert code == 0
    assert second not in served.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_unix_socket_is_served_and_goes_with_the_server(place: Place, number: int) -> None:
    path = place.root / "web.sock"
    served = Served(place, "--socket", str(path))
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, trust_env=False) as client:
            assert client.get("http://localhost:4711/").status_code == 200
            assert client.get("http://evil.example/").status_code == 403
            assert enter(client, "http://localhost:4711", served.token) == 200
    finally:
        served.child.send_signal(number)
        until(lambda: served.child.poll() is not None, "it ends")
        assert served.close() == 0
    assert not path.exists()


BACKGROUND = """
import os, pty, signal, sys
from console.frontends.cli import web

signal.signal(signal.SIGTTIN, signal.SIG_IGN)
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid, terminal = pty.fork()
if pid:
    said = b""
    while b"end" not in said:
        said += os.read(terminal, 1024)
        if said.endswith(b"?"):
            os.write(terminal, b"\\n")
            said += b" "
    os.write(1, said)
    sys.exit(os.waitpid(pid, 0)[1])
job = os.fork()
if job:
    os.waitpid(job, 0)
    sys.exit(0)
os.setpgid(0, 0)
print("background?", end="", flush=True)
web.select.select([0], [], [])
print(web._typed(0), flush=True)
os.tcsetpgrp(0, os.getpgrp())
print("foreground", web._typed(0), "end", flush=True)
"""


def test_what_is_typed_for_another_job_of_the_shell_does_not_end_the_listening() -> None:
    """After `bg` a line for the shell wakes it, and cannot be read; after `fg` Enter counts."""
    argv = [sys.executable, "-c", BACKGROUND]
    said = subprocess.run(argv, capture_output=True, timeout=60, check=True, text=True).stdout
    assert said.split() == ["background?", "None", "foreground", "True", "end"]


def test_a_terminal_that_is_gone_is_listened_to_no_more() -> None:
    near, far = os.openpty()
    os.close(near)
    assert command._typed(far) is False
    os.close(far)


def test_a_server_that_ends_leaves_the_socket_of_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It listens no more at once, but waits for its consoles: meanwhile another one begins."""
    path, others = tmp_path / "web.sock", []

    def serve(made: server.Server, *_: object) -> None:
        made._listening.close()
        others.append(server.listen_at(path))

    monkeypatch.setattr(command, "_serve", serve)
    assert main(["web", "--socket", str(path)]) == 0
    with others[0], socket.socket(socket.AF_UNIX) as browser:
        browser.connect(str(path))


def test_with_nohup_it_outlives_its_terminal(place: Place) -> None:
    """Whoever starts it with an ignored SIGHUP wants that; the consoles of its pages heed it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        served = Served(place, "--port", "0")
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        status = Path(f"/proc/{served.child.pid}/status").read_text()
        ignored = int(status.partition("SigIgn:")[2].split()[0], 16)
        assert ignored & 1 << signal.SIGHUP - 1
        served.child.send_signal(signal.SIGHUP)
        served.link()
    finally:
        code = served.close()
    assert code == 0


def test_it_goes_on_without_a_standard_input(place: Place) -> None:
    served = Served(place, "--port", "0", "--address", "::1")
    try:
        assert served.child.stdin is not None
        served.child.stdin.close()
        with httpx.Client(trust_env=False, verify=False) as client:
            assert served.base.startswith("http://[::1]:")
            assert client.get(f"{served.base}/").status_code == 200
            assert os.path.exists(f"/proc/{served.child.pid}")
            assert enter(client, served.base, served.token) == 200
    finally:
        code = served.close()
    assert code == 0
