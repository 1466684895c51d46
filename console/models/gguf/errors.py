"""Why a GGUF header could not be had, by kind."""

from __future__ import annotations

from enum import StrEnum

from console.common.errors import ConsoleError, Exit


class Kind(StrEnum):
    """What went wrong; the value is how an operator would call it."""

    NOT_GGUF = "not a GGUF file"
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    TRUNCATED = "truncated"
    TOO_BIG = "too big"
    NO_ARCHITECTURE = "no architecture"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    RATE_LIMITED = "rate limited"
    SERVER = "server error"
    UNREACHABLE = "unreachable"
    BROKEN_OFF = "broken off"
    TIMEOUT = "too slow"
    CHANGED = "changed while it was read"
    NO_RANGES = "no ranges"
    PROTOCOL = "wrong answer"


CERTAIN = frozenset({Kind.NOT_GGUF, Kind.MALFORMED, Kind.UNSUPPORTED, Kind.TRUNCATED, Kind.REFUSED})
"""No engine will load it, or it is not to be had: NO-GO. Anything else may be another matter in a
minute: unknown. What is not there is a failure: a slip of the pen must not read as a verdict."""


class GgufError(ConsoleError):
    """A header that cannot be had. `retry_after_s`: when to ask again, where a server said so."""

    def __init__(
        self,
        kind: Kind,
        title: str,
        detail: str = "",
        hint: str = "",
        *,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(title, detail, hint)
        self.kind = kind
        self.exit_code = Exit.NO_GO if kind in CERTAIN else Exit.HOLD
        if kind is Kind.MISSING:
            self.exit_code = Exit.FAILED
        self.retry_after_s = retry_after_s
