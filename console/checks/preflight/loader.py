"""Which loader is meant, and its command line read as a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from console.common.errors import UsageError
from console.common.text import one_line
from console.models.hub.checkpoint import Format
from console.models.sizing.loader_flags import conversion_plan, llama_plan, sglang_plan
from console.models.sizing.loader_plan import ConversionPlan, LlamaPlan, LoaderPlan, SglangPlan

LOADERS = ("mmap", "resident", "convert")
ENGINES = {
    "llama.cpp": Format.GGUF, "ik_llama.cpp": Format.GGUF, "sglang": Format.SAFETENSORS,
    "kt-kernel": Format.SAFETENSORS, "vllm": Format.SAFETENSORS, "exllamav3": None,
}  # fmt: skip
"""Engines that can be named, with the format that their memory is worked out for."""
LIKE_SGLANG = ("vllm", "exllamav3")
"""Their memory is worked out as SGLang's, and that is said."""


@dataclass(frozen=True, slots=True)
class Loader:
    """How a checkpoint is to be loaded.

    `kind` is one of LOADERS or "" (as the format asks); `engine` a name of ENGINES or "";
    `args` and `env` are the engine's own. `ctx` in tokens wins over theirs. `of` says whose
    arguments these are; `own`: the baseline's.
    """

    kind: str = ""
    engine: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    ctx: int | None = None
    of: str = ""
    own: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("loader", self.kind, LOADERS), ("engine", self.engine, tuple(ENGINES)),
        ):  # fmt: skip
            if value and value not in known:
                raise UsageError(f"unknown {name} {one_line(value, 40)}", hint=", ".join(known))
        if self.ctx is not None and self.ctx < 1:
            raise UsageError(f"context {self.ctx}", "expected a number of tokens, like 8192")
        if self.kind == "mmap" and self.engine and ENGINES[self.engine] is not Format.GGUF:
            raise UsageError(f"{self.engine} does not map files", hint="--loader resident")


def fitting(loader: Loader, format_: Format) -> Loader:
    """The loader for this format: llama.cpp's own arguments say nothing of another engine."""
    if loader.own and not speaks_gguf(loader, format_):
        return replace(loader, args=(), env={}, of="", own=False)
    return loader


def plan_of(loader: Loader, format_: Format) -> LoaderPlan:
    if loader.kind == "convert":
        return conversion_plan(loader.args)
    if speaks_gguf(loader, format_):
        plan = llama_plan(loader.args, loader.env)
        if loader.kind == "resident":
            plan = replace(plan, mmap=False)
        return plan if loader.ctx is None else replace(plan, ctx=loader.ctx)
    sglang = sglang_plan(loader.args)
    if loader.engine == "kt-kernel":
        sglang = replace(sglang, kt=True)
    return sglang if loader.ctx is None else replace(sglang, ctx=loader.ctx)


def speaks_gguf(loader: Loader, format_: Format) -> bool:
    """Whether llama.cpp or a fork of it is to load this."""
    if loader.engine:
        return ENGINES[loader.engine] is Format.GGUF
    return format_ is Format.GGUF or loader.kind == "mmap"


def engine_of(loader: Loader, plan: LoaderPlan, format_: Format) -> str:
    """The engine's name for the compatibility table."""
    if loader.engine:
        return loader.engine
    if isinstance(plan, LlamaPlan):
        return "llama.cpp"
    if loader.kind == "convert" or (isinstance(plan, SglangPlan) and plan.kt):
        return "kt-kernel"
    return "sglang" if format_ is not Format.GGUF else "llama.cpp"


def method_of(plan: LoaderPlan, args: Sequence[str]) -> str:
    """kt-kernel's method, where the plan names one; of a conversion, what it is done for."""
    for option, value in pairwise(args) if isinstance(plan, ConversionPlan) else ():
        if option == "--kt-method":
            return value
    return str(getattr(plan, "kt_method", "") or getattr(plan, "method", ""))
