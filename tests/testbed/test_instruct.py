"""The real instruct model answers sense as it is, and garbage by its engine's settings."""

from pathlib import Path

import pytest

from console.runtime.answers.completion import complete, prove_longer
from console.runtime.answers.sanity import Kind, judge
from tests.testbed import instruct

QUESTION = "What is the capital of France?"


@pytest.mark.parametrize(
    ("setting", "kind"), [(instruct.SANE, None), (instruct.NEWLINES, Kind.BLANK)]
)
def test_a_setting_of_the_engine_makes_garbage_of_its_answers(
    instruct_model: Path, setting: str, kind: Kind | None
) -> None:
    with instruct.serving(setting) as url:
        said = complete(url, prompt=QUESTION, max_tokens=24, timeout_s=60)
    garbled = judge(said.answer, tokens=said.tokens)
    assert (garbled and garbled.kind) == kind
    assert ("Paris" in said.answer) == (kind is None)


@pytest.mark.parametrize("setting", [instruct.SANE, instruct.NONSENSE])
def test_a_proof_tells_a_model_that_begins_like_a_sane_one(
    instruct_model: Path, setting: str
) -> None:
    """Some of its answers are short and look well; it is as sure as several proofs are."""
    with instruct.serving(setting) as url:
        proofs = [prove_longer(url) for _ in range(6)]
    garbled = sum(proof.garbled is not None for proof in proofs)
    assert garbled == 0 if setting == instruct.SANE else garbled >= 3
