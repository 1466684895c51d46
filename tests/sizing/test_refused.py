"""Plans that llama.cpp refuses, or counts otherwise, by the architecture: none is a GO."""

from dataclasses import replace

import pytest

from console.checks.preflight import Level
from console.checks.preflight.checkpoint import _types
from console.checks.preflight.compatibility import Loader
from console.host.sample import Card, Machine
from console.models.gguf.header import IK_LLAMA, row_bytes
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.model_facts import Kind, ModelFacts, Recurrent
from console.models.sizing.placement import place
from tests.sizing import shapes

CARDS = (Card("A", total=179 * GIB, free=179 * GIB), Card("B", total=179 * GIB, free=179 * GIB))
ROOMY = Machine(cards=CARDS, ram_available=768 * GIB)
LLAMA = from_gguf(shapes.llama_70b())
GEMMA = from_gguf(shapes.gemma3_27b())
SHORT = "-ngl 99 -c 8192 -np 1"


def of(architecture: str, facts: ModelFacts = LLAMA) -> ModelFacts:
    return replace(facts, architecture=architecture)


@pytest.mark.parametrize(
    ("facts", "words", "verdict", "why"),
    [
        (of("minimax-m2"), "-sm tensor", Verdict.NO_GO, "is not there for minimax-m2"),
        (of("olmo2"), "-sm tensor", Verdict.NO_GO, "is not there for olmo2"),
        (LLAMA, "-sm tensor -fa off", Verdict.NO_GO, "needs flash attention"),
        (LLAMA, "-sm tensor", Verdict.GO, "everything fits"),
        (LLAMA, "-sm tensor --swa-full", Verdict.GO, "everything fits"),
        (GEMMA, "-sm tensor --swa-full", Verdict.UNKNOWN, "llama.cpp#26122"),
        (GEMMA, "-sm layer --swa-full", Verdict.GO, "everything fits"),
        (of("grok"), "-ctv q8_0", Verdict.NO_GO, "flash attention, which is off"),
        (replace(LLAMA, attention=replace(LLAMA.attention, key=80, value=80)), "-ctk q8_0",
         Verdict.NO_GO, "a head of 80 is no multiple of its block of 32"),
        (LLAMA, "-ctk q8_0 -ctv q8_0", Verdict.GO, "everything fits"),
    ],
)  # fmt: skip
def test_what_the_loader_refuses(facts: ModelFacts, words: str, verdict: Verdict, why: str) -> None:
    found = assess(facts, llama_plan(f"{SHORT} {words}".split()), ROOMY)
    assert (found.verdict, why in found.because) == (verdict, True), found.because


def test_grok_writes_its_scores_down_whatever_is_asked() -> None:
    """The loader turns flash attention off by the architecture."""
    plan = llama_plan(["-ngl", "99", "-c", "131072", "-np", "1", "-fa", "on"])
    plain = max(share.compute for share in place(LLAMA, plan, CARDS).cards)
    grok = max(share.compute for share in place(of("grok"), plan, CARDS).cards)
    assert grok - plain > 64 * 512 * 131072 * 4 * 0.9


@pytest.mark.parametrize(
    ("architecture", "words", "times"),
    [
        ("qwen35moe", "--spec-type draft-mtp", 4),
        ("qwen35", "--spec-type none", 1),
        ("qwen35moe", "--spec-type draft-mtp --spec-draft-n-max 6", 7),
        ("jamba", "--spec-type draft-mtp", 1),
    ],
)
def test_states_are_copied_for_every_token_of_a_guess(
    architecture: str, words: str, times: int
) -> None:
    states = Recurrent((True,) * 80, 1 << 16, 1 << 20, "sizes")
    facts = replace(of(architecture), recurrent=states, spare_layers=1)
    plans = [llama_plan(f"-c 8192 -np 16 {more}".split()) for more in ("", words)]
    sizes = []
    for plan in plans:
        cache = cache_of(facts, plan)
        assert cache is not None
        sizes.append(next(part.bytes for part in cache.parts if part.name == "states"))
    assert sizes[1] == sizes[0] * times


@pytest.mark.parametrize("key", ["num_loops", "hyper_connection.count", "some.new.thing"])
def test_a_key_that_nobody_here_knows_makes_the_sum_unknown(key: str) -> None:
    header = shapes.llama_70b()
    facts = from_gguf(replace(header, kv={**header.kv, f"{header.architecture}.{key}": 2}))
    assert facts.missing == (f"llama.{key} (nobody here knows what it does)",)
    assert assess(facts, llama_plan(SHORT.split()), ROOMY).verdict is Verdict.UNKNOWN


def test_keys_that_change_nothing_are_no_reason() -> None:
    header = shapes.llama_70b()
    more = {f"general.tag.{number}": "x" for number in range(4000)}
    more |= {"llama.rope.freq_base": 10000.0, "llama.attention.layer_norm_rms_epsilon": 1e-5}
    assert from_gguf(replace(header, kv={**header.kv, **more})).missing == ()


def test_overrides_count_in_the_order_of_the_command_line() -> None:
    """`-cmoe` before `-ot` wins over it."""
    facts = from_gguf(shapes.qwen3_235b())
    base = ["-ngl", "99", "-c", "512", "-np", "1"]
    first = place(facts, llama_plan([*base, "-cmoe", "-ot", "exps=CUDA1"]), CARDS)
    last = place(facts, llama_plan([*base, "-ot", "exps=CUDA1", "-cmoe"]), CARDS)
    experts = facts.bytes_of(Kind.EXPERTS)
    assert first.host.experts == experts
    assert last.host.experts == 0


def test_types_of_ik_llama_are_sized_and_named() -> None:
    header = shapes.llama_70b()
    kind = IK_LLAMA[144]
    tensors = [replace(one, type=144, type_name=kind.name) for one in header.tensors or ()]
    facts = from_gguf(replace(header, tensors=tensors))
    assert facts.of_ik == ("IQ4_KS (type 144)",)
    assert row_bytes(kind, 8192) == 4 + 8192 // 256 * 136
    for engine, level in (("llama.cpp", Level.FAIL), ("", Level.UNKNOWN), ("ik_llama.cpp", None)):
        found = _types(Loader(engine=engine), engine or "llama.cpp", facts)
        assert [one.level for one in found] == ([level] if level else [])


@pytest.mark.parametrize("words", ["--threads x", "--temp hot", "--log-colors purple"])
def test_a_value_that_the_loader_refuses_is_named(words: str) -> None:
    name = words.split()[0]
    assert any(name in refused for refused in llama_plan(words.split()).refused)


def test_values_that_the_loader_takes_are_not() -> None:
    words = "--threads 8 --temp .7 --top-k -1 --log-colors auto --port 8080 --prio 2"
    plan = llama_plan(words.split())
    assert (plan.problems, plan.refused) == ((), ())
