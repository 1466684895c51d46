"""The form of a fact, and the tones of what it is about. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
