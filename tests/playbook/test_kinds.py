"""The kinds of steps: one record each, and nothing of one is missing."""

from __future__ import annotations

from typing import get_args

import pytest
from pydantic import BaseModel

from console.config.playbook.kinds import KINDS, WRITTEN
from console.config.playbook.steps import Step
from console.runner.executors import executor


@pytest.mark.parametrize("kind", KINDS)
def test_each_has_an_executor(kind: str) -> None:
    assert callable(executor(kind))


def test_each_that_is_written_is_a_key_of_a_step_and_its_services_are_keys_below() -> None:
    for kind in WRITTEN:
        (model,) = (
            one for one in get_args(Step.model_fields[kind].annotation) if one is not type(None)
        )
        for key in KINDS[kind].services:
            assert issubclass(model, BaseModel), kind
            assert key in model.model_fields, (kind, key)
