"""What a status that brings no file means, and what to do about it."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from console.common.text import one_line
from console.common.units import format_duration
from console.models.gguf.address import Address
from console.models.gguf.errors import GgufError, Kind

LONGEST_WAIT_S = 86_400.0
_NO_TOKEN = (
    "a hub answers so for what is private, gated or not there at all: check the name, accept the "
    "terms on the model's page, and set HF_TOKEN"
)
_TOKEN = "the token given has no access: accept the terms on the model's page, or use another token"


def refusal(
    status: int, headers: dict[str, str], address: Address, *, token_sent: bool, now: float
) -> GgufError:
    """The error for an answer that is neither 200, 206 nor a redirect; `now` is Unix time, s."""
    code, said = headers.get("x-error-code", ""), headers.get("x-error-message", "")
    detail = f"HTTP {status}"
    if code or said:
        detail += f": {one_line(f'{code} {said}', 200)}"
    where = address.shown
    if status in (401, 403):
        hint = _TOKEN if token_sent else _NO_TOKEN
        return GgufError(Kind.REFUSED, f"{where} is refused", detail, hint)
    if status in (404, 410):
        hint = {
            "EntryNotFound": "the repository has no file of this name at this revision",
            "RevisionNotFound": "the repository has no such branch, tag or commit",
        }.get(code, "check the repository, the revision and the file's name")
        return GgufError(Kind.MISSING, f"{where} is not there", detail, hint)
    if status == 429 or status >= 500:
        wait = retry_after(headers, now)
        kind = Kind.RATE_LIMITED if status == 429 else Kind.SERVER
        title = "asks to slow down" if status == 429 else "fails"
        hint = "try again later" if wait is None else f"try again in {format_duration(wait)}"
        if status == 429 and not token_sent:
            hint += "; with HF_TOKEN more is allowed"
        return GgufError(kind, f"{address.authority} {title}", detail, hint, retry_after_s=wait)
    return GgufError(Kind.PROTOCOL, f"{where} gives an answer that is of no use", detail)


def retry_after(headers: dict[str, str], now: float) -> float | None:
    """Seconds until asking again makes sense, at most a day; None where nothing says so.

    `RateLimit: "api";r=0;t=55` counts before `Retry-After`, in seconds or as a date.
    """
    limit = re.search(r";\s*t=(\d{1,9})\b", headers.get("ratelimit", ""))
    said = headers.get("retry-after", "").strip()
    if limit:
        wait = float(limit[1]) + 1  # the window ends somewhere in that second
    elif re.fullmatch(r"\d{1,9}", said, re.ASCII):
        wait = float(said)
    else:
        try:
            wait = parsedate_to_datetime(said).timestamp() - now
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
    return min(max(wait, 0.0), LONGEST_WAIT_S)
