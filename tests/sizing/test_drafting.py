"""What the context takes in which a file's own layers guess ahead (--spec-type draft-mtp)."""

import pytest

from console.checks.preflight.readings import with_draft
from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.compute import compute_bytes, draft_bytes, work_of
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.model_facts import Kind
from console.models.sizing.placement import place
from tests.sizing.log_models import MIB, gated, model
from tests.testbed.models import visible_llama
from tests.waiting import some

CARD = Card("card", total=96 << 30, free=96 << 30)
MTP = "--spec-type draft-mtp --spec-draft-n-max 2"
QWEN = from_gguf(model("Qwen3.8-27B", {"rest": "Q4_K"}, None))
HEADS = {
    "27B": QWEN,
    "9B": from_gguf(gated("qwen35", 4, 4096, 16, 4, 32, length=12288, ahead=True)),
    "0.8B": from_gguf(gated("qwen35", 4, 1024, 8, 2, 16, length=3584, ahead=True)),
    "short and wide": from_gguf(gated("qwen35", 4, 5120, 8, 1, 16, length=7936, ahead=True)),
    "35B-A3B": from_gguf(
        gated("qwen35moe", 4, 2048, 16, 2, 32, expert=512, number=256, used=8, ahead=True)
    ),
    "397B-A17B": from_gguf(
        gated("qwen35moe", 4, 4096, 32, 2, 64, expert=1024, number=32, used=10, ahead=True)
    ),
}


@pytest.mark.parametrize(
    ("head", "words", "mib"),
    [
        ("27B", "-c 8192", 130.02), ("27B", "-c 20480", 152.02), ("27B", "-c 131072", 196.02),
        ("27B", "-c 262144", 324.02), ("27B", "-c 65536 -ub 256", 66.01),
        ("27B", "-c 196608 -b 2048 -ub 2048", 1040.07), ("27B", "-c 65536 -np 3", 153.82),
        ("27B", "-c 32768 -np 256 -kvu", 294.52), ("27B", "-c 32768 -fa off", 1660.01),
        ("27B", "-c 262144 -ctk q4_0 -ctv q4_0", 324.02), ("9B", "-c 131072", 172.02),
        ("short and wide", "-c 16384 -b 2048 -ub 1024", 165.04),
        ("0.8B", "-c 262144", 276.02), ("35B-A3B", "-c 32768", 76.02),
        ("35B-A3B", "-c 262144", 296.02), ("397B-A17B", "-c 262144", 336.02),
        ("397B-A17B", "-c 32768 -b 2048 -ub 2048", 704.07),
    ],
)  # fmt: skip
def test_a_head_takes_what_the_server_reserves(head: str, words: str, mib: float) -> None:
    """As llama-server b11669 prints it for such a file, and never much more."""
    facts, plan = HEADS[head], llama_plan([*f"-np 1 -fa on {words} {MTP}".split()])
    ours = draft_bytes(facts, plan, some(cache_of(facts, plan))) / MIB
    assert mib <= ours <= mib * 1.3 + 32


@pytest.mark.parametrize(
    ("source", "words", "mib"),
    [
        ("HilbertraumAI/HilbertRaum#318", "-c 8192 -b 2048 -ub 2048", 520.06),
        ("HilbertraumAI/HilbertRaum#391", "-c 32768 -b 2048 -ub 2048", 520.06),
        ("ggml-org/llama.cpp#27489", "-c 196608 -b 2048 -ub 2048 -ctk q4_0 -ctv q4_0", 1042),
        ("sudoingX/qwen38-mtp#13, 128K", "-c 131072 -ctk q4_0 -ctv q4_0", 230),
        ("sudoingX/qwen38-mtp#13, 256K", "-c 262144 -ctk q4_0 -ctv q4_0", 358),
    ],
)
def test_a_head_takes_what_cards_have_shown(source: str, words: str, mib: float) -> None:
    """What --spec-type adds on a card beside the layer, its cache and its copies of states, within
    5 % of what the card holds then."""
    plain = llama_plan(f"-ngl 99 -np 1 -fa on {words}".split())
    more = llama_plan(f"-ngl 99 -np 1 -fa on {words} {MTP}".split())
    [without], [used] = place(QWEN, plain, [CARD]).cards, place(QWEN, more, [CARD]).cards
    ours = (used.compute - without.compute) / MIB
    assert abs(ours - mib) <= 0.05 * used.bytes / MIB, source
    assert ours >= 0.97 * mib, source  # graphs and pools are in the estimate of the CUDA context


def test_a_second_copy_of_the_whole_compute_is_not_counted() -> None:
    """sudoingX/qwen38-mtp#13: 840 MiB and 1.5 GiB were."""
    plan = llama_plan(f"-ngl 99 -np 1 -fa on -c 262144 -ctk q4_0 -ctv q4_0 {MTP}".split())
    cache = some(cache_of(QWEN, plan))
    whole = compute_bytes(QWEN, work_of(plan, cache, QWEN, False), output=True)
    assert draft_bytes(QWEN, plan, cache) < whole / 3


@pytest.mark.parametrize("more", ["-cmoe", "-ot exps=CPU", "-ngl 0"])
def test_weights_of_the_head_on_the_host_are_copied_to_a_card(more: str) -> None:
    facts = HEADS["35B-A3B"]
    words = f"-ngl 99 -np 1 -fa on -c 8192 {more}"
    plain, ahead = llama_plan(words.split()), llama_plan(f"{words} {MTP}".split())
    [without], [used] = place(facts, plain, [CARD]).cards, place(facts, ahead, [CARD]).cards
    largest = max(weight.bytes for weight in facts.weights if weight.kind is Kind.SKIPPED)
    drafts = draft_bytes(facts, ahead, some(cache_of(facts, ahead)))
    assert used.compute - without.compute >= drafts + largest


@pytest.fixture(scope="module")
def guesser(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("draft") / "guesser.gguf"
    visible_llama(path)
    return str(path)


def with_guesser(words: str, gib: float = 24, *, inside: bool = False) -> Assessment:
    """Qwen3.8 27B of 15.4 GiB with a draft model, on one card."""
    plan = with_draft(llama_plan(f"-ngl 99 -fa on -ub 256 {words}".split()), inside=inside)
    card = Card("card", total=int(gib * 1024) * MIB, free=int(gib * 1024) * MIB)
    return assess(QWEN, plan, Machine(cards=(card,), ram_available=64 << 30))


def taken(found: Assessment, where: str = "card") -> int:
    return sum(t.bytes or 0 for t in found.terms if (t.name, t.where) == ("draft model", where))


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--spec-type draft-simple -ngld 99",
        "-ngld all --spec-draft-n-max 8",
        "-ctk q8_0 -ctv q8_0 -fa on",
    ],
)
def test_a_draft_model_that_lies_here_is_counted(guesser: str, words: str) -> None:
    """It was UNKNOWN. Its cache has the tokens and slots of the other model, in F16, as
    llama-server b11669 prints it: 10 layers x 2 x 2 heads of 64 numbers here."""
    for slots in ("-np 1", "-np 2", "-np 4 -kvu"):
        short, long = (
            with_guesser(f"-c {tokens} {slots} -md {guesser} {words}") for tokens in (8192, 16384)
        )
        assert short.verdict is Verdict.GO, short.because
        of_tokens = taken(long) - taken(short)
        assert 0 <= of_tokens - 8192 * 10 * 2 * 2 * 64 * 2 <= 8192 * 256 * 2, "and its mask"
        assert taken(short) > 60 * MIB + of_tokens
        assert 0 < taken(short, "host RAM") < 64 * MIB


def test_what_a_draft_model_takes_is_expected_of_the_card(guesser: str) -> None:
    """The guard holds the load to it."""
    plain, more = with_guesser("-c 8192"), with_guesser(f"-c 8192 -md {guesser}")
    serving = [dict(some(found.envelope).points[-1].vram)["card"] for found in (plain, more)]
    assert serving[1] - serving[0] == taken(more) > 0


@pytest.mark.parametrize(
    "words",
    [
        "-md /nowhere/guesser.gguf", "-md {} -ngld 3", "-md {} --spec-type draft-eagle3",
        "-md {} -ctkd q8_0", "-md {} -devd CUDA1", "-hfd org/guesser",
    ],
)  # fmt: skip
def test_a_draft_model_that_is_not_counted_is_no_go(guesser: str, words: str) -> None:
    assert with_guesser(f"-c 8192 {words.format(guesser)}").verdict is Verdict.UNKNOWN
    assert with_guesser(f"-c 8192 -md {guesser}", inside=True).verdict is Verdict.UNKNOWN


def test_a_draft_model_never_makes_a_no_go(guesser: str) -> None:
    """Where all of it has no room, part of it may still go elsewhere."""
    need = with_guesser("-c 8192").limits[0].need / (1 << 30)
    found = with_guesser(f"-c 8192 -md {guesser}", need + 0.05)
    assert found.verdict is Verdict.UNKNOWN
    assert "the draft model: all of it takes" in found.because
    assert with_guesser(f"-c 8192 -md {guesser}", need - 1).verdict is Verdict.NO_GO
