"""Whether a file's architecture is one the installed build accepts: before the download."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from console.checks.preflight.architecture.support import ArchVerdict, Engine, accepts
from console.checks.preflight.checkpoint import finding_lines, listing_of
from console.common.finding import Finding, Level
from console.common.units import format_bytes
from console.models.gguf.address import is_address
from console.models.gguf.errors import GgufError, Kind
from console.models.gguf.read import Reading, read_architecture
from console.models.gguf.shards import models
from console.models.hub import settings
from console.models.hub.checkpoint import Format
from console.models.hub.checkpoint import read as read_contents
from console.models.hub.reference import RepoReference, parse
from console.models.sizing.text import wrapped


@dataclass(frozen=True, slots=True)
class Answer:
    """What was read of the file, and what the build says; `verdict` is None without a build."""

    reading: Reading
    verdict: ArchVerdict | None
    problems: tuple[str, ...] = ()
    """Why no loader takes the set that the file is of."""

    @property
    def architecture(self) -> str:
        return self.reading.header.architecture or ""

    def finding(self) -> Finding | None:
        """Whether a loader takes it; None where nobody was asked."""
        if self.problems:
            hint = "no loader takes a part of a set"
            return Finding(Level.FAIL, "files", "; ".join(self.problems), hint)
        return None if self.verdict is None else self.verdict.finding()

    def lines(self) -> list[str]:
        """At most 78 wide, clean."""
        reading = self.reading
        size = format_bytes(reading.file_bytes) if reading.file_bytes else "size not told"
        out = wrapped(f"{reading.name}  ({size})", "  ")
        out += wrapped(f"  architecture: {self.architecture}", "    ")
        name = reading.header.text("general.name")
        out += wrapped(f"  name: {name}", "    ") if name else []
        read = f"{format_bytes(reading.body_bytes)} read in {reading.exchanges} exchange"
        out.append(f"  {read}{'s'[: reading.exchanges != 1]}")
        for note in reading.notes:
            out += wrapped(f"  note: {note}", "    ")
        for problem in self.problems:
            out += wrapped(f"  incomplete: {problem}", "    ")
        if self.verdict is None:
            return out
        out += wrapped(f"  asked: {self.verdict.engine.text}", "    ")
        if self.verdict.said:
            out += wrapped(f"  it said: {self.verdict.said}", "    ")
        return [*out, *finding_lines(self.verdict.finding())]

    def to_json(self) -> dict[str, Any]:
        reading, verdict = self.reading, self.verdict
        return {
            "name": reading.name, "architecture": self.architecture,
            "file_bytes": reading.file_bytes, "exchanges": reading.exchanges,
            "body_bytes": reading.body_bytes, "notes": list(reading.notes),
            "problems": list(self.problems),
            "verdict": None if verdict is None else {
                **asdict(verdict), "witness": str(verdict.witness), "hint": verdict.hint,
                "engine": verdict.engine.text,
            },
        }  # fmt: skip


def check(
    what: str,
    engine: Engine | None,
    *,
    include: tuple[str, ...] = (),
    token: str | None = None,
    cancelled: threading.Event | None = None,
) -> Answer:
    """Read a path, an address or a repository's GGUF, and ask the build.

    Raises GgufError, HubError.
    """
    where, problems = locate(what, include, token)
    sent = (token if token is not None else settings.token()) or ""
    on_hub = where.startswith(settings.endpoint().rstrip("/") + "/")
    reading = read_architecture(where, token=sent if on_hub else "")
    verdict = None
    if engine is not None:
        verdict = accepts(reading.header.architecture or "", engine, cancelled=cancelled)
    return Answer(reading, verdict, problems)


def locate(what: str, include: tuple[str, ...], token: str | None) -> tuple[str, tuple[str, ...]]:
    """The file to read (the one named, or the first shard of a repository's set), and what of the
    set is missing."""
    if is_address(what) and not what.startswith(settings.endpoint().rstrip("/") + "/"):
        return what, ()
    found = parse(what)
    if not isinstance(found, RepoReference):
        return _local(found.path)
    listing = listing_of(what, token)
    if found.path.endswith(".gguf"):
        return listing.url(found.path), ()
    patterns = include or ((f"{found.path}/*",) if found.path else ())
    chosen = read_contents(listing, patterns).choose()
    if chosen.format is not Format.GGUF:
        hint = "`check checkpoint` is for these"
        raise GgufError(Kind.NOT_GGUF, f"{listing.repo} holds no GGUF here", chosen.line, hint)
    return listing.url(chosen.files[0].path), () if chosen.whole else (chosen.gap,)


def _local(path: Path) -> tuple[str, tuple[str, ...]]:
    """A local file; of a split set the first shard, and what of the set is missing."""
    if path.is_dir():
        listing = listing_of(str(path))
        chosen = read_contents(listing).choose()
        return str(path / chosen.files[0].path), () if chosen.whole else (chosen.gap,)
    try:
        beside = [(one.name, one.stat().st_size) for one in path.parent.glob("*.gguf")]
    except OSError:
        beside = []
    mine = next(
        (m for m in models(beside) if path.name in {s.name for s in m.shards} and m.count > 1), None
    )
    if mine is None:
        return str(path), ()
    first = path.parent / mine.name
    return str(first if first.exists() else path), mine.problems
