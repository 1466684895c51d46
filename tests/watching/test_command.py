"""`watch run|status|install|uninstall`, the plan of the watch, its process and doctor's row."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from console.checks.doctor import run as doctor
from console.cli import main
from console.common import paths
from console.common.errors import Exit
from console.frontends.cli.watch.commands import _made as own_plan
from console.host import process, systemd
from console.host.systemd import WATCH, Unit
from console.journal import watch_record as record
from console.journal.watch_record import DOWN, PLANNED, SERVING, WatchState
from console.notify.outbox import Outbox
from console.recovery.rollback.baseline_state import BaselineState, Word
from console.recovery.rollback.sealed_plan import site_script
from console.watch import loop, watcher
from console.watch import plan as plans
from console.watch.plan import ENVIRONMENT, Settings, WatchPlan
from console.watch.unit import text_of
from console.watch.watcher import Event
from tests.ports import free_port
from tests.test_architecture import HEAVY, loaded
from tests.waiting import until
from tests.watching.conftest import plan_of

ROOT = Path(__file__).parents[2]
SITE = """
schema: omni.site/v1
name: ws
baseline:
  process: {{argv: [cat, --api-key, sk-secret-1]}}
  url: http://127.0.0.1:{port}
watch: {{interval: {interval}, restore: true, at_most: 5}}
"""


def test_every_key_of_the_site_is_a_setting(site: Path) -> None:
    keys = "interval: 30s, tokens: 8, ask_after: 5, restore: true, at_most: 2"
    text = site.read_text().partition("watch:")[0]
    site.write_text(f"{text}watch: {{{keys}, metrics: '127.0.0.1:9909'}}\n")
    assert own_plan(site, True).settings == Settings(30.0, 8, 5, True, 2, "127.0.0.1:9909")


class Replaced(Exception):
    """The process would have become another program."""


@pytest.fixture
def site(home: Path) -> Path:
    path = home / "site.yaml"
    path.write_text(SITE.format(port=1, interval="30s"))
    return path


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    seen: list[list[str]] = []

    def execv(program: str, argv: list[str]) -> NoReturn:
        seen.append(argv)
        raise Replaced

    monkeypatch.setattr(os, "execv", execv)
    for name in ENVIRONMENT:
        monkeypatch.setenv(name, "")
    return seen


def begun(site: Path) -> None:
    with pytest.raises(Replaced):
        main(["watch", "run", "--site", str(site)])


# -- the plan ----------------------------------------------------------------------------------


def test_a_plan_has_what_the_site_says_and_is_private(site: Path, became: list[list[str]]) -> None:
    begun(site)
    path = record.file("ws", record.PLAN)
    assert became[0][-1] == str(path)
    assert path.stat().st_mode & 0o777 == 0o600, "an argv may hold keys"
    found = plans.read(path)
    assert (found.settings.interval_s, found.settings.restore, found.settings.at_most) == (
        30.0, True, 5,
    )  # fmt: skip
    assert (found.site, found.given, found.sealed.site_path) == ("ws", True, str(site))
    assert plans.of_site_file(site, current=True) == found
    os.utime(site, (time.time() + 60, time.time() + 60))
    assert plans.of_site_file(site, current=True) is None
    assert plans.of_site_file(site, current=False) == found
    assert list(record.file("ws", "").glob("*.json")) == [], "nothing a record may be taken for"


def test_a_site_file_that_is_broken_leaves_the_last_plan_at_work(
    site: Path, became: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    begun(site)
    site.write_text("schema: omni.site/v1\nname: [")
    begun(site)
    assert became[1][:-1] == became[0]
    assert "the site file cannot be used" in became[1][-1]
    assert "the site file cannot be used" in capsys.readouterr().err
    assert main(["watch", "status", "--site", str(site)]) == Exit.FAILED
    assert "does not run" in capsys.readouterr().out, "what is known can still be seen"
    record.file("ws", record.PLAN).unlink()
    assert main(["watch", "run", "--site", str(site)]) == Exit.USAGE


def test_a_plan_that_is_no_plan_is_refused(home: Path) -> None:
    path = home / "plan"
    plans.write(plan_of(interval_s=7.0), path)
    good = path.read_text()
    assert plans.read(path) == replace(plan_of(interval_s=7.0))
    wrong = good.replace('"tokens": ', '"tokens": "few", "ask_after": ')
    for text in ("", "[]", good.replace("omni.watch/v1", "x"), wrong):
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-P", "-m", "console.watch.daemon", str(path)], capture_output=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
        )  # fmt: skip
        assert done.returncode == Exit.USAGE, text


# -- the process -------------------------------------------------------------------------------


def test_it_watches_begins_anew_with_the_site_file_and_ends_at_a_signal(site: Path) -> None:
    port = free_port()
    site.write_text(SITE.format(port=port, interval="5s").replace("restore: true", "tokens: 8"))
    argv = [sys.executable, "-P", "-m", "console.cli", "watch", "run", "--site", str(site)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        try:
            first = until(lambda: (s := record.read("ws")) and s.looks and s, "it looks")
            assert (first.pid, first.alive, first.word) == (child.pid, True, "suspect")
            second = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
            assert second.returncode == Exit.BUSY
            assert "another watch of this site runs" in second.stderr
            site.write_text(site.read_text().replace("interval: 5s", "interval: 6s"))
            until(
                lambda: (s := record.read("ws")) and s.interval_s == 6.0 and s.looks > first.looks,
                "it has read the site file",
            )
            again = record.read("ws")
            assert again is not None
            assert again.pid == child.pid, "it is the same process"
        finally:
            child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    state = record.read("ws")
    assert state is not None
    assert not state.alive


@pytest.mark.parametrize("given", [True, False])
def test_a_restore_names_its_own_site_and_that_nobody_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    argvs: list[list[str]] = []

    def popen(argv: list[str], **_: object) -> None:
        argvs.append(argv)
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(loop.subprocess, "Popen", popen)
    plan = replace(plan_of(), given=given)
    plan = replace(plan, sealed=replace(plan.sealed, site_path="/etc/my site.yaml"))
    assert not loop._restore(plan, threading.Event()).serving
    assert argvs[0][-4:] == ["--by", "watch", "--site", "/etc/my site.yaml"]


def test_the_process_loads_no_library_and_nothing_that_its_budget_has_no_room_for(
    home: Path,
) -> None:
    program = (
        "import json, sys\n"
        "from console.watch import daemon\n"
        "assert daemon.main([sys.argv[1]]) == 8\n"
        "print(json.dumps(sorted(name for name, one in sys.modules.items() if one)))\n"
        "import hashlib\n"  # as it does for the record of a process that is gone
        "assert len(hashlib.sha256(b'x').hexdigest()) == 64\n"
        "assert not sys.modules.get('_hashlib'), 'OpenSSL is loaded'\n"
    )
    plan = home / "plan"
    plans.write(plan_of(), plan)
    held = os.open(_made(record.file("ws", record.LOCK)), os.O_RDWR)
    import fcntl

    fcntl.flock(held, fcntl.LOCK_EX)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(plan)], capture_output=True, text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
        | {"PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    os.close(held)
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "console" in loaded
    never = {
        "ssl", "lzma", "bz2", "pydantic", "ruamel", "yaml", "httpx", "docker", "textual",
        "sqlite3", "statistics", "argparse", "psutil", "pynvml", "hashlib",
    }  # fmt: skip
    assert loaded & never == set()
    assert "http.server" not in json.loads(done.stdout)


def _made(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_what_is_asked_every_minute_loads_no_parser_and_no_journal(
    site: Path, became: list[list[str]]
) -> None:
    begun(site)
    ask = "from console.cli import main; main({!r})"
    metrics, status = (
        ask.format([*words, "--site", str(site)]) for words in (["metrics"], ["watch", "status"])
    )
    for modules in loaded(metrics, f"try:\n    {status}\nexcept SystemExit:\n    pass"):
        assert "console" in modules
        assert modules & (HEAVY | {"sqlite3"}) == set()


# -- what it says ------------------------------------------------------------------------------


def state(**more: object) -> WatchState:
    pid = os.getpid()
    made = WatchState(
        SERVING, "16 tokens in 1.5 s", at=time.time() - 5, since=time.time() - 60, level=10.4,
        pid=pid, start=process.start_time(pid) or 0, reference=10.5, at_most=2,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def test_status(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["watch", "status", "--site", str(site)]
    assert main(args) == Exit.FAILED
    assert "omni-console watch install" in capsys.readouterr().out
    record.write("ws", state(), {})
    assert main(args) == Exit.FAILED, "nothing listens there any more, whatever the last look saw"
    assert "baseline    down" in capsys.readouterr().out
    slow = state(word=PLANNED, slow_since=time.time() - 9, why=["driver 575 → 580"])
    record.write("ws", slow, {})
    assert main(args) == 0, "down, as the run that holds it wants it"
    out = capsys.readouterr().out
    for words in (
        "10.40 tok/s when it served",
        "usual 10.50",
        "driver 575 → 580",
        "0 within 24 hours, of 2",
    ):
        assert words in out
    record.write("ws", state(word=DOWN), {})
    assert main([*args, "--json"]) == Exit.FAILED
    found = json.loads(capsys.readouterr().out)
    assert (found["running"], found["state"]["word"]) == (True, DOWN)


@pytest.mark.parametrize(
    ("word", "ends"),
    [(Word.SERVING, 0), (Word.DEGRADED, 0), (Word.REFUSING, Exit.FAILED),
     (Word.LOADING, Exit.FAILED), (Word.UNKNOWN, Exit.FAILED),
     (Word.GARBLED, Exit.FAILED), (Word.DOWN, Exit.FAILED)],
)  # fmt: skip
def test_status_ends_as_the_gauge_of_metrics_says(
    site: Path, monkeypatch: pytest.MonkeyPatch, word: Word, ends: int
) -> None:
    """A server that refuses every completion, say, is not down, and serves nobody."""
    known = BaselineState(word, at=time.time(), by="the watch")
    monkeypatch.setattr("console.recovery.rollback.look.Looker.state", lambda *_: known)
    record.write("ws", state(), {})
    assert main(["watch", "status", "--site", str(site)]) == ends
    assert known.up == (ends == 0)


@pytest.fixture
def stopped() -> Iterator[tuple[int, int]]:
    """Pid and start time of a process that a signal has stopped."""
    with subprocess.Popen(["sleep", "600"]) as child:
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: process.is_stopped(child.pid), "it is stopped")
        yield child.pid, process.start_time(child.pid) or 0
        child.kill()


@pytest.mark.parametrize("frozen", [True, False])
def test_a_watch_that_looks_no_more_does_not_run(
    site: Path, stopped: tuple[int, int], frozen: bool, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One that a debugger holds, or that hangs in a read, said "serving" for as long."""
    serves = BaselineState(Word.SERVING, at=time.time(), by="a rollback")
    monkeypatch.setattr("console.recovery.rollback.look.Looker.state", lambda *_: serves)
    pid, start = stopped if frozen else (os.getpid(), process.start_time(os.getpid()) or 0)
    late = state(at=time.time() - 600, due_by=time.time() - 60, pid=pid, start=start)
    record.write("ws", late, {})
    assert main(["watch", "status", "--site", str(site)]) == Exit.FAILED
    words = f"kill -CONT {pid}" if frozen else "nothing came from it since 10 m"
    assert f"stands still, pid {pid}" in (out := capsys.readouterr().out)
    assert words in out
    [row] = [finding for finding in doctor.run(str(site)) if finding.id == "baseline.watch"]
    assert (row.level, "stands still" in row.detail) == ("failed", True)
    assert main(["metrics", "--site", str(site)]) == 0
    assert 'omni_watch_running{site="ws"} 0' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "level"),
    [(None, "note"), (state(pid=0), "warning"), (state(), "ok"), (state(word=DOWN), "failed"),
     (state(slow_since=5.0, why=["x"]), "warning"), (state(trouble="x"), "warning")],
)  # fmt: skip
def test_doctor_has_a_row(site: Path, given: WatchState | None, level: str) -> None:
    if given is not None:
        record.write("ws", given, {})
    [found] = [one for one in doctor.run(str(site)) if one.id == "baseline.watch"]
    assert found.level == level


# -- the unit ----------------------------------------------------------------------------------


def test_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of(Unit(False, "ann", WATCH), "/s/a.yaml", {"PATH": "/x", "HF_TOKEN": "s"})
    assert '"watch" "run" "--site" "/s/a.yaml"' in text
    assert "KillMode=process" in text, "what a restore started outlives it"
    assert "HF_TOKEN" not in text
    assert Unit(True, "ann", WATCH).name == "omni-console-watch-ann.service"
    assert Unit(False, "ann").name == "omni-console-boot.service"


def test_without_systemd_or_with_a_broken_site_nothing_is_installed(
    site: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(systemd, "SYSTEMD", home / "no")
    monkeypatch.setattr(systemd, "SYSTEM_UNITS", home / "units")
    assert main(["watch", "install", "--site", str(site)]) == Exit.USAGE
    assert "not run by systemd" in capsys.readouterr().err
    site.write_text("name: [")
    assert main(["watch", "install", "--site", str(site)]) == Exit.USAGE
    assert main(["watch", "uninstall"]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    assert not (home / "units").exists()


def test_another_plan_is_another_site(home: Path) -> None:
    other = replace(plan_of().sealed, site_name="other")
    assert WatchPlan(plan_of().settings, other).site == "other"


# -- what is posted ----------------------------------------------------------------------------


def test_what_the_watch_told_is_posted_once_and_what_is_old_is_not(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.notify.outbox.wake", lambda: None)
    site.write_text(
        f"{site.read_text()}notify: [{{command: [cat], on: [slower, baseline-down]}}]\n"
    )
    now = time.time()
    for at, kind in ((now - 90_000, "slower"), (now - 60, "baseline-down"), (now - 9, "faster"),
                     (now, "baseline-back")):  # fmt: skip
        watcher.record_event(Event(kind, f"{kind}@ws@{at:.0f}", f"it is {kind}", "words", at, "ws"))
    for _ in range(3):
        assert main(["watch", "post", "--site", str(site)]) == 0
    waiting = sorted(item.event.title for item in Outbox().items())
    assert waiting == ["it is baseline-down", "it is faster"]


def test_lessons_that_are_due_are_posted_once_a_week_and_only_where_they_are_wanted(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ship have had days of review since April 2026."""
    monkeypatch.setattr("console.notify.outbox.wake", lambda: None)
    text, day = site.read_text(), 86_400.0
    monday = time.mktime((2026, 6, 1, 9, 0, 0, 0, 0, -1))
    monkeypatch.setattr(time, "time", lambda: monday)
    site.write_text(f"{text}notify: [{{command: [cat]}}]\n")
    assert main(["watch", "post", "--site", str(site)]) == 0
    assert Outbox().items() == []
    site.write_text(f"{text}notify: [{{command: [cat], on: [lessons-due]}}]\n")
    for now in (monday, monday + day, monday + 7 * day):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert main(["watch", "post", "--site", str(site)]) == 0
    first, second = (item.event for item in Outbox().items())
    assert first.title == second.title
    assert "A-001" in first.text
    assert first.text.endswith("omni-console lessons --due")


def test_an_outage_is_told_while_the_site_file_cannot_be_used(
    site: Path, became: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.notify.outbox.wake", lambda: None)
    site.write_text(f"{site.read_text()}notify: [{{command: [cat]}}]\n")
    begun(site)
    site.write_text(f"{site.read_text()}wach: {{}}\n")
    now = time.time()
    watcher.record_event(Event("baseline-down", "baseline-down@ws@1", "it is down", "x", now, "ws"))
    assert main(["watch", "post", "--site", str(site)]) == 0
    assert [item.event.title for item in Outbox().items()] == ["it is down"]


def test_a_new_channel_is_told_of_nothing_that_is_long_over(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.notify.outbox.wake", lambda: None)
    now = time.time()
    for at in (now - 7200, now - 5):
        watcher.record_event(
            Event("baseline-down", f"baseline-down@ws@{at:.0f}", f"{at}", "x", at, "ws")
        )
    site.write_text(f"{site.read_text()}notify: [{{command: [cat]}}]\n")
    assert main(["watch", "post", "--site", str(site)]) == 0
    assert [item.event.title for item in Outbox().items()] == [f"{now - 5}"]


@pytest.mark.parametrize("command", [["watch", "status"], ["metrics"], ["rollback"]])
def test_without_a_site_file_each_command_says_so(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:  # fmt: skip
    """Nothing is said of a demo that nobody has made, and none is made for the question."""
    monkeypatch.delenv("OMNI_SITE", raising=False)
    assert main(command) != Exit.OK
    said = "".join(capsys.readouterr())
    assert "no site file" in said, said
    assert "--site FILE" in said
    assert "demo" not in said
    assert not (paths.demo_dir() / "site.yaml").exists()


def test_a_watch_begins_anew_only_while_its_program_is_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would end, and nothing would watch the baseline until the end of an upgrade."""
    file = home / "site.yaml"
    file.write_text("1")
    plan = plan_of()
    site = loop._Site(replace(plan, sealed=replace(plan.sealed, site_path=str(file))))
    file.write_text("22")
    assert site.changed()
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    assert not site.changed()


@pytest.mark.parametrize("command", ["gone", "dies", "refuses"])
@pytest.mark.parametrize("script", ["serves", "fails", "none"])
def test_where_the_command_cannot_be_run_the_sealed_script_restores(
    home: Path, monkeypatch: pytest.MonkeyPatch, command: str, script: str
) -> None:
    plan, program = plan_of(), home / "program"
    if command != "gone":
        words = "" if command == "dies" else """echo '{"error": "no site"}'; """
        program.write_text(f"#!/bin/sh\n{words}exit 1\n")
        program.chmod(0o755)
    monkeypatch.setattr(loop, "module_argv", lambda name: (str(program),))
    path = site_script(plan.sealed.site_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if script != "none":
        path.write_text(f"exit {0 if script == 'serves' else 7}\n")
    done = loop._restore(plan, threading.Event())
    refused = command == "refuses"
    assert done.begun is (refused or script != "none")
    assert done.serving is (not refused and script == "serves")
    assert ("no site" in done.detail) is refused
