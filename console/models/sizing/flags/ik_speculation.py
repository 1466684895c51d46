"""How llama-server of ik_llama.cpp is told to guess ahead: `--spec-type WAY[:key=value,...]`, and
what it took before June 2026 (`common_speculative_stage_from_arg` of its common/common.cpp)."""

from __future__ import annotations

import re

from console.common.text import one_line
from console.models.sizing.flags.reading import Reading

WAYS = (
    "none", "draft", "dflash", "dspark", "mtp", "eagle3", "ngram-simple", "ngram-map-k",
    "ngram-map-k4v", "ngram-mod", "ngram-cache", "suffix",
)  # fmt: skip
LOOKS_BACK = ("ngram-", "suffix")
"""Ways that guess from the text before, and load nothing."""
MIN_VALUES = {
    "n_max": 0, "n_min": 0, "p_min": 0, "heads": 0, "mtp_heads": 0, "cross_ctx": 1,
    "dflash_cross_ctx": 1, "ngram_size_n": 1, "ngram_size_m": 1, "ngram_min_hits": 1,
    "suffix_min_match_len": 1, "suffix_max_depth": 1,
}  # fmt: skip
"""The keys of a way whose value is a number, and the smallest one that is taken."""
CORPUS = "suffix_corpus"


def speculation(reading: Reading, flag: str, value: str) -> None:
    """One way to guess ahead. The layers of the file itself get a second context, with a cache and
    a graph of its own."""
    name, _, settings = value.partition(":")
    way = name.replace("_", "-")
    if way not in WAYS:
        reading.refuse_value(flag, name, "one of " + ", ".join(WAYS))
        return
    if CORPUS not in settings:  # whose value may hold quoted commas
        for setting in settings.split(",") if settings else ():
            _setting(reading, flag, setting)
    if way == "none":
        return
    reading.got["goes_back"] = True
    shown = f"{flag} {one_line(value, 60)}".rstrip()
    if way == "mtp":
        _second_context(reading, shown)
    elif not way.startswith(LOOKS_BACK):
        reading.uncounted.append(shown)


def _setting(reading: Reading, flag: str, setting: str) -> None:
    key, equals, number = setting.partition("=")
    name = key.lstrip("-").replace("-", "_")
    least = MIN_VALUES.get(name)
    shown = one_line(setting, 40) or "(nothing)"
    if not equals:
        reading.refuse(f"{flag}: {shown} is no key=value")
    elif least is None:
        reading.refuse(f"{flag}: it knows no key {one_line(key, 40)}")
    elif not (digits := re.match(r"[+-]?\d{1,9}", number)) or int(digits[0]) < least:
        reading.refuse(f"{flag}: {shown}: expected {least} or more")


def mtp(reading: Reading, flag: str, value: str) -> None:
    """The switch of builds before June 2026."""
    reading.got["goes_back"] = True
    _second_context(reading, flag)


def no_mtp(reading: Reading, flag: str, value: str) -> None:
    """It takes back what stands before it."""
    reading.uncounted[:] = [words for words in reading.uncounted if SECOND not in words]


SECOND = "the second context of the file's own layers that guess ahead"


def _second_context(reading: Reading, shown: str) -> None:
    reading.uncounted.append(f"{shown}: {SECOND}, whose size is not known for ik_llama.cpp")
