"""The page for Prometheus: its format, what it knows, a file, and the address that serves it."""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import ConsoleError, Exit
from console.config.site.watch import WatchModel
from console.frontends.cli.watch import metrics
from console.host import process
from console.host.gpu.figures import GpuReport, GpuSample
from console.host.sample import DiskSample, MemorySample, Sample
from console.journal import watch_record as record
from console.journal.run_dir import RunDir
from console.journal.watch_record import SERVING, WORDS, WatchState
from console.recovery.rollback import evidence, observe
from console.recovery.rollback.baseline_state import (
    BaselineState,
    Evidence,
    Figure,
    Kind,
    Witness,
    Word,
)
from console.render.watch.metrics import BaselineFacts, RunFacts, text
from console.watch import scrape
from console.watch.scrape import Scrape
from tests.clock import FakeClock
from tests.runner.unit.journals import STAYS, shelved
from tests.wrong_files import wrong_files

DOCS = Path(__file__).parents[2] / "docs/how-to"
SAMPLE = Sample(
    1.0,
    MemorySample(100, 40, 10, 0, pressure_some=12.5, pressure_full=None),
    (DiskSample("/", 1000, 300), DiskSample("/dead", None, None, "no answer")),
    GpuReport(1.0, (GpuSample("GPU-1", 0, 'A "card" \\ \x1b[1m', 5, 10, 0.5, 60.0, 300.0),)),
)  # fmt: skip
AT = 1_750_000_000.5
PROVEN = BaselineState(
    Word.SERVING, at=AT, by="a rollback", figure=Figure(10.5, AT, "a rollback"), proven_at=AT
)
BASE = BaselineFacts("ws", PROVEN, 0.25, 10.35, 9.5)
STATE = WatchState(
    word=SERVING, at=1_750_000_000.0, level=10.4, reference=10.5, looks=7, asks=5, restored=2,
    events={"slower": 1},
)  # fmt: skip
RUNS = [
    RunFacts("succeeded", "go", {"GO": 2}, 0, 1.0, 8.0),
    RunFacts("rolled_back", "", {"NO-GO": 1, "GO": 1}, 1, 2.0, 9.0),
    RunFacts("succeeded", "go", {}, 0, 3.0),
    RunFacts("succeeded", "hold", {"GO": 1}, 0, 4.0, mark="DOUBTFUL"),
]
LINE = re.compile(
    r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"(,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\})? \S+'
)
SITE = """
schema: omni.site/v1
name: ws
baseline:
  process: {argv: [cat]}
  url: http://127.0.0.1:1
  reference: {tok_s: 10.35}
"""


def page() -> str:
    return text("0.1.0", BASE, STATE, RUNS, SAMPLE)


def test_every_family_has_its_help_and_type_and_every_value_is_a_number() -> None:
    seen: dict[str, str] = {}
    for line in page().splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in seen
            assert name.endswith("_total") == (kind == "counter"), name
            seen[name] = kind
        elif not line.startswith("# HELP "):
            assert LINE.fullmatch(line), line
            assert line.split("{")[0].split(" ")[0] == list(seen)[-1]
            float(line.rpartition(" ")[2])
    assert len(seen) > 25
    assert "\x1b" not in page()


def value(name: str, labels: str = "") -> str:
    [found] = [
        line.rpartition(" ")[2] for line in page().splitlines()
        if line.startswith(f"{name}{labels and '{' + labels + '}'}") and line[0] != "#"
    ]  # fmt: skip
    return found


def test_figures() -> None:
    assert value("omni_baseline_up", 'site="ws"') == "1"
    assert value("omni_baseline_proven", 'site="ws"') == "1"
    assert value("omni_runs", 'state="succeeded",decision="go"') == "2"
    assert value("omni_gates", 'verdict="GO"') == "3"
    assert value("omni_gates", 'verdict="GO",mark="doubtful"') == "1", "no GO to act upon"
    assert value("omni_runs_doubtful") == "1"
    assert value("omni_guard_kills") == "1"
    assert value("omni_rollback_last_restore_seconds") == "9", "of the newest run with a restore"
    assert value("omni_gpu_utilization_ratio") == "0.5"
    assert value("omni_memory_pressure_ratio", 'kind="some"') == "0.125"
    assert value("omni_watch_events_total", 'site="ws",event="slower"') == "1"
    states = [value("omni_watch_state", f'site="ws",state="{word}"') for word in WORDS]
    assert sorted(states) == ["0"] * (len(WORDS) - 1) + ["1"]
    for unknown in ("omni_gpu_power_limit_watts", "/dead", 'kind="full"'):
        assert unknown not in page(), "an unknown figure is left out"


def test_one_that_serves_unproven_or_was_measured_beside_others_says_so() -> None:
    figure = Figure(12.0, 5.0, "a rollback", beside=True)
    state = BaselineState(Word.SERVING, figure=figure, proven_at=5.0, doubt="not proven since …")
    out = text("0.1.0", BaselineFacts("ws", state), None, [], None)
    assert 'omni_baseline_up{site="ws"} 1' in out
    assert 'omni_baseline_proven{site="ws"} 0' in out
    assert 'omni_baseline_tokens_per_second_beside_others{site="ws"} 1' in out


def test_nothing_known_is_still_a_page() -> None:
    out = text("0.1.0", BaselineFacts("ws"), None, [], None)
    assert "omni_baseline_up" not in out
    assert 'omni_watch_running{site="ws"} 0' in out


@pytest.mark.parametrize("page_of_docs", ["grafana.json", "watch.md"])
def test_what_dashboard_and_guide_ask_for_is_on_the_page(page_of_docs: str) -> None:
    asked = set(re.findall(r"\bomni_[a-z_]+", (DOCS / page_of_docs).read_text("utf-8")))
    there = set(re.findall(r"^# TYPE (\w+)", page(), re.MULTILINE)) | {"omni_console"}
    there |= {"omni_gpu_power_limit_watts"}  # the card of this page tells none
    assert asked
    assert asked - there == set()


def test_promtool_is_silent() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian's package prometheus has it)")
    done = subprocess.run([promtool, "check", "metrics"], input=page(), capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# -- the command -------------------------------------------------------------------------------


@pytest.fixture
def site(home: Path) -> Path:
    path = home / "site.yaml"
    path.write_text(SITE)
    return path


def test_the_command_reads_runs_the_watch_and_the_machine(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shelved(STAYS)
    record.write("ws", replace(STATE, asked_at=time.time(), tok_s=9.25), {})
    seen = Evidence(Kind.PROOF, Word.SERVING, time.time(), Witness.WATCH, "", 9.25)
    evidence.keep("ws", "http://127.0.0.1:1", seen)
    for _ in range(2):  # the second time from what the first one kept
        assert main(["metrics", "--site", str(site)]) == 0
        out = capsys.readouterr().out
        assert 'omni_baseline_up{site="ws"} 0' in out
        assert 'omni_baseline_tokens_per_second{site="ws"} 9.25' in out
        assert 'omni_runs{state="' in out
        assert "omni_memory_available_bytes " in out


@pytest.mark.parametrize(("answers", "up"), [("refused", 0), ("silent", 1)])
def test_a_watch_that_has_just_seen_it_serve_hides_no_death(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    answers: str, up: int,
) -> None:  # fmt: skip
    """Of a server that is silent it knows more than one look: whether it computes."""
    monkeypatch.setattr(observe, "somebody_else", lambda plan: "")
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1] if answers == "silent" else 1
    site, now, me = home / "site.yaml", time.time(), os.getpid()
    site.write_text(SITE.replace("127.0.0.1:1", f"127.0.0.1:{port}"))
    start = process.start_time(me)
    assert start is not None
    record.write("ws", WatchState(word=SERVING, at=now - 20.0, pid=me, start=start), {})
    seen = Evidence(Kind.PROOF, Word.SERVING, now - 20.0, Witness.WATCH, "", 9.25)
    evidence.keep("ws", f"http://127.0.0.1:{port}", seen)
    with silent:
        assert main(["metrics", "--site", str(site)]) == 0
    out = capsys.readouterr().out
    assert f'omni_baseline_up{{site="ws"}} {up}' in out
    assert f'omni_baseline_state{{site="ws",state="serving"}} {up}' in out


def test_a_textfile_is_replaced_whole_and_its_directory_has_to_be_there(
    site: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = home / "textfile"
    assert main(["metrics", "--site", str(site), "--textfile", str(there)]) == Exit.USAGE
    there.mkdir()
    for _ in range(2):
        assert main(["metrics", "--site", str(site), "--textfile", str(there)]) == 0
    [file] = there.iterdir()
    assert file.name == "omni_console.prom"
    assert file.stat().st_mode & 0o777 == 0o644
    assert file.read_text().endswith("\n")
    assert capsys.readouterr().out == ""


# -- /metrics ----------------------------------------------------------------------------------


@contextmanager
def served(
    monkeypatch: pytest.MonkeyPatch, code: int = 0, host: str = "127.0.0.1"
) -> Iterator[tuple[str, list[str]]]:
    """The address, and the command lines of children that made the page."""
    asked: list[str] = []

    def run(argv: list[str], *_: object, **__: object) -> tuple[int, bytes, bytes]:
        asked.append(" ".join(argv))
        return code, b"omni_x 1\n", b""

    monkeypatch.setattr(scrape.children, "run", run)
    made = Scrape(f"{host}:0", "/s.yaml", 60.0, FakeClock())
    made.start()
    try:
        yield f"http://{host}:{made.port}", asked
    finally:
        made.close()


def test_however_often_it_is_asked_the_page_is_made_once_an_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(monkeypatch) as (url, asked):
        for _ in range(3):
            with urllib.request.urlopen(f"{url}/metrics?x=1") as reply:
                assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                assert reply.read() == b"omni_x 1\n"
        assert len(asked) == 1
        assert asked[0].endswith("metrics --site /s.yaml")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{url}/")


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_wrong_facts_of_a_run_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(metrics, "all_runs", lambda: [RunDir(tmp_path / "r1")])
    over = RunFacts("succeeded", "go", {"GO": 1}, 0, 1.0, 8.0, "DOUBTFUL")
    reads = list[RunDir]()
    monkeypatch.setattr(metrics, "_read", lambda run: reads.append(run) or (over, True))
    assert [metrics._runs(), metrics._runs()] == [[over], [over]]
    assert len(reads) == 1
    (path,) = tmp_path.rglob(metrics.CACHE)
    good = path.read_text()
    row = json.loads(good)["r1"]
    del row["facts"]["mark"]
    for wrong in [json.dumps({"r1": row}), *(wrong for _, wrong in wrong_files(good))]:
        reads.clear()
        path.write_text(wrong)
        assert metrics._runs() == [over]
        assert (len(reads), path.read_text()) == (1, good)


def test_the_loopback_of_version_6(monkeypatch: pytest.MonkeyPatch) -> None:
    assert WatchModel.model_validate({"metrics": "[::1]:9909"}).metrics == "[::1]:9909"
    with (
        served(monkeypatch, host="[::1]") as (url, _),
        urllib.request.urlopen(f"{url}/metrics") as reply,
    ):
        assert reply.read() == b"omni_x 1\n"


def test_a_page_that_cannot_be_made_is_an_error_and_no_empty_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        served(monkeypatch, code=1) as (url, _),
        pytest.raises(urllib.error.HTTPError, match="503"),
    ):
        urllib.request.urlopen(f"{url}/metrics")


def test_an_address_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch) as (url, _), pytest.raises(ConsoleError, match="cannot be served"):
        Scrape(url.removeprefix("http://"), "", 60.0).start()


@pytest.mark.parametrize(
    "address", ["0.0.0.0:9909", "10.0.0.1:9909", "host:9909", "9909", "127.0.0.1:0", "[::]:9909",
                "::1:9909", "[127.0.0.1]:9909", "[::1]", "127.0.0.1:70000"],
)  # fmt: skip
def test_only_loopback_is_served(
    address: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write_text(f'{SITE}watch: {{metrics: "{address}"}}\n')
    assert main(["lint", str(site)]) == Exit.LINT
    assert "loopback" in capsys.readouterr().out
    site.write_text(f'{SITE}watch: {{metrics: "127.0.0.1:9909"}}\n')
    assert main(["lint", str(site)]) == 0
