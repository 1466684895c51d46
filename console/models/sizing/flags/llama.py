"""llama-server's options that change the memory, and those of ik_llama.cpp, as a plan.

Spellings and kinds of values are in the tables of `console.common.options`; what each does is here.
The last one given wins, and the command line wins over LLAMA_ARG_*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from console.common import redact
from console.common.options.beside import refused_beside
from console.common.options.command_line import Given, from_environment, given
from console.common.options.table import Table, table
from console.common.text import one_line
from console.models.hub.reference import CUT
from console.models.sizing.flags import ik_speculation
from console.models.sizing.flags.builds import Takes, newer_of, of_build
from console.models.sizing.flags.llama_devices import devices, ik_devices, override, split
from console.models.sizing.flags.reading import (
    MAX_NUMBER,
    OFF,
    ON,
    Apply,
    Reading,
    choice,
    fixed,
    name_variables,
    named,
    number,
    read,
    switch,
    text,
)
from console.models.sizing.kv_cache import IK_TYPES, LLAMA_TYPES, NOT_COUNTED
from console.models.sizing.loader_plan import ALL, LlamaPlan

LOAD_MODES = ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")
BATCH = 2048
"""--batch-size where it is not given; --ubatch-size is never more."""
MIN_AMB = 128
MAX_SLOTS = 256
"""LLAMA_MAX_SEQ of b11669."""
WAYS = (
    "none", "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark",
    "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache",
)  # fmt: skip
"""--spec-type of b11669."""

ON_CARDS = re.compile(r"--spec-draft-ngl (?:all|auto|-1|99|\d{3,4})")
"""A draft model with all layers on the cards, which is its default as well."""


def llama_plan(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, takes: Takes | None = None
) -> LlamaPlan:
    """llama-server's arguments (and LLAMA_ARG_* of its environment) as a plan.

    What the server refuses is in `refused`, what this reader does not take in `problems`, and the
    default is used. `takes`: what is known of the build; what it decides is else in `unsettled`.
    """
    return _plan(argv, env or {}, table("llama_cpp"), _LLAMA, takes or {})


def ik_plan(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, takes: Takes | None = None
) -> LlamaPlan:
    """The same of ik_llama.cpp's llama-server."""
    appliers = {**_LLAMA, **_IK}
    plan = _plan(argv, env or {}, table("ik_llama"), appliers, takes or {}, {"fit": False})
    # its windows keep the whole context, and its slots share one cache
    return replace(plan, swa_full=True, kv_unified=True, ik=True)


def _plan(
    argv: Sequence[str], env: Mapping[str, str], options: Table, appliers: Mapping[str, Apply],
    takes: Takes, defaults: Mapping[str, object] | None = None,
) -> LlamaPlan:  # fmt: skip
    refusals: list[str] = []
    reading = Reading(dict(defaults or {}), refused=refusals)
    known = named(options, appliers)
    sources = [list(_of_environment(env, options)), list(given(argv, options))]
    for source in sources:
        read(reading, map(_with_value, of_build(source, reading, takes, options)), known, options)
    name_variables(reading, env, options)
    refusals += refused_beside(chain(*sources), env, options)
    ubatch = _batches(reading)
    of_draft = reading.got.pop("of_draft", [])
    words = reading.got.pop("draft_words", [])
    reading.uncounted += words
    if reading.got.get("mtp") or reading.uncounted:
        reading.uncounted += of_draft
    reading.got["draft_words"] = (*words, *filter(ON_CARDS.fullmatch, of_draft))
    plan = LlamaPlan(
        **reading.got, **reading.remarks(), unsettled=tuple(dict.fromkeys(reading.unsettled)),
        overrides=tuple(reading.overrides), ubatch=ubatch,
        newer=tuple(newer_of(sources[1], takes, options)), refused=tuple(dict.fromkeys(refusals)),
    )  # fmt: skip
    return replace(
        plan, ctx=plan.ctx or None, whole_ctx=plan.ctx == 0,
        checkpoints=max(0, plan.checkpoints), cache_ram_mib=max(-1, plan.cache_ram_mib),
        per_slot=max(0, plan.per_slot),
    )  # fmt: skip


def _with_value(option: Given) -> Given:
    """Older builds take --flash-attn alone."""
    alone = option.name == "--flash-attn" and option.value is None
    return replace(option, value="") if alone else option


def _of_environment(env: Mapping[str, str], options: Table) -> Iterator[Given]:
    """Options from variables. A switch that is off is as if it were not there, unless it has a
    negative; `LLAMA_ARG_NO_X` with any value is that negative."""
    for variable in from_environment(env, options):
        off = (variable.value or "").lower() in OFF
        if variable.spelling.startswith("LLAMA_ARG_NO_"):
            yield replace(variable, value=None)
        elif variable.option is None or variable.option.kind != "flag" or not off:
            yield variable
        elif (negative := options.option(f"--no-{variable.name[2:]}")) is not None:
            yield replace(variable, option=negative, value=None)


def _whole(name: str, least: int | None = None, most: int = MAX_NUMBER) -> Apply:
    """A whole number. llama-server reads one as far as its digits go: `-c 16k` is 16. What is less
    than `least` it refuses; None: that is as good as none, 0."""

    def apply(reading: Reading, flag: str, value: str) -> None:
        digits = re.match(r"([+-]?\d{1,12})(\D?)", value)
        if digits is None:
            reading.refuse_value(flag, value, "a whole number")
        elif digits[2]:
            reading.problem(flag, value, f"a whole number, and llama-server reads {digits[1]}")
        elif least is not None and int(digits[1]) < least:
            reading.refuse_value(flag, value, f"{least} or more")
        else:
            number(name, -MAX_NUMBER if least is None else least, most)(reading, flag, value)

    return apply


def _layers(reading: Reading, flag: str, value: str) -> None:
    words = {"auto": None, "-1": None, "all": ALL, "-2": ALL}
    if value in words:
        reading.got["gpu_layers"] = words[value]
    elif re.fullmatch(r"\d{1,6}", value):
        reading.got["gpu_layers"] = int(value)
    elif re.match(r"[+-]?\d", value):
        reading.problem(flag, value, "a number, auto or all")
    else:
        reading.refuse_value(flag, value, "a number, auto or all")


def _slots(reading: Reading, flag: str, value: str) -> None:
    _whole("parallel")(reading, flag, value)
    slots = reading.got.get("parallel")
    if slots is not None and slots < 0:
        reading.got["parallel"] = None
    elif slots == 0 or (slots or 0) > MAX_SLOTS:
        reading.got["parallel"] = None
        reading.refuse_value(flag, value, f"1 to {MAX_SLOTS}")


def _ik_slots(reading: Reading, flag: str, value: str) -> None:
    _whole("parallel")(reading, flag, value)
    reading.got["parallel"] = max(1, reading.got.get("parallel", 1))


def _batches(reading: Reading) -> int:
    """The tokens that are worked on at once; the server never takes more than --batch-size."""
    batch: int = reading.got.pop("batch", BATCH)
    ubatch: int = reading.got.pop("ubatch", LlamaPlan().ubatch)
    slots = LlamaPlan(parallel=reading.got.get("parallel")).slots
    if batch < max(2, slots):
        reading.refuse(f"--batch-size {batch}: it aborts with less than a token for each slot")
    if ubatch > batch:
        reading.notes.append(f"--ubatch-size {ubatch} is cut to --batch-size, {batch}")
    return max(1, min(ubatch, batch) if ubatch > 0 else batch)


def _flash(reading: Reading, flag: str, value: str) -> None:
    """Builds before the values took the option alone."""
    value = value or "on"
    if value.lower() in (*ON, *OFF, "auto", "-1"):
        reading.got["flash"] = value.lower() not in OFF
        reading.got["flash_auto"] = value.lower() in ("auto", "-1")
    else:
        reading.problem(flag, value, "on, off or auto")


def _split_mode(reading: Reading, flag: str, value: str) -> None:
    reading.got.update(split_mode=value, min_devices=int(value == "tensor"))


def _ik_split_mode(reading: Reading, flag: str, value: str) -> None:
    reading.got["split_mode"] = "layer" if value in ("graph", "attn") else value
    reading.got["min_devices"] = 2 if value in ("graph", "attn") else 0
    reading.got["graph"] = value in ("graph", "attn")
    if value in ("graph", "attn"):
        reading.notes.append(f"--split-mode {value} is counted as layer")


def _ik_cache_type(name: str) -> Apply:
    def apply(reading: Reading, flag: str, value: str) -> None:
        reading.got[name] = value if value in IK_TYPES else NOT_COUNTED
        if value not in IK_TYPES:
            reading.uncounted.append(f"{flag} {value}")

    return apply


def _no_flash(reading: Reading, flag: str, value: str) -> None:
    reading.got.update(flash=False, flash_auto=False)


def _repacked(reading: Reading, flag: str, value: str) -> None:
    """Tensors on the host are repacked into memory of the process: the mapping is lost."""
    reading.got.update(mmap=False)


def _limited(reading: Reading, flag: str, value: str) -> None:
    """MiB of attention at once; 0: no limit, and ik_llama.cpp makes less than 128 of it 128."""
    _whole("amb")(reading, flag, value)
    if 0 < reading.got.get("amb", 0) < MIN_AMB:
        reading.got["amb"] = MIN_AMB


def _speculation(reading: Reading, flag: str, value: str) -> None:
    """Ways to guess ahead: one loads more of the same file, others a file of their own, and those
    that look into the text before load nothing."""
    ways = value.split(",")
    reading.got["mtp"] = reading.got.get("mtp", False) or "draft-mtp" in ways
    for way in ways:
        if way not in WAYS:
            reading.refuse_value(flag, way, "one of " + ", ".join(WAYS))
        elif way == "draft-simple":
            reading.got.setdefault("draft_words", []).append(f"{flag} {way}")
        elif way not in ("none", "draft-mtp") and not way.startswith("ngram"):
            reading.uncounted.append(f"{flag} {one_line(way, 40)}")


def _of_draft(reading: Reading, flag: str, value: str) -> None:
    """Where a draft model goes: it matters only with one, or with the file's own layers for it."""
    reading.got.setdefault("of_draft", []).append(f"{flag} {one_line(value, 40)}".rstrip())


def _draft_file(reading: Reading, flag: str, value: str) -> None:
    """A model of its own that guesses ahead: it is counted where it can be read."""
    text("draft_file")(reading, flag, value)
    words = f"{flag} {one_line(redact.argv([flag, value])[1], 60)}"
    reading.got.setdefault("draft_words", []).append(words)


def _spec_default(reading: Reading, flag: str, value: str) -> None:
    """ngram-mod, which looks into the text before, and loads nothing."""


def _targets(reading: Reading, flag: str, value: str) -> None:
    """MiB that --fit leaves free on each card; one number is for all."""
    parts = re.split(r"[,/]+", value)
    if all(re.fullmatch(r"\d{1,7}(\.\d+)?", part) for part in parts):
        reading.got["fit_target"] = tuple(float(part) for part in parts)
    else:
        reading.uncounted.append(f"{flag} {one_line(value, 40)}")


def _experts(reading: Reading, flag: str, value: str) -> None:
    """Experts on the host, of all layers or of the first so many. The loader asks its overrides in
    the order in which the command line gives them."""
    if flag == "--cpu-moe":
        reading.got["cpu_experts"] = ALL
    else:
        _whole("cpu_experts", 0)(reading, flag, value)
    reading.got.setdefault("moved_after", len(reading.overrides))


def _dense(reading: Reading, flag: str, value: str) -> None:
    _whole("cpu_dense", 0)(reading, flag, value)
    reading.got.setdefault("moved_after", len(reading.overrides))


def _file(reading: Reading, flag: str, value: str) -> None:
    text("file")(reading, flag, value)
    if CUT.search(value):
        reading.refuse(f"{flag} {one_line(value, 100)}: a part of a file; `cat` joins them")


_LLAMA: Mapping[str, Apply] = {
    "--n-gpu-layers": _layers, "--tensor-split": split,
    "--split-mode": _split_mode, "--main-gpu": _whole("main_gpu"),
    "--device": devices, "--ctx-size": _whole("ctx", 0),
    "--parallel": _slots, "--kv-unified-per-slot": _whole("per_slot"),
    "--kv-unified": switch("kv_unified"), "--no-kv-unified": fixed("kv_unified", False),
    "--cache-type-k": choice("type_k", LLAMA_TYPES),
    "--cache-type-v": choice("type_v", LLAMA_TYPES),
    "--ubatch-size": _whole("ubatch"), "--swa-full": switch("swa_full"),
    "--kv-offload": switch("kv_offload"), "--no-kv-offload": fixed("kv_offload", False),
    "--flash-attn": _flash, "--load-mode": choice("load_mode", LOAD_MODES),
    "--no-mmap": fixed("mmap", False), "--mmap": fixed("mmap", True),
    "--mlock": fixed("mlock", True), "--direct-io": fixed("load_mode", "dio"),
    "--no-host": switch("no_host"), "--repack": switch("repack"),
    "--no-repack": fixed("repack", False), "--op-offload": switch("op_offload"),
    "--no-op-offload": fixed("op_offload", False), "--fit": switch("fit"),
    "--cpu-moe": _experts, "--n-cpu-moe": _experts, "--n-cpu-ffn": _dense,
    "--override-tensor": override, "--moe-cache-mib": _whole("moe_cache_mib", 0),
    "--cache-ram": _whole("cache_ram_mib"), "--ctx-checkpoints": _whole("checkpoints"),
    "--spec-type": _speculation, "--rope-scaling": fixed("rope_scaled", True),
    "--rope-scale": fixed("rope_scaled", True), "--yarn-orig-ctx": fixed("rope_scaled", True),
    "--rope-freq-scale": fixed("rope_scaled", True), "--batch-size": _whole("batch"),
    "--spec-draft-n-max": _whole("drafts", 0), "--model": _file,
    "--model-draft": _draft_file,
    "--model-url": text("file"), "--hf-repo": text("file"), "--hf-file": text("file"),
    "--docker-repo": text("file"), "--spec-default": _spec_default, "--fit-target": _targets,
    "--n-gpu-layers-draft": _of_draft, "--cpu-moe-draft": _of_draft, "--device-draft": _of_draft,
    "--override-tensor-draft": _of_draft, "--n-cpu-moe-draft": _of_draft,
}  # fmt: skip
_IK: Mapping[str, Apply] = {
    "--split-mode": _ik_split_mode, "--cache-type-k": _ik_cache_type("type_k"),
    "--cache-type-v": _ik_cache_type("type_v"), "--no-flash-attn": _no_flash,
    "--run-time-repack": _repacked, "--fit": fixed("fit", True),
    "--spec-type": ik_speculation.speculation, "--spec-stage": ik_speculation.speculation,
    "--multi-token-prediction": ik_speculation.mtp,
    "--no-multi-token-prediction": ik_speculation.no_mtp, "--draft-max": _of_draft,
    "--merge-qkv": fixed("merges", True),
    "--device": ik_devices, "--parallel": _ik_slots, "--mla-use": _whole("mla", 0, 3),
    "--attention-max-batch": _limited, "--ctx-size-draft": _of_draft,
    "--k-cache-hadamard": fixed("rotates_k", True),
}  # fmt: skip
