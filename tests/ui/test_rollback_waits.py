"""A rollback that waits for its engine says so, however many commands stand below that line."""

from typing import Any

from console.recovery.rollback.progress import AGAIN, BY_HAND
from screens.emergency import _waits

WORDS = f"the container engine did not answer; {AGAIN} 58 s"
WAITS = {"rung": "stop", "state": "note", "detail": WORDS}
HAND = {"rung": "stop", "state": "note", "detail": f"{BY_HAND}curl -q http://127.0.0.1:1/health"}
STARTS = {"rung": "start", "state": "begin", "detail": ""}


def shown(*lines: dict[str, Any]) -> str:
    return " ".join(words for row in _waits([*lines], 78) for words, _ in row)


def test_the_reason_stays_below_the_commands() -> None:
    assert shown(WAITS, HAND, HAND, HAND) == WORDS


def test_it_goes_once_something_else_is_said() -> None:
    assert shown(WAITS, HAND, STARTS) == ""
    assert shown(WAITS) == "", "its own line is the last one"
    assert shown(STARTS, HAND) == ""
    assert shown() == ""
