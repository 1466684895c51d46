"""What becomes of a plan whose cache flash attention may have no kernel for.

The rules are those of ggml-cuda/fattn.cu, before and after ggml-org/llama.cpp#28079, and of
ik_llama.cpp's at 8337e4cd.
"""

import pytest

from console.checks.preflight.compatibility import Loader, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Reference, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.builds import build_of_image
from console.models.sizing.flags.llama import ik_plan
from console.models.sizing.loader_plan import Build, LoaderPlan
from tests.sizing.known import KNOWN

GIB = 1 << 30
LLAMA_8B = from_gguf(KNOWN["Llama-3.1-8B"]())
HUGE = Card("card", total=1 << 42, free=1 << 42, compute=(8, 6))
OLD, NEW = Build(10825, pairs=False), Build(11669)
ALL_QUANTS = Build(10825, pairs=True)


def plan(words: str, build: Build | None = None) -> LoaderPlan:
    line = ("-ngl", "99", "-c", "131072", "-np", "1", *words.split())
    return plan_of(Loader(engine="llama.cpp", args=line, build=build), Format.GGUF)


def verdict(plan: LoaderPlan, card: Card = HUGE) -> tuple[Verdict, str]:
    machine = Machine(cards=(card,), ram_available=1 << 42)
    found = assess(LLAMA_8B, plan, machine, advised=False)
    return found.verdict, found.because


@pytest.mark.parametrize(
    "words",
    [
        "-ctv q4_0",  # llama.cpp#28524, also of q8_0, q4_1, q5_0, q5_1
        "-ctv q8_0", "-ctv q5_1", "-ctk q4_0 -ctv q8_0",
        "-ctk q5_0 -ctv q5_0",  # llama.cpp#25007
        "-ctk q4_1 -ctv q4_1", "-ctk bf16 -ctv q8_0",
    ],
)  # fmt: skip
def test_a_quantized_v_needs_a_kernel_for_its_pair(words: str) -> None:
    """auto turns flash attention off without one, and the server ends."""
    level, why = verdict(plan(words))
    assert (level, "llama.cpp#28524" in why) == (Verdict.UNKNOWN, True), why
    level, why = verdict(plan(words, OLD))
    assert (level, "this build has no flash attention" in why) == (Verdict.NO_GO, True), why
    for build in (NEW, ALL_QUANTS):
        assert verdict(plan(words, build))[0] is Verdict.GO


@pytest.mark.parametrize("words", ["-ctk q8_0 -ctv q4_0 -fa on", "-ctk q8_0 -fa on"])
def test_asked_for_it_is_computed_on_the_cpu(words: str) -> None:
    """llama.cpp#27109, #24485: no word of it at the start, and 30 times slower."""
    for build in (None, OLD):
        level, why = verdict(plan(words, build))
        assert (level, "on the CPU" in why) == (Verdict.UNKNOWN, True), why
    assert verdict(plan(words, NEW))[0] is Verdict.GO


def test_iq4_nl_has_no_kernel_in_any_build() -> None:
    for build in (None, OLD, NEW, ALL_QUANTS):
        level, why = verdict(plan("-ctk iq4_nl -ctv iq4_nl", build))
        assert (level, "CUDA has no" in why or "this build" in why) == (
            Verdict.NO_GO if build is OLD else Verdict.UNKNOWN, True,
        ), why  # fmt: skip


@pytest.mark.parametrize("words", ["-ctk q8_0", "-ctk q4_0 -ctv bf16", "-ctk q5_1"])
def test_a_plain_v_is_served_without_flash_attention_and_with_its_scores(words: str) -> None:
    """thecodacus/llama.cpp#3: 8.7 GiB to compute at 128k, and out of memory."""
    small = Card("3090", total=24 * GIB, compute=(8, 6))
    level, why = verdict(plan(words), small)
    assert (level, "to compute" in why) == (Verdict.UNKNOWN, True), why
    for without in (plan(words, OLD), plan(f"{words} -fa off")):
        assert verdict(without, small)[0] in (Verdict.TIGHT, Verdict.NO_GO)
    assert verdict(plan(words, NEW), small)[0] is Verdict.GO
    assert verdict(plan(words))[0] is Verdict.GO  # there is room for both


@pytest.mark.parametrize("words", ["-ctk q8_0 -ctv q8_0", "-ctk q4_0 -ctv q4_0", "-ctk f16", ""])
def test_one_type_for_both_is_taken_by_every_build(words: str) -> None:
    for build in (None, OLD, NEW):
        assert verdict(plan(words, build))[0] is Verdict.GO


def test_the_cpu_takes_every_pair() -> None:
    assert verdict(plan("-ctv q4_0 -ngl 0"))[0] is Verdict.GO


def test_a_build_that_serves_with_the_pair_has_it() -> None:
    serving = Reference("the baseline", serves=True)
    machine = Machine(cards=(HUGE,), ram_available=1 << 42)
    found = assess(LLAMA_8B, plan("-ctv q4_0"), machine, reference=serving)
    assert found.verdict is not Verdict.UNKNOWN, found.because


@pytest.mark.parametrize(
    ("image", "build"),
    [
        ("ghcr.io/ggml-org/llama.cpp:server-cuda-b9000", Build(9000, pairs=False)),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda13-b10825", Build(10825, pairs=False)),
        ("ghcr.io/ggml-org/llama.cpp:server-cuda", Build()),
        ("mine/llama.cpp:server-cuda-b9000", Build()), ("", Build()),
    ],
)  # fmt: skip
def test_the_name_of_an_official_image_tells_its_build(image: str, build: Build) -> None:
    assert build_of_image(image) == build
    loader = Loader(engine="llama.cpp", args=("-c", "4096", "-ctv", "q8_0"), image=image)
    assert verdict(plan_of(loader, Format.GGUF))[0] is (
        Verdict.NO_GO if build.number else Verdict.UNKNOWN
    )


def test_an_option_that_newer_builds_do_not_tell_of_is_not_missed() -> None:
    """Since llama.cpp#28079 none lists FA_ALL_QUANTS: only an older one without it lacks pairs."""
    assert Build(10825, pairs=False).takes_pairs is False
    assert Build(10880, pairs=False).takes_pairs is None
    assert Build(None, pairs=False).takes_pairs is None
    assert Build(10825).takes_pairs is None
    assert (Build(10900).takes_pairs, Build(10825, pairs=True).takes_pairs) == (True, True)


@pytest.mark.parametrize(
    ("words", "compute", "level"),
    [
        ("-ctk q8_0 -ctv q4_0", (8, 6), Verdict.GO), ("-ctk q5_0 -ctv q5_0", (7, 0), Verdict.GO),
        ("-ctk q5_0 -ctv q5_0", (6, 1), Verdict.UNKNOWN),
        ("-ctk q8_0 -ctv q8_0", (6, 1), Verdict.GO),
        ("-ctk q8_0", (6, 1), Verdict.UNKNOWN), ("-fa off", (6, 1), Verdict.GO),
    ],
)  # fmt: skip
def test_ik_llama_turns_types_into_f16_on_cards_from_volta_on(
    words: str, compute: tuple[int, int], level: Verdict
) -> None:
    card = Card("card", total=1 << 42, free=1 << 42, compute=compute)
    line = ["-ngl", "99", "-c", "32768", "-amb", "512", *words.split()]
    found, why = verdict(ik_plan(line), card)
    assert found is level, why
