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
from console.checks.preflight.architecture.names import Presence, Said
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
    said: Said

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
        return tuple(one for one in self.answers if one.said.accepted is False)

    @property
    def unknown(self) -> tuple[TypeAnswer, ...]:
        return tuple(one for one in self.answers if one.said.accepted is None)

    def finding(self) -> Finding:
        if self.refused:
            words = f"{self.build} refuses {_listed(self.refused)}: {self.refused[0].said.line}"
            return Finding(Level.FAIL, TYPES, words, _hint(self.refused))
        if self.unknown:
            words = f"whether {self.build} knows {_listed(self.unknown)} is not known"
            line = self.unknown[0].said.line
            hint = "load any small model with tensors of this type with the build first"
            words = f"{words}: {line}" if line else words
            words += names.since(type_name(one.number) for one in self.unknown)
            return Finding(Level.UNKNOWN, TYPES, words, hint)
        known = ", ".join(type_name(one.number) for one in self.answers)
        return Finding(Level.OK, TYPES, f"{self.build} knows {known}")

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"type": one.number, "name": type_name(one.number), "tensor": one.tensor,
             "accepted": one.said.accepted, "said": one.said.line}
            for one in self.answers
        ]  # fmt: skip


def _listed(answers: Sequence[TypeAnswer]) -> str:
    shown = ", ".join(one.words for one in answers[:SHOWN])
    more = len(answers) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _hint(refused: Sequence[TypeAnswer]) -> str:
    if all(one.number in IK_LLAMA for one in refused):
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
        told = Said(None, one_line(str(error)))
        return _verdict("the build", first, dict.fromkeys(first, told))
    try:
        said = _asked(sorted(first), architecture, engine, cancelled)
    except (ConsoleError, OSError) as error:
        said = _scanned(sorted(first), engine, one_line(str(error)))
    return _verdict(build, first, said)


def _verdict(build: str, first: Mapping[int, str], said: Mapping[int, Said]) -> TypeVerdict:
    return TypeVerdict(build, tuple(TypeAnswer(n, first[n], said[n]) for n in sorted(first)))


def _asked(
    numbers: Sequence[int], architecture: str, engine: Engine, cancelled: threading.Event | None
) -> dict[int, Said]:
    """The loader's answers: of all types at once, and where it does not take them, of each."""
    sized = [number for number in numbers if type_of(number)]
    if sized and sized == list(numbers):
        lines = engine.load(names.probe(architecture, sized), cancelled=cancelled)
        if names.read(lines, architecture).accepted is not None:
            return dict.fromkeys(numbers, Said(True))
    alive = names.read(engine.load(names.probe(architecture), cancelled=cancelled), architecture)
    answers = {n: _one(n, architecture, engine, cancelled, alive) for n in numbers}
    left = [number for number, said in answers.items() if said.accepted is None]
    return {**answers, **_scanned(left, engine, answers[left[0]].line)} if left else answers


def _one(
    number: int, architecture: str, engine: Engine, cancelled: threading.Event | None, alive: Said
) -> Said:
    """The loader's answer on one type. It is asked twice where its log came too late; a program
    that aborts with the type, and not without it, refuses it too."""
    said = Said(None)
    for _ in range(2):
        lines = engine.load(names.probe(architecture, (number,)), cancelled=cancelled)
        said = read(lines, architecture, number)
        if said.accepted is not None:
            return said
    aborted = _ENDED.search(said.line) is not None and alive.accepted is not None
    return Said(False, said.line) if aborted else said


def read(lines: Sequence[str], architecture: str, number: int) -> Said:
    """What a program's output says of a type that is in the file it was given."""
    tensor = names.tensor_name(number)
    for line in lines:
        words = one_line(line, names.LINE)
        refusal = _INVALID.search(words)
        if refusal and (tensor in words or f"ggml type {number}" in words):
            return Said(False, words[refusal.start() :])
    said = names.read(lines, architecture)
    if said.accepted is not None:
        return Said(True, said.line)
    ended = next((one_line(one, names.LINE) for one in lines if _ENDED.search(one)), said.line)
    return Said(None, ended)


def _scanned(numbers: Sequence[int], engine: Engine, why: str) -> dict[int, Said]:
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
        answers[number] = Said(False, words) if absent else Said(None, why)
    return answers


def _spelled(name: str) -> str:
    """A type's name as llama.cpp's own table spells it: `q4_K`, `tq1_0`, `q8_KV`."""
    return re.sub(r"_(k|kv)(?=_|$)", lambda found: found[0].upper(), name.lower())


def findings(build: Engine, loader: Loader, header: Header, *, sure: bool) -> list[Finding]:
    """What a build says of the types of a model's tensors and of the cache that a command line asks
    for, where not every build has them. `sure`: this build loads it, and not another one that the
    question is about; else its refusal is no verdict on that one."""
    new = [one for one in header.tensors or () if one.type not in SHARED_TYPES]
    found = []
    if new:
        found.append(verdict_on(new, header.architecture or "", build).finding())
    options = table("ik_llama" if loader.engine == IK else "llama_cpp")
    asked = (value_of(loader.args, one, options, loader.env) for one in ("-ctk", "-ctv"))
    found += cache_findings([kind for kind in asked if kind], build)
    if sure:
        return found
    level = Level.WARN if loader.engine == IK else Level.UNKNOWN
    hint = "is this the build that is to load it? `check gguf` asks another one"
    return [one if one.level is Level.OK else replace(one, level=level, hint=hint) for one in found]


def cache_findings(
    kinds: Sequence[str], engine: Engine, cancelled: threading.Event | None = None
) -> list[Finding]:
    """Cache types that the build's own reader of options refuses; those that all builds have are
    not asked."""
    found = []
    for kind in dict.fromkeys(kinds):
        if kind.lower() in SHARED_CACHES:
            continue
        try:
            lines = engine.load(names.probe("llama"), ("-ctk", kind), cancelled)
        except (ConsoleError, OSError):
            continue
        line = next((one for one in lines if _CACHE.search(one)), "")
        if line:
            words = f"{called(engine)} refuses a cache of {one_line(kind, 20)}"
            hint = "take a cache type that the build has, or the build that has this one"
            words = f"{words}: {one_line(line, names.LINE)}"
            found.append(Finding(Level.FAIL, f"cache, {TYPES}", words, hint))
    return found
