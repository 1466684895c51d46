"""Command lines as operators write them, read as far as memory goes."""

import pytest

from console.models.sizing.flags.converter import conversion_plan
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.kv_cache import NOT_COUNTED, row_bytes
from console.models.sizing.loader_plan import ALL, LlamaPlan, SglangPlan, Strategy


def test_defaults_agree_with_the_package() -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    params, plan = xllamacpp.CommonParams(), LlamaPlan()
    assert params.n_ubatch == plan.ubatch
    assert params.cache_ram_mib == plan.cache_ram_mib
    assert params.n_gpu_layers == -1
    assert params.fit_params is plan.fit
    assert params.swa_full is plan.swa_full
    assert params.no_kv_offload is not plan.kv_offload
    assert params.no_op_offload is not plan.op_offload
    assert params.no_host is plan.no_host
    assert params.fit_params_min_ctx == 4096


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("-ngl 99", {"gpu_layers": 99}), ("--gpu-layers all", {"gpu_layers": ALL}),
        ("-ngl auto", {"gpu_layers": None}), ("-ngl 7", {"gpu_layers": 7}),
        ("-c 4096 --ctx-size 8192", {"ctx": 8192}), ("-c 0", {"ctx": None}),
        ("-ts 3/1", {"tensor_split": (3.0, 1.0)}), ("-ts 3,0,1", {"tensor_split": (3.0, 0.0, 1.0)}),
        ("-np 3", {"parallel": 3, "slots": 3, "unified": False}), ("-np 3 -kvu", {"unified": True}),
        ("--no-kv-unified", {"unified": False, "slots": 4}),
        ("-ctk q8_0 -ctv q4_0", {"type_k": "q8_0", "type_v": "q4_0"}),
        ("-ub 2048 --swa-full -nkvo", {"ubatch": 2048, "swa_full": True, "kv_offload": False}),
        ("-cmoe", {"cpu_experts": ALL}),
        ("--n-cpu-moe 12 -ncffn 3", {"cpu_experts": 12, "cpu_dense": 3}),
        ("-ot exps=CPU -ot attn=CUDA0", {"overrides": (("exps", "CPU"), ("attn", "CUDA0"))}),
        ("-ot a=CPU,b=CUDA1", {"overrides": (("a", "CPU"), ("b", "CUDA1"))}),
        ("-fa off", {"flash": False}), ("-fa auto", {"flash": True}),
        ("-fa -c 512", {"flash": True, "ctx": 512}), ("--cache-ram 0", {"cache_ram_mib": 0}),
        ("--cache-ram -1", {"cache_ram_mib": -1}),
        ("-sm none -mg 1", {"split_mode": "none", "main_gpu": 1}),
        ("-dev CUDA1,CUDA0", {"devices": (1, 0)}), ("-dev none", {"devices": ()}),
        ("--no-op-offload --no-host -nr", {"op_offload": False, "no_host": True, "repack": False}),
        ("--moe-cache-mib 4096 -fit off", {"moe_cache_mib": 4096, "fit": False}),
        ("-c 0", {"ctx": None, "whole_ctx": True}),
        ("--kv-unified-per-slot 4096", {"per_slot": 4096}),
        ("--spec-type ngram-mod,draft-mtp", {"mtp": True}), ("--spec-type none", {"mtp": False}),
        ("-ctxcp 3", {"checkpoints": 3}), ("--swa-checkpoints 0", {"checkpoints": 0}),
        ("-fa on", {"flash": True, "flash_auto": False}), ("-fa auto", {"flash_auto": True}),
        ("--rope-scaling yarn", {"rope_scaled": True}), ("-b 256", {"ubatch": 256}),
        ("--ctx_size 8192 --n_gpu_layers 99 --cpu_moe", {"ctx": 8192, "cpu_experts": ALL}),
        ("-ot a=CPU -cmoe -ot b=CPU", {"moved_after": 1}), ("--spec-draft-n-max 6", {"drafts": 6}),
    ],
)  # fmt: skip
def test_options(words: str, expected: dict[str, object]) -> None:
    plan = llama_plan(words.split())
    assert {name: getattr(plan, name) for name in expected} == expected
    assert plan.problems == ()


def test_what_is_mapped() -> None:
    for words in ("", "--load-mode mmap", "--no-host --no-repack"):
        assert llama_plan(words.split()).strategy() is Strategy.MMAP, words
    for words in ("--load-mode none", "-lm mlock", "-lm mmap+mlock", "-lm dio", "--direct-io",
                  "--no-mmap", "--mlock", "--no-host"):  # fmt: skip
        assert llama_plan(words.split()).strategy() is Strategy.RESIDENT, words
    # without a card weights are repacked into memory
    assert llama_plan([]).strategy(has_cards=False) is Strategy.RESIDENT
    assert llama_plan(["--no-repack"]).strategy(has_cards=False) is Strategy.MMAP


def test_a_compose_file_may_hold_two_words_in_an_item() -> None:
    plan = llama_plan(["llama-server", "--n-gpu-layers 999", "--ctx-size 8192", "--flash-attn"])
    assert (plan.gpu_layers, plan.ctx, plan.flash, plan.problems) == (999, 8192, True, ())


def test_the_environment_speaks_and_the_command_line_wins() -> None:
    env = {
        "LLAMA_ARG_N_GPU_LAYERS": "10", "LLAMA_ARG_CTX_SIZE": "2048", "LLAMA_ARG_SWA_FULL": "true",
        "LLAMA_ARG_NO_KV_OFFLOAD": "1", "LLAMA_ARG_LOAD_MODE": "none", "LLAMA_ARG_MMAP": "0",
        "LLAMA_ARG_KV_UNIFIED": "off", "LLAMA_ARG_CPU_MOE": "no",
    }  # fmt: skip
    plan = llama_plan(["-c", "4096"], env)
    assert (plan.gpu_layers, plan.ctx, plan.swa_full, plan.kv_offload) == (10, 4096, True, False)
    assert (plan.load_mode, plan.mmap, plan.unified, plan.cpu_experts) == ("none", False, False, 0)


def test_problems_are_clean() -> None:
    plan = llama_plan(["-c", "\x1b[31m" + "9" * 500])
    assert all(one.isprintable() and len(one) < 120 for one in plan.problems)


def test_sglang_of_the_resurrection() -> None:
    words = (
        "python -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --trust-remote-code "
        "--kt-method AMXINT8 --kt-weight-path /models/deepseek-r1-cpu-int8 --kt-cpuinfer 96 "
        "--kt-threadpool-count 2 --kt-num-gpu-experts 32 --tensor-parallel-size 2 --port 8000"
    )
    plan = sglang_plan(words.split())
    assert (plan.ranks, plan.kt, plan.kt_method, plan.kt_gpu_experts) == (2, True, "AMXINT8", 32)
    assert plan.strategy() is Strategy.KT


def test_sglang_options() -> None:
    words = "--tp=2 --pp-size 2 --mem-fraction-static 0.7 --cpu-offload-gb 9 --context-length 4Ki"
    plan = sglang_plan([*words.split(), "--kv-cache-dtype", "fp8_e4m3", "--max-total-tokens", "99"])
    assert (plan.ranks, plan.stages, plan.mem_fraction) == (2, 2, 0.7)
    assert (plan.cpu_offload, plan.ctx, plan.cache_tokens) == (9 << 30, 4096, 99)
    assert plan.type_kv == "fp8"
    assert plan.strategy() is Strategy.SGLANG
    assert sglang_plan([]) == SglangPlan()
    mapped = sglang_plan(["--kt-weight-path", "x", "--kt-mmap-experts-dir", "y"])
    assert mapped.strategy() is Strategy.KT_MMAP


@pytest.mark.parametrize(
    ("words", "runs", "idle"),
    [
        ("--kt-method FP8 --kt-num-gpu-experts 8", False, True),
        ("--kt-weight-path= --kt-cpuinfer 60", False, True),
        ("--kt-weight-path /w --kt-cpuinfer 60 --kt-weight-path=", False, True),
        ("--kt-threadpool-count 2", False, True),
        ("--kt-mmap-experts-dir /m", False, True),
        ("--kt-weight-path=/w", True, False),
        ("--kt-weight-path $WEIGHTS --kt-cpuinfer 60", True, False),
        ("--tp 2", False, False),
    ],
)
def test_kt_kernel_takes_no_layer_without_its_weights(words: str, runs: bool, idle: bool) -> None:
    plan = sglang_plan(words.split())
    assert (plan.kt, plan.kt_idle) == (runs, idle)
    if not runs:
        assert (plan.kt_method, plan.kt_mmap, plan.strategy()) == ("", False, Strategy.SGLANG)
    assert bool(plan.problems) is any(one.endswith("path=") for one in words.split())


def test_a_converter() -> None:
    words = "convert_cpu_weights.py --input-path a --input-type bf16 --output b --quant-method int4"
    plan = conversion_plan(words.split())
    assert (plan.method, plan.input_type) == ("int4", "bf16")
    # as an operator once wrote it: a quantization is no input type
    assert len(conversion_plan(["--input-type", "q4_k_m"]).problems) == 1


def test_a_cache_type_of_ik_llama_that_is_not_counted_is_nothing_of_the_sum() -> None:
    """ik_llama.cpp's q8_KV: counted in F16, such a type made a NO-GO."""
    plan = ik_plan(["-ctk", "q6_0", "-ctv", "q8_KV"])
    assert (plan.type_k, plan.type_v) == ("q6_0", NOT_COUNTED)
    assert plan.uncounted == ("--cache-type-v q8_KV",)
    assert row_bytes(NOT_COUNTED, 4096) == 0
    assert llama_plan(["-ctk", "q6_0"]).refused, "llama.cpp has no such type"


def test_the_rows_of_q6_0_are_those_of_a_log() -> None:
    """ikawrakow/ik_llama.cpp#1126: 598 MiB on a card that has one head of the 92 layers of GLM-4.7,
    with 32,768 tokens."""
    assert 92 * 32768 * 2 * row_bytes("q6_0", 128) == 598 << 20
