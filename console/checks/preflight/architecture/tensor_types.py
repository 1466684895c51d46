"""Whether the operator's own build knows the types of a file's tensors, and those of a cache.

Every build has a list of types of its own, and refuses a file with any other ("invalid ggml type
144"). The first witness is its loader, given a file of one small tensor of each type: it reads the
table of tensors before it needs anything else, so whatever it then complains of, the types are
known. The second are the names in its library, of which only an absent one is a proof.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.names import LoaderAnswer, Presence
from console.checks.preflight.architecture.support import Engine, called
from console.checks.preflight.checkpoint import TYPES
from console.checks.preflight.compatibility import Loader
from console.common.errors import ConsoleError
from console.common.options.command_line import value_of
from console.common.options.table import table
from console.common.text import one_line
from console.models.gguf.header import IK_LLAMA, Header, Tensor, type_name, type_of

IK = "ik_llama.cpp"
SHOWN = 3
"""Most types that are shown with a tensor."""
SHARED_TYPES = frozenset((0, 1, 2, 3, 6, 7, 8, *range(10, 15), 20, 23, 30))
"""Types of tensors that builds of the last years have, whosever they are: F32 to Q6_K."""
SHARED_CACHES = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"}
"""Cache types that llama.cpp and its forks have alike."""
_INVALID = re.compile(r"(?:invalid|bad) ggml type|of type \d+ .*not a multiple of block size")
_ENDED = re.compile(r"ended by signal|GGML_ASSERT|terminate called|dumped core|core dumped")
_CACHE = re.compile(r"(?:un(?:supported|known)|invalid) cache type|-ctk.*invalid choice", re.I)


@dataclass(frozen=True, slots=True)
class TypeAnswer:
    """One type of a file: its number, a tensor that has it, and what the build says of it."""

    number: int
    tensor: str
    reply: LoaderAnswer

    @property
    def name(self) -> str:
        known = type_of(self.number)
        return f"{known.name} (type {self.number})" if known else type_name(self.number)

    @property
    def words(self) -> str:
        return f"{self.name} of {one_line(self.tensor, 80)}"


@dataclass(frozen=True, slots=True)
class TypeVerdict:
    """What a build says of all types of a file."""

    build: str
    answers: tuple[TypeAnswer, ...]

    @property
    def refused(self) -> tuple[TypeAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.reply.accepted is False)

    @property
    def unknown(self) -> tuple[TypeAnswer, ...]:
        return tuple(answer for answer in self.answers if answer.reply.accepted is None)

    def finding(self) -> Finding:
        if self.refused:
            words = f"{self.build} refuses {_listed(self.refused)}: {self.refused[0].reply.line}"
            return Finding(Level.FAIL, TYPES, words, _hint(self.refused))
        if self.unknown:
            line = self.unknown[0].reply.line
            hint = "load any small model with tensors of this type with the build first"
            words = names.not_known(self.build, _listed(self.unknown), line)
            words += names.since(type_name(answer.number) for answer in self.unknown)
            return Finding(Level.UNKNOWN, TYPES, words, hint)
        known = ", ".join(type_name(answer.number) for answer in self.answers)
        return Finding(Level.OK, TYPES, f"{self.build} knows {known}")

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"type": answer.number, "name": type_name(answer.number), "tensor": answer.tensor,
             "accepted": answer.reply.accepted, "said": answer.reply.line}
            for answer in self.answers
        ]  # fmt: skip


def _listed(answers: Sequence[TypeAnswer]) -> str:
    shown = ", ".join(answer.words for answer in answers[:SHOWN])
    more = len(answers) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _hint(refused: Sequence[TypeAnswer]) -> str:
    if all(answer.number in IK_LLAMA for answer in refused):
        return "ik_llama.cpp has these types: take its build, or another quantization of the model"
    return "take a build that knows the type, or another quantization of the model"


def verdict_on(
    tensors: Iterable[Tensor], architecture: str, engine: Engine,
    cancelled: threading.Event | None = None,
) -> TypeVerdict:  # fmt: skip
    """What the build says of the types of these tensors. Raises Cancelled; whatever else fails is
    said in the verdict."""
    first: dict[int, str] = {}
    for tensor in tensors:
        first.setdefault(tensor.type, tensor.name)
    try:
        build = engine.identity().text
    except (ConsoleError, OSError) as error:
        answer = LoaderAnswer(None, one_line(str(error)))
        return _verdict("the build", first, dict.fromkeys(first, answer))
    try:
        answers = _ask_loader(sorted(first), architecture, engine, cancelled)
    except (ConsoleError, OSError) as error:
        answers = _scanned(sorted(first), engine, one_line(str(error)))
    return _verdict(build, first, answers)


def _verdict(
    build: str, first: Mapping[int, str], answers: Mapping[int, LoaderAnswer]
) -> TypeVerdict:
    return TypeVerdict(build, tuple(TypeAnswer(n, first[n], answers[n]) for n in sorted(first)))


def _ask_loader(
    numbers: Sequence[int], architecture: str, engine: Engine, cancelled: threading.Event | None
) -> dict[int, LoaderAnswer]:
    """The loader's answers: of all types at once, and where it does not take them, of each."""
    sized = [number for number in numbers if type_of(number)]
    if sized and sized == list(numbers):
        lines = engine.load(names.probe(architecture, sized), cancelled=cancelled)
        if names.read(lines, architecture).accepted is not None:
            return dict.fromkeys(numbers, LoaderAnswer(True))
    alive = names.read(engine.load(names.probe(architecture), cancelled=cancelled), architecture)
    answers = {n: _ask_type(n, architecture, engine, cancelled, alive) for n in numbers}
    left = [number for number, answer in answers.items() if answer.accepted is None]
    return {**answers, **_scanned(left, engine, answers[left[0]].line)} if left else answers


def _ask_type(
    number: int,
    architecture: str,
    engine: Engine,
    cancelled: threading.Event | None,
    alive: LoaderAnswer,
) -> LoaderAnswer:
    """The loader's answer on one type. It is asked twice where its log came too late; a program
    that aborts with the type, and not without it, refuses it too."""
    answer = LoaderAnswer(None)
    for _ in range(2):
        lines = engine.load(names.probe(architecture, (number,)), cancelled=cancelled)
        answer = read(lines, architecture, number)
        if answer.accepted is not None:
            return answer
    aborted = _ENDED.search(answer.line) is not None and alive.accepted is not None
    return LoaderAnswer(False, answer.line) if aborted else answer


def read(lines: Sequence[str], architecture: str, number: int) -> LoaderAnswer:
    """What a program's output says of a type that is in the file it was given."""
    tensor = names.tensor_name(number)
    for line in lines:
        words = one_line(line, names.LINE)
        refusal = _INVALID.search(words)
        if refusal and (tensor in words or f"ggml type {number}" in words):
            return LoaderAnswer(False, words[refusal.start() :])
    answer = names.read(lines, architecture)
    if answer.accepted is not None:
        return LoaderAnswer(True, answer.line)
    ended = next(
        (one_line(output_line, names.LINE) for output_line in lines if _ENDED.search(output_line)),
        answer.line,
    )
    return LoaderAnswer(None, ended)


def _scanned(numbers: Sequence[int], engine: Engine, why: str) -> dict[int, LoaderAnswer]:
    """Without the loader: a type whose name the library does not hold is refused."""
    answers = {}
    for number in numbers:
        known = type_of(number)
        try:
            scan = engine.scan(known.name.lower(), names.TYPE_MARK) if known else None
            # the letters of the newer types are capitals in the tables of builds: `q4_K`
            if known and scan and scan.presence is Presence.ABSENT:
                scan = engine.scan(_spelled(known.name), names.TYPE_MARK)
        except (ConsoleError, OSError):
            scan = None
        absent = scan is not None and scan.presence is Presence.ABSENT
        words = f"{scan.path} does not hold its name; the loader did not say" if scan else ""
        answers[number] = LoaderAnswer(False, words) if absent else LoaderAnswer(None, why)
    return answers


def _spelled(name: str) -> str:
    """A type's name as llama.cpp's own table spells it: `q4_K`, `tq1_0`, `q8_KV`."""
    return re.sub(r"_(k|kv)(?=_|$)", lambda match: match[0].upper(), name.lower())


def findings(build: Engine, loader: Loader, header: Header, *, sure: bool) -> list[Finding]:
    """What a build says of the types of a model's tensors and of the cache that a command line asks
    for, where not every build has them. `sure`: this build loads it, and not another one that the
    question is about; else its refusal is no verdict on that one."""
    new = [tensor for tensor in header.tensors or () if tensor.type not in SHARED_TYPES]
    build_findings = []
    if new:
        build_findings.append(verdict_on(new, header.architecture or "", build).finding())
    options = table("ik_llama" if loader.engine == IK else "llama_cpp")
    cache_types = (
        value_of(loader.args, option, options, loader.env) for option in ("-ctk", "-ctv")
    )
    build_findings += cache_findings([kind for kind in cache_types if kind], build)
    if sure:
        return build_findings
    level = Level.WARN if loader.engine == IK else Level.UNKNOWN
    hint = "is this the build that is to load it? `check gguf` asks another one"
    return [
        finding if finding.level is Level.OK else replace(finding, level=level, hint=hint)
        for finding in build_findings
    ]


def cache_findings(
    kinds: Sequence[str], engine: Engine, cancelled: threading.Event | None = None
) -> list[Finding]:
    """Cache types that the build's own reader of options refuses; those that all builds have are
    not asked."""
    refusals = []
    for kind in dict.fromkeys(kinds):
        if kind.lower() in SHARED_CACHES:
            continue
        try:
            lines = engine.load(names.probe("llama"), ("-ctk", kind), cancelled)
        except (ConsoleError, OSError):
            continue
        line = next((output_line for output_line in lines if _CACHE.search(output_line)), "")
        if line:
            words = f"{called(engine)} refuses a cache of {one_line(kind, 20)}"
            hint = "take a cache type that the build has, or the build that has this one"
            words = f"{words}: {one_line(line, names.LINE)}"
            refusals.append(Finding(Level.FAIL, f"cache, {TYPES}", words, hint))
    return refusals
