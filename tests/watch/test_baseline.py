"""The badge's baseline: real servers that serve, load, refuse, hang; an engine's own words."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common import paths
from console.frontends.cli.watch import metrics
from console.frontends.tui.watch.baseline import BaselineView, BaselineWatch
from console.host import process
from console.recovery.rollback import evidence
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.recovery.rollback.look import Looker, answers_200
from console.recovery.rollback.sealed_plan import Baseline, EngineAddress, SealedPlan
from console.render.watch.metrics import text
from console.runtime import proxy
from console.runtime.probe import Health, health
from tests.children import making
from tests.ports import free_port
from tests.rollback.conftest import Stage, lines
from tests.runtime.serving import serving, unix_listener
from tests.waiting import some, until
from tests.watch.conftest import Hand, gone

__all__ = ["lines"]

Watch = Callable[..., BaselineWatch]


@pytest.fixture
def watch() -> Iterator[Watch]:
    def go(plan: SealedPlan | None = None, **more: Any) -> BaselineWatch:
        made = BaselineWatch(lambda view: None, 0.02, **more)
        made.follow(plan)
        made.start()
        return made

    def close(one: BaselineWatch) -> None:
        one.close()
        gone([one._thread])

    with making(go, close) as make:
        yield make


def wait(watch: BaselineWatch, word: str) -> BaselineView:
    found: BaselineView = until(lambda: (v := watch.latest) and v.word == word and v, word)
    return found


def detail(watch: BaselineWatch) -> str:
    known = watch.latest.state if watch.latest is not None else None
    return known.detail if known is not None else ""


def test_serving_with_its_proof_then_degraded_then_gone(stage: Stage, watch: Watch) -> None:
    stage.seal(site_name="ws")
    stage.start_baseline()
    found = wait(looking := watch(stage.plan), "serving")
    known = some(found.state)
    assert (known.figure, known.proven_at, known.doubt) == (None, 0.0, "")
    assert (found.name, found.url) == ("ws", stage.plan.baseline.url)
    assert looking.verify() == "serving: 8 tokens, 50.0 tok/s"
    until(lambda: (v := looking.latest) and v.state and v.state.proven_by == "v", "it is proven")
    slow = Evidence(
        Kind.MEASURED, Word.SERVING, time.time(), Witness.ROLLBACK, "", 3.0, degraded=True
    )
    evidence.record(stage.plan, slow)
    known = some(wait(looking, "degraded").state)
    assert some(known.figure).tok_s == 3.0
    assert known.proven_by == "a rollback"
    stage.close()
    wait(looking, "down")
    assert looking.verify().startswith("not serving")


def test_what_this_run_has_stopped_is_down_and_nothing_else_is(stage: Stage, watch: Watch) -> None:
    looking = watch(stage.plan)
    wait(looking, "down")
    looking.follow(stage.plan, planned=True)
    until(lambda: looking.latest and looking.latest.planned, "it is down for the run")
    assert detail(looking) == "for this run"
    elsewhere = replace(stage.plan.baseline, url=f"http://127.0.0.1:{free_port()}")
    looking.follow(stage.plan, planned=True, stopped=replace(stage.plan, baseline=elsewhere))
    looking.look()
    until(lambda: looking.latest and not looking.latest.planned, "it is another one's outage")
    looking.follow(stage.plan, planned=True, stopped=stage.plan)
    looking.look()
    until(lambda: looking.latest and looking.latest.planned, "it is that run's")
    looking.follow(stage.plan, planned=False)
    until(lambda: looking.latest and not looking.latest.planned, "it is down for no run")
    assert detail(looking) == "connection refused"
    stage.start_baseline()
    wait(looking, "serving")
    looking.follow(stage.plan, planned=True)
    wait(looking, "serving")
    stage.close()
    looking.follow(stage.plan, planned=False)
    until(lambda: detail(looking) == "its process has ended", "it has ended")
    assert some(looking.latest).word == "down"


def test_a_candidate_that_clients_were_given_to_and_that_is_silent_is_no_healthy_cutover(
    stage: Stage, watch: Watch, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients get nothing, whatever the run has planned; of the baseline nothing is kept."""
    stage.seal(site_name="ws")
    url = stage.plan.baseline.url
    relay = proxy.Relay(1, 1, url, url, "cand", "", os.getuid())
    monkeypatch.setattr(proxy, "recorded", lambda records, at: relay)
    lines.write_text("{}")
    stage.start_baseline()
    looking = watch(stage.plan)
    looking.follow(stage.plan, planned=True)
    assert wait(looking, "cut over").state == some(looking.latest).state
    assert detail(looking).startswith("to cand, not promoted; F12")
    lines.write_text('{"health": 404}')
    assert Looker().look(stage.plan).word is Word.CUT_OVER, "it has another health path"
    lines.write_text('{"health": 502}')
    told = "cut over to cand, not promoted, AND ITS HEALTH PATH SAYS: HTTP 502"
    until(lambda: told in detail(looking), "it says so")
    assert some(looking.latest).word == "unknown", "only a completion tells"
    stage.close()
    until(lambda: "not promoted, AND DOES NOT ANSWER; F12" in detail(looking), "it is gone")
    assert not some(looking.latest).planned
    facts = metrics._baseline(stage.plan, None)
    page = text("0", facts, None, [], None)
    assert 'omni_baseline_up{site="ws"} 0' in page
    assert 'omni_baseline_state{site="ws",state="down"} 1' in page
    assert 'omni_baseline_state{site="ws",state="cut over"} 0' in page
    assert evidence.read("ws", url) == []


def test_a_candidate_that_does_not_answer_in_time_is_unknown_and_one_that_refuses_is_down(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may compute: nobody knows it for dead, and of the baseline's past nothing is said."""
    monkeypatch.setattr("console.recovery.rollback.look.HEALTH_S", 0.05)
    monkeypatch.setattr(
        proxy, "recorded", lambda records, at: proxy.Relay(1, 1, at, at, "cand", "", os.getuid())
    )
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        stage.base(url=url)
        stage.seal(site_name="ws")
        for before in (Word.DOWN, Word.GARBLED):  # of the baseline, before the cutover
            failed = Evidence(Kind.FAILED, before, time.time() - 60, Witness.WATCH, "refused")
            evidence.record(stage.plan, failed)
            state = Looker().state(stage.plan)
            assert state.word is Word.UNKNOWN
            assert state.reasons[0].startswith(
                "cut over to cand, not promoted, AND DOES NOT ANSWER"
            )
            assert len(state.reasons) == 1
    stage.base(url="http://127.0.0.1:1")
    assert Looker().state(stage.plan).word is Word.DOWN


@pytest.mark.parametrize("ended", [False, True])
def test_a_cutover_whose_relay_is_dead_is_said_by_every_look_until_a_rollback(
    stage: Stage, watch: Watch, ended: bool
) -> None:
    stage.seal(site_name="ws")
    marker = stage.plan.rollback_dir / sealed.CUT_OVER
    run = paths.runs_dir() / "20260101-000000-x" / sealed.ROLLBACK
    run.parent.mkdir(parents=True)
    run.symlink_to(stage.plan.rollback_dir)
    marker.write_text("cand\n")
    told = "cut over to cand, not promoted, but its relay is gone: connection refused; F12"
    if ended:
        progress = stage.plan.rollback_dir / "ladder.jsonl"
        progress.write_text("{}\n")
        os.utime(progress, ns=(0, marker.stat().st_mtime_ns + 1))
    looking = watch(stage.plan)
    looking.follow(stage.plan, planned=True)
    seen = (not ended, ended)  # the first look may be of the time before the run is followed
    until(lambda: (told in detail(looking), wait(looking, "down").planned) == seen)
    elsewhere = replace(stage.plan, run_dir="")  # as doctor, the metrics and the watch have it
    assert (told in Looker().state(elsewhere).detail) is not ended
    assert told not in Looker().state(replace(elsewhere, site_name="other")).detail
    stage.start_baseline()
    looking.follow(stage.plan)
    wait(looking, "serving")  # by hand: its clients are back


def test_loading_says_what_the_server_says(stage: Stage, watch: Watch) -> None:
    spec = some(stage.plan.baseline.process)
    slow = replace(spec, argv=(*spec.argv, "--loading", "1000000"))
    stage.seal(baseline=replace(stage.plan.baseline, process=slow))
    looking = watch(stage.plan)
    wait(looking, "down")
    stage.start_baseline()
    until(lambda: detail(looking) == "503 Loading model")
    assert some(looking.latest).word == "loading"


def test_a_process_that_does_not_listen_yet_is_loading(stage: Stage, watch: Watch) -> None:
    base = stage.plan.baseline
    who = stage.sleeper()
    process.write_record(stage.plan.records_dir, base.name, some(base.process), *who)
    looking = watch(stage.plan)
    wait(looking, "loading")
    assert str(who[0]) in detail(looking)


def test_one_that_answers_nothing_is_unhealthy_and_asked_one_look_at_a_time(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.recovery.rollback.look.HEALTH_S", 0.05)
    others = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        looking = watch(SealedPlan("", "", Baseline("baseline", "process", url)))
        found = wait(looking, "unknown")
        until(lambda: looking.latest is not found)
        looks = [t for t in threading.enumerate() if t.name == "baseline-watch" and t not in others]
        assert len(looks) == 1


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A container engine's socket that says what a test wants: path → (status, value)."""
    said: dict[str, Any] = {"socket": str(tmp_path / "e.sock")}

    def talk(peer: socket.socket) -> None:
        path = peer.recv(65536).split()[1].decode()
        status, value = said.get(path, (404, {"message": "No such container"}))
        body = json.dumps(value).encode()
        peer.sendall(b"HTTP/1.0 %d x\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body)

    with serving(unix_listener(said["socket"]), talk):
        yield said


def boxed(port: int, engine: dict[str, Any]) -> SealedPlan:
    base = Baseline("baseline", "container", f"http://127.0.0.1:{port}", container_name="box")
    return SealedPlan("", "", base, site_name="ws", engine=EngineAddress(engine["socket"]))


def test_refused_asks_the_engine_what_became_of_the_container(
    engine: dict[str, Any], watch: Watch
) -> None:
    where = "/containers/box/json"
    looking = watch(boxed(free_port(), engine))
    for word, told, status, state in (
        ("down", " box", 200, {"Running": True}),
        ("loading", "", 200, {"Status": "exited", "ExitCode": 137}),
        ("down", "137", 500, {}),
        ("unknown", "500", 500, {}),
    ):
        wait(looking, word)
        assert told in detail(looking)
        engine[where] = (status, {"State": state})


def test_somebody_else_at_its_address_is_not_the_baseline(
    engine: dict[str, Any], stage: Stage, watch: Watch
) -> None:
    stage.start_baseline()
    until(lambda: health(stage.plan.baseline.url)[0] is Health.SERVING)
    port = int(stage.plan.baseline.url.rpartition(":")[2])
    engine["/containers/box/json"] = (200, {"State": {"Status": "exited", "ExitCode": 0}})
    wait(watch(boxed(port, engine)), "down")
    engine["/containers/box/json"] = (200, {"State": {"Running": True}})
    wait(watch(boxed(port, engine)), "serving")


def test_what_was_seen_of_one_baseline_says_nothing_of_another(
    stage: Stage, serve: Callable[[bytes], str]
) -> None:
    """A console that follows a run of another site, and comes back."""
    stage.seal(site_name="ws")
    stage.start_baseline()
    until(lambda: health(stage.plan.baseline.url)[0] is Health.SERVING)
    url = serve(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    other = replace(stage.plan, site_name="other", baseline=replace(stage.plan.baseline, url=url))
    looker = Looker()
    for _ in range(2):
        ours = looker.look(stage.plan)
        assert (ours.word, looker.stranger, ours.other) == (Word.SERVING, "", "")
        theirs = looker.look(other)
        assert theirs.word is not Word.SERVING, "a stranger answers there"
        assert theirs.life == "" != ours.life


def test_without_site_and_runs_there_is_none_and_nothing_is_made(watch: Watch) -> None:
    looking = watch()
    assert wait(looking, "none").state is None
    assert looking.verify()
    assert not (paths.state_dir() / "demo").exists()


def test_the_site_file_is_read_when_no_plan_fits_it(tmp_path: Path, watch: Watch) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("schema: omni.site/v1\nname: ws\nbaseline: {container: b}\n")
    looking = watch(site=str(site))
    wait(looking, "unknown")
    site.write_text(
        "schema: omni.site/v1\nname: ws\nengine: {host: 'unix:///nowhere'}\n"
        "baseline: {container: b, url: 'http://127.0.0.1:1', reference: {tok_s: 9}}\n"
    )
    until(lambda: looking.latest and looking.latest.url == "http://127.0.0.1:1")
    assert looking.latest is not None
    assert (looking.latest.name, looking.latest.reference) == ("b", 9.0)


def test_a_plan_sealed_for_the_site_is_preferred_until_the_site_changes(
    tmp_path: Path, hand: Callable[..., Hand], watch: Watch
) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline: {container: new, url: 'http://127.0.0.1:1'}\n"
    )
    base = Baseline("baseline", "container", "http://127.0.0.1:1", container_name="old")
    made = hand()
    plan = SealedPlan("r", str(made.run.path), base, "ws", str(site), site.stat().st_mtime + 1)
    sealed.write(plan, made.run.sealed)
    made.run.site.write_text(site.read_text())
    looking = watch(site=str(site))
    until(lambda: looking.latest and looking.latest.name == "old", str(looking.latest))
    site.write_text(f"{site.read_text()}\n")
    until(lambda: looking.latest and looking.latest.name == "new", str(looking.latest))


def test_aiming_elsewhere_looks_at_once(stage: Stage, watch: Watch) -> None:
    stage.start_baseline()
    until(lambda: health(stage.plan.baseline.url)[0] is Health.SERVING)
    looking = watch()
    looking._poll_s = 600.0
    wait(looking, "none")
    looking.follow(stage.plan)
    wait(looking, "serving")


# -- the one question whether it serves: only a clear yes is a yes -------------------------------


@pytest.fixture
def serve() -> Iterator[Callable[[bytes], str]]:
    """A server that answers every connection with the same bytes, and keeps it open."""
    with ExitStack() as stack:

        def start(answer: bytes) -> str:
            def talk(peer: socket.socket) -> None:
                peer.recv(4096)
                peer.sendall(answer)
                over.wait(60)

            listener = socket.create_server(("127.0.0.1", 0))
            over = stack.enter_context(serving(listener, talk))
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


def test_only_a_200_is_a_yes(serve: Callable[[bytes], str]) -> None:
    for answer in (b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 \r\nX: y\r\n\r\n{}"):
        url = serve(answer)
        assert answers_200(url, "/health", 30.0)
        assert answers_200(f"{url}/v1", "health", 30.0)
    for answer in (
        b"", b"HTTP/1.1 503 Loading\r\n", b"HTTP/1.1 2000 x\r\n", b"garbage 200\r\n",
        b"HTTP/1.1 20", b"\xff" * 500, b"SSH-2.0-x\r\n",
    ):  # fmt: skip
        assert not answers_200(serve(answer), "/health", 0.1), answer


def test_what_cannot_be_asked() -> None:
    for url in (
        "https://127.0.0.1", "http://", "http://127.0.0.1:1", "nonsense", "http://[x", "",
    ):  # fmt: skip
        assert not answers_200(url, "/health", 0.2), url
