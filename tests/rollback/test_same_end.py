"""The rollback and rollback.sh end alike for the same server: exit code, state, restarts."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.journal.watch_record import UNJUDGED
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.stages import verify
from console.runtime import probe
from console.runtime.probe import Health
from console.watch import look as watch
from console.watch.plan import Settings
from tests.rollback.conftest import DASH, Stage, in_script, run_script, serving
from tests.testbed.plugin import lacking

pytestmark = pytest.mark.skipif(DASH is None, reason="needs dash")

SILENT, ASK = {"slow": 60}, "/v1/chat/completions"
HEAD, BODY = "HTTP/1.1 200 OK\r\nX-Slow: ", "HTTP/1.1 {} So\r\nContent-Length: 9999\r\n\r\n{{"


def drips(health: str = "", ask: str = "") -> dict[str, Any]:
    """A server that sends byte by byte, behind what these answers begin with."""
    begins = {"/health": health, ASK: ask}
    return {"drips": {path: begin for path, begin in begins.items() if begin}}


ALIVE: list[tuple[dict[str, Any], int, Word, str]] = [
    ({"uncounted": True}, 0, Word.SERVING, ""),
    ({"raw": {"object": "page"}}, 7, Word.REFUSING, "with no chat completion"),
    ({"health": 500}, 7, Word.UNKNOWN, "HTTP 500"),
    ({"health": 204}, 7, Word.UNKNOWN, "HTTP 204"),
    ({"health": 503, "uncounted": True}, 7, Word.UNKNOWN, "all the same"),
    (drips(health=BODY.format(200)), 0, Word.SERVING, ""),
    (drips(health=HEAD), 7, Word.UNKNOWN, "all the same: is /health its health path?"),
    (drips(health="HTTP/1.1 2"), 7, Word.UNKNOWN, "all the same: is /health its health path?"),
    (drips(health=BODY.format(503)), 7, Word.UNKNOWN, "all the same"),
    (drips(health=BODY.format(404)), 7, Word.UNKNOWN, "all the same"),
    (drips(ask="HTTP/1.1 2"), 7, Word.UNKNOWN, verify.SENDS),
    (drips(ask=HEAD), 7, Word.UNKNOWN, verify.SENDS),
    (drips(ask=BODY.format(200)), 7, Word.UNKNOWN, verify.SENDS),
    (drips(ask=BODY.format(401)), 7, Word.REFUSING, "HTTP 401"),
    (drips(ask=BODY.format(500)), 7, Word.REFUSING, "HTTP 500"),
    (drips(HEAD, HEAD), 7, Word.UNKNOWN, "no whole answer for"),
    ({**drips(health=HEAD), "status": 500}, 7, Word.UNKNOWN, verify.SENDS),
    ({**drips(health="HTTP/1.1 2"), "most": 0}, 7, Word.UNKNOWN, verify.SENDS),
    ({**drips(ask=HEAD), "health": 500}, 7, Word.UNKNOWN, "an error for"),
    ({**drips(ask=HEAD), "health": 404}, 7, Word.UNKNOWN, "HTTP 404"),
    ({**drips(ask=HEAD), "health": 503}, 7, Word.UNKNOWN, "not ready after"),
    ({**drips(ask=HEAD), **SILENT}, 7, Word.UNKNOWN, "no answer for"),
    ({"raw": {"choices": [{"message": {"content": "a b"}}]}}, 0, Word.SERVING, ""),
    ({"health": 500, "status": 401}, 7, Word.REFUSING, "HTTP 401"),
    ({"health": 503, "status": 429}, 7, Word.REFUSING, "HTTP 429"),
    ({**SILENT, "status": 404}, 7, Word.REFUSING, "HTTP 404"),
    ({**drips(health=HEAD), "status": 401}, 7, Word.REFUSING, "HTTP 401"),
    ({**drips(health=BODY.format(200)), "status": 401}, 7, Word.REFUSING, "HTTP 401"),
]
GONE: list[tuple[dict[str, Any], Word]] = [
    ({"health": 500, "status": 500}, Word.DOWN),
    ({**SILENT, "most": 0}, Word.DOWN),
    ({"message": {}}, Word.GARBLED),
]


def ended(stage: Stage, way: str) -> tuple[int, str, Word]:
    """Exit code and words of a rollback, and the state that every face shows after it."""
    stage.base(ready_timeout_s=3.0)
    stage.seal(site_name="alike")
    if way == "script":
        done = run_script(stage)
        code, words = done.returncode, done.stdout
    else:
        result = stage.roll_back()
        code, words = int(result.exit_code), result.detail
    return code, words, evidence.state(stage.plan).word


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HUNG_S", "QUICK_S", "REFUSING_S"):
        monkeypatch.setattr(verify, name, 1.0)


@pytest.mark.parametrize("way", ["ladder", "script"])
@pytest.mark.parametrize(("told", "code", "word", "said"), ALIVE)
def test_what_answers_is_left_alone(
    stage: Stage, lines: Path, way: str, told: dict[str, Any], code: int, word: Word, said: str
) -> None:
    before = serving(stage, lines, **told)
    result, words, state = ended(stage, way)
    assert (result, state) == (code, word), words
    assert said in words
    assert process.alive(*before), words


@pytest.mark.parametrize("way", ["ladder", "script"])
@pytest.mark.parametrize(("told", "word"), GONE)
def test_what_does_not_answer_is_restarted_once(
    stage: Stage, lines: Path, way: str, told: dict[str, Any], word: Word
) -> None:
    before = serving(stage, lines, **told)
    code, words, state = ended(stage, way)
    assert code == 7
    assert state in (word, Word.LOADING), words  # one that has just begun may be seen to work
    assert not process.alive(*before), words


@pytest.mark.parametrize("client", ["curl", "python3", "wget"])
@pytest.mark.parametrize(("told", "status"), [
    ({}, 200), ({"health": 404}, 404), ({"health": 401}, 401), ({"health": 500}, 500),
    ({"health": 503}, 503), ({"health": 302}, 302), (SILENT, 0), (drips("HTTP/1.1 2"), 100),
    (drips(HEAD), 100), (drips(BODY.format(200)), 200), (drips(BODY.format(404)), 404),
])  # fmt: skip
def test_each_client_tells_the_same_of_a_health_path(
    stage: Stage, lines: Path, client: str, told: dict[str, Any], status: int
) -> None:
    if shutil.which(client) is None:
        lacking(f"needs {client}")
    serving(stage, lines, **told)
    code, said = in_script(stage, f'CLIENT={client}; http_code "$HEALTH"')
    assert code == 0
    assert said == f"{status:03}\n"
    state, detail = probe.health(stage.plan.baseline.url)
    assert state is {0: Health.UNHEALTHY, 100: Health.SLOW}.get(status, state)
    assert (f"HTTP {status}" in detail or status == 503) is (status >= 200), detail


@pytest.mark.full
@pytest.mark.parametrize("client", ["curl", "python3", "wget"])
def test_each_client_hears_the_same_answer(stage: Stage, lines: Path, client: str) -> None:
    """Its text may speak of HTTP, too."""
    if shutil.which(client) is None:
        lacking(f"needs {client}")
    serving(stage, lines)
    body = f'CLIENT={client}; LEFT=""; is_ours() {{ :; }}\nprove; echo "$? $WORD"'
    told: dict[str, Any]
    for told, ends in [
        ({"message": {"content": "it said HTTP/1.1 404 Not Found to me"}}, "0 no"),
        ({"status": 401}, "1 refusing"), ({"status": 500, "error": "odd"}, "1 refusing"),
        ({"raw": []}, "1 refusing"), ({"uncounted": True}, "0 no"), ({"most": 0}, "2 down"),
        (drips(ask="HTTP/1.1 2"), "1 unknown"), (drips(ask=HEAD), "1 unknown"),
        (drips(ask=BODY.format(200)), "1 unknown"), (drips(ask=BODY.format(401)), "1 refusing"),
    ]:  # fmt: skip
        lines.write_text(json.dumps(told))
        # long enough for a client that starts slowly: only one that drips is waited for to its end
        said = in_script(stage, f"WORD=no; ASK_S={4 if 'drips' in told else 30}; {body}")[1]
        assert said.splitlines()[-1] == ends, (told, said)


def test_the_watch_restores_nobody_who_refuses(stage: Stage, lines: Path) -> None:
    """As a rollback does: its health path says an error, and a completion wants a key."""
    serving(stage, lines, health=500, status=401)
    found = watch.Looker(stage.plan, Settings(interval_s=60.0)).look()
    assert (found.word, found.requested) == (UNJUDGED, True)
    assert "HTTP 401" in found.detail


def test_what_is_seen_to_work_still_loads(stage: Stage, lines: Path) -> None:
    """And is left alone, by its processes and not by what its health path says."""
    idle, works = stage.sleeper("no"), stage.spawn([sys.executable, "-c", "while 1: pass"], "no")
    for (pid, _), loads in ((idle, False), (works, True)):
        body = f"code=503; spent=''; worked=''; own_pids() {{ echo {pid}; }}\n"
        body += "look_at_work; sleep 1.2; look_at_work; if still_loads; then echo yes; fi"
        assert (in_script(stage, body)[1] == "yes\n") is loads
