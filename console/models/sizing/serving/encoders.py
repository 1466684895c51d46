"""The parts of a model that turn images or sound into tokens, and what the engines keep for them.

vLLM runs the encoder with the largest items that a step takes when it measures (`profile_run` in
v1/worker/gpu_model_runner.py of 0.33); how large those are stands in the processor's files and in
the model's code. SGLang takes a part of the static fraction away
(`adjust_mem_fraction_for_vlm` in arg_groups/memory_hook.py of 0.5.23).
"""

from __future__ import annotations

from collections.abc import Collection

from console.models.sizing.loader_plan import SglangPlan, VllmPlan
from console.models.sizing.model_facts import Encoder, ModelFacts

IMAGES, VIDEO, SOUND = "image", "video", "audio"
"""What vLLM calls them in --limit-mm-per-prompt."""
CHUNKS = {"KimiK25ForConditionalGeneration": "vision_chunk"}
"""Classes that have one word of their own for images and video."""
IMAGES_ALONE = frozenset((
    "AriaForConditionalGeneration", "Cohere2VisionForConditionalGeneration",
    "DeepseekOCRForCausalLM", "DeepseekVLV2ForCausalLM", "DotsOCRForCausalLM", "GLM4VForCausalLM",
    "Gemma3ForConditionalGeneration", "Gemma3nForConditionalGeneration",
    "Idefics3ForConditionalGeneration", "KimiVLForConditionalGeneration",
    "Lfm2VlForConditionalGeneration", "Llama4ForConditionalGeneration",
    "LlavaForConditionalGeneration", "LlavaNextForConditionalGeneration",
    "Mistral3ForConditionalGeneration", "MolmoForCausalLM", "PaliGemmaForConditionalGeneration",
    "Phi3VForCausalLM", "Phi4MMForCausalLM", "PixtralForConditionalGeneration",
    "Step3VLForConditionalGeneration",
))  # fmt: skip
"""Classes that take images and no video (`get_supported_mm_limits` of vLLM's model files)."""
OFF_IN_SGLANG = frozenset((
    "Gemma3ForConditionalGeneration", "Llama4ForConditionalGeneration",
    "Step3VLForConditionalGeneration", "InklingForConditionalGeneration",
))  # fmt: skip
"""Classes that SGLang serves as text models unless --enable-multimodal is given."""
COPIED = "--mm-encoder-tp-mode"
"""The option by which vLLM keeps an encoder whole on each rank."""
FACTOR, MIN_FACTOR, MAX_FACTOR, SENSITIVITY = 0.95, 0.8, 1.05, 0.1
USUAL_LAYERS, USUAL_WIDTH = 24, 1024
"""The encoder (ViT-L/14) for which SGLang takes away just 5 %."""


DIVIDED_ALWAYS = frozenset(("Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"))
"""Classes whose encoder vLLM 0.33 divides whatever its heads are (`divide` in glm4_1v.py,
vllm#24004); of others some fall back to whole copies (`is_vit_use_data_parallel`)."""


def undivided(facts: ModelFacts, ranks: int) -> str:
    """The encoder whose heads so many ranks do not divide, in words; "" where there is none."""
    counts = {encoder.heads for encoder in facts.encoders if encoder.heads}
    odd = sorted(count for count in counts if count % ranks)
    return f"its encoder's {odd[0]} heads are not divisible by {ranks} ranks" if odd else ""


def by_vllm_encoder(facts: ModelFacts, plan: VllmPlan) -> tuple[list[str], list[str]]:
    """What vLLM refuses of an encoder, and what is not known of it."""
    words = undivided(facts, plan.ranks)
    if not words or any(word.startswith(COPIED) for word in plan.uncounted):
        return [], []
    if DIVIDED_ALWAYS.intersection(facts.classes) and not plan.text_only:
        return [f"{words}: {COPIED} data keeps whole copies of it"], []
    return [], [f"whether this release keeps whole copies of it, as {words} ({COPIED} data does)"]


def not_known_of_encoder(facts: ModelFacts, plan: SglangPlan, ranks: int) -> list[str]:
    """What SGLang's formula leaves out of an encoder, and whether its heads can be divided."""
    if not has_encoder(facts, plan):
        return []
    reasons = []
    if not reads_images(facts):
        words = "not counted: what its encoder takes, for which SGLang's formula keeps nothing"
        reasons.append(words if plan.kt else f"{words}; --language-model-only does without")
    if words := undivided(facts, ranks):
        reasons.append(
            f"whether this release pads or copies it, as {words} (SGLang does for GLM-4V since "
            "sgl-project/sglang#13856; --mm-enable-dp-encoder keeps whole copies)"
        )
    return reasons


def left_on(facts: ModelFacts, limits: Collection[str]) -> list[str]:
    """The kinds of input that vLLM still measures an encoder for, where those in `limits` are
    limited to none."""
    wanted = {kind for encoder in facts.encoders for kind in _inputs(encoder, facts.classes)}
    return [kind for kind in (IMAGES, VIDEO, SOUND, *CHUNKS.values())
            if kind in wanted and kind not in limits]  # fmt: skip


def _inputs(encoder: Encoder, classes: Collection[str]) -> tuple[str, ...]:
    if encoder.reads == "sound":
        return (SOUND,)
    chunk = next((CHUNKS[name] for name in classes if name in CHUNKS), None)
    if chunk is not None:
        return (chunk,)
    if IMAGES_ALONE.intersection(classes):
        return (IMAGES,)
    return (IMAGES, VIDEO) if encoder.reads == "images" else (IMAGES, VIDEO, SOUND)


def kept_of_static(facts: ModelFacts) -> float:
    """The factor by which SGLang makes the static fraction smaller for the encoder; 1 without one
    for images. Where a size of it is not known, the smallest factor that the formula gives."""
    sizes = [encoder for encoder in facts.encoders if encoder.reads == "images"]
    if not sizes:
        return 1.0
    layers, width = sizes[0].layers, sizes[0].width
    if layers is None or width is None:
        return FACTOR * MIN_FACTOR
    ratio = layers * width**2 / (USUAL_LAYERS * USUAL_WIDTH**2)
    return FACTOR * max(MIN_FACTOR, min(MAX_FACTOR, 1.0 - SENSITIVITY * (ratio - 1.0)))


def has_encoder(facts: ModelFacts, plan: SglangPlan) -> bool:
    """Whether SGLang loads one."""
    off = OFF_IN_SGLANG.intersection(facts.classes) and not plan.multimodal
    return bool(facts.encoders) and not plan.text_only and not off


def reads_images(facts: ModelFacts) -> bool:
    """Whether there is an encoder for which SGLang's formula keeps something."""
    return any(encoder.reads == "images" for encoder in facts.encoders)
