"""A look behind a proxy that goes on answering after the baseline has ended."""

import pytest

from console.host import process
from console.recovery.rollback import look, observe
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import Looker
from tests.rollback.conftest import Stage

GONE = "something else answers there; container exited (137) 1 s ago"


def test_whose_answer_it_is_is_asked_again_once_the_process_is_gone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be taken for the baseline's for up to ten seconds more."""
    pid, start = stage.sleeper()
    stage.base(kind="container", process=None, container_name="base")
    asked: list[bool] = []

    def stranger(_: object) -> str:
        asked.append(process.start_time(pid) == start)
        return "" if asked[-1] else GONE

    monkeypatch.setattr(look, "first_bytes", lambda *_: b"HTTP/1.1 200 OK\r\n")
    monkeypatch.setattr(look, "_stranger", stranger)
    monkeypatch.setattr(look, "_renamed", lambda _: "")
    monkeypatch.setattr(look, "OWNER_S", 1e9)
    monkeypatch.setattr(observe, "life", lambda _: f"{pid} 2026-01-01T00:00:00Z")
    looker, plan = Looker(), stage.of_site(site_name="s")
    assert [looker.look(plan).word for _ in range(3)] == [Word.SERVING] * 3
    assert asked == [True]
    process.stop_group(pid, start, grace_s=0.0)
    seen = looker.look(plan)
    assert (seen.word, seen.detail) == (Word.DOWN, GONE)
    assert asked == [True, False]


def test_one_that_this_machine_does_not_have_is_asked_about_as_before() -> None:
    assert look._first_process("") is None
    assert look._first_process("999999999 2026-01-01T00:00:00Z") is None
