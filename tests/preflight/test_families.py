"""Models of several parts, and scorers, that are known by the class in their configuration."""

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Question, check
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.serving.classes import not_known_of_class
from tests.sizing.test_backends import CONFIG


@pytest.mark.parametrize(
    ("engine", "inner", "outer", "level"),
    [
        ("vllm", "glm4v_moe_text", "Glm4vMoeForConditionalGeneration", Level.OK),
        ("vllm", "qwen3_vl_moe_text", "Qwen3VLMoeForConditionalGeneration", Level.OK),
        ("vllm", "qwen2_5_omni_text", "Qwen2_5OmniModel", Level.OK),
        ("sglang", "mllama_text_model", "MllamaForConditionalGeneration", Level.OK),
        ("vllm", "mllama_text_model", "MllamaForConditionalGeneration", Level.UNKNOWN),
        ("vllm", "something_text", "Qwen3VLForConditionalGeneration", Level.OK),
        ("vllm", "something_text", "SomethingForCausalLM", Level.UNKNOWN),
        ("vllm", "glm4_moe_lite", "Glm4MoeLiteForCausalLM", Level.WARN),  # vllm#32614
        ("sglang", "glm4_moe_lite", "Glm4MoeLiteForCausalLM", Level.OK),
    ],
)
def test_a_model_of_several_parts_is_known_by_its_class(
    engine: str, inner: str, outer: str, level: Level
) -> None:
    found = check(Question(engine, "safetensors", inner, classes=(outer,)))
    assert [one.level for one in found if ", architecture " in one.title] == [level]


def test_vllm_makes_scorers_of_the_classes_that_it_lists() -> None:
    """vllm#19260: tomaarsen/Qwen3-Reranker-0.6B-seq-cls."""
    for name, known in (("Qwen3", True), ("Qwen2", True), ("Llama", True), ("Strange", False)):
        scorer = from_config({**CONFIG, "architectures": [f"{name}ForSequenceClassification"]}, 1)
        assert (not not_known_of_class(scorer, "vllm")) is known
