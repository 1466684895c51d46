"""Rules on an engine's arguments and inputs, and on downloads that are lost, slow or useless.

A download is useless if no engine here can load it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from console.checks.lint import vocabulary
from console.checks.lint.commands import DETACHED
from console.checks.lint.rule import ERROR, INFO, WARNING, Facts, rule
from console.checks.lint.unit import Command, Hit, Kind, Place, PlaybookStep, Unit, Where
from console.common.options.table import table
from console.common.units import format_bytes
from console.models.sizing.flags import judge
from console.models.sizing.flags.judge import Complaint, Sure

_WHOLE_BYTES = 642 << 30
_WHOLE = re.compile(
    r"deepseek-ai/deepseek-(?:r1|r1-0528|v3|v3-0324|v3-base)"
    r"|meituan/deepseek-r1-(?:block|channel)-int8", re.IGNORECASE,
)  # fmt: skip
_DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
    "torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
"""Of the publisher's config.json, what its size in memory depends on."""
_CHAIN = ("ktransformers.local_chat", "ktransformers.server", "ktransformers.models.custom_cache")

_MADE = re.compile(r"[$`*<>~]|\{\{|%\w+%")
"""What a shell, compose or a template makes something else of."""
SEVERITY = {Sure.DOUBTED: WARNING, Sure.DEPENDS: INFO}

_EXPERIMENTAL = re.compile(r"v\d(?:\.\d)?-exp\b|v3\.2\S*mxfp4|mxfp4\S*v3\.2", re.IGNORECASE)


@rule(
    "fp8-kv-on-sm120", ERROR, "F-009",
    title="An FP8 KV cache on compute 12.0",
    why="It is broken there: SGLang and vLLM have to keep the cache in BF16.",
    fix="--kv-cache-dtype bf16",
    needs="cards of compute 12.0; reported as info if unknown",
)  # fmt: skip
def fp8_cache(unit: Unit, facts: Facts) -> Iterator[Hit]:
    sm120 = vocabulary.for_sm120(unit, facts)
    if sm120 is False:
        return
    unsure = "" if sm120 else ": broken where cards are of compute 12.0"
    for command in unit.commands:
        for value, place, _ in vocabulary.given(unit, command, "--kv-cache-dtype"):
            if value.startswith("fp8"):
                words = f"--kv-cache-dtype {value}{unsure}"
                yield Hit(place, words, INFO if unsure else None)


@rule(
    "sglang-kernels-on-sm120", WARNING, "F-009 D-003",
    title="SGLang with kernels that compute 12.0 does not have",
    why="FlashInfer ends there with `out of shared memory`, FlashMLA and DeepGEMM do not know the "
    "card, FP8 GEMM has no kernel; the defaults choose them.",
    fix="--attention-backend triton --fp8-gemm-backend triton, SGLANG_ENABLE_JIT_DEEPGEMM=false",
    needs="cards of compute 12.0", when=vocabulary.for_sm120,
)  # fmt: skip
def sglang_kernels(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if vocabulary.engine(command) != "sglang":
            continue
        names = ("--attention-backend", "--fp8-gemm-backend")
        settings = {name: list(vocabulary.given(unit, command, name)) for name in names}
        lacks = [n for n in names if not any(value == "triton" for value, _, _ in settings[n])]
        if "--attention-backend" in lacks and settings["--attention-backend"]:
            value, place, _ = settings["--attention-backend"][-1]  # the last one counts
            if value in ("flashinfer", "flashmla", "fa3"):
                yield Hit(place, f"--attention-backend {value}")
        elif lacks:
            yield Hit(command.place, f"sglang without {' and '.join(f'{x} triton' for x in lacks)}")


@rule(
    "gguf-into-kt-kernel", ERROR, "F-023 D-002",
    title="GGUF as input for kt-kernel or SGLang",
    why="kt-kernel converts safetensors (BF16, FP16, FP8) only, and the loader of transformers "
    "does not know deepseek2 in GGUF.",
    fix="safetensors of the same model, if they fit at all; llama.cpp for the GGUF",
)  # fmt: skip
def gguf_input(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if _converts(command):
            for option in ("--input-path", "--input-type"):
                for value, word in command.options(option):
                    if vocabulary.names_gguf(value):
                        yield Hit(word.place, f"{option} {value}")
        elif vocabulary.engine(command) == "sglang":
            methods = vocabulary.given(unit, command, "--kt-method")
            if any("LLAMAFILE" in value.upper() for value, _, _ in methods):
                continue
            names = ("--kt-weight-path", "--model-path")
            for value, place, spelling in vocabulary.given(unit, command, *names):
                if vocabulary.names_gguf(value):
                    yield Hit(place, f"{spelling} {value}")


def _converts(command: Command) -> bool:
    return vocabulary.is_python(command) and any(
        word.text.removesuffix(".py").endswith("convert_cpu_weights") for word in command.args
    )


@rule(
    "kt-kernel-fp8-conversion", ERROR, "F-019",
    title="Weights are converted from FP8 by kt-kernel",
    why="It ends in a segmentation fault at the first layer of experts, with any number of "
    "threads; from BF16 it takes two days of swap.",
    fix="weights that were quantised by their publisher",
)  # fmt: skip
def fp8_conversion(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if _converts(command):
            for value, word in command.options("--input-type"):
                if value.lower().startswith("fp8"):
                    yield Hit(word.place, f"--input-type {value}")


@rule(
    "amx-method-without-amx", ERROR, "S-013",
    title="An AMX method of kt-kernel on a CPU without AMX",
    why="AMXINT8 and AMXINT4 are kernels for Intel's matrix unit (since Sapphire Rapids). AMD's "
    "processors have none, also those with all of AVX-512.",
    fix="MOE_INT8 (BLIS), FP8, BF16 or LLAMAFILE; a `host` step with `method:` asks the machine",
    needs="the CPU's flags or name; reported as info if unknown",
)  # fmt: skip
def without_amx(unit: Unit, facts: Facts) -> Iterator[Hit]:
    if facts.amx:
        return
    unsure = facts.amx is None
    why = "only for a CPU with AMX" if unsure else "and the site's CPU has no AMX"
    for command in unit.commands:
        for value, place, _ in vocabulary.given(unit, command, "--kt-method"):
            if match := re.search(r"\bAMX\w*", value.upper()):
                yield Hit(place, f"--kt-method {match[0]}, {why}", INFO if unsure else None)


@rule(
    "checkpoint-larger-than-memory", ERROR, "F-022 F-020 P-005",
    title="A checkpoint that does not fit where its engine puts it",
    why="SGLang and vLLM divide weights over the cards of their ranks; with --cpu-offload-gb "
    "SGLang first reads all of them into RAM, and kt-kernel keeps every expert there. 642 GiB took "
    "377 GB of RAM, then swap, then SSH; INT8 in the name says nothing about the size.",
    fix="`omni-console check checkpoint`; a GGUF with llama.cpp, which streams from the disk",
    needs="cards, RAM and swap; reported as info if unknown",
)  # fmt: skip
def too_large(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        name, engine = vocabulary.model_name(unit, command), vocabulary.engine(command)
        name = name.partition("@")[0]
        if engine not in ("sglang", "vllm") or not _WHOLE.fullmatch(name):
            continue
        word = next(
            (argument for argument in command.words if name in argument.text), command.words[0]
        )
        words = f"{name} is {format_bytes(_WHOLE_BYTES)}"
        env = _environment(unit, command, (engine,))
        if short := _short(engine, [argument.text for argument in command.words], env, facts):
            made = any(_MADE.search(argument.text) for argument in command.words)
            yield Hit(word.place, f"{words}; {short}", INFO if made else None)
        elif facts.ram_bytes is None or not facts.memory:
            yield Hit(word.place, words, INFO)


def _short(engine: str, argv: Sequence[str], env: Mapping[str, str], facts: Facts) -> str:
    """What lacks the room for DeepSeek-V3, as the preflight judges it; "" if it has room, or if
    that is not known."""
    from console.host.sample import Card, Machine  # only one model is judged so
    from console.models.sizing.assess import assess
    from console.models.sizing.facts_from_config import from_config
    from console.models.sizing.flags.sglang import sglang_plan
    from console.models.sizing.flags.vllm import vllm_plan

    plan = vllm_plan(argv, env) if engine == "vllm" else sglang_plan(argv)
    compute = facts.compute if len(facts.compute) == len(facts.memory) else repeat(None)
    cards = tuple(
        Card(f"card {n}", total=size, compute=sm)
        for n, (size, sm) in enumerate(zip(facts.memory, compute, strict=False))
    )
    machine = Machine(cards, ram_available=facts.ram_bytes, swap_free=facts.swap_bytes)
    assessment = assess(from_config(_DEEPSEEK, _WHOLE_BYTES), plan, machine, advised=False)
    return "; ".join(
        f"{shortage.where} has {format_bytes(shortage.have)} and needs "
        f"{format_bytes(shortage.need)}"
        for shortage in assessment.short
    )


@rule(
    "ktransformers-without-sched-ext",
    WARNING,
    "F-018 F-023 F-027",
    title="A part of ktransformers that imports sched_ext",
    why="local_chat and the server import balance_serve whatever they are asked for: a C++ "
    "extension with a long chain of dependencies that no wheel has.",
    fix="serve through SGLang, or build balance_serve (USE_BALANCE_SERVE=1); `omni-console check "
    "imports` shows the chain",
)
def sched_ext(unit: Unit, facts: Facts) -> Iterator[Hit]:
    if any(
        "balance_serve" in word.text for command in unit.commands for word in command.args
    ) or any(
        variable.name == "USE_BALANCE_SERVE" and vocabulary.truthy(variable.value)
        for variable in unit.variables
    ):
        return
    for command in unit.commands:
        ran = vocabulary.module(command)
        scripts = [word.text for word in command.args] if vocabulary.is_python(command) else []
        if ran.startswith(_CHAIN):
            yield Hit(command.place, f"python -m {ran}")
        elif any(script.endswith("ktransformers/local_chat.py") for script in scripts):
            yield Hit(command.place, "ktransformers/local_chat.py")


@rule(
    "exllamav3-with-deepseek", ERROR, "F-026",
    title="ExLlamaV3 with a DeepSeek model",
    why="Its mixtures of experts are Mixtral, ERNIE 4.5, GLM 4 and Qwen 3; the architecture "
    "deepseek2 is not among them.",
    fix="llama.cpp",
)  # fmt: skip
def exllama(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        line = command.line.lower()
        if "exllamav3" in line and re.search(r"deepseek[-_/.]*(?:v[234]|r1)(?!.*distill)", line):
            yield Hit(command.place, "exllamav3 with a DeepSeek model")


@rule(
    "docker-exec-d-download", WARNING, "S-012",
    title="A download that docker exec -d started in the background",
    why="Nothing waits for it and no restart policy brings it back: after a reboot the container "
    "ran and the download did not.",
    fix="a `download` step; or tmux in the container, or a service with a restart policy",
)  # fmt: skip
def detached(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        if DETACHED in command.wrappers and vocabulary.is_download(command):
            yield Hit(command.place, f"docker exec -d, and {command.name} downloads in it")


@rule(
    "hf-transfer-many-shards", WARNING, "S-010",
    title="hf_transfer for a checkpoint of many files",
    why="It takes one file after another: 12 MB/s where 16 workers got 56 to 60.",
    fix="HF_HUB_DOWNLOAD_WORKERS=16 (or --max-workers 16) without it; it is for single large files",
)  # fmt: skip
def hf_transfer(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        words = vocabulary.hub_words(command)
        single = len(words) > 1 or any(
            "*" not in value for value, _ in command.options("--include")
        )
        if not words or single:
            continue
        on = list(unit.settings(command, "HF_HUB_ENABLE_HF_TRANSFER"))
        if on and vocabulary.truthy(on[0].value):
            yield Hit(command.place, f"all of {words[0].text} with HF_HUB_ENABLE_HF_TRANSFER=1")


@rule(
    "download-before-architecture", WARNING, "F-008",
    title="A GGUF is downloaded before its architecture is known",
    why="342 GB of deepseek3_2 came before llama.cpp said that it knows deepseek2 only. A few KiB "
    "of the header would have told.",
    fix="a `gguf` step before it, or `omni-console check gguf REPO`",
)  # fmt: skip
def unchecked(unit: Unit, facts: Facts) -> Iterator[Hit]:
    checked = False
    for step in unit.steps:
        checked = checked or step.kind == "gguf"
        if not checked and step.kind == "download" and _gguf(unit, step):
            yield Hit(step.place, f"step {step.id} downloads a GGUF that no `gguf` step looked at")
    for command in unit.commands:
        repo = vocabulary.hub_repo(command)
        if repo and _EXPERIMENTAL.search(repo):
            yield Hit(command.place, f"{repo} is of an experimental architecture")
        elif repo and unit.source.kind is Kind.PLAYBOOK and vocabulary.names_gguf(command.line):
            before = any(s.kind == "gguf" and s.place.line < command.place.line for s in unit.steps)
            if not before:
                yield Hit(command.place, f"{repo}, which no `gguf` step looked at")


def _gguf(unit: Unit, step: PlaybookStep) -> bool:
    """What a download fetches, from the step itself or the checkpoint step it is `of`."""
    of = step.data.text_at("of")
    parts = [
        step.data,
        *(other_step.data for other_step in unit.steps if of and other_step.id == of),
    ]
    return any(
        vocabulary.names_gguf(part.text_at(key)) for part in parts for key in ("repo", "include")
    )


@rule(
    "engine-refuses-option", ERROR, "S-001",
    title="A command line that its engine refuses",
    why="An engine reads its options before anything else and ends at the first that it does not "
    "take: an outage for a typing error.",
    fix="what the engine takes: `--help` of its own build lists it",
    needs="a known engine; an option that another version may have is a warning, one that only "
    "newer builds refuse is reported as info",
)  # fmt: skip
def refused_option(unit: Unit, facts: Facts) -> Iterator[Hit]:
    for command in unit.commands:
        argv = [word.text for word in command.words]
        tables = judge.tables_of(argv, _image(unit, command))
        if not tables or "xargs" in command.wrappers or not judge.serves(tables, argv):
            continue
        env = _environment(unit, command, tables)
        for complaint in judge.judged(tables, argv, env):
            if not _is_open(unit, command, complaint):
                refuses = complaint.sure is Sure.REFUSED
                prefix = f"{judge.engine_name(tables)} refuses " if refuses else ""
                place, what = _place(unit, command, complaint), f"{prefix}{complaint.words}"
                yield Hit(place, what, SEVERITY.get(complaint.sure))


def _image(unit: Unit, command: Command) -> str:
    """The image whose own program takes a command of options alone; "" where it may be another's:
    of an ENTRYPOINT beside it, or of a Dockerfile that makes an image of that name."""
    started = [
        start_command for start_command in unit.commands if start_command.where is Where.START
    ]
    beside = any(
        start_command.scope == command.scope and not start_command.words[0].text.startswith("-")
        for start_command in started
    )
    built = any(
        container.dockerfile and container.name == command.scope for container in unit.containers
    )
    return "" if built or (beside and unit.source.kind is Kind.DOCKERFILE) else command.image


def _environment(unit: Unit, command: Command, tables: Sequence[str]) -> dict[str, str]:
    """The variables that the engine takes for options, where a file says one value of them."""
    names = {name for of in tables for option in table(of).options for name in option.env}
    mentioned = {variable.name for variable in (*command.env, *unit.variables)} & names
    environment: dict[str, str] = {}
    for name in mentioned:
        values = list(unit.settings(command, name))
        if len({variable.value for variable in values}) == 1 and not values[0].branched:
            environment[name] = values[0].value
    return environment


def _is_open(unit: Unit, command: Command, complaint: Complaint) -> bool:
    """Whether what a complaint is about is not known here: a shell's variable, or the value that
    CMD adds to an ENTRYPOINT."""
    option = complaint.option
    if option is None:
        return any(_MADE.search(word.text) for word in command.words)
    if option.value is None and unit.source.kind is Kind.DOCKERFILE:
        return command.words[-1].text == option.spelling
    return _MADE.search(f"{option.spelling} {option.value or ''}") is not None


def _place(unit: Unit, command: Command, complaint: Complaint) -> Place:
    """The word that a complaint is about, or the variable; the last of several counts."""
    option = complaint.option
    if option is None:
        return command.place
    at = [word for word in command.words if word.text.startswith(option.spelling)]
    if not at:
        given = next(unit.settings(command, option.spelling), None)
        return given.place if given is not None else command.place
    exact = [word for word in at if option.value is None or option.value in word.text]
    return (exact or at)[-1].place
