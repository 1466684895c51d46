"""`omni-console doctor` as it is run: in a pty, in a pipe, with JSON, and where much is broken."""

import fcntl
import json
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.checks.doctor.facts import GROUPS
from console.common.errors import Exit
from tests.common.harmful import harmful
from tests.doctor.conftest import CONTAINER, HEAD
from tests.testbed.nvml import RTX_5090, Nvml

PROGRAM = """
import sys
from argparse import Namespace
from console.frontends.cli.machine import doctor
from console.checks.doctor import baseline, facts, guard, machine, run, runtime
kind, ask_s, *site = sys.argv[1:]
for module in (baseline, runtime, facts, guard, machine):
    module.ASK_S = float(ask_s)
facts.SHARED_S = facts.RUNS_S = run.iterate.__kwdefaults__["deadline_s"] = 60.0
sys.exit(doctor(Namespace(json=kind == "json", site=site[0] if site else None)))
"""


def argv(kind: str, *site: str, ask_s: float = 60) -> list[str]:
    return [sys.executable, "-c", PROGRAM, kind, str(ask_s), *site]


def in_pty(columns: int, rows: int, **env: str) -> tuple[int, list[str]]:
    """Exit code and lines of the command in a terminal of that size."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = subprocess.Popen(
        argv("text"), stdin=slave, stdout=slave, stderr=slave, env={**os.environ, **env},
        start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    data = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the last one of the other side is closed
            break
        if not piece:
            break
        data += piece
    os.close(master)
    return child.wait(60), data.decode("utf-8").replace("\r\n", "\n").splitlines()


def in_json(
    *site: str, ask_s: float = 60, **env: str
) -> tuple[int, dict[str, dict[str, str]], dict[str, object]]:
    """Exit code, findings by id (the first of each), and the whole object."""
    done = subprocess.run(
        argv("json", *site, ask_s=ask_s), capture_output=True, text=True, timeout=120,
        env={**os.environ, **env}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stderr == ""
    value = json.loads(done.stdout)
    found: dict[str, dict[str, str]] = {}
    for row in value["findings"]:
        found.setdefault(row["id"], row)
    return done.returncode, found, value


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A terminal whose name this machine knows."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "xterm-256color").touch()
    return {"TERM": "xterm-256color", "TERMINFO": str(tmp_path), "LC_ALL": "C.UTF-8"}


def holds_a_path(line: str) -> bool:
    """Whether a line is too long for the sake of one word, which is to be copied in one piece."""
    return line.split()[-1].startswith("/") and len(line) - len(line.split()[-1]) < 30


@pytest.mark.alone
def test_a_pipe_gets_whole_lines(env: dict[str, str]) -> None:
    """A finding is a line there, unless COLUMNS says how wide it may be."""
    told = {}
    for wide in ("", "70"):
        done = subprocess.run(
            argv("text"), capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
            env={**os.environ, **env, "COLUMNS": wide},
        )  # fmt: skip
        told[wide] = done.stdout.splitlines()
    assert any(len(line) > 100 for line in told[""])
    assert [line for line in told[""] if line.startswith(" " * 24)] == [], "nothing goes on below"
    assert [line for line in told["70"] if len(line) > 70 and not holds_a_path(line)] == []
    assert any(line.startswith(" " * 24) for line in told["70"])


@pytest.mark.alone
@pytest.mark.parametrize("width", [80, 60])
def test_one_page_that_fits(env: dict[str, str], width: int) -> None:
    code, page = in_pty(width, 24, **env)
    assert code == Exit.OK
    assert [line for line in page if len(line) > width and not holds_a_path(line)] == []
    assert [line for line in page if line in GROUPS.values()] == list(GROUPS.values())
    assert f"   ok   window          {width}x24" in page
    assert any(line.startswith("   ok   terminal        TERM=xterm-256color") for line in page)
    assert any("UTF-8" in line for line in page)
    assert page[-1].startswith("0 failed, ") or page[-2].startswith("0 failed, ")


@pytest.mark.alone
def test_a_poor_terminal(env: dict[str, str]) -> None:
    code, page = in_pty(50, 15, **{**env, "TERM": "dumb", "LC_ALL": "", "LANG": "C"})
    text = " ".join(" ".join(page).split())
    assert code == Exit.OK
    assert "WARN terminal TERM=dumb" in text
    assert "WARN window 50x15" in text
    assert "ASCII" in text
    assert [line for line in page if not line.isascii()] == []


@pytest.mark.alone
def test_a_terminal_without_a_size(env: dict[str, str]) -> None:
    code, page = in_pty(0, 0, **env)
    assert code == Exit.OK
    assert "80x24" in " ".join(page)


def test_json_without_a_terminal() -> None:
    code, found, value = in_json()
    assert code == Exit.OK
    assert set(value) == {"findings", "failed", "warnings"}
    assert (value["failed"], found["login.terminal"]["level"]) == (0, "note")
    assert set(found["login.terminal"]) == {"id", "group", "level", "what", "detail", "hint"}
    assert "login.size" not in found


def test_a_site_file_with_two_problems(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(HEAD + "baseline: {container: base, url: 'ftp://x'}\n\"a\\e[31mb\": {}\n")
    code, found, value = in_json(str(site))
    assert (code, value["failed"]) == (Exit.FAILED, 2)
    assert "site.yaml:3:34" in found["baseline.site"]["detail"]
    assert harmful(json.dumps(value, ensure_ascii=False)) == []


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[str]:
    """The socket of an engine that takes connections and says nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "frozen"))
        listener.listen(16)
        yield f"unix://{tmp_path}/frozen"


def test_where_everything_hangs_the_page_comes(
    nvml: Nvml, tmp_path: Path, frozen: str, path_of: Callable[[str, str], Path]
) -> None:
    path_of("docker", "exec sleep 600")
    script = nvml.write(tmp_path / "script", [RTX_5090], hang={"all": 600})
    with socket.create_server(("127.0.0.1", 0)) as server:
        site = tmp_path / "site.yaml"
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        site.write_text(CONTAINER.replace("http://127.0.0.1:9", url) + "gpus: [{uuid: GPU-1}]\n")
        code, found, _ = in_json(str(site), ask_s=1, DOCKER_HOST=frozen, **nvml.env(script))
    assert code == Exit.FAILED
    silent = ("gpu.cards", "engine.answers", "engine.compose", "baseline.service",
              "baseline.health")  # fmt: skip
    for check in silent:
        assert found[check]["level"] in ("failed", "warning"), found[check]
        assert any(
            word in found[check]["detail"] for word in ("no answer", "not answer", "nothing within")
        )
    for check in ("machine.kernel", "baseline.site", "console.who"):
        assert found[check]["level"] == "ok"


def test_a_real_engine(tmp_path: Path, docker_env: dict[str, str], busy_image: str) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(CONTAINER.replace("base,", f"doctor-{os.getpid()},"))
    code, found, _ = in_json(str(site), **docker_env)
    assert code == Exit.FAILED
    assert found["engine.answers"]["level"] == "ok", found["engine.answers"]
    assert found["engine.compose"]["level"] == "ok", found["engine.compose"]
    assert found["baseline.service"]["level"] == "failed"
    made = ["docker", "create", "--name", f"doctor-{os.getpid()}", busy_image, "sleep", "1"]
    env = {**os.environ, **docker_env}
    subprocess.run(made, env=env, check=True, capture_output=True, timeout=60)
    try:
        _, found, _ = in_json(str(site), **docker_env)
    finally:
        gone = ["docker", "rm", "-f", made[3]]
        subprocess.run(gone, env=env, check=True, capture_output=True, timeout=60)
    assert found["baseline.service"]["level"] == "ok"
    assert "created" in found["baseline.service"]["detail"]
