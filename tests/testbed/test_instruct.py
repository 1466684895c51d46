"""The real instruct model answers sense as it is, and garbage by its engine's settings."""

from pathlib import Path

import pytest

from console.runtime.probe import complete
from console.runtime.sanity import Kind, judge
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
