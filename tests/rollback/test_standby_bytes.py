"""A byte that was answered another way rolls nothing back when its standby goes on at last."""

from __future__ import annotations

import pytest

from console.recovery.rollback import standby
from console.recovery.rollback.progress import PROGRESS_FILE
from console.recovery.rollback.trigger import ASKED, EMERGENCY, LEAVE, QUIT, SENTINEL
from tests.rollback.conftest import Stage


def line(who: str, stage: str = "done") -> str:
    return f'{{"trigger": "{who}-1-2-ab", "rung": "{stage}", "state": "ok"}}\n'


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        ("", EMERGENCY + SENTINEL + ASKED + QUIT),
        (line("command", "stop"), EMERGENCY + SENTINEL + ASKED + QUIT),
        (line("runner"), EMERGENCY + SENTINEL + QUIT),
        (line("command"), QUIT),
        (line("script"), QUIT),
        (line("command") + line("runner"), QUIT),
    ],
    ids=["nothing", "one that goes on", "the runner's own", "a command's", "a script's", "both"],
)
def test_what_a_starved_standby_still_has_to_do(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, meanwhile: str, left: bytes
) -> None:
    """It is not stopped, but the machine gives it no time for a minute."""
    progress_file = stage.plan.rollback_dir / PROGRESS_FILE
    progress_file.write_text(line("command"))  # of before: it answers nothing
    waiting = standby.Standby(stage.plan.rollback_dir)
    did: list[str] = []

    def wakes_late() -> bytes:
        if did:
            return QUIT
        did.append("woke")
        with progress_file.open("a") as file:
            file.write(meanwhile)
        return EMERGENCY + SENTINEL + ASKED + QUIT

    monkeypatch.setattr(waiting, "_wait_for_bytes", wakes_late)
    monkeypatch.setattr(waiting, "_drain", lambda: b"")
    monkeypatch.setattr(waiting, "_run", did.append)
    waiting.run()
    wanted = {EMERGENCY: "warm", SENTINEL: "sentinel", ASKED: "runner"}
    first = [who for byte, who in wanted.items() if byte in left][:1]
    assert did == ["woke", *first]


def test_leave_is_no_request(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = standby.Standby(stage.plan.rollback_dir)
    monkeypatch.setattr(waiting, "_is_unneeded", lambda *kinds: True)
    monkeypatch.setattr(waiting, "_drain", lambda: b"")
    monkeypatch.setattr(waiting, "_wait_for_bytes", lambda: LEAVE)
    waiting.run()


def test_a_byte_that_came_after_the_end_of_another_rollback_is_new(stage: Stage) -> None:
    """That rollback failed, and somebody presses the key half a minute later."""
    waiting = standby.Standby(stage.plan.rollback_dir)
    waiting.written_at = 5.0
    ended = '{"trigger": "command-1", "rung": "done", "state": "failed", "at": %s}\n'
    for at, left in (("1.0", EMERGENCY), ("6.0", b"")):
        (stage.plan.rollback_dir / PROGRESS_FILE).write_text(ended % at)
        assert waiting._unanswered(EMERGENCY, 0) == left, at
