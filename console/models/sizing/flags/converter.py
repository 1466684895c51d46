"""The options of kt-kernel's convert_cpu_weights, as a plan."""

from __future__ import annotations

from collections.abc import Sequence

from console.common.options.command_line import own_words
from console.common.text import one_line
from console.models.sizing.flags.reading import Apply, Reading, choice
from console.models.sizing.loader_plan import ConversionPlan

METHODS = ("int4", "int8", "fp8", "bf16", "moe_int4", "moe_int8")
INPUTS = ("fp8", "fp16", "bf16")


def _kt_method(reading: Reading, flag: str, value: str) -> None:
    reading.got["method"] = one_line(value, 40).upper()


_OPTIONS: dict[str, Apply] = {
    "--quant-method": choice("method", METHODS), "--kt-method": _kt_method,
    "--input-type": choice("input_type", INPUTS),
}  # fmt: skip


def conversion_plan(argv: Sequence[str]) -> ConversionPlan:
    """The converter's arguments. Its other options say where files lie, and how many threads."""
    reading = Reading()
    words = own_words(argv) or []
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in _OPTIONS:
            _OPTIONS[flag](reading, flag, value if equals else "".join(words[at + 1 : at + 2]))
    return ConversionPlan(**reading.got, **reading.remarks())
