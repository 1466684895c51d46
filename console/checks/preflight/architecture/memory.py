"""How much memory the operator's own build says a model takes, before the download.

llama.cpp comes with `llama-fit-params`, which loads a model without its weights and prints what it
would reserve. It is run where the build lives, on this machine or in an image, without cards
(beside a serving baseline there may be no room for a context), on a file that has the model's
header and no weights. So it knows the total of weights and cache, and all buffers of a plan without
cards, but not what lies on which card.
"""

from __future__ import annotations

import os
import re
import struct
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture.on_host import HostProgram
from console.checks.preflight.checkpoint import BY_BUILD
from console.common.errors import ConsoleError
from console.common.units import format_bytes
from console.models.gguf.header import Header
from console.models.gguf.skeleton import skeleton, write_skeleton
from console.models.sizing.assessment import Assessment
from console.models.sizing.loader_plan import LlamaPlan

TOOL = "llama-fit-params"
MIB = 1 << 20
SAME = 0.02
"""Figures within this share of each other agree."""
ROUNDING = 2 * MIB
"""The tool prints whole MiB, each term rounded up."""
_ROW = re.compile(r"^(\S.*?) +(\d{1,9}) (\d{1,9}) (\d{1,9})\s*$")
_LOADING = re.compile(r"load", re.IGNORECASE)
"""A complaint about anything else (an option, a library) is one about the tool."""
_ABORTED = re.compile(r"fatal error|GGML_ASSERT|ended by signal|terminate called", re.IGNORECASE)
"""It ended in the middle, as a server of the same build does with the same plan."""
_GUESSED = ("wrong type", "vocab", "token", "shared librar")
"""Words of a complaint about what a file without a vocabulary and without widths of numbers lacks,
which says nothing about the real file."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What a build reserves, over all its devices, in bytes."""

    model: int
    context: int
    compute: int


@runtime_checkable
class InImage(Protocol):
    """A build that lives in an image, and asks its own tool there."""

    def measured(self, head: bytes, size: int, words: Sequence[str]) -> Sequence[str]: ...


def tool_beside(build: object) -> str:
    """The build's own tool, "" if it has none or the build is not a program of this machine."""
    if not isinstance(build, HostProgram):
        return ""
    try:
        tool = Path(build.program).with_name(TOOL)
    except ConsoleError:
        return ""
    return str(tool) if os.access(tool, os.X_OK) else ""


def arguments(plan: LlamaPlan, trained: int | None = None) -> list[str]:
    """The options of a plan that matter without cards. Slots with a shared cache count as one; the
    context is said, because the tool does not make that of several slots as a server does."""
    words = ["-fitp", "on", "-nr", "-c", str(plan.tokens(trained) or 0), "-ub", str(plan.ubatch)]
    words += ["-b", str(max(2048, plan.ubatch)), "-ctk", plan.type_k, "-ctv", plan.type_v]
    words += ["-fa", "on" if plan.flash else "off", "-np", str(1 if plan.unified else plan.slots)]
    return [*words, "--swa-full"] if plan.swa_full else words


def ask(build: HostProgram, tool: str, header: Header, plan: LlamaPlan) -> Reserved | str:
    """The build's figures, or why it has none. Raises ConsoleError if it cannot be run."""
    try:
        with tempfile.TemporaryDirectory(prefix="omni-memory-") as folder:
            path = Path(folder) / "model.gguf"
            write_skeleton(header, path)
            words = arguments(plan, _trained(header))
            return read(build.output([tool, *words, "-m", str(path)]))
    except (ValueError, OSError, OverflowError, struct.error) as error:
        return f"the header cannot be written for it: {error}"


def _ask_image(build: InImage, header: Header, plan: LlamaPlan) -> Reserved | str | None:
    """The same of a build in an image; None if that has no tool. Raises ConsoleError."""
    try:
        head, size = skeleton(header)
    except (ValueError, OverflowError, struct.error) as error:
        return f"the header cannot be written for it: {error}"
    lines = build.measured(head, size, arguments(plan, _trained(header)))
    return read(lines) if lines else None


def _trained(header: Header) -> int | None:
    return header.integer(f"{header.architecture}.context_length")


def read(lines: Sequence[str]) -> Reserved | str:
    """The sum of the printed rows, or the tool's last complaint."""
    rows = [match for line in lines if (match := _ROW.match(line))]
    if rows:
        sums = [sum(int(row[at]) for row in rows) * MIB for at in (2, 3, 4)]
        return Reserved(*sums)
    for words in (("error", "fail"), ("ended by signal", "assert", "terminate called")):
        for line in lines:
            if any(word in line.lower() for word in words):
                return line
    return lines[-1] if lines else "it said nothing"


def findings(
    build: object, header: Header | None, plan: object, assessment: Assessment | None
) -> list[Finding]:
    """The build's figures beside this console's own; [] where there is no such tool to ask.

    The more careful of both counts: a load that the build makes larger by more than what is left is
    a NO-GO, and one that it does not take is unknown.
    """
    if header is None or not isinstance(plan, LlamaPlan) or assessment is None:
        return []
    reply: Reserved | str | None = None
    try:
        if isinstance(build, InImage):
            reply = _ask_image(build, header, plan)
        elif (tool := tool_beside(build)) and isinstance(build, HostProgram):
            reply = ask(build, tool, header, plan)
    except ConsoleError as error:
        return [Finding(Level.WARN, BY_BUILD, f"{TOOL} could not be asked: {error}")]
    if reply is None:
        return []
    if isinstance(reply, Reserved):
        return [_compared(reply, assessment)]
    hint = "load it with this build on a machine that has the file, or take another build"
    if _ABORTED.search(reply):
        return [Finding(Level.UNKNOWN, BY_BUILD, f"this build aborts with it: {reply}", hint)]
    if not _LOADING.search(reply) or any(word in reply.lower() for word in _GUESSED):
        return [Finding(Level.WARN, BY_BUILD, f"{TOOL} did not answer: {reply}")]
    return [Finding(Level.UNKNOWN, BY_BUILD, f"{TOOL} does not load it: {reply}", hint)]


def _compared(reservation: Reserved, assessment: Assessment) -> Finding:
    """One sentence, and how grave a difference is."""
    on_cards = any(term.name == "CUDA context" for term in assessment.terms)
    pairs = [
        ("weights", reservation.model, _sum(assessment, ("weights", "experts"))),
        ("cache", reservation.context, _sum(assessment, ("cache",))),
    ]
    if not on_cards:
        pairs.append(("compute", reservation.compute, _sum(assessment, ("compute", "process"))))
    words = ", ".join(f"{name} {format_bytes(theirs)}" for name, theirs, _ in pairs)
    more = [
        (name, theirs - ours) for name, theirs, ours in pairs
        if theirs > ours * (1 + SAME) + ROUNDING
    ]  # fmt: skip
    if not more:
        return Finding(Level.OK, BY_BUILD, f"{words}; the sum here is not smaller")
    surplus = " and ".join(f"{format_bytes(size)} more {name}" for name, size in more)
    extra, hard = (
        sum(size for _, size in more),
        [limit for limit in assessment.limits if limit.hard],
    )
    # where the more lies is not known, so only more than is left everywhere does not fit
    full = bool(hard) and extra > sum(max(0, limit.left) for limit in hard)
    known = all(term.bytes is not None for term in assessment.terms)
    grave = full and known and not assessment.served_by
    level = Level.FAIL if grave else Level.WARN
    ending = "which does not fit" if grave else "which counts against what is left"
    return Finding(level, BY_BUILD, f"{words}: {surplus} than the sum here, {ending}")


def _sum(assessment: Assessment, names: Iterable[str]) -> int:
    return sum(term.bytes or 0 for term in assessment.terms if term.name in names)
