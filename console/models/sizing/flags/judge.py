"""What an engine says of a command line before it loads a model: the preflight's own readers, asked
without a model by whoever judges files and services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

from console.common.options.command_line import Given, from_environment, given
from console.common.options.engines import LLAMA, SGLANG, VLLM, Engine, engine_of, program_of
from console.common.options.start import start
from console.common.options.table import Effect, table
from console.common.options.values import doubtful
from console.common.text import one_line

if TYPE_CHECKING:
    from console.models.sizing.loader_plan import LlamaPlan, SglangPlan, VllmPlan

_OFFICIAL = {
    "ggml-org/llama.cpp": ("llama_cpp",), "ggerganov/llama.cpp": ("llama_cpp",),
    "ggml-org/llama.cpp-server": ("llama_cpp",), "vllm/vllm-openai": ("vllm",),
}  # fmt: skip
"""Images whose entrypoint is the server, so that a command of options alone is the server's."""
_SERVERS = ("vllm.entrypoints.openai.api_server", "sglang.launch_server")


class Sure(StrEnum):
    """How sure a complaint is. REFUSED: no known build takes it. DOUBTED: the version that is known
    here does not, and another one may. DEPENDS: newer builds refuse it, older ones take it."""

    REFUSED = "refused"
    DOUBTED = "doubted"
    DEPENDS = "depends"


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is said of a command line; `option` is what it is about, None for the whole of it."""

    sure: Sure
    words: str
    option: Given | None = None


OMNI = "--omni"
"""Hands `vllm serve` over to vllm-omni (entrypoints/cli/main.py there), which has options of its
own, as --deploy-config."""


def tables_of(argv: Sequence[str], image: str = "") -> tuple[str, ...]:
    """The tables of the engine that a command line starts, several where it may be one of several;
    none for what serves no model. Of an image's own program only the official ones are known."""
    if not argv or argv[0].startswith("-"):
        return _of_image(image)
    engine = engine_of(argv)
    program, words = program_of(argv)
    if engine is LLAMA:
        return _of_llama(f"{image} {start(argv).argv[0]}")
    if OMNI in words:
        return ()
    if engine in (VLLM, SGLANG) and (program in _SERVERS or words[:1] == ["serve"]):
        return (engine.options,)
    return ()


def _of_image(image: str) -> tuple[str, ...]:
    name, _, tag = image.partition("@")[0].rpartition(":")
    if "/" in tag or not name:
        name, tag = image, ""
    tables = next((of for end, of in _OFFICIAL.items() if name.endswith(end)), ())
    if name.endswith("/llama.cpp") and not tag.startswith("server"):
        return ()  # its other tags start scripts, or a program for the terminal
    return tables


def _of_llama(where: str) -> tuple[str, ...]:
    """llama.cpp's table, or its fork's, by the image's and the program's names; else both."""
    lower = where.lower().replace("-", "_")
    if "ik_llama" in lower:
        return ("ik_llama",)
    if any(name.replace("-", "_") in lower for name in _OFFICIAL):
        return ("llama_cpp",)
    return ("llama_cpp", "ik_llama")


def judged(
    tables: Sequence[str], argv: Sequence[str], env: Mapping[str, str] | None = None
) -> list[Complaint]:
    """The complaints of a command line in its order. Where it may be one of several engines', what
    one of them takes is none, and what all refuse is refused."""
    argv, env = start(argv, env)
    complaint_lists = [_complaints(name, argv, env) for name in tables]
    if not complaint_lists:
        return []
    first, *others = sorted(complaint_lists, key=len)
    return [
        max(same, key=lambda candidate: _RANK.index(candidate.sure))
        for complaint in first
        if len(same := [complaint, *_alike(complaint, others)]) == len(complaint_lists)
    ]


_RANK = tuple(Sure)


def _alike(complaint: Complaint, others: Sequence[Sequence[Complaint]]) -> Iterator[Complaint]:
    """The complaint of each other reader that is about the same words."""
    place = _place(complaint)
    for complaints in others:
        yield from [other for other in complaints if _place(other) == place][:1]


def _place(complaint: Complaint) -> tuple[str, str | None] | None:
    option = complaint.option
    return None if option is None else (option.spelling, option.value)


def _plan(
    name: str, argv: Sequence[str], env: Mapping[str, str]
) -> LlamaPlan | SglangPlan | VllmPlan:
    """The command line as the engine with this table reads it. Most files start no engine, and need
    none of the readers."""
    from console.models.sizing.flags import llama, sglang, vllm

    if name == "vllm":
        return vllm.vllm_plan(argv, env)
    if name == "sglang":
        return sglang.sglang_plan(argv, env=env)
    return (llama.ik_plan if name == "ik_llama" else llama.llama_plan)(argv, env)


def _complaints(name: str, argv: Sequence[str], env: Mapping[str, str]) -> list[Complaint]:
    plan, options = _plan(name, argv, env), table(name)
    read = [*from_environment(env, options), *given(argv, options)]
    unsettled: tuple[str, ...] = getattr(plan, "unsettled", ())
    rows = [(Sure.REFUSED, refusal) for refusal in plan.refused]
    rows += [(Sure.DOUBTED, problem) for problem in plan.problems]
    rows += [(Sure.DEPENDS, condition) for condition in unsettled]
    complaints = [Complaint(sure, words, _about(words, read)) for sure, words in rows]
    own = [
        complaint
        for complaint in complaints
        if complaint.option is None or not doubtful(complaint.option)
    ]
    return sorted(own, key=partial(_order, read))


def _order(read: Sequence[Given], complaint: Complaint) -> int:
    return len(read) if complaint.option is None else read.index(complaint.option)


def _about(words: str, read: Sequence[Given]) -> Given | None:
    """The option or the word that a complaint is about: one that it names, with its value where
    several are alike."""
    named = [argument for argument in read if _is_named(argument, words)]
    valued = [
        argument for argument in named if argument.value and one_line(argument.value, 40) in words
    ]
    return next(iter(valued or named), None)


def _is_named(argument: Given, words: str) -> bool:
    names = {one_line(argument.name, 60), one_line(argument.spelling, 60)}
    if argument.stray is not None:
        return words.startswith(f"{one_line(argument.spelling, 40)} ")
    return any(words.startswith((f"{name} ", f"{name}:")) or f" takes {name}" in words
               for name in names)  # fmt: skip


def serves(tables: Sequence[str], argv: Sequence[str]) -> bool:
    """Whether a command line is to serve: with `--help` or `--version` it prints and ends."""
    options = (argument.option for name in tables for argument in given(argv, table(name)))
    return not any(option is not None and option.effect is Effect.ENDS for option in options)


def engine_name(tables: Sequence[str]) -> str:
    """The engine as its own people call it."""
    engines: Mapping[str, Engine] = {"vllm": VLLM, "sglang": SGLANG}
    return engines[tables[0]].name if tables[0] in engines else "llama-server"
