"""How fast a download goes and when it is done, and what the last words of `hf download` mean.

Pure; the time is passed in. Amounts of bytes are in the units that people compare.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from console.common.units import both_units, format_duration
from console.models.hub import errors
from console.models.hub.errors import DiskShort, DownloadFailed, HubError, RevisionMissing
from console.models.hub.listing import Listing

_GATED = r"requires approval|gated repo"
_TOKEN = r"invalid credentials|\b401\b.*unauthorized|unauthorized.*\b401\b"
_FULL = r"no space left on device|errno 28|disk quota exceeded"
_MISSING = r"repository '?[^']*'? ?not found|model '[^']+' not found"
_CHANGED = r"revision not found|file not found in|entry not found for"
_OTHERS = (
    ("too large to be downloaded using the regular", "a file is too large for a plain download",
     "install hf_xet, and unset HF_HUB_DISABLE_XET"),
    ("no module named|importerror", "huggingface_hub cannot be loaded",
     "install it where the console runs: pip install huggingface_hub"),
    ("permission denied|read-only file system", "the files cannot be written",
     "is the directory yours?"),
)  # fmt: skip
"""Phrases in the last output, in any case; title and hint of the error."""

WINDOW_S = 30.0
MIN_S = 2.0
"""Over less time than this a rate is noise."""
STALLED_S = 60.0


def seconds_for(count: int | None, rate_bps: float | None) -> float | None:
    """Seconds for `count` bytes at `rate_bps` bytes per second; None if either is unknown."""
    if count is None or not rate_bps or rate_bps <= 0:
        return None
    return count / rate_bps


def download_time(count: int | None, rate_bps: float | None, origin: str = "") -> str:
    """`3 h 11 min at 60.0 MB/s (measured)`; says so if unknown."""
    if count == 0:
        return "nothing to download"
    seconds = seconds_for(count, rate_bps)
    if count is None:
        return "unknown: sizes are missing"
    if seconds is None:
        return "unknown: the line's rate is neither measured nor given"
    return f"{format_duration(seconds)} at {rate(rate_bps)}{f' ({origin})' if origin else ''}"


def rate(bps: float | None) -> str:
    """Bytes per second as download tools print them: `57.3 MB/s`."""
    return "unknown" if bps is None else f"{bps / 1e6:.1f} MB/s"


def explain(listing: Listing, lines: Sequence[str], with_token: bool) -> HubError | None:
    """The meaning of the last words of `hf download`: an error that a person has to fix, since a
    retry would not help, or None for an interruption that may be retried."""
    request = errors.HubRequest(listing.repo, listing.commit, listing.endpoint, with_token)
    whole = ("\n".join(lines),)
    if _line(_GATED, whole):
        return errors.gated(request)
    if refused := _line(_TOKEN, lines):
        return errors.by_status(request, 401, "", refused)
    if _line(_CHANGED, whole):
        detail = f"commit {listing.commit[:12]} was listed, but its files are gone"
        hint = "the repository was rewritten: look it up again"
        return RevisionMissing(f"{listing.repo} has changed", detail, hint)
    if _line(_MISSING, whole):
        return errors.missing(request)
    if _line(_FULL, whole):
        need = both_units(sum(file.size or 0 for file in listing.files))
        hint = "make room, then start the download again: whole files are kept"
        return DiskShort("the disk is full", f"{listing.repo} holds {need}", hint)
    for pattern, title, hint in _OTHERS:
        if line := _line(pattern, lines):
            return DownloadFailed(title, line, hint)
    return None


def _line(pattern: str, lines: Sequence[str]) -> str:
    return next((line for line in lines if re.search(pattern, line, re.IGNORECASE)), "")


class Meter:
    """A moving window over (seconds, bytes so far)."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()
        self._grew_at = 0.0

    def add(self, now: float, done: int) -> None:
        """Record the bytes so far; fewer than before mean a fresh start (a file begun again)."""
        if not self._marks or done < self._marks[-1][1]:
            self._marks.clear()
            self._grew_at = now
        elif done > self._marks[-1][1]:
            self._grew_at = now
        self._marks.append((now, done))
        while len(self._marks) > 2 and self._marks[1][0] <= now - WINDOW_S:
            self._marks.popleft()

    @property
    def rate(self) -> float | None:
        """Bytes per second over the window; None until the window is long enough."""
        if not self._marks:
            return None
        (start, before), (end, done) = self._marks[0], self._marks[-1]
        return (done - before) / (end - start) if end - start >= MIN_S else None

    def eta(self, total: int | None) -> float | None:
        """Seconds until `total` bytes are there at this rate; None if unknown."""
        rate = self.rate
        if total is None or not self._marks:
            return None
        left = total - self._marks[-1][1]
        return 0.0 if left <= 0 else left / rate if rate else None

    def stalled(self, now: float) -> bool:
        """Whether nothing has arrived for a minute."""
        return bool(self._marks) and now - self._grew_at >= STALLED_S
