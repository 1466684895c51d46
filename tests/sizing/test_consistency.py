"""Keys of a config.json with other types than they have, or that contradict each other or the
tensors. What is refused is what transformers 5 and the engines' own code refuse."""

from collections.abc import Mapping
from typing import Any

import pytest

from console.models.safetensors.read import StoredBytes
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.model_facts import BadFacts, ModelFacts
from tests.sizing.test_checkpoints import KNOWN, cards
from tests.sizing.test_started import judged

BASE: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 4, "vocab_size": 32768, "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip
EXPERTS = {"num_local_experts": 8, "num_experts_per_tok": 2, "model_type": "mixtral"}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
PACKED = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {}}


def facts(more: Mapping[str, Any], stored: StoredBytes | None = None) -> ModelFacts:
    return from_config({**BASE, **more}, 8 * 10**9, stored)


def quantized(how: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"quantization_config": {**how, **more}}


REFUSED: dict[str, dict[str, Any]] = {
    "num_hidden_layers": {"num_hidden_layers": "4"}, "num_hidden_layers ": {"num_hidden_layers": 0},
    "num_hidden_layers  ": {"num_hidden_layers": 4.0},
    "num_key_value_heads": {"num_key_value_heads": 64},
    "num_key_value_heads ": {"num_key_value_heads": 0},
    "num_key_value_heads  ": {"num_key_value_heads": 5},
    "num_key_value_heads   ": {"num_key_value_heads": "8"},
    "max_position_embeddings": {"max_position_embeddings": "32k"},
    "sliding_window": {"sliding_window": "yes"}, "vocab_size": {"vocab_size": "NaN"},
    "num_experts_per_tok": {**EXPERTS, "num_experts_per_tok": 16},
    "n_routed_experts": {**EXPERTS, "num_local_experts": "8"},
    "quantization_config is": {"quantization_config": "awq"},
    "quantization_config is ": {"quantization_config": [1]},
    "quant_method": quantized({}, quant_method=3, bits=4), "bits": quantized(AWQ, bits="four"),
    "bits ": quantized(AWQ, bits=0), "group_size": quantized(AWQ, group_size="128"),
    "weight_block_size": quantized(FP8, weight_block_size=[0, 0]),
    "weight_block_size ": quantized(FP8, weight_block_size="128"),
    "config_groups": quantized(PACKED, config_groups=[1, 2]),
}  # fmt: skip
NAMED: dict[str, dict[str, Any]] = {
    "head_dim": {"hidden_size": 4095},
    "layer_types": {"layer_types": 7}, "layer_types ": {"layer_types": ["full_attention"]},
    "rms_norm_eps": {"rms_norm_eps": "1e-5"}, "torch_dtype": {"torch_dtype": 16},
    "tie_word_embeddings": {"tie_word_embeddings": "no"}, "rope_scaling": {"rope_scaling": "yarn"},
    "text_config": {"text_config": []}, "hidden_act": {"hidden_act": 3},
    "quant_method": quantized({}, bits=4), "group_size": quantized(AWQ, group_size=0),
    "weight_block_size": quantized(FP8, weight_block_size=[128]),
    "ignore": quantized(PACKED, ignore=5), "ignore ": quantized(PACKED, ignore=["re:("]),
    "modules_to_not_convert": quantized(FP8, modules_to_not_convert="lm_head"),
    "intermediate_size": {"intermediate_size": [14336, 7168, 7168, 7168]},
    "model_type": {"model_type": None}, "hidden_act ": {"hidden_act": "foo"},
    "hidden_activation": {"hidden_activation": "gelu_made_up"},
    "rope_scaling ": {"rope_scaling": {"type": "foo", "factor": 2.0}},
    "rope_parameters": {"rope_parameters": {"full_attention": {"rope_type": "foo"}}},
    "max_position_embeddings": {"max_position_embeddings": None},
}  # fmt: skip
TAKEN: dict[str, dict[str, Any]] = {
    "nothing": {}, "null": dict.fromkeys(("rope_scaling", "head_dim", "quantization_config")),
    "no quantization": {"quantization_config": {}}, "fp8": quantized(FP8), "awq": quantized(AWQ),
    "gptq": quantized(AWQ, quant_method="gptq", group_size=-1, desc_act=False),
    "a pattern": quantized(PACKED, ignore=["lm_head", "re:.*gate$"]),
    "modelopt": quantized({}, quant_algo="NVFP4", group_size=16),
    "bits and bytes": quantized({}, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "a list for each layer": {"intermediate_size": [14336] * 4},
    "hunyuan": {**EXPERTS, "num_experts_per_tok": [2] * 4, "moe_intermediate_size": [1024] * 4},
    "one head": {"num_key_value_heads": 1}, "integers": {"rope_theta": 10000, "rms_norm_eps": 1},
    "yarn": {"rope_scaling": {"type": "yarn", "factor": 4.0}}, "act": {"hidden_act": "GELU"},
    "rope by layers": {"rope_parameters": {"full_attention": {"rope_type": "linear"}}},
    "head_dim 0": {"head_dim": 0}, "a longer list": {"layer_types": ["full_attention"] * 6},
}  # fmt: skip


@pytest.mark.parametrize("key", REFUSED)
def test_what_is_refused(key: str) -> None:
    with pytest.raises(BadFacts) as caught:
        facts(REFUSED[key])
    assert key.strip() in caught.value.detail


@pytest.mark.parametrize("key", NAMED)
def test_what_is_named(key: str) -> None:
    assert any(key.strip() in one for one in facts(NAMED[key]).missing)


@pytest.mark.parametrize("named", [[], None, "MistralForCausalLM", [3]])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_model_that_names_no_class_is_unknown(engine: str, named: object) -> None:
    found = judged(engine, "", cards(1, 80), more={"architectures": named})
    assert (found.verdict, "architectures" in found.because) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_class_that_the_engine_does_not_list_is_unknown(engine: str) -> None:
    found = judged(engine, "", cards(1, 80), more={"architectures": ["FooForCausalLM"]})
    assert (found.verdict, "FooForCausalLM" in found.because) == (Verdict.UNKNOWN, True)
    several = {"architectures": ["FooForCausalLM", "LlamaForCausalLM"]}
    assert judged(engine, "", cards(1, 80), more=several).verdict is Verdict.GO


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_taken(name: str) -> None:
    found = facts(TAKEN[name])
    assert (found.missing, found.attention.key) == ((), 128)


@pytest.mark.parametrize("name", KNOWN)
def test_real_configurations_are_taken(name: str) -> None:
    assert from_config(KNOWN[name]["config"], KNOWN[name]["bytes"]).missing == ()


def tensors(rows: int = 32768, kept: int = 8, output: bool = True) -> StoredBytes:
    table, key = "model.embed_tokens.weight", "model.layers.#.self_attn.k_proj.weight"
    groups = {(table, -1): rows * 8192, **{(key, n): kept * 128 * 8192 for n in range(4)}}
    if output:
        groups["lm_head.weight", -1] = rows * 8192
    elements = {table: (rows * 4096, 16), key: (4096 * kept * 128, 16)}
    return StoredBytes(groups, 1, 1, elements=elements)


def test_a_configuration_that_the_tensors_bear_out() -> None:
    assert facts({}, tensors()).missing == ()
    assert facts({"tie_word_embeddings": True}, tensors(output=False)).missing == ()


def test_a_vocabulary_that_the_token_table_does_not_have() -> None:
    with pytest.raises(BadFacts) as caught:
        facts({}, tensors(rows=32000))
    assert "vocab_size" in caught.value.detail
    several = {"vision_config": {"hidden_size": 1024}, "text_config": {}}
    assert any("vocab_size" in one for one in facts(several, tensors(rows=32000)).missing)


def test_heads_that_the_tensors_do_not_have() -> None:
    assert any("num_key_value_heads" in one for one in facts({}, tensors(kept=4)).missing)


def test_an_output_that_is_not_there() -> None:
    missing = facts({}, tensors(output=False)).missing
    assert any("tie_word_embeddings" in one for one in missing)


@pytest.mark.parametrize("layers", [5, 80])
def test_layers_that_the_tensors_do_not_have(layers: int) -> None:
    with pytest.raises(BadFacts) as caught:
        facts({"num_hidden_layers": layers}, tensors())
    assert "num_hidden_layers" in caught.value.detail
    others: list[dict[str, Any]] = [
        {"model_type": "ouro"}, quantized(AWQ), {"text_config": {}, "vision_config": {}},
    ]  # fmt: skip
    for more in others:
        missing = facts({"num_hidden_layers": layers, **more}, tensors()).missing
        assert any("num_hidden_layers" in one for one in missing)


@pytest.mark.parametrize("how", [FP8, AWQ, PACKED, {"quant_algo": "NVFP4"}])
def test_a_quantization_that_no_tensor_has(how: Mapping[str, Any]) -> None:
    assert any("quantization_config" in one for one in facts(quantized(how), tensors()).missing)
    kept = tensors()
    for name in ("qweight", "weight_scale", "weight_scale_inv", "weight_packed"):
        pattern = f"model.layers.#.mlp.up_proj.{name}"
        groups = {**kept.groups, (pattern, 0): 8}
        stored = StoredBytes(groups, 1, 1, elements=kept.elements)
        assert not any("no tensor is" in one for one in facts(quantized(how), stored).missing)
