"""`omni-console bench URL`: figures, a crowd beside them, and what makes no sense."""

import functools
import json
import re
import time
from pathlib import Path

import pytest

from console.bench.interference import Surroundings
from console.cli import main
from console.frontends.cli import bench
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import (
    BaselineState,
    Evidence,
    Witness,
    Word,
    state_of,
)
from console.recovery.rollback.baseline_state import Kind as Proven
from console.runtime.answers.sanity import Kind
from tests.bench.machine import NoWatch, still
from tests.bench.scripted import Answer, answers, garbage, reply, scripted, sse, streams
from tests.ports import free_port


@pytest.fixture(autouse=True)
def _on_a_still_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine beside the tests is none beside this benchmark."""
    seen = functools.partial(Surroundings, proc=still(tmp_path).proc, watch=NoWatch())
    monkeypatch.setattr(bench, "Surroundings", seen)


def test_a_crowd_is_told_beside_the_single_stream(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(streams(reply(8), 0.002)) as server:
        asked = ["bench", server.url, "--runs", "2", "--max-tokens", "8", "--concurrency", "3"]
        assert main(asked) == 0
    out, err = capsys.readouterr()
    assert re.search(r"^tok_s +[0-9]", out, re.MULTILINE)
    assert re.search(r"^3 streams .*\(9 of 9 ", out, re.MULTILINE)
    assert "run 2/2" in err


def _unsteady(runs: int) -> list[Answer]:
    """Every second reply is far slower: they never agree."""
    return [streams(reply(8), 0.01 if number % 2 else 0.0) for number in range(runs)]


@pytest.mark.parametrize(
    ("words", "most"), [([], 4), (["--max-runs", "6"], 6), (["--max-runs", "3"], 3)]
)
def test_runs_that_vary_go_on_by_a_third_at_most(
    words: list[str], most: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted(*_unsteady(40)) as server:
        main(["bench", server.url, "--runs", "3", "--max-tokens", "8", *words])
        assert len(server.requests) == 1 + most
    assert f"run {most}" in capsys.readouterr().err


def test_a_request_has_the_time_that_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(streams(reply(500), 0.05)) as server:
        asked = ["bench", server.url, "--runs", "1", "--max-tokens", "500", "--timeout", "200ms"]
        assert main([*asked, "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert found["protocol"]["timeout_s"] == 0.2
    assert [void["reason"].partition(":")[0] for void in found["voids"]] == ["transport"]


def test_an_answer_that_does_not_match_what_is_expected_is_void(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with scripted(streams(reply(8))) as server:
        asked = ["bench", server.url, "--runs", "1", "--max-tokens", "8", "--expect"]
        assert main([*asked, "answers? quick"]) == 0
        assert main([*asked, "Paris"]) == 4
        assert main([*asked, "("]) == 2
    out, err = capsys.readouterr()
    assert f"garbled: {Kind.UNEXPECTED}" in out
    assert "--expect '('" in err


def test_a_request_that_was_sent_twice_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    twice = [answers(400, b""), streams(reply(8), 0.001)]
    with scripted(*twice * 5) as server:
        main(["bench", server.url, "--runs", "3", "--max-runs", "3", "--max-tokens", "8"])
    out, err = capsys.readouterr()
    assert "note: 4 of 4 requests" in out
    assert err.count("(sent twice)") == 4


def known_of(
    url: str, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> BaselineState:
    """The state of a site's baseline at `url` after a `bench` of the address `named`."""
    site = tmp_path / "site.yaml"
    site.write_text(
        f"schema: omni.site/v1\nname: measured\n"
        f"baseline: {{process: {{argv: [./serve.sh]}}, url: '{url}', ready: {{http: /health}}}}\n"
    )
    monkeypatch.setenv("OMNI_SITE", str(site))
    main(["bench", named, "--runs", "2", "--max-tokens", "8"])
    return state_of(evidence.read("measured", url), time.time())


@pytest.mark.usefixtures("capsys")
def test_a_benchmark_of_the_baseline_is_evidence_of_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for parts, word in ((garbage(8), Word.GARBLED), (reply(8), Word.SERVING)):
        with scripted(*[streams(parts, 0.002)] * 12) as server:
            other = server.url.replace("127.0.0.1", "localhost")
            state = known_of(server.url, other, monkeypatch, tmp_path)
            assert (state.word, state.by) == (word, "a benchmark")
    assert state.figure is not None
    assert state.doubt == ""


def test_a_benchmark_of_another_server_says_nothing_of_the_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with scripted(*[streams(garbage(8), 0.002)] * 12) as server:
        url = f"http://127.0.0.1:{free_port()}"
        assert known_of(url, server.url, monkeypatch, tmp_path).word is Word.UNKNOWN


def broken(error: dict[str, object] | None) -> Answer:
    """A stream whose second event is an error, or the last."""
    more = [sse({"error": error})] if error else []
    return streams([*reply(8)[:2], *more])


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (broken({"message": "CUDA error: device-side assert triggered"}), Word.DOWN),
        (broken({"message": "no such adapter"}), Word.REFUSING), (broken(None), Word.REFUSING),
        (answers(200, b'{"error": {"message": "broken"}}'), Word.REFUSING),
        (answers(401, b'{"error": "key"}'), Word.REFUSING),
        (answers(404, b'{"error": "no such model"}'), Word.SERVING),
        (answers(429, b'{"error": "too many"}'), Word.SERVING),
        (answers(503, b'{"error": "full"}'), Word.SERVING),
    ],
)  # fmt: skip
def test_a_benchmark_of_which_every_run_failed_is_a_failed_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Answer, word: Word
) -> None:
    """Unless the failure may be that of whoever measures."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with scripted(*[answer] * 12) as server:
        before = Evidence(Proven.PROOF, Word.SERVING, time.time() - 60.0, Witness.ROLLBACK)
        evidence.keep("measured", server.url, before)
        state = known_of(server.url, server.url, monkeypatch, tmp_path)
    assert state.word is word, state
    assert state.proven is (word is Word.SERVING)
    assert ("a benchmark failed" in state.doubt) is (word is not Word.SERVING), state.doubt
