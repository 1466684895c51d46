"""The form of a fact, and the words and tones of states, causes and verdicts. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from console.common.text import clean

RUN_TONE = {
    "running": "accent", "paused": "warn", "waiting_approval": "warn", "succeeded": "good",
    "failed": "bad", "cancelled": "warn", "rolled_back": "warn", "rollback_failed": "alarm",
    "interrupted": "bad", "rolling_back": "warn", "stopping": "warn", "unreadable": "bad",
}  # fmt: skip
STEP_TONE = {
    "running": "accent", "succeeded": "good", "failed": "bad", "skipped": "dim", "pending": "dim",
    "cancelled": "warn", "in_doubt": "warn", "retry_wait": "warn", "warned": "warn",
}  # fmt: skip
VERDICT_TONE = {"GO": "good", "NO-GO": "bad", "HOLD": "warn", "open": "warn"}


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that is said of a run: clean text without markup, which any face may put where it
    likes. `key` stays when words change; `tone` is one of those of a row, or "".

    `detail`: what to say where the label and its gate stand in a row already; `brief`: the same in
    a word or two, for a row that has little room; `joint`: what stands between label and value.
    """

    key: str
    label: str
    value: str
    tone: str = ""
    detail: str = ""
    brief: str = ""
    joint: str = ": "

    @property
    def line(self) -> str:
        """`DOUBTFUL: gate go said GO, but it would be NO-GO: …`, for a line of its own."""
        return f"{self.label}{self.joint}{self.value}"


def state_words(word: object) -> str:
    """`rolled back` for `rolled_back`: a state, the cause of a failure or the reason of a pause in
    words; what is none, as of a run that cannot be read, as it came."""
    text = word if isinstance(word, StrEnum) else clean(str(word))
    return text.replace("_", " ") if text.isidentifier() else text


def when(at: float) -> str:
    """Local time with its offset from UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at)) if at else "–"
