"""What llama.cpp's loader refuses in a header, told before any build is asked."""

from __future__ import annotations

from collections.abc import Sequence

from console.checks.preflight import Finding, Level
from console.common.text import one_line
from console.models.gguf.header import Header
from console.models.loader import likeness
from console.models.loader.complaints import (
    Complaint,
    of_gating,
    of_names,
    of_scaling,
    of_vocabulary,
)
from console.models.loader.serving import of_alignment, of_start, of_whole
from console.models.loader.tables import complaints

TITLE = "header, as a loader reads it"
LINE = 300
FAILED = "error loading model"
_WRONG = (
    "the file is damaged or was made by a converter that differs: take another copy or conversion"
)
_UNKNOWN = "no release known here takes it"
_NEW = "ask the build that is to load it: check gguf FILE --binary PATH, or --image"


def unasked(header: Header) -> list[Finding]:
    """Everything that can be told of a whole header without a build."""
    whole = [*of_vocabulary(header), *complaints(header), *of_whole(header)]
    likely = [*likeness.complaints(header), *likeness.of_types(header)]
    return findings_of([*whole, *of_build(header), *likely])


def named(header: Header) -> list[Complaint]:
    """What can be told without a build of no more than the start of a header."""
    return [*of_start(header), *of_build(header)]


def of_mapping(header: Header, *, maps: bool | None = None) -> list[Finding]:
    """What depends on whether the loader maps the file; None: not known."""
    return findings_of(of_alignment(header, maps=maps))


def of_build(header: Header) -> list[Complaint]:
    """Names that no known release has: only the build that is to load it can tell."""
    return [*of_names(header), *of_scaling(header), *of_gating(header)]


def findings_of(header_complaints: Sequence[Complaint]) -> list[Finding]:
    """Complaints as findings: what every build refuses, else what is not known."""
    sure = [complaint for complaint in header_complaints if complaint.sure]
    if sure:
        words = "; ".join(one_line(complaint.words, LINE) for complaint in sure)
        return [Finding(Level.FAIL, TITLE, f"{FAILED}: {words}", sure[0].hint or _WRONG)]
    return [_doubt(complaint) for complaint in header_complaints]


def _doubt(complaint: Complaint) -> Finding:
    words = one_line(complaint.words, LINE)
    if complaint.hint:
        return Finding(Level.UNKNOWN, TITLE, words, complaint.hint)
    return Finding(Level.UNKNOWN, TITLE, f"{_UNKNOWN}: {words}", _NEW)
