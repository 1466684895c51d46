"""Heads of an encoder that ranks do not divide."""

import re
from typing import Any

import pytest

from console.models.sizing.assess import assess
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from tests.sizing.test_backends import CONFIG, HERE


def facts(name: str, vision: dict[str, Any]) -> Any:
    whole = {"model_type": "x", "architectures": [name], "text_config": CONFIG}
    return from_config({**whole, "vision_config": vision}, 1 << 30)


GLM = facts("Glm4vMoeForConditionalGeneration", {"depth": 24, "num_heads": 12})
"""zai-org/GLM-4.5V."""


@pytest.mark.parametrize(
    ("model", "words", "stops", "unknown"),
    [
        (GLM, "-tp 8", True, False),  # vllm#24004
        (GLM, "-tp 4", False, False), (GLM, "-tp 8 --mm-encoder-tp-mode data", False, False),
        (GLM, "-tp 8 --language-model-only", False, True),
        (facts("Qwen2_5_VLForConditionalGeneration", {"num_heads": 16}), "-tp 8", False, False),
        (facts("InternVLChatModel", {"num_attention_heads": 25}), "-tp 4", False, True),
        (facts("Llama4ForConditionalGeneration", {"attention_heads": 6}), "-tp 4", False, True),
    ],
)  # fmt: skip
def test_vllm_divides_the_heads_of_an_encoder(
    model: Any, words: str, stops: bool, unknown: bool
) -> None:
    found = assess(model, vllm_plan(words.split()), HERE)
    assert any("its encoder's" in one for one in found.stops) is stops
    assert any("its encoder's" in one for one in found.unknown) is unknown


def test_sglang_pads_some_encoders_in_some_releases() -> None:
    """sgl-project/sglang#13856."""
    for words, doubt in (
        ("--tp 8", True),
        ("--tp 4", False),
        ("--tp 8 --language-model-only", False),
    ):
        found = assess(GLM, sglang_plan(words.split()), HERE)
        assert any("12 heads" in one for one in found.unknown) is doubt


@pytest.mark.parametrize("kt", ["", "--kt-weight-path /w --kt-method BF16"])
def test_the_fraction_that_is_named_leaves_room_for_an_encoder(kt: str) -> None:
    """SGLang's own formula keeps room for it; the fork with kt-kernel has no other way."""

    def unknown(fraction: str) -> list[str]:
        plan = sglang_plan(f"--mem-fraction-static {fraction} {kt}".split())
        found = assess(GLM, plan, HERE).unknown
        return [words for words in found if "what its encoder takes beside" in words]

    (words,) = unknown("0.95")
    assert ("--language-model-only" in words) is not bool(kt)
    named = re.search(r"itself takes (0\.\d+), which", words)
    assert named is not None
    assert unknown(named[1]) == []
