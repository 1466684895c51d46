"""The state of the baseline out of what witnesses saw: which evidence wins, and in which words."""

import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.recovery.rollback.baseline_state import (
    ATTEMPT,
    BY,
    GOOD,
    LOOKS,
    UP,
    Evidence,
    Kind,
    Witness,
    Word,
    state_of,
)

NOW = 1_750_000_000.0
W = Word


def seen(kind: Kind, word: Word, ago: float, witness: Witness, **more: object) -> Evidence:
    return Evidence(kind, word, NOW - ago, witness, **more)  # type: ignore[arg-type]


def proof(ago: float, witness: Witness = Witness.RUN_START, **more: object) -> Evidence:
    return seen(Kind.PROOF, W.SERVING, ago, witness, **more)


def measured(ago: float, tok_s: float, witness: Witness = Witness.ROLLBACK) -> Evidence:
    return seen(Kind.MEASURED, W.SERVING, ago, witness, tok_s=tok_s)


def failed(ago: float, word: Word = W.DOWN, witness: Witness = Witness.ROLLBACK) -> Evidence:
    return seen(Kind.FAILED, word, ago, witness, detail="completion: why")


def look(ago: float, word: Word = W.SERVING, **more: object) -> Evidence:
    kind = Kind.ANSWERS if word is W.SERVING else Kind.AWAY
    return seen(kind, word, ago, Witness.HEALTH, **more)


def dead(ago: float, life: str = "") -> Evidence:
    return replace(failed(ago, witness=Witness.VERIFY), life=life, dead=True)


def stopped(ago: float, detail: str = "no answer in time; it does not compute") -> Evidence:
    return seen(Kind.AWAY, W.DOWN, ago, Witness.WATCH, detail=detail)


TABLE: dict[str, tuple[list[Evidence], Word, str]] = {
    "nothing is known": ([], W.UNKNOWN, ""),
    "only its health path": ([look(0)], W.SERVING, ""),
    "a proof": ([proof(60)], W.SERVING, ""),
    "a proof, and it answers": ([proof(60), look(0)], W.SERVING, ""),
    "a rollback failed after a proof": ([proof(60), failed(30)], W.DOWN, "a rollback failed"),
    "and it answers again": ([proof(60), failed(30), look(0)], W.UNKNOWN, "a rollback failed"),
    "rollback.sh failed": ([proof(60), failed(30, witness=Witness.SCRIPT)], W.DOWN, "rollback.sh"),
    "v was refused": ([proof(60), failed(30, W.REFUSING, Witness.VERIFY)], W.REFUSING, "by v"),
    "it says that its engine is dead": ([proof(60), dead(30), look(0)], W.DOWN, "by v failed"),
    "its engine was dead, and it was started again": (
        [proof(60), dead(30, "1"), look(0, life="2")], W.UNKNOWN, "by v failed",
    ),
    "it was stopped, and says nothing": (
        [proof(60), stopped(30), look(0, W.UNKNOWN)], W.DOWN, "",
    ),
    "it was stopped, and answers again": ([proof(60), stopped(30), look(0)], W.SERVING, "down"),
    "nothing listened, and now something says nothing": (
        [proof(60), stopped(30, "connection refused"), look(0, W.UNKNOWN)], W.UNKNOWN, "",
    ),
    "refused, and its health path answers": (
        [proof(60), failed(30, W.REFUSING), look(0)], W.REFUSING, "a rollback",
    ),
    "garbled, and its health path answers": (
        [proof(60), failed(30, W.GARBLED), look(0)], W.GARBLED, "a rollback",
    ),
    "garbled, then silent": ([failed(30, W.GARBLED), look(0, W.UNKNOWN)], W.GARBLED, "rollback"),
    "garbled, then gone": ([failed(30, W.GARBLED), look(0, W.DOWN)], W.DOWN, "a rollback"),
    "refused, gone, and another one answers": (
        [failed(30, W.REFUSING), look(20, W.DOWN), look(0)], W.UNKNOWN, "a rollback failed",
    ),
    "garbled, and another one answers": (
        [replace(failed(30, W.GARBLED), life="1 1"), look(0, life="2 2")], W.UNKNOWN, "a rollback",
    ),
    "refused, busy loading again, and answers": (
        [failed(30, W.REFUSING), look(20, W.LOADING), look(0)], W.REFUSING, "a rollback",
    ),
    "proven after the failure": ([failed(30), proof(10, Witness.WATCH), look(0)], W.SERVING, ""),
    "refused after a proof": ([proof(60), look(0, W.DOWN)], W.DOWN, ""),
    "loading after a proof": ([proof(60), look(0, W.LOADING)], W.LOADING, ""),
    "away and back": ([proof(60), look(30, W.DOWN), look(0)], W.SERVING, "it was down"),
    "silent for a moment": ([proof(60), look(30, W.UNKNOWN), look(0)], W.SERVING, ""),
    "an older look": ([look(60, W.DOWN), proof(30)], W.SERVING, ""),
    "a candidate in its place": ([proof(60), look(0, W.CUT_OVER)], W.CUT_OVER, ""),
    "started again since": ([proof(60, life="1 1"), look(0, life="2 2")], W.SERVING, "again"),
    "the same start": ([proof(60, life="1 1"), look(0, life="1 1")], W.SERVING, ""),
    "failed in an earlier life": ([failed(30), look(0, life="2 2")], W.UNKNOWN, "a rollback"),
    "garbled, and a look in doubt": (
        [failed(60, W.GARBLED), failed(30, W.UNKNOWN, Witness.WATCH), look(0)],
        W.GARBLED, "a rollback failed",
    ),
    "garbled, proven since, and a look in doubt": (
        [failed(60, W.GARBLED), proof(40), failed(30, W.UNKNOWN, Witness.WATCH), look(0)],
        W.UNKNOWN, "the watch",
    ),
    "garbled, started again, and a look in doubt": (
        [
            replace(failed(60, W.GARBLED), life="1 1"),
            replace(failed(30, W.UNKNOWN, Witness.WATCH), life="2 2"), look(0, life="2 2"),
        ],
        W.UNKNOWN, "the watch",
    ),
    "of another baseline": ([proof(60, target="other"), failed(9)], W.DOWN, "a rollback"),
    "the proof of the future": ([proof(-3600), failed(30)], W.DOWN, "a rollback failed"),
    "slower than its reference": ([measured(60, 15.0)], W.DEGRADED, ""),
    "a benchmark after the rollback": (
        [measured(60, 28.0), measured(30, 15.0, Witness.BENCHMARK)], W.DEGRADED, "",
    ),
    "a short answer shows no slowness": ([proof(60, tok_s=15.0)], W.SERVING, ""),
    "a short answer as slow": ([measured(60, 15.0), proof(9, tok_s=15.0)], W.DEGRADED, ""),
    "slow, down, and started by hand": (
        [measured(60, 15.0), look(30, W.DOWN), look(0)], W.SERVING, "it was down",
    ),
    "slow, and started again": (
        [replace(measured(60, 15.0), life="1 1"), look(0, life="2 2")], W.SERVING, "again",
    ),
    "slow, started again, and proven": (
        [replace(measured(60, 15.0), life="1 1"), proof(9, life="2 2"), look(0, life="2 2")],
        W.SERVING, "",
    ),
    "slow, and silent for a moment": (
        [measured(60, 15.0), look(30, W.UNKNOWN), look(0)], W.DEGRADED, "",
    ),
    "a short answer at its speed": ([measured(60, 15.0), proof(9, tok_s=28.0)], W.SERVING, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_the_newest_and_the_more_careful_witness_wins(name: str) -> None:
    evidence, word, doubt = TABLE[name]
    known = state_of(evidence, NOW, target="this", reference=28.0, tolerance=0.1)
    assert known.word is word
    assert doubt in known.doubt
    assert bool(doubt) is bool(known.doubt)


def test_each_figure_says_when_and_by_what() -> None:
    known = state_of([measured(420, 28.1), measured(60, 15.0, Witness.BENCHMARK)], NOW)
    assert known.figure is not None
    assert (known.figure.tok_s, known.figure.at, known.figure.by) == (15.0, NOW - 60, "a benchmark")
    assert known.speed_words(NOW) == "15 tok/s"
    assert re.fullmatch(r"proven \d\d:\d\d:\d\d by a benchmark", known.proof_words(NOW))
    later = state_of([measured(420, 28.1), proof(60, Witness.VERIFY)], NOW)
    assert re.fullmatch(r"28.1 tok/s at \d\d:\d\d:\d\d by a rollback", later.speed_words(NOW))
    assert later.proven_by == "v"


def test_what_failed_is_said_with_its_time_and_reason() -> None:
    known = state_of([proof(60), failed(30), look(0)], NOW)
    assert re.fullmatch(
        r"not proven since a rollback failed at \d\d:\d\d:\d\d: completion: why", known.doubt
    )
    assert known.detail == "its health path answers"
    assert known.proof_words(NOW).startswith("last proven ")
    assert known.since == NOW - 30


def test_what_a_server_said_that_is_gone_is_not_said_of_the_next() -> None:
    refused = replace(failed(30, W.REFUSING), detail="it is alive and was left as it is")
    for seen in ([refused, look(0, W.DOWN)], [refused, look(9, W.DOWN), look(0)]):
        assert "it is alive" not in " ".join(state_of(seen, NOW).reasons)
    died = replace(failed(30), detail="exit code 1: CUDA out of memory")
    assert "CUDA" in state_of([died, look(0, W.DOWN)], NOW).doubt, "why it is down stays true"


def test_since_when() -> None:
    assert state_of([proof(60), look(0)], NOW).since == NOW - 60
    assert state_of([look(60, W.DOWN), look(9), look(5)], NOW).since == NOW - 9
    down = replace(look(0, W.DOWN), since=NOW - 300)
    assert state_of([proof(600), down], NOW).since == NOW - 300
    assert state_of([proof(60), down], NOW).since == NOW - 60, "it was proven in between"


def test_every_witness_has_words() -> None:
    assert set(BY) == set(Witness) == set(ATTEMPT)


KINDS = {
    **{kind: [W.SERVING] for kind in GOOD}, Kind.ANSWERS: [W.SERVING],
    Kind.FAILED: [W.DOWN, W.REFUSING, W.GARBLED, W.LOADING, W.UNKNOWN],
    Kind.AWAY: [W.DOWN, W.REFUSING, W.LOADING, W.UNKNOWN, W.CUT_OVER],
}  # fmt: skip
ANY = st.sampled_from(list(Kind)).flatmap(
    lambda kind: st.builds(
        Evidence, st.just(kind), st.sampled_from(KINDS[kind]),
        st.integers(0, 50).map(lambda ago: NOW - ago), st.sampled_from(Witness),
        tok_s=st.none() | st.floats(0.1, 99) if kind in GOOD else st.none(),
        life=st.sampled_from(["", "1 1", "2 2"]),
    )
)  # fmt: skip
MANY = st.lists(ANY, max_size=8, unique_by=lambda one: one.at)


@given(MANY)
def test_it_serves_only_if_nothing_newer_than_its_last_proof_says_otherwise(
    evidence: list[Evidence],
) -> None:
    known = state_of(evidence, NOW, reference=50.0)
    good = max((e.at for e in evidence if e.kind in GOOD), default=0.0)
    looked = max((e.at for e in evidence if e.kind is Kind.ANSWERS), default=0.0)
    bad = [e.at for e in evidence if e.kind is Kind.FAILED and e.at > good]
    gone = [e.at for e in evidence if e.kind is Kind.AWAY and e.at > max(good, looked)]
    assert known.up is (bool(evidence) and not bad and not gone)
    assert (known.word in UP) is known.up
    assert known.proven_at == good
    if bad:
        assert known.doubt.startswith("not proven since ")
        assert not known.proven


@given(MANY, st.integers())
def test_the_order_of_reading_and_a_second_reading_change_nothing(
    evidence: list[Evidence], seed: int
) -> None:
    known = state_of(evidence, NOW)
    again = [*evidence, *evidence]
    Random(seed).shuffle(again)
    assert state_of(again, NOW) == known
    assert known.since <= known.at or not evidence
    assert LOOKS


@pytest.mark.parametrize("earlier", [proof(60), measured(60, 28.0), failed(60, W.GARBLED)])
def test_what_is_known_of_the_baseline_is_not_said_of_another_process(earlier: Evidence) -> None:
    other = "another process (pid 7, since 14:03:05) with other flags answers"
    state = state_of([earlier, look(0, other=other)], NOW, reference=100.0)
    assert (state.word, state.figure, state.proven, state.up) == (W.UNKNOWN, None, False, False)
    assert (state.doubt, state.reasons) == (f"not proven: {other}", [f"not proven: {other}"])
    assert state_of([look(9, other=other), proof(0)], NOW).proven, "it is the baseline since"


def test_what_another_process_answered_itself_is_said_of_it() -> None:
    """As long as nothing better is known of the same process, by whoever asked it; whether the
    baseline serves nobody knows, whatever a stranger answers."""
    other = "another process (pid 7, since 14:03:05) with other flags answers"
    garbage = replace(failed(60, W.GARBLED, Witness.WATCH), other=other)
    sane = seen(Kind.ANSWERS, W.SERVING, 30, Witness.WATCH, other=other)
    asks_nothing = seen(Kind.ANSWERS, W.SERVING, 20, Witness.HEALTH, other=other)
    here = look(0, other=other)
    told = {"it answers garbage": [garbage, asks_nothing, here], "": [garbage, sane, here]}
    for words, known in told.items():
        state = state_of([proof(90), *known], NOW)
        assert (state.word, state.proven, state.figure) == (W.UNKNOWN, False, None)
        assert state.doubt.startswith(f"not proven: {other}")
        assert ("garbage" in state.doubt) is bool(words)
    assert "garbage" not in state_of([garbage, look(0, other=other.replace("7", "8"))], NOW).doubt


@pytest.mark.parametrize("word", [W.GARBLED, W.REFUSING, W.DOWN, W.UNKNOWN, W.LOADING])
def test_whose_answer_it_is_comes_first(word: Word) -> None:
    """A stranger's word is none of the baseline's, neither alone nor once the baseline is back."""
    other = "another process (pid 7, since 14:03:05) with other flags answers"
    theirs = replace(failed(30, word, Witness.ROLLBACK), other=other, dead=word is W.DOWN)
    assert state_of([theirs], NOW).word is W.UNKNOWN
    back = state_of([proof(60), theirs, look(0)], NOW)
    assert (back.word, back.proven) == (W.SERVING, False)
    assert "not proven since another process answered there at " in back.doubt
    assert state_of([theirs, proof(0)], NOW).proven
    away = state_of([proof(60), theirs, look(0, W.DOWN)], NOW)
    assert (away.word, away.doubt) == (W.DOWN, "")
