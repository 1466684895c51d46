"""Signs that a state is shown by, in Unicode or in ASCII: legible without colour, one cell wide."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of signs; every sign is one cell, `bar` runs from empty to full."""

    pending: str
    running: str
    succeeded: str
    failed: str
    skipped: str
    cancelled: str
    in_doubt: str
    retry_wait: str
    full: str
    empty: str
    levels: str
    ellipsis: str
    dot: str
    arrow: str
    more: str
    mark: str
    up: str
    line: str

    def step(self, state: str) -> str:
        """The sign of a step's state."""
        return str(getattr(self, state, " "))


UNICODE = Glyphs(
    pending="·", running="▶", succeeded="✓", failed="✗", skipped="–", cancelled="■",
    in_doubt="?", retry_wait="↻", full="█", empty="░", levels="▁▂▃▄▅▆▇█", ellipsis="…",
    dot="●", arrow="▸", more="›", mark="┃", up="▲", line="─",
)  # fmt: skip
ASCII = Glyphs(
    pending=".", running=">", succeeded="+", failed="x", skipped="-", cancelled="#",
    in_doubt="?", retry_wait="~", full="#", empty=".", levels="_.-=+*%#", ellipsis="~",
    dot="*", arrow=">", more=">", mark="|", up="^", line="-",
)  # fmt: skip

_current = UNICODE


def use_ascii(wanted: bool) -> None:
    """Choose the set for this process, once, before the first frame."""
    global _current
    _current = ASCII if wanted else UNICODE


def glyphs() -> Glyphs:
    """The set in use."""
    return _current
