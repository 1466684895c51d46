"""Options that were UNKNOWN for no reason: what they do is known, and counted or harmless."""

from dataclasses import replace

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Question, check
from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.cards.fit import chosen
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from console.models.sizing.model_facts import Experts
from console.models.sizing.serving.kt import by_kt
from tests.sizing import shapes
from tests.sizing.test_shared_ram import DENSE

GIB = 1 << 30
LLAMA = from_gguf(shapes.llama_70b())
HALF = from_config(DENSE, 65_527_000_000)
CARD = Card("x", total=150 * GIB, free=150 * GIB, compute=(9, 0))
ROOMY = Machine(cards=(CARD, CARD), ram_total=800 * GIB, ram_available=768 * GIB)


def gguf(words: str, plan: object = llama_plan) -> Assessment:
    read = ik_plan if plan is ik_plan else llama_plan
    return assess(LLAMA, read([*words.split(), "-ngl", "99", "-c", "8192", "-np", "1"]), ROOMY)


def vllm(words: str, machine: Machine = ROOMY) -> Assessment:
    return assess(HALF, vllm_plan(["vllm", "serve", "x", *words.split()]), machine)


@pytest.mark.parametrize(
    "words",
    ["-ngld 99", "-devd CUDA0", "--cpu-moe-draft", "--spec-default", "--models-max 4", "-fitt 512",
     "-fitt 1024,2048"],
)  # fmt: skip
def test_options_of_llama_server_without_an_effect_on_the_memory(words: str) -> None:
    assert gguf(words).verdict is Verdict.GO


@pytest.mark.parametrize("draft", ["-md d.gguf", "-hfd org/d", "--spec-type draft-mtp"])
def test_where_a_draft_goes_counts_with_a_draft(draft: str) -> None:
    found = gguf(f"{draft} -ngld 99")
    assert found.verdict is Verdict.UNKNOWN
    assert "--spec-draft-ngl 99" in found.because
    assert gguf("-ngld 9", ik_plan).verdict is Verdict.GO


def test_what_fit_leaves_free_decides_how_many_layers_it_takes() -> None:
    small = replace(CARD, total=40 * GIB, free=40 * GIB)
    found = [
        chosen(LLAMA, llama_plan(["-c", "4096", "-np", "1", "-fitt", str(mib)]), (small,))
        for mib in (0, 1024, 8192)
    ]
    layers = [plan.gpu_layers or 0 for plan in found]
    assert layers == sorted(layers, reverse=True)
    assert layers[0] > layers[2]
    usual = chosen(LLAMA, llama_plan(["-c", "4096", "-np", "1"]), (small,))
    assert usual.gpu_layers == layers[1]


@pytest.mark.parametrize("backend", ["ray", "mp", "uni"])
def test_who_starts_the_ranks_is_known(backend: str) -> None:
    words = f"--max-model-len 8192 -tp 2 --distributed-executor-backend {backend}"
    found = vllm(words)
    assert ("whether Ray is installed" in found.because) is (backend == "ray")
    assert found.verdict is (Verdict.UNKNOWN if backend == "ray" else Verdict.GO)
    four = vllm(words.replace("-tp 2", "-tp 4"))
    assert four.verdict is (Verdict.UNKNOWN if backend == "ray" else Verdict.NO_GO)
    assert vllm("--distributed-executor-backend my.Own").verdict is Verdict.UNKNOWN


def test_weights_that_are_quantized_while_they_load() -> None:
    words = "--max-model-len 8192 --quantization fp8 --enforce-eager"
    assert vllm(words).verdict is Verdict.GO
    whole = next(one.need for one in vllm(words).limits if one.where == "x #0")
    for share, verdict in ((0.9, Verdict.UNKNOWN), (0.3, Verdict.NO_GO)):
        card = replace(CARD, total=int(whole * share), free=int(whole * share))
        assert vllm(words, replace(ROOMY, cards=(card,))).verdict is verdict
    line = "--model-path x --context-length 8192 --quantization fp8"
    assert assess(HALF, sglang_plan(line.split()), ROOMY).verdict is Verdict.GO
    assert vllm("--max-model-len 8192 --quantization bitsandbytes").verdict is Verdict.UNKNOWN


def test_other_loaders_of_the_same_files_need_room_meanwhile() -> None:
    words = "--max-model-len 8192 --enforce-eager --load-format"
    for format_ in ("fastsafetensors", "runai_streamer"):
        assert vllm(f"{words} {format_}").verdict is Verdict.GO
    poor = replace(ROOMY, ram_available=40 * GIB)
    assert vllm(f"{words} runai_streamer", poor).verdict is Verdict.TIGHT
    full = replace(CARD, total=65 * GIB, free=65 * GIB)
    tight = vllm(f"{words} fastsafetensors", replace(ROOMY, cards=(full,))).tight
    assert any("a whole file" in one for one in tight)


@pytest.mark.parametrize(
    ("line", "strange"),
    [("sglang serve org/model --context-length 8192", False),
     ("sglang serve --model-path org/model --context-length 8192", False),
     ("python -m sglang.launch_server org/model --context-length 8192", True)],
)  # fmt: skip
def test_sglang_serve_takes_its_model_as_a_word(line: str, strange: bool) -> None:
    plan = sglang_plan(line.split())
    assert bool(plan.problems) is strange
    assert plan.ctx == 8192


def test_keys_of_an_object_that_are_given_one_by_one() -> None:
    """vLLM joins `--x.key value` into one value, behind all others; a `+` makes a list."""
    words = "--speculative-config.method mtp --speculative-config.num_speculative_tokens 2"
    plan = vllm_plan(words.split())
    assert (plan.guesses, plan.uncounted, plan.problems) == (2, (), ())
    whole = '{"method": "mtp", "num_speculative_tokens": 2}'
    assert plan == vllm_plan(["--speculative-config", whole])
    nested = ["--compilation-config.pass_config.fuse_norm_quant", "true",
              "--compilation-config.custom_ops+", "all"]  # fmt: skip
    (shown,) = vllm_plan(nested).uncounted
    assert shown.startswith('--compilation-config {"pass_config": {"fuse_norm_quant": true}')


@pytest.mark.parametrize("stored", ["bf16", "fp8"])
def test_experts_of_a_gguf_beside_a_checkpoint_for_the_cards(stored: str) -> None:
    """kt-kernel's README, GGUF experts with LLAMAFILE."""
    ada = Machine(cards=(replace(CARD, compute=(8, 9)),))
    asked = Question(
        "kt-kernel", "safetensors", "glm4_moe", stored, "LLAMAFILE", machine=ada, converts=False
    )
    about = [row for row in check(asked) if "quantization" in row.title]
    assert [row.level for row in about] == [Level.OK]


def test_llamafile_wants_whole_blocks_of_an_expert() -> None:
    """intel/auto-round#1085: GLM-4.5-Air has experts 1,408 wide, no multiple of 256."""
    plan = sglang_plan(["--kt-weight-path", "/w", "--kt-method", "LLAMAFILE", "--kt-cpuinfer", "8"])
    for width, refused in ((1408, True), (1536, False)):
        facts = replace(HALF, experts=Experts(8, 2, width=width))
        assert bool(by_kt(facts, plan)[0]) is refused


@pytest.mark.parametrize(
    "words",
    ["--nnodes 1", "-dcp 1 -pcp 1", "--max-loras 4 --max-lora-rank 64 --fully-sharded-loras",
     "--nnodes 2 --nnodes 1", "--enable-lora --no-enable-lora --max-loras 2"],
)  # fmt: skip
def test_options_of_vllm_that_change_nothing_as_they_stand(words: str) -> None:
    """`create_engine_config` of vLLM's arg_utils.py makes a LoRAConfig with --enable-lora alone."""
    assert vllm_plan(words.split()).uncounted == ()


@pytest.mark.parametrize("words", ["--nnodes 1", "--attn-cp-size 1", "--dcp-size 1"])
def test_options_of_sglang_that_change_nothing_as_they_stand(words: str) -> None:
    assert sglang_plan(words.split()).uncounted == ()


def test_adapters_and_several_hosts_are_named() -> None:
    """vllm#15039: out of memory in a step with an adapter."""
    plan = vllm_plan(["--max-lora-rank", "64", "--enable-lora", "--nnodes", "2", "-dcp", "4"])
    named = " ".join(plan.uncounted)
    for words in ("--enable-lora: the slots", "--max-lora-rank 64", "--nnodes 2",
                  "--decode-context-parallel-size 4"):  # fmt: skip
        assert words in named
    assert sglang_plan(["--nnodes", "2"]).uncounted == ("--nnodes 2",)
