"""Options of a server that change what it takes, on well-known models."""

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import HOST, Verdict
from console.models.sizing.cards.fit import chosen
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.placement import place
from tests.sizing.known import KNOWN
from tests.waiting import some

MIB, GIB = 1 << 20, 1 << 30
LLAMA = from_gguf(KNOWN["Llama-3.1-8B"]())
GLM = from_gguf(KNOWN["GLM-4.5-Air"]())
GEMMA = from_gguf(KNOWN["Gemma-3-27B"]())
CARD = Card("card", total=96 * GIB, free=96 * GIB)
ROOMY = Machine(cards=(CARD,), ram_available=256 * GIB)


@pytest.mark.parametrize(
    ("arguments", "mib"),
    [
        ("-np 4", 65536), ("-np 4 -fit off", 16384), ("-np 4 -kvu", 16384), ("", 16384),
        ("-np 4 --kv-unified-per-slot 32768", 16384), ("--kv-unified-per-slot 8192", 4096),
        ("-np 4 --kv-unified-per-slot 32768 -c 0", 65536), ("-np 4 -c 8192", 1024),
    ],
)  # fmt: skip
def test_the_cache_of_several_slots(arguments: str, mib: int) -> None:
    """As llama-server b11434 sizes it: 131,072 tokens of this model are 16 GiB."""
    assert some(cache_of(LLAMA, llama_plan(arguments.split()))).bytes == mib * MIB


def test_layers_that_guess_ahead_are_loaded_if_asked_for() -> None:
    plain = llama_plan(["-ngl", "99", "-np", "1"])
    guessing = llama_plan(["-ngl", "99", "-np", "1", "--spec-type", "draft-mtp"])
    [card], [more] = place(GLM, plain, [CARD]).cards, place(GLM, guessing, [CARD]).cards
    spare = sum(one.bytes for one in GLM.weights if one.layer == GLM.layers)
    assert more.weights - card.weights == spare
    assert more.cache - card.cache == 131072 * 2 * 8 * 128 * 2
    assert more.bytes - card.bytes == pytest.approx(2.3 * GIB, rel=0.15)
    asked = ["-ngl", "99", "-c", "8192", "-np", "1", "--spec-type", "draft-mtp"]
    found = assess(LLAMA, llama_plan(asked), ROOMY)
    assert (found.verdict, "draft-mtp" in found.because) == (Verdict.UNKNOWN, True)


@pytest.mark.parametrize("option", ["-md draft.gguf", "--mmproj p.gguf", "--lora a.gguf"])
def test_what_is_not_counted_is_no_go(option: str) -> None:
    plan = llama_plan(["-ngl", "99", "-c", "8192", *option.split()])
    found = assess(LLAMA, plan, ROOMY)
    assert (found.verdict, "not counted" in found.because) == (Verdict.UNKNOWN, True)


def test_checkpoints_of_windows_and_states_may_fill_the_memory() -> None:
    """32 copies of this model's windows are 19 GiB for each slot."""
    plan = ["-ngl", "99", "-c", "32768", "-np", "1"]
    small = Machine(cards=(CARD,), ram_available=24 * GIB)
    tight = assess(GEMMA, llama_plan(plan), small)
    assert tight.verdict is Verdict.TIGHT
    assert "up to 19.5 GiB of RAM for 32 checkpoints" in tight.because
    assert any("--ctx-checkpoints 0: GO" in one for one in tight.would_make_it_go)
    assert dict(tight.envelope.points[-1].vram)
    assert tight.envelope.points[-1].ram == 24 * GIB
    for more, machine in (
        (["--ctx-checkpoints", "0"], small),
        (["--swa-full"], small),
        ([], ROOMY),
    ):
        found = assess(GEMMA, llama_plan([*plan, *more]), machine)
        assert found.verdict is Verdict.GO, (more, found.because)
        assert found.need(HOST) < 12 * GIB


def test_a_saved_prompt_may_be_larger_than_its_limit() -> None:
    """A server with --cache-ram 2048 was killed by the kernel while it saved 3,463 MiB."""
    plan = ["-ngl", "99", "-c", "131072", "-np", "1", "--cache-ram", "2048"]
    small = Machine(cards=(CARD,), ram_available=14 * GIB)
    tight = assess(LLAMA, ik_plan(plan), small)
    assert tight.verdict is Verdict.TIGHT
    assert "16.0 GiB, whatever --cache-ram says" in tight.because
    assert any("--cache-ram 0: GO" in one for one in tight.would_make_it_go)
    for more, machine in ((["--cache-ram", "0"], small), (["-c", "65536"], small), ([], ROOMY)):
        found = assess(LLAMA, ik_plan([*plan, *more]), machine)
        assert found.verdict is Verdict.GO, (more, found.because)
    other = assess(LLAMA, llama_plan(plan), small)
    assert other.verdict is Verdict.GO
    assert any("builds before mid-2026" in note for note in other.notes)


@pytest.mark.parametrize(
    ("words", "free", "verdict"),
    [
        ("-dev none", 120 * MIB, Verdict.UNKNOWN),
        ("-dev none", 2 * GIB, Verdict.GO),
        ("-dev none", None, Verdict.GO),
    ],
)
def test_a_card_that_is_left_alone_and_full(words: str, free: int | None, verdict: Verdict) -> None:
    card = Card("RTX 3090", total=24 * GIB, free=free)
    plan = llama_plan([*words.split(), "-c", "8192", "-np", "1"])
    found = assess(LLAMA, plan, Machine(cards=(card,), ram_available=64 * GIB))
    assert found.verdict is verdict, found.because


@pytest.mark.parametrize(
    ("name", "cards", "arguments", "tokens"),
    [
        ("Llama-3.1-8B", (16384,), "-np 1", 86528), ("Llama-3.1-8B", (16384,), "-np 4", 87040),
        ("Qwen2.5-32B", (32768,), "-np 1", 55808), ("Qwen2.5-32B", (32768, 16384), "-np 1", 110848),
        ("Llama-3.1-70B", (49152,), "-np 1", 32512), ("Gemma-3-27B", (24576,), "-np 1", 99584),
        ("gpt-oss-120b", (24576,), "-np 1", 4096),
    ],
)  # fmt: skip
def test_the_context_that_fit_leaves(
    name: str, cards: tuple[int, ...], arguments: str, tokens: int
) -> None:
    """What b11434 chooses on cards that only count; ours also leaves room for a CUDA context."""
    sizes = [Card(f"c{at}", total=size * MIB, free=size * MIB) for at, size in enumerate(cards)]
    found = chosen(from_gguf(KNOWN[name]()), llama_plan(arguments.split()), sizes)
    assert 0.92 * tokens <= some(found.ctx) <= tokens
