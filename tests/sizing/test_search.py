"""The search for what fits, with a judge that is a line of arithmetic."""

from dataclasses import dataclass, replace

import pytest

from console.models.sizing.assessment import Assessment, Limit, Verdict
from console.models.sizing.loader_plan import LlamaPlan, SglangPlan, Strategy, VllmPlan
from console.models.suggest.ranking import Merits, order
from console.models.suggest.search import MIN_CONTEXT, SHORT, USEFUL, Search, contexts
from console.models.suggest.ways import Args, Way, ways
from tests.sizing.site import DISTILL, LARGE, Q4, SMALL, served

MIB = 1 << 20
CARD = 24_000


@dataclass(frozen=True)
class Said:
    verdict: Verdict
    because: str
    assessment: Assessment | None


def judge(weights: int, host: int = 1 << 40, unknown: str = "") -> object:
    """A model of so many MiB in 64 layers, 1 MiB of cache for 16 tokens, on a card and a host."""

    def said(args: Args, ctx: int) -> Said:
        gone = int(args[1]) if args else 0
        need = weights * (64 - gone) // 64 + ctx // 16
        sum_ = Assessment(
            Strategy.MMAP,
            limits=[
                Limit("card", need * MIB, CARD * MIB),
                Limit("host", weights * gone // 64, host),
            ],
        )
        short = bool(sum_.short)
        verdict = Verdict.NO_GO if short else Verdict.UNKNOWN if unknown else Verdict.GO
        return Said(verdict, unknown or "short", sum_)

    return said


ALL = Way("cards", lambda step, ctx: (), lambda step: "all")
LAYERS = Way(
    "layers", lambda step, ctx: ("-gone", str(step + 1)), lambda step: f"{step + 1} off", 63
)


def search(judged: object, own: int = 131072, on: tuple[Way, ...] = (ALL, LAYERS)) -> Search:
    def on_cards(sum_: Assessment) -> bool:
        return not any(limit.where == "card" for limit in sum_.short)

    return Search(on, contexts(own), judged, on_cards)  # type: ignore[arg-type]


def test_contexts_are_round_and_end_with_the_models_own() -> None:
    found = contexts(40960)
    assert (found[0], found[-1]) == (MIN_CONTEXT, 40960)
    assert found == sorted(set(found))
    assert all(one % 1024 == 0 for one in found)
    assert contexts(2048) == [2048]
    assert contexts(100_000)[-2:] == [98304, 100_000]
    assert len(contexts(1 << 20)) < 200


@pytest.mark.parametrize("weights", [5_000, 20_000, 22_900, 23_400, 23_700, 40_000, 90_000])
def test_the_longest_context_is_the_longest_that_fits(weights: int) -> None:
    asked = search(judge(weights))
    fit = asked.fastest().fit
    assert fit is not None
    best = asked.longest(fit)
    longer = [one for one in asked.contexts if one > best.ctx]
    assert asked.judge(best.args, best.ctx).verdict is Verdict.GO
    assert not longer or asked.judge(best.args, longer[0]).verdict is Verdict.NO_GO
    if fit.way is LAYERS and fit.step:
        faster = LAYERS.args(fit.step - 1, fit.ctx)
        assert asked.judge(faster, fit.ctx).verdict is Verdict.NO_GO, "as few layers as can be"


def test_all_on_the_cards_is_worth_a_shorter_context() -> None:
    for weights, way, ctx in (
        (22_000, ALL, USEFUL), (23_300, ALL, SHORT), (23_700, LAYERS, USEFUL),
    ):  # fmt: skip
        fit = search(judge(weights)).fastest().fit
        assert fit is not None
        assert (fit.way, fit.ctx) == (way, ctx)


def test_a_far_longer_context_is_a_row_of_its_own() -> None:
    asked = search(judge(23_000))
    fit = asked.fastest().fit
    assert fit is not None
    fast = asked.longest(fit)
    slow = asked.longer(fast)
    assert (fast.way, slow and slow.way, slow and slow.ctx) == (ALL, LAYERS, 131072)
    assert search(judge(1_000)).longer(replace(fast, ctx=131072)) is None


def test_what_does_not_fit_and_what_is_not_known() -> None:
    found = search(judge(90_000, host=1)).fastest()
    assert found.fit is None
    assert found.nearest is not None
    assert found.nearest.trial.short_by > 0
    found = search(judge(5_000, unknown="a key")).fastest()
    assert (found.fit, found.unknown) == (None, "a key")


def test_the_ways_of_an_engine() -> None:
    both = (LARGE, SMALL)
    mixture = [way.kind for way in ways(Q4, LlamaPlan(), both)]
    assert mixture == ["cards"] * 4 + ["experts"] * 3 + ["layers"]
    dense = ways(DISTILL, LlamaPlan(), (SMALL,))
    assert [way.kind for way in dense] == ["cards", "layers"]
    assert dense[-1].args(dense[-1].steps, 0) == ("-ngl", "0")
    assert [way.kind for way in ways(DISTILL, LlamaPlan(), ())] == ["host"]
    assert [way.args(0, 0) for way in ways(DISTILL, VllmPlan(), both)] == [(), ("-tp", "2")]
    assert [way.args(0, 0) for way in ways(DISTILL, SglangPlan(), both)] == [(), ("--tp", "2")]
    assert [way.kind for way in ways(DISTILL, served("-ts 3,1"), both)] == ["cards"]
    for line, kind in (("-ngl 4", "layers"), ("-ngl 99 -cmoe", "experts"), ("-ngl 99", "cards")):
        (given,) = ways(Q4, served(line), both)
        assert (given.kind, given.words(0)) == (kind, "as given")
        assert [way.kind for way in ways(Q4, served(line), ())] == ["host"]
    split = ways(Q4, LlamaPlan(), both)[4]
    assert split.args(split.steps, 8192)[:3] == ("-ngl", "999", "-cmoe")


def test_the_order_of_what_fits() -> None:
    """The best first: each is worse than the one before, whatever its bits."""
    go, tight = Verdict.GO, Verdict.TIGHT
    rows = [
        Merits(go, False, "cards", 6.6), Merits(go, False, "cards", 4.2),
        Merits(tight, False, "cards", 8.5), Merits(go, False, "experts", 8.5),
        Merits(go, False, "experts", 4.8), Merits(go, False, "layers", 16.0),
        Merits(go, False, "host", 4.8), Merits(tight, False, "layers", 8.5),
        Merits(go, False, "cards", 3.9), Merits(go, False, "cards", 0.0),
        Merits(go, False, "layers", 3.4), Merits(Verdict.STREAMING, True, "experts", 8.5),
        Merits(tight, True, "cards", 16.0), Merits(Verdict.STREAMING, True, "cards", 2.1),
    ]  # fmt: skip
    assert [one.heading.partition(":")[0] for one in (rows[0], rows[4], rows[8], rows[-1])] == [
        "All on the cards", "Experts in RAM", "Fewer than 4 bits per weight, all on the cards",
        "Fewer than 4 bits per weight, partly on the disk",
    ]  # fmt: skip
    mixed = rows[::2] + rows[1::2]
    assert sorted(mixed, key=order) == rows
