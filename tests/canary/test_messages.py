"""What leaves this machine beside planted secrets: messages to people, frames to an operator, the
pages of a browser."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute
from websockets.sync.client import connect

from console.fleet.protocol import VERSION
from console.frontends.cli.parser import Parser
from console.frontends.web.access import Access, Addresses
from console.frontends.web.desk import Desk
from console.frontends.web.server import Site
from console.notify import channels
from console.notify.channels import deliver
from console.notify.event import URGENCY, Event
from tests.canary.planting import LIVE, Canaries, leaks, planted, stranger
from tests.notify.hook import serving
from tests.notify.made import channel
from tests.notify.made import event as made
from tests.notify.stories import Journal, verdict
from tests.runner.e2e.world import COMMAND, LIMIT_S
from tests.testbed.nvml import Nvml
from tests.ui.place import Place
from tests.waiting import until
from tests.web.served import served
from tests.web.test_command import enter

ELSEWHERE = {"baseline-down", "baseline-back", "slower", "lessons-due"}
"""What the watch posts, not a run: its words have passed the look, which has tests of its own."""


def news(words: Canaries) -> Iterator[Event]:
    """Each kind of message that a run's journal leads to, with a secret in every text."""

    def begun() -> Journal:
        return Journal(book=words("playbook"), title=words("title"), inputs={"a": words("input")})

    def breach(**more: Any) -> Journal:
        return begun().add("guard", kind="breach", words=words("breach"), **more)

    yield from begun().state("waiting_approval", detail=words("question")).news
    yield from begun().state("paused", reason=words("reason"), detail=words("pause")).news
    yield from breach(killed=[{"name": words("killed")}], cause=words("cause of a breach")).news
    yield from breach(cause="lease").news
    yield from breach(cause="allocation").news
    yield from begun().add("guard", kind="lease", words=words("lease"), left_s=60.0).news
    story = verdict(begun(), "GO", words("outcome"))
    story.add("metrics", metrics={}, scope=words("scope"), contract={"words": words("contract")})
    story.add("cutover", what="stays", service=words("service"))
    story.add("serving", tok_s=5.0, by=words("by"))
    yield from story.state("succeeded", reason=words("end"), detail=words("detail")).news
    failed = begun().step("load", "running")
    failed.step("load", "failed", cause=words("cause"), detail=words("why"))
    yield from failed.state("failed").news
    yield from begun().state("rollback_failed", detail=words("not proven")).news


def test_no_message_on_any_channel_holds_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, kept = Canaries(), tmp_path / "kept"
    program = tmp_path / "sendmail"
    program.write_text(f"#!/bin/sh\nexec >>{kept} 2>&1\nenv\ncat\necho\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    found = list(news(words))
    assert {one.kind for one in found} >= set(URGENCY) - ELSEWHERE | {"run-end"}
    with serving() as hook:
        for event in found:
            for keys in ({"command": [str(program)]}, {"mail": "me@host.example"},
                         {"webhook": hook.url}, {"ntfy": f"{hook.url}/topic"}):  # fmt: skip
                answer = deliver(channel(**keys), event)
                assert answer.delivered, answer
    told = kept.read_text() + "".join(f"{one.headers} {one.body}" for one in hook.came)
    assert leaks(words, told) == set()
    assert told.count("*****") > 50, "what was planted was told"


@pytest.mark.parametrize("shift", [0, 3, 10, 11])
def test_what_a_channel_answers_is_kept_without_its_secrets(shift: int) -> None:
    """The end of a long output is kept: the cut may take the mark of a secret, or a part of it."""
    said = "--api-key C4nary99zz" + " y" * channels.MAX_SAID
    print_it = f"print({said!r}[:{channels.MAX_SAID + shift}], end='')"
    answer = deliver(channel(command=[sys.executable, "-S", "-c", print_it]), made("k"))
    assert answer.delivered
    assert "ary99" not in answer.words
    with serving() as hook:
        hook.status, hook.said = 500, b"no: --api-key C4nary99z"
        assert "ary99" not in deliver(channel(webhook=hook.url), made("k")).words


def test_a_program_that_repeats_its_command_line_is_kept_without_its_secrets() -> None:
    argv = [sys.executable, "-S", "-c", "import sys; sys.exit('no ' + sys.argv[2])"]
    answer = deliver(channel(command=[*argv, "--token", "C4nary99z"]), made("k"))
    assert answer.words == "exit code 1: no *****"


def frames(place: Place, *asked: dict[str, Any]) -> str:
    """What the host's side of a fleet says to these questions."""
    given = "".join(
        json.dumps({"id": n, "v": VERSION, **one}) + "\n" for n, one in enumerate(asked)
    )
    done = subprocess.run(
        [COMMAND, "bridge"], input=given, env=place.env, cwd=place.root, timeout=LIMIT_S,
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == len(asked) + 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.full
def test_no_frame_of_a_bridge_holds_a_secret(tmp_path: Path, nvml: Nvml) -> None:
    with planted(tmp_path / "place", nvml) as (place, _, words):
        stranger(place, words, place.cand_port)
        book = (place.root / "a-good-one.yaml").read_text()
        seen = {"step": "two", "attempt": 1, "evidence": "e"}
        told = frames(
            place, {"ask": "state"}, {"ask": "journal", "run": LIVE, "since": 0, "attend": True},
            {"ask": "journal", "run": "ffff"}, {"ask": "plan", "text": book, "name": "a-good-one"},
            {"ask": "ready"}, {"ask": "tell", "run": LIVE, "verb": "skip", "seen": seen},
            {"ask": "tell", "run": words("run's name"), "verb": words("verb")},
            {"ask": words("question")},
        )  # fmt: skip
        assert leaks(words, told) == set()
        assert "*****" in told
        token = next(one["token"] for one in map(json.loads, told.splitlines()) if "token" in one)
        assert "*" not in token, "it is meant for who asks"


ASKED = {"/api/enter", "/api/leave", "/api/status", "/api/verb", "/api/console"}
"""What a browser asks the server for beside its pages; the walk below asks for each."""


def routes() -> set[str]:
    """Every path that the server of the browser's side answers."""
    site = Site(Access(), Addresses("127.0.0.1", 1), Desk(site=None, write=True), ())
    served_at = cast("Starlette", site.app._app).routes
    return {one.path for one in served_at if isinstance(one, Route | WebSocketRoute)}


def pages() -> list[str]:
    return sorted(one for one in routes() if not one.startswith("/api/"))


def test_every_route_of_the_server_is_asked_for() -> None:
    assert {one for one in routes() if one.startswith("/api/")} == ASKED, "ask for a new one below"
    assert {"/", "/console", "/enter"} <= set(pages())


@pytest.mark.full
def test_no_page_and_no_terminal_of_a_browser_shows_a_secret(tmp_path: Path, nvml: Nvml) -> None:
    with planted(tmp_path / "place", nvml) as (place, standing, words):
        stranger(place, words, place.cand_port)
        with served(place, "--write") as web, httpx.Client(trust_env=False) as client:
            assert enter(client, web.base, web.token) == 200
            key = client.post(
                f"{web.base}/api/enter", headers={"Origin": web.base},
                content=json.dumps({"token": web.link().partition("#")[2]}),
            ).json()["key"]  # fmt: skip
            ours = {"X-Omni-Key": key, "Origin": web.base}
            told = ""

            def look() -> dict[str, Any]:
                nonlocal told
                answer = client.get(f"{web.base}/api/status", headers=ours)
                told += answer.text
                found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
                return found  # nothing where it was asked too often

            until(
                lambda: all(look().get(one) for one in ("log", "gauges", "run")),
                "the page shows all",
                LIMIT_S,
            )
            standing.ask()
            asked = until(
                lambda: (found := look()).get("question") and found, "the page asks", LIMIT_S
            )
            verb = {"verb": "approve", **asked["seen"], "confirm": words("typed by hand")}
            told += client.post(f"{web.base}/api/verb", headers=ours, content=json.dumps(verb)).text
            standing.held()
            standing.roll_back()
            until(lambda: look().get("run", {}).get("word") == "paused", "it stands", LIMIT_S)
            for path in (*pages(), f"/nowhere/{words('address')}"):
                told += client.get(f"{web.base}{path}", headers=ours).text
            wrong = json.dumps({"token": words("token of nobody")})
            told += client.post(f"{web.base}/api/enter", headers=ours, content=wrong).text
            cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
            door = web.base.replace("http", "ws", 1)
            drawn = b""
            with connect(
                f"{door}/api/console", proxy=None, max_size=None, user_agent_header=None,
                additional_headers={"Origin": web.base, "Cookie": cookies},
            ) as socket:  # fmt: skip
                socket.send(json.dumps({"key": key, "size": [120, 40]}))
                while b"Help" not in drawn:
                    part = socket.recv(LIMIT_S)
                    drawn += part if isinstance(part, bytes) else part.encode()
            told += client.post(f"{web.base}/api/leave", headers=ours).text
        told += drawn.decode("utf-8", "replace") + web.said
        assert leaks(words, told) == set()
        assert told.count("*****") > 10


@pytest.mark.parametrize("as_json", [False, True])
def test_bad_usage_repeats_no_secret(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="omni-console")
    parser.as_json = as_json
    for typed in (["--api-key", "C4naryKey9x"], ["http://u:C4naryKey9x@h/?k=C4naryKey9x"]):
        with pytest.raises(SystemExit):
            parser.parse_args(typed)
    printed = "".join(capsys.readouterr())
    assert "unrecognized arguments" in printed
    assert "C4naryKey9x" not in printed
