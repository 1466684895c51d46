"""What is advised about a server without a record is what the command then does."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from console.checks.doctor import baseline as doctor
from console.cli import main
from console.config.site.site import load_site
from console.host import licence
from console.host.ports import listener
from console.host.process import ProcessSpec
from console.recovery.rollback.observe import OTHER
from console.runtime.discovery import adoption
from console.runtime.discovery.processes import Running
from console.runtime.probe import Health, health
from tests.children import running
from tests.ports import free_port
from tests.rollback.conftest import STANDIN
from tests.waiting import until

SUPERVISED = "it is a child of supervisord"
HOW = {
    "alone": ("exec {server}", ""),
    "supervised": ("sh {supervisor}", SUPERVISED),
    "a proxy in its group": (
        "{python} -S -m http.server --bind 127.0.0.1 {other} & exec {server}",
        "another server is in its process group",
    ),
    "other words": ("exec {server} --loading 0", "it is not what the site file starts"),
}


@contextmanager
def started(words: str, url: str) -> Iterator[int]:
    """The server that a shell's words start, in a session of its own; its pid."""
    with running(["sh", "-c", words], start_new_session=True) as child:
        try:
            until(lambda: health(url)[0] is Health.SERVING, "it serves")
            yield until(lambda: listener(url), "it is seen").pid
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


@pytest.mark.parametrize(("words", "why"), HOW.values(), ids=HOW)
def test_no_adopt_is_advised_that_would_refuse(
    tmp_path: Path, words: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port, supervisor = free_port(), tmp_path / "supervisord"
    argv, url = [sys.executable, "-S", str(STANDIN), str(port)], f"http://127.0.0.1:{port}"
    supervisor.write_text(f"{shlex.join(argv)} & wait\n")
    file = tmp_path / "site.yaml"
    file.write_text(
        f"schema: omni.site/v1\nname: ws{port}\nbaseline:\n  url: {url}\n"
        f"  process: {{argv: {json.dumps(argv)}, cwd: {json.dumps(os.getcwd())}}}\n"
    )
    shell = words.format(
        server=shlex.join(argv), supervisor=supervisor, python=sys.executable, other=free_port()
    )
    site = load_site(file)
    runs = site.baseline_spec().runs
    with started(shell, url) as pid:
        told = adoption.advice(runs, url)
        by_doctor = doctor._remedy(f"{OTHER} {pid}) answers", site)
        none = adoption.advice(None, url)
        code = main(["adopt", "--site", str(file)])
        said = capsys.readouterr().err
    assert by_doctor == told
    assert (code, told == adoption.ADOPT) == ((2, False) if why else (0, True)), said
    assert why in said
    assert why in told
    pick = f"omni-console init --pick {pid} --force"
    assert (SUPERVISED in none) if why == SUPERVISED else (pick in none)


@pytest.mark.parametrize("alike", [True, False])
def test_of_two_that_share_a_port_none_is_offered_and_of_a_stranger_none_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: bool
) -> None:
    port = free_port()
    argv, url = [sys.executable, "-S", str(STANDIN), str(port)], f"http://127.0.0.1:{port}"
    mine = argv if alike else ["/opt/llama-server", "-m", "a.gguf", "--api-key", "k" * 20]
    spec = ProcessSpec(tuple(mine), cwd=os.getcwd())
    with started(f"exec {shlex.join(argv)}", url) as pid:
        told = adoption.advice(spec, url)
        assert ("another port" in told) is not alike
        assert (str(pid) in told) is not alike
        assert "site file" not in told
        monkeypatch.setattr(adoption, "first_at", lambda url: [pid, os.getpid()])
        of_two = adoption.advice(spec, url)
        if alike:
            assert of_two == f"omni-console adopt PID names one of {pid}"
        else:
            assert of_two == adoption.shared([pid, os.getpid()])
            assert "adopt" not in of_two


def test_the_children_of_a_router_are_not_to_be_started_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(["sleep", "600"]) as child:
        monkeypatch.setattr(licence, "other_servers", lambda pid, start: [(child.pid, 8081)])
        why, hint = adoption.with_others(os.getpid(), 1)
        assert why.endswith("which it has started")
        assert "setsid" not in hint
        assert "setsid" in adoption.with_others(child.pid + 1, 1)[1]


def test_of_what_nobody_sees_nothing_is_advised_but_to_look() -> None:
    assert adoption.advice(None, f"http://127.0.0.1:{free_port()}") == adoption.LIST
    assert adoption.advice(None, "no address") == adoption.LIST
    assert adoption.advice(None, "http://127.0.0.1:1", 4194305) == adoption.LIST


@pytest.mark.parametrize(
    ("argv", "offers"),
    [
        (("/opt/llama-server", "-m", "b.gguf"), True),
        (("/opt/llama-server", "-m", "b.gguf", "--api-key", "sk-not-a-real-one"), False),
        (("/usr/sbin/nginx", "-g", "daemon off;"), False),
    ],
)
def test_init_is_not_advised_where_it_writes_the_same_file_again_or_none(
    argv: tuple[str, ...], offers: bool
) -> None:
    running = Running(1, 1, 0, argv, argv[0], "/tmp")
    assert ("init --force" in adoption._correction(running)) is offers
    assert "correct the site file" in adoption._correction(running)
