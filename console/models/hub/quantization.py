"""How the weights of a Hugging Face checkpoint are stored, as its config.json says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from console.common.text import one_line


def describe(config: Mapping[str, Any]) -> str:
    """`blockwise_int8, blocks of 128x128`, `fp8 (e4m3)`, or the dtype; "" where it says nothing."""
    for holder in (config, config.get("text_config"), config.get("llm_config")):
        if not isinstance(holder, Mapping):
            continue
        how = holder.get("quantization_config") or holder.get("compression_config")
        if isinstance(how, Mapping):
            return _scheme(how)
        kind = _word(holder.get("dtype")) or _word(holder.get("torch_dtype"))
        if kind:
            return kind.removeprefix("torch.")
    return ""


_KINDS = (
    ("block", "block_int8"), ("float-quantized", "fp8"), ("int-quantized", "int8"),
    ("naive-quantized", "compressed-tensors"), ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"),
    ("w4a8", "w4a8"), ("fp8", "fp8"), ("awq", "awq"), ("gptq", "gptq"), ("int8", "int8"),
    ("bfloat16", "bf16"), ("bf16", "bf16"), ("float16", "fp16"), ("fp16", "fp16"),
)  # fmt: skip
"""What stands in a description, and the name that engines' documentation has for it."""


def kind(said: str) -> str:
    """The short name of a description or a name: `fp8 (e4m3)` → `fp8`; unknown ones as they are.

    `float32` stays itself. Blocks of int8 have a name of their own: other kernels.
    """
    low = said.lower()
    for sign, name in _KINDS:
        if sign == "block" and not ("int8" in low and low.startswith("block")):
            continue
        if sign in low:
            return name
    return low


def _scheme(how: Mapping[str, Any]) -> str:
    words = [_word(how.get("quant_method")) or _word(how.get("quant_algo")) or "quantized"]
    if kind := _word(how.get("fmt")) or _word(how.get("format")):
        words[0] += f" ({kind})"
    bits = how.get("bits") or how.get("w_bit")
    if isinstance(bits, int | float) and not isinstance(bits, bool) and 0 < bits <= 32:
        words.append(f"{bits:g} bits")
    for flag, text in (("load_in_8bit", "8 bits"), ("load_in_4bit", "4 bits")):
        if how.get(flag) is True:
            words.append(text)
    block = how.get("weight_block_size")
    if isinstance(block, list) and block and all(isinstance(n, int) and 0 < n < 1e6 for n in block):
        words.append("blocks of " + "x".join(str(n) for n in block[:3]))
    elif isinstance(group := how.get("group_size"), int) and 0 < group < 1e6:
        words.append(f"groups of {group}")
    return ", ".join(words)


def _word(value: object) -> str:
    return one_line(value, 40) if isinstance(value, str) else ""
