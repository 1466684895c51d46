"""What --fit does to a plan that the cards have no room for, in the order of the builds' own code
(common_params_fit_impl in common/fit.cpp of llama.cpp; src/llama.cpp of ik_llama.cpp)."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.cards.fit import chosen, gives_up
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from tests.sizing import shapes
from tests.sizing.known import KNOWN

GIB = 1 << 30
DENSE, MOE = from_gguf(shapes.llama_70b()), from_gguf(KNOWN["gpt-oss-120b"]())


def card(size: int) -> Card:
    return Card("a card", total=size * GIB, free=size * GIB)


def gguf(words: str, size: int = 24, *, ik: bool = False, dense: bool = False) -> Assessment:
    read = ik_plan if ik else llama_plan
    machine = Machine(cards=(card(size),), ram_available=512 * GIB)
    return assess(DENSE if dense else MOE, read(words.split()), machine, advised=False)


@pytest.mark.parametrize("moved", ["-ncmoe 4", "-ot blk.0..*exps=CPU", "-ncffn 1"])
def test_it_gives_up_where_tensors_are_placed_by_hand(moved: str) -> None:
    """llama.cpp#27872: "tensor_buft_overrides already set by user, abort", and the load goes on."""
    free = gguf("-np 1 -c 8192")
    assert free.verdict in (Verdict.GO, Verdict.TIGHT)
    by_hand, off = gguf(f"-np 1 -c 8192 {moved}"), gguf(f"-np 1 -c 8192 -ngl 99 -fit off {moved}")
    assert (by_hand.verdict, off.verdict) == (Verdict.NO_GO, Verdict.NO_GO)
    assert by_hand.because == off.because
    assert any("--fit gives up" in note for note in by_hand.notes)


def test_moved_experts_that_leave_room_are_no_matter() -> None:
    found = gguf("-np 1 -c 8192 -cmoe")
    assert found.verdict in (Verdict.GO, Verdict.TIGHT)
    assert not any("gives up" in note for note in found.notes)


@pytest.mark.parametrize(
    ("words", "cards", "reason"),
    [
        ("", 1, ""), ("-ngl 99", 1, "n_gpu_layers"), ("-ts 1,1", 1, ""),
        ("-sm none -ts 1,1", 2, ""),
        ("-ts 1,1", 2, "tensor_split"), ("-sm row", 2, "LLAMA_SPLIT_MODE_ROW"),
        ("-cmoe", 1, "tensor_buft_overrides"), ("-ot x=CPU", 2, "tensor_buft_overrides"),
    ],
)  # fmt: skip
def test_why_it_gives_up(words: str, cards: int, reason: str) -> None:
    told = gives_up(llama_plan(words.split()), [card(24)] * cards)
    assert (reason in told) if reason else not told


@pytest.mark.parametrize("layers", ["-ngl 99", "-ngl all", ""])
def test_a_context_that_nobody_gave_is_shortened_first(layers: str) -> None:
    """llama.cpp#23472: `-ngl all -fit on` loaded with 132,864 tokens on a 3090, and was NO-GO."""
    free = chosen(DENSE, llama_plan(["-np", "1"]), [card(48)])
    given = chosen(DENSE, llama_plan(["-np", "1", *layers.split()]), [card(48)])
    assert given.ctx == free.ctx
    assert 4096 < (given.ctx or 0) < (DENSE.context_length or 0)
    assert gguf(f"-np 1 {layers}", 48, dense=True).verdict is not Verdict.NO_GO
    assert gguf(f"-np 1 {layers} -fit off -ngl 99", 48, dense=True).verdict is Verdict.NO_GO


def test_layers_that_were_asked_for_stay() -> None:
    small = [card(24)]
    assert chosen(DENSE, llama_plan(["-np", "1", "-ngl", "99"]), small).gpu_layers == 99
    assert gguf("-np 1 -ngl 99", dense=True).verdict is Verdict.NO_GO
    assert gguf("-np 1 -ngl 99 -c 8192", 48, dense=True).verdict is not Verdict.UNKNOWN
    assert chosen(DENSE, llama_plan(["-ngl", "5"]), []).gpu_layers == 5


def test_layers_that_guess_ahead_are_not_known_to_have_room() -> None:
    """llama.cpp#28172, llama.cpp#23472: the load, or the first request, ended."""
    words, facts = "-np 1 --spec-type draft-mtp", replace(DENSE, spare_layers=1)
    plans = {name: llama_plan([*words.split(), *more.split()])
             for name, more in (("fitted", ""), ("given", "-ngl 40 -c 8192 -fit off"))}  # fmt: skip
    machine = Machine(cards=(card(44),), ram_available=512 * GIB)
    answers = {name: assess(facts, plan, machine, advised=False) for name, plan in plans.items()}
    assert "llama.cpp#28172" in answers["fitted"].because
    assert "llama.cpp#28172" not in answers["given"].because


@pytest.mark.parametrize("words", ["-ncmoe 10", "-cmoe", "-ot exps=CPU"])
def test_ik_llama_refuses_it_beside_tensors_that_are_placed_by_hand(words: str) -> None:
    """Both throw in src/llama.cpp of 8337e4cd."""
    found = gguf(f"--fit -c 8192 {words}", 80, ik=True)
    assert (found.verdict, "--fit beside" in found.because) == (Verdict.NO_GO, True)
    assert gguf(f"-c 8192 {words}", 80, ik=True).verdict is not Verdict.NO_GO
    assert ik_plan(["--fit", "-ncmoe", "0"]).refused == ()


def test_ik_llama_moves_experts_alone_and_only_where_it_is_asked_to() -> None:
    """Without --fit all layers go to the cards; with it --n-gpu-layers is passed over."""
    here = [card(24)]
    assert not ik_plan([]).fit
    without = gguf("-c 8192", ik=True)
    assert without.verdict is Verdict.NO_GO
    assert any("before 30 July 2026" in note for note in without.notes)
    fitted = chosen(MOE, ik_plan(["--fit", "-c", "8192", "-ngl", "3"]), here)
    assert (fitted.gpu_layers or 0) > (MOE.layers or 0)
    assert len(fitted.overrides) == 1
    dense = chosen(DENSE, ik_plan(["--fit", "-c", "8192"]), here)
    assert 0 < (dense.gpu_layers or 0) < (DENSE.layers or 0)
    assert dense.ctx == 8192
