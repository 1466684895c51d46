"""Reads the memory-related options of a command line: llama-server, SGLang, kt-kernel.

llama-server's spellings and defaults are those of build b11669 (`--help`), with older ones that
still occur in compose files. The last one given wins, and the command line wins over LLAMA_ARG_*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from console.common.text import one_line
from console.models.sizing.kv_cache import CACHE_TYPES
from console.models.sizing.loader_plan import ALL, ConversionPlan, LlamaPlan, SglangPlan

ON = ("on", "enabled", "true", "1", "yes")
OFF = ("off", "disabled", "false", "0", "no")
MOST = 1 << 31
LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
SPLIT_MODES = ("none", "layer", "row", "tensor")
KV_TYPES = ("auto", "bf16", "bfloat16", "fp8_e4m3", "fp8_e5m2")
METHODS = ("int4", "int8", "fp8", "bf16", "moe_int4", "moe_int8")
GIB = 1 << 30

Apply = Callable[["_Reading", str, str], None]
"""How a value is applied: (reading, the option's own spelling for messages, value)."""


@dataclass
class _Reading:
    """What was read so far: values by field, in order."""

    got: dict[str, Any] = field(default_factory=dict)
    overrides: list[tuple[str, str]] = field(default_factory=list)
    uncounted: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def problem(self, flag: str, value: str, expected: str) -> None:
        self.problems.append(f"{flag} {one_line(value, 40) or '(nothing)'}: expected {expected}")


@dataclass(frozen=True, slots=True)
class _Option:
    """One option: its spellings, the one for messages last; the effect of a value, and of the
    option alone."""

    flags: tuple[str, ...]
    apply: Apply | None = None
    alone: Apply | None = None
    env: str = ""


def _number(name: str, least: int = 0, most: int = MOST) -> Apply:
    def apply(reading: _Reading, flag: str, value: str) -> None:
        if re.fullmatch(r"[+-]?\d{1,12}", value) and least <= int(value) <= most:
            reading.got[name] = int(value)
        else:
            reading.problem(flag, value, "a whole number")

    return apply


def _fraction(name: str, most: float, scale: float = 1.0) -> Apply:
    def apply(reading: _Reading, flag: str, value: str) -> None:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if 0 <= number <= most:
            reading.got[name] = number * scale
        else:
            reading.problem(flag, value, f"a number up to {most:.15g}")

    return apply


def _choice(name: str, words: Sequence[str]) -> Apply:
    def apply(reading: _Reading, flag: str, value: str) -> None:
        if value.lower() in words:
            reading.got[name] = value.lower()
        else:
            reading.problem(flag, value, "one of " + ", ".join(words))

    return apply


def _set(name: str, to: object, note: str = "") -> Apply:
    def apply(reading: _Reading, flag: str, value: str) -> None:
        reading.got[name] = to
        if note and note not in reading.notes:
            reading.notes.append(note)

    return apply


def _switch(name: str, inverted: bool = False) -> Apply:
    """The value of an environment variable for an option that takes none."""

    def apply(reading: _Reading, flag: str, value: str) -> None:
        if value.lower() in (*ON, *OFF):
            reading.got[name] = (value.lower() in ON) is not inverted

    return apply


def _layers(reading: _Reading, flag: str, value: str) -> None:
    words = {"auto": None, "-1": None, "all": ALL, "-2": ALL}
    if value.lower() in words:
        reading.got["gpu_layers"] = words[value.lower()]
    elif re.fullmatch(r"\d{1,6}", value):
        reading.got["gpu_layers"] = int(value)
    else:
        reading.problem(flag, value, "a number, auto or all")


def _split(reading: _Reading, flag: str, value: str) -> None:
    try:
        parts = tuple(float(part) for part in re.split(r"[,/]+", value))
    except ValueError:
        parts = (-1.0,)
    if all(0 <= part < 1e9 for part in parts) and sum(parts) > 0:
        reading.got["tensor_split"] = parts
    else:
        reading.problem(flag, value, "proportions like 75,25")


def _slots(reading: _Reading, flag: str, value: str) -> None:
    if value == "-1":
        reading.got["parallel"] = None
    else:
        _number("parallel", 1, 4096)(reading, flag, value)


def _flash(reading: _Reading, flag: str, value: str) -> None:
    if value.lower() in (*ON, *OFF, "auto", "-1"):
        reading.got["flash"] = value.lower() not in OFF
        reading.got["flash_auto"] = value.lower() in ("auto", "-1")
    else:
        reading.problem(flag, value, "on, off or auto")


def _bare_flash(reading: _Reading, flag: str, value: str) -> None:
    _flash(reading, flag, "on")
    reading.notes.append(_BARE)


def _devices(reading: _Reading, flag: str, value: str) -> None:
    if value.lower() == "none":
        reading.got["devices"] = ()
        return
    numbers = [re.search(r"(\d+)$", name) for name in value.split(",")]
    if all(numbers):
        reading.got["devices"] = tuple(int(found[1]) for found in numbers if found)


def _split_mode(reading: _Reading, flag: str, value: str) -> None:
    if value.lower() in ("graph", "attn"):  # ik_llama.cpp's
        reading.got["split_mode"] = "layer"
        reading.notes.append(f"--split-mode {value.lower()} is counted as layer")
    else:
        _choice("split_mode", SPLIT_MODES)(reading, flag, value)


def _override(reading: _Reading, flag: str, value: str) -> None:
    for one in value.split(","):
        pattern, mark, buffer = one.rpartition("=")
        try:
            re.compile(pattern)
        except re.error:
            mark = ""
        if mark and pattern and buffer:
            reading.overrides.append((pattern, one_line(buffer, 60)))
        else:
            reading.problem(flag, one, "PATTERN=BUFFER, like exps=CPU")


def _speculation(reading: _Reading, flag: str, value: str) -> None:
    """Of the ways to guess ahead only one loads more of the same file."""
    reading.got["mtp"] = reading.got.get("mtp", False) or "draft-mtp" in value.lower().split(",")


def _uncounted(what: str) -> Apply:
    def apply(reading: _Reading, flag: str, value: str) -> None:
        reading.uncounted.append(f"{what} ({one_line(value, 60)})")

    return apply


_REMOVED = (
    "--no-mmap, --mmap, --mlock and --direct-io: newer builds refuse them; there it is --load-mode"
)
_BARE = "--flash-attn without on, off or auto: newer builds refuse it"
_LLAMA = (
    _Option(("-ngl", "--gpu-layers", "--n-gpu-layers"), _layers, env="N_GPU_LAYERS"),
    _Option(("-ts", "--tensor-split"), _split, env="TENSOR_SPLIT"),
    _Option(("-sm", "--split-mode"), _split_mode, env="SPLIT_MODE"),
    _Option(("-mg", "--main-gpu"), _number("main_gpu", 0, 64), env="MAIN_GPU"),
    _Option(("-dev", "--device"), _devices, env="DEVICE"),
    _Option(("-c", "--ctx-size"), _number("ctx"), env="CTX_SIZE"),
    _Option(("-np", "--parallel"), _slots, env="N_PARALLEL"),
    _Option(("--kv-unified-per-slot",), _number("per_slot"), env="KV_UNIFIED_PER_SLOT"),
    _Option(("-kvu", "--kv-unified"), None, _set("kv_unified", True), env="KV_UNIFIED"),
    _Option(("-no-kvu", "--no-kv-unified"), None, _set("kv_unified", False)),
    _Option(("-ctk", "--cache-type-k"), _choice("type_k", tuple(CACHE_TYPES)), env="CACHE_TYPE_K"),
    _Option(("-ctv", "--cache-type-v"), _choice("type_v", tuple(CACHE_TYPES)), env="CACHE_TYPE_V"),
    _Option(("-ub", "--ubatch-size"), _number("ubatch", 1, 1 << 20), env="UBATCH"),
    _Option(("--swa-full",), None, _set("swa_full", True), env="SWA_FULL"),
    _Option(("-kvo", "--kv-offload"), None, _set("kv_offload", True), env="KV_OFFLOAD"),
    _Option(("-nkvo", "--no-kv-offload"), None, _set("kv_offload", False)),
    _Option(("-fa", "--flash-attn"), _flash, _bare_flash, env="FLASH_ATTN"),
    _Option(("-lm", "--load-mode"), _choice("load_mode", LOAD_MODES), env="LOAD_MODE"),
    _Option(("--no-mmap",), None, _set("mmap", False, _REMOVED)),
    _Option(("--mmap",), None, _set("mmap", True, _REMOVED), env="MMAP"),
    _Option(("--mlock",), None, _set("mlock", True, _REMOVED), env="MLOCK"),
    _Option(("-dio", "--direct-io"), None, _set("load_mode", "dio", _REMOVED)),
    _Option(("--no-host",), None, _set("no_host", True), env="NO_HOST"),
    _Option(("--repack",), None, _set("repack", True), env="REPACK"),
    _Option(("-nr", "--no-repack"), None, _set("repack", False)),
    _Option(("--op-offload",), None, _set("op_offload", True), env="OP_OFFLOAD"),
    _Option(("--no-op-offload",), None, _set("op_offload", False)),
    _Option(("-fit", "--fit"), _switch("fit"), env="FIT"),
    _Option(("-cmoe", "--cpu-moe"), None, _set("cpu_experts", ALL), env="CPU_MOE"),
    _Option(("-ncmoe", "--n-cpu-moe"), _number("cpu_experts", 0, ALL), env="N_CPU_MOE"),
    _Option(("-ncffn", "--n-cpu-ffn"), _number("cpu_dense", 0, ALL), env="N_CPU_FFN"),
    _Option(("-ot", "--override-tensor"), _override, env="OVERRIDE_TENSOR"),
    _Option(("--moe-cache-mib",), _number("moe_cache_mib"), env="MOE_CACHE_MIB"),
    _Option(("-cram", "--cache-ram"), _number("cache_ram_mib", -1), env="CACHE_RAM"),
    _Option(
        ("-ctxcp", "--swa-checkpoints", "--ctx-checkpoints"),
        _number("checkpoints"),
        env="CTX_CHECKPOINTS",
    ),
    _Option(("--spec-type",), _speculation, env="SPEC_TYPE"),
    _Option(
        ("--rope-scaling", "--rope-scale", "--yarn-orig-ctx", "--rope-freq-scale"),
        _set("rope_scaled", True),
        env="ROPE_SCALING_TYPE",
    ),
    _Option(
        ("-md", "--model-draft", "--spec-draft-model", "-hfd", "--spec-draft-hf"),
        _uncounted("a draft model"),
        env="SPEC_DRAFT_MODEL",
    ),
    _Option(("-mm", "--mmproj", "-mmu", "--mmproj-url"), _uncounted("a projector"), env="MMPROJ"),
    _Option(("--lora", "--lora-scaled"), _uncounted("an adapter")),
)

_SGLANG = (
    _Option(("--tp-size", "--tensor-parallel-size", "--tp"), _number("ranks", 1, 1024)),
    _Option(("--pp-size", "--pipeline-parallel-size", "--pp"), _number("stages", 1, 1024)),
    _Option(("--mem-fraction-static",), _fraction("mem_fraction", 1.0)),
    _Option(("--context-length",), _number("ctx", 1)),
    _Option(("--max-total-tokens",), _number("cache_tokens", 1)),
    _Option(("--kv-cache-dtype",), _choice("type_kv", KV_TYPES)),
    _Option(("--cpu-offload-gb",), _fraction("cpu_offload", 1e6, GIB)),
    _Option(("--kt-cpuinfer", "--kt-threadpool-count"), _set("kt", True)),
    _Option(
        ("--kt-weight-path",),
        lambda reading, _, value: reading.got.update(kt=True, kt_weights=value),
    ),
    _Option(
        ("--kt-method",),
        lambda reading, _, value: reading.got.update(
            kt=True, kt_method=one_line(value, 40).upper()
        ),
    ),
    _Option(("--kt-num-gpu-experts",), _number("kt_gpu_experts", 0, 1 << 16)),
    _Option(("--kt-mmap-experts-dir",), _set("kt_mmap", True)),
    _Option(
        ("--speculative-draft-model-path", "--speculative-draft-model"), _uncounted("a draft model")
    ),
)

_CONVERSION = (
    _Option(("--quant-method",), _choice("method", METHODS)),
    _Option(
        ("--kt-method",),
        lambda reading, _, value: reading.got.update(method=one_line(value, 40).upper()),
    ),
    _Option(("--input-type",), _choice("input_type", ("fp8", "fp16", "bf16"))),
)


def spellings(name: str) -> tuple[str, ...]:
    """Every spelling of a loader's option; none if it is not one that changes the memory."""
    options = (*_LLAMA, *_SGLANG)
    return next((option.flags for option in options if name in option.flags), ())


def llama_plan(argv: Sequence[str], env: Mapping[str, str] | None = None) -> LlamaPlan:
    """llama-server's arguments (and LLAMA_ARG_* of its environment) as a plan.

    Unreadable options are in `problems`, and their default is used.
    """
    reading = _Reading()
    for option in _LLAMA:
        _from_env(reading, option, env or {})
    _read(reading, argv, _LLAMA)
    plan = LlamaPlan(**reading.got, **_told(reading), overrides=tuple(reading.overrides))
    return replace(plan, ctx=plan.ctx or None, whole_ctx=plan.ctx == 0)


def sglang_plan(argv: Sequence[str]) -> SglangPlan:
    """SGLang's arguments, with those of its kt-kernel backend."""
    reading = _Reading()
    _read(reading, argv, _SGLANG)
    got = reading.got
    got["type_kv"] = "fp8" if got.get("type_kv", "").startswith("fp8") else "bf16"
    got["cpu_offload"] = int(got.get("cpu_offload", 0))
    return SglangPlan(**got, **_told(reading))


def conversion_plan(argv: Sequence[str]) -> ConversionPlan:
    """The arguments of kt-kernel's convert_cpu_weights."""
    reading = _Reading()
    _read(reading, argv, _CONVERSION)
    return ConversionPlan(**reading.got, **_told(reading))


def _told(reading: _Reading) -> dict[str, Any]:
    names = ("uncounted", "problems", "notes")
    return {name: tuple(dict.fromkeys(getattr(reading, name))) for name in names}


def _from_env(reading: _Reading, option: _Option, env: Mapping[str, str]) -> None:
    value = env.get(f"LLAMA_ARG_{option.env}") if option.env else None
    if value is not None:
        if option.apply is not None:
            option.apply(reading, option.flags[-1], value.strip())
        elif option.alone is not None and value.strip().lower() in ON:
            option.alone(reading, option.flags[-1], "")
        elif option.env == "MMAP" or option.env.startswith("KV_"):
            name = {"MMAP": "mmap"}.get(option.env, option.env.lower())
            _switch(name)(reading, "", value.strip())
    if option.env and f"LLAMA_ARG_NO_{option.env}" in env:
        _switch(option.env.lower(), inverted=True)(reading, "", env[f"LLAMA_ARG_NO_{option.env}"])


def _read(reading: _Reading, argv: Sequence[str], options: Iterable[_Option]) -> None:
    table = {flag: option for option in options for flag in option.flags}
    words = list(_words(argv))
    place = 0
    while place < len(words):
        flag, mark, value = words[place].partition("=")
        place += 1
        option = table.get(flag)
        if option is None:
            continue
        if option.apply is None:
            assert option.alone is not None
            option.alone(reading, option.flags[-1], "")
            continue
        if not mark and (place >= len(words) or _bare(option, words[place])):
            if option.alone is not None:
                option.alone(reading, option.flags[-1], "")
            else:
                reading.problem(flag, "", "a value")
            continue
        if not mark:
            value = words[place]
            place += 1
        option.apply(reading, option.flags[-1], value.strip())


def _bare(option: _Option, following: str) -> bool:
    """Whether an option stands without a value, because the next word cannot be one."""
    if option.alone is None:
        return False
    return following.lower() not in (*ON, *OFF, "auto", "-1")


def _words(argv: Sequence[str]) -> Iterator[str]:
    """The words; a list item like `--ctx-size 8192` of a compose file counts as two."""
    for word in argv:
        if word.startswith("-") and re.search(r"\s", word):
            yield from word.split()
        else:
            yield word
