"""What the last words of `hf download` mean: which failures another try will not mend."""

from __future__ import annotations

import re
from collections.abc import Sequence

from console.common.units import both_units
from console.models.hub import refusal
from console.models.hub.errors import DiskShort, DownloadFailed, HubError, RevisionMissing
from console.models.hub.listing import Listing

_GATED = re.compile(r"requires approval|gated repo", re.IGNORECASE)
_TOKEN = re.compile(
    r"invalid credentials|\b401\b.*unauthorized|unauthorized.*\b401\b", re.IGNORECASE
)
_FULL = re.compile(r"no space left on device|errno 28|disk quota exceeded", re.IGNORECASE)
_MISSING = re.compile(r"repository '?[^']*'? ?not found|model '[^']+' not found", re.IGNORECASE)
_REVISION = re.compile(r"revision not found", re.IGNORECASE)
_FILE = re.compile(r"file not found in|entry not found for", re.IGNORECASE)
_OTHERS = (
    (
        re.compile(r"too large to be downloaded using the regular", re.IGNORECASE),
        "a file is too large for a plain download",
        "install hf_xet, and unset HF_HUB_DISABLE_XET",
    ),
    (
        re.compile(r"no module named|importerror", re.IGNORECASE),
        "huggingface_hub cannot be loaded",
        "install it where the console runs: pip install huggingface_hub",
    ),
    (
        re.compile(r"permission denied|read-only file system", re.IGNORECASE),
        "the files cannot be written",
        "is the directory yours?",
    ),
)


def explain(listing: Listing, said: Sequence[str], with_token: bool) -> HubError | None:
    """The error that a person has to mend, or None: a cut that another try may get over."""
    asked = refusal.Asked(listing.repo, listing.commit, listing.endpoint, with_token)
    text = "\n".join(said)
    if _GATED.search(text):
        return refusal.gated(asked)
    if refused := _line(_TOKEN, said):
        return refusal.by_status(asked, 401, "", refused)
    if _REVISION.search(text) or _FILE.search(text):
        detail = f"commit {listing.commit[:12]} was listed, but its files are gone"
        hint = "the repository was rewritten: look it up again"
        return RevisionMissing(f"{listing.repo} has changed", detail, hint)
    if _MISSING.search(text):
        return refusal.missing(asked)
    if _FULL.search(text):
        need = both_units(listing.known_bytes)
        hint = "make room, then start the download again: whole files are kept"
        return DiskShort("the disk is full", f"{listing.repo} holds {need}", hint)
    for pattern, title, hint in _OTHERS:
        if line := _line(pattern, said):
            return DownloadFailed(title, line, hint)
    return None


def _line(pattern: re.Pattern[str], said: Sequence[str]) -> str:
    return next((line for line in said if pattern.search(line)), "")
