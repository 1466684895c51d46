"""F16 copies of a cache, which builds before llama.cpp#23907 and ik_llama.cpp keep beside their
buffers: what is said where a card has no room for them."""

import pytest

from console.checks.preflight.compatibility import Loader, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_plan import Build, LlamaPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import Share, place
from tests.sizing.known import KNOWN
from tests.sizing.log_models import MIB, model

GIB = 1 << 30
QWEN = from_gguf(model("Qwen3.8-27B", {}, [682.0, 17.0e9 / MIB - 682]))
"""Of the shape of Qwen3.6 27B, and of 17.0 GB, as the file of that report."""
LLAMA_8B = from_gguf(KNOWN["Llama-3.1-8B"]())
OLD, NEW = Build(9246, pairs=False), Build(9489, pairs=False)
CLUB = "-ctk q4_0 -ctv q4_0 -ub 512 -fa on --spec-type draft-mtp --spec-draft-n-max 2"
DRIVER = 452 * MIB
"""What the driver of a 3090 keeps of its 24,576 MiB: 23.56 GiB are its capacity (club-3090#58)."""


def asked(words: str, build: Build | None = None, engine: str = "llama.cpp") -> LlamaPlan:
    line = ("-ngl", "99", "-np", "1", *words.split())
    plan = plan_of(Loader(engine=engine, args=line, build=build), Format.GGUF)
    assert isinstance(plan, LlamaPlan)
    return plan


def verdict(facts: ModelFacts, plan: LlamaPlan, gib: float = 24) -> Assessment:
    card = Card("card", total=int(gib * GIB), compute=(8, 6))
    return assess(facts, plan, Machine(cards=(card,), ram_available=64 * GIB), advised=False)


def share(facts: ModelFacts, plan: LlamaPlan) -> Share:
    [only] = place(facts, plan, (Card("card", total=1 << 40, compute=(8, 6)),)).cards
    return only


@pytest.mark.parametrize(
    ("ctx", "build", "level"),
    [
        (262144, None, Verdict.UNKNOWN), (262144, OLD, Verdict.UNKNOWN),
        (262144, NEW, Verdict.TIGHT),
        (200000, None, Verdict.TIGHT), (200000, OLD, Verdict.TIGHT),  # served
    ],
)  # fmt: skip
def test_a_start_says_nothing_of_a_long_prompt(
    ctx: int, build: Build | None, level: Verdict
) -> None:
    """club-3090#201: it started with 262,144 cells, and died with a prompt of 125,000 to 155,000
    tokens; with 200,000 it took 183,000."""
    found = verdict(QWEN, asked(f"-c {ctx} {CLUB}", build))
    assert found.verdict is level, found.because
    assert ("club-3090#201" in found.because) == (level is Verdict.UNKNOWN)


@pytest.mark.parametrize(("ctx", "filled", "free"), [(262144, 125000, 353), (200000, 183000, 1177)])
def test_what_was_left_with_such_a_prompt(ctx: int, filled: int, free: int) -> None:
    """The figures of club-3090#201: two contexts copy what is filled, at 4 heads of 512 numbers,
    and the cache of the one that guesses ahead was in Q4_0, too, where the sum has F16."""
    here = share(QWEN, asked(f"-c {ctx} {CLUB}", OLD))
    cells = -(-ctx // 256) * 256
    unfilled = 2 * (cells - filled) * 4 * 512 * 2
    smaller = int(cells * 4 * 512 * (2 - 18 / 32))
    left = 24 * GIB - (here.bytes + here.beside - unfilled - smaller) - DRIVER
    assert left / MIB == pytest.approx(free, abs=300)


@pytest.mark.parametrize(
    ("words", "build", "engine"),
    [
        ("", OLD, "llama.cpp"), ("-ctk f16 -ctv f16", None, "ik_llama.cpp"),
        ("-ctk q8_0 -ctv q8_0", NEW, "llama.cpp"), ("-ctk q8_0 -fa off", OLD, "llama.cpp"),
        ("-ctk q8_0 -ctv q8_0 -nkvo", OLD, "llama.cpp"),
    ],
)  # fmt: skip
def test_others_have_no_copies_beside(words: str, build: Build | None, engine: str) -> None:
    assert share(LLAMA_8B, asked(f"-c 131072 {words}", build, engine)).beside == 0


@pytest.mark.parametrize("engine", ["llama.cpp", "ik_llama.cpp"])
@pytest.mark.parametrize(
    ("words", "copied"),
    [("-ctk q8_0 -ctv q8_0", 2048), ("-ctk bf16 -ctv bf16", 2048), ("-ctk q8_0", 1024)],
)
def test_scores_have_no_room_in_copies(engine: str, words: str, copied: int) -> None:
    """With the copies in the pool the buffer is what it is in F16, and both are there at once."""
    plan = asked(f"-c 131072 -fa on {words}", OLD, engine)
    plain = share(LLAMA_8B, asked("-c 131072 -fa on", OLD, engine))
    here = share(LLAMA_8B, plan)
    halves = 131072 * copied * 2
    assert here.compute + here.beside == plain.compute + halves


def test_ik_names_itself() -> None:
    plan = asked("-c 131072 -ctk q8_0 -ctv q8_0", None, "ik_llama.cpp")
    needs = share(LLAMA_8B, plan)
    room = (needs.bytes + needs.beside // 2) / GIB
    found = verdict(LLAMA_8B, plan, room)
    assert (found.verdict, "ik_llama.cpp keeps F16 copies" in found.because) == (
        Verdict.UNKNOWN, True,
    ), found.because  # fmt: skip
    assert verdict(LLAMA_8B, plan, room + needs.beside / GIB).verdict is Verdict.TIGHT


def test_nothing_of_it_makes_a_no_go() -> None:
    """Short prompts are served: only what is there from the start refuses."""
    plan = asked("-c 131072 -ctk q8_0 -ctv q8_0", OLD)
    needs = share(LLAMA_8B, plan).bytes
    assert verdict(LLAMA_8B, plan, (needs + MIB) / GIB).verdict is Verdict.UNKNOWN
    assert verdict(LLAMA_8B, plan, (needs - MIB) / GIB).verdict is Verdict.NO_GO
