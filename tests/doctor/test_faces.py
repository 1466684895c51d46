"""Every face of the console says the same of the baseline, whatever the witnesses have seen."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.checks.doctor.facts import Level
from console.cli import main
from console.common import paths
from console.frontends.cli import console as plain
from console.frontends.tui.watch.baseline import BaselineWatch
from console.frontends.web import facts as web
from console.host import process
from console.host.ports import owners
from console.host.process import ProcessSpec
from console.recovery.rollback import evidence, sealed_plan
from console.recovery.rollback.baseline_state import UP, Evidence, Kind, Witness, Word
from console.recovery.rollback.sealed_plan import Baseline
from console.runtime import proxy as relay
from tests.cutovers import cut_over
from tests.doctor.conftest import HEAD, Look, on_now
from tests.ports import free_port
from tests.runtime.serving import serving
from tests.waiting import some, until
from widgets.bars import badge

W = Word
PROOF = (Kind.PROOF, W.SERVING, Witness.RUN_START)


def failed(word: Word, witness: Witness) -> tuple[Kind, Word, Witness]:
    return Kind.FAILED, word, witness


SEEN: dict[str, tuple[list[tuple[Kind, Word, Witness]], bytes, Word]] = {
    "nothing": ([], b"200", W.SERVING),
    "proven": ([PROOF], b"200", W.SERVING),
    "rollback failed": ([PROOF, failed(W.DOWN, Witness.ROLLBACK)], b"200", W.UNKNOWN),
    "rollback.sh failed": ([PROOF, failed(W.DOWN, Witness.SCRIPT)], b"200", W.UNKNOWN),
    "it wants a key": ([PROOF, failed(W.REFUSING, Witness.VERIFY)], b"200", W.REFUSING),
    "garbled": ([PROOF, failed(W.GARBLED, Witness.WATCH)], b"200", W.GARBLED),
    "proven after a failure": ([failed(W.DOWN, Witness.ROLLBACK), PROOF], b"200", W.SERVING),
    "loading": ([PROOF], b"503", W.LOADING),
    "its health path refuses": ([PROOF], b"401", W.REFUSING),
    "its health path fails": ([PROOF], b"500", W.UNKNOWN),
    "nothing listens": ([PROOF], b"", W.DOWN),
    "nothing listens, and a rollback failed": (
        [PROOF, failed(W.GARBLED, Witness.ROLLBACK)], b"", W.DOWN,
    ),
    "slow": ([PROOF, (Kind.MEASURED, W.SERVING, Witness.BENCHMARK)], b"200", W.DEGRADED),
}  # fmt: skip


@pytest.fixture
def listening() -> Iterator[Callable[[bytes], str]]:
    """A server whose health path has this status; for "" a port at which nothing listens."""
    listener = socket.create_server(("127.0.0.1", 0))
    status = [b""]

    def talk(peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(b"HTTP/1.1 " + status[0] + b" x\r\nContent-Length: 2\r\n\r\n{}")

    def start(answer: bytes) -> str:
        status[0] = answer
        return url if answer else f"http://127.0.0.1:{free_port()}"

    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with serving(listener, talk):
        yield start


@pytest.mark.parametrize("name", SEEN)
def test_every_face_says_the_same(
    name: str, listening: Callable[[bytes], str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], look: Look,
) -> None:  # fmt: skip
    seen, status, word = SEEN[name]
    url, now = listening(status), time.time()
    runs = f"process: {{argv: [sh, -c, x]}}, url: '{url}', reference: {{tok_s: 28}}"
    text = f"{HEAD}baseline: {{{runs}}}\n"
    site = tmp_path / "site.yaml"
    site.write_text(text)
    for at, (kind, said, witness) in enumerate(seen):
        rate = {Kind.MEASURED: 15.0, Kind.PROOF: 28.0}.get(kind)
        evidence.keep("ws", url, Evidence(kind, said, now - 60 + at, witness, "why", rate))
    watch = BaselineWatch(site=str(site))
    watch.start()
    view = some(watch.first(60.0))
    watch.close()
    assert view.word == word, view
    assert view.as_json()["word"] == word, "fleet, bridge"
    assert word.upper() in "".join(part for part, _ in badge(view, now, 120))
    assert web._baseline(view, now)["word"] == word
    assert plain._baseline(view).startswith(f"baseline ws: {word}")
    assert main(["metrics", "--site", str(site)]) == 0
    page = capsys.readouterr().out
    assert f'omni_baseline_state{{site="ws",state="{word}"}} 1' in page
    assert f'omni_baseline_up{{site="ws"}} {int(word in UP)}' in page
    proven = view.state is not None and view.state.proven
    assert f'omni_baseline_proven{{site="ws"}} {int(proven)}' in page
    if word is W.DEGRADED:
        assert 'omni_baseline_tokens_per_second{site="ws"} 15' in page
    [health], [proof] = look("baseline.health", text), look("baseline.proof", text)
    assert ("serves at" in health.detail) is (word in UP), health
    doubted = any(kind is Kind.FAILED for kind, _, _ in seen[-1:])
    faces = [proof.detail, web._baseline(view, now)["words"], plain._baseline(view)]
    assert ["not proven since" in face for face in faces] == [doubted] * len(faces), faces


@pytest.mark.parametrize("dead", [True, False])
def test_a_dead_engine_and_a_stopped_server_have_one_word_on_every_face(
    dead: bool, listening: Callable[[bytes], str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str], look: Look, request: pytest.FixtureRequest,
) -> None:  # fmt: skip
    """The health path of the one answers, that of the other says nothing."""
    now = time.time()
    url, why = listening(b"200"), "its engine is dead, “EngineDeadError”"
    if not dead:
        mute = socket.create_server(("127.0.0.1", 0))  # connections are taken, by its kernel
        request.addfinalizer(mute.close)
        url, why = f"http://127.0.0.1:{mute.getsockname()[1]}", "no answer; it does not compute"
    text = f"{HEAD}baseline: {{process: {{argv: [sh, -c, x]}}, url: '{url}'}}\n"
    site = tmp_path / "site.yaml"
    site.write_text(text)
    evidence.keep("ws", url, Evidence(Kind.PROOF, W.SERVING, now - 60, Witness.RUN_START))
    kind = Kind.FAILED if dead else Kind.AWAY
    evidence.keep("ws", url, Evidence(kind, W.DOWN, now - 9, Witness.WATCH, why, dead=dead))
    watch = BaselineWatch(site=str(site))
    watch.start()
    view = some(watch.first(60.0))
    watch.close()
    assert (view.word, web._baseline(view, now)["word"]) == ("down", "down"), view
    assert main(["metrics", "--site", str(site)]) == 0
    assert 'omni_baseline_state{site="ws",state="down"} 1' in capsys.readouterr().out
    [found] = look("baseline.health", text)
    faces = [found.detail, web._baseline(view, now)["words"], plain._baseline(view)]
    assert [why in face for face in faces] == [True] * len(faces), faces
    assert f"{url} is down: " in found.detail


@pytest.mark.parametrize("other", [False, True])
def test_a_crash_beside_the_outage_of_another_site_is_a_failure(
    other: bool, tmp_path: Path, look: Look
) -> None:
    ports = [free_port(), free_port()]
    url, theirs = (f"http://127.0.0.1:{ports[at]}" for at in (0, int(other)))
    run = tmp_path / "run"
    base = Baseline("baseline", "process", theirs, process=ProcessSpec(("x",)))
    sealed_plan.write(
        sealed_plan.SealedPlan("r1", str(run), base, "dock"),
        run / sealed_plan.ROLLBACK / sealed_plan.PLAN,
    )
    on_now("r1", directory=str(run))
    text = f"{HEAD}baseline: {{process: {{argv: [sh, -c, x]}}, url: '{url}'}}\n"
    [health] = look("baseline.health", text)
    assert (health.level is Level.FAILED) is other
    if other:
        assert "run r1, which is on, is of another site" in health.detail
        assert f"omni-console rollback --site {tmp_path / 'site.yaml'} brings" in health.hint
    else:
        assert "attach" in health.hint


def test_a_cutover_whose_candidate_is_dead_has_one_word_in_every_line(
    tmp_path: Path, look: Look, request: pytest.FixtureRequest
) -> None:
    """Its relay takes connections and gives no answer; it is known by its record."""
    url, now = f"http://127.0.0.1:{free_port()}", time.time()
    spec = ProcessSpec(relay.argv(relay.address(url), f"127.0.0.1:{free_port()}", "cand"))
    pid, start = process.spawn(spec, log=tmp_path / "log", cookie="r")
    request.addfinalizer(lambda: process.send(pid, start, signal.SIGKILL))
    process.write_record(paths.records_dir("ws"), relay.NAME, spec, pid, start)
    until(lambda: owners(url), "it listens")
    evidence.keep("ws", url, Evidence(Kind.PROOF, W.SERVING, now - 60, Witness.RUN_START))
    text = f"{HEAD}baseline: {{process: {{argv: [sh, -c, x]}}, url: '{url}'}}\n"
    [health], [proof] = look("baseline.health", text), look("baseline.proof", text)
    assert "AND DOES NOT ANSWER" in health.detail
    assert proof.detail.endswith("; now it is down")


def test_no_stranger_at_the_url_of_a_dead_candidate_is_promoted(
    tmp_path: Path, look: Look, capsys: pytest.CaptureFixture[str]
) -> None:
    with cut_over(tmp_path, "ws") as cut:
        text = f"{HEAD}baseline: {{process: {{argv: [sh, -c, x]}}, url: '{cut.url}'}}\n"
        [health] = look("baseline.health", text)
        assert "omni-console promote accepts" in health.hint
        pid, _ = cut.another()
        [health] = look("baseline.health", text)
        assert (health.level, "promote" in health.hint) == (Level.FAILED, False), health
        assert f"something else answers there: pid {pid}, " in health.detail
        assert main(["metrics", "--site", str(tmp_path / "site.yaml")]) == 0
        assert 'omni_baseline_up{site="ws"} 0' in capsys.readouterr().out
