"""What a step does, in the words an operator reads before pressing enter."""

from __future__ import annotations

import shlex

from hypothesis import given
from hypothesis import strategies as st

from console.config.playbook.steps import Step
from console.render.effects import build_argv, effects

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(words, min_size=1, max_size=4))
def test_the_argv_shown_is_the_argv(argv: list[str]) -> None:
    (shown,) = effects(Step(id="s", run=argv), {})
    assert shlex.split(shown.removeprefix("$ ")) == argv


@given(st.dictionaries(words, words, max_size=3), words, words)
def test_a_build_argument_stays_one_element(args: dict[str, str], tag: str, context: str) -> None:
    step = Step.model_validate({"id": "s", "build": {"context": context, "tag": tag, "args": args}})
    argv = build_argv(step)
    assert argv[:4] == ["docker", "build", "-t", tag]
    assert argv[4:6] == ["--label", f"omni.built={tag}"]
    assert argv[-2:] == ["--", context]
    assert sorted(argv[7:-2:2]) == sorted(f"{k}={v}" for k, v in args.items())
