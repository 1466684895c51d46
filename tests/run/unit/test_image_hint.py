"""A missing image that the playbook builds is answered with its step, not with `docker pull`."""

from __future__ import annotations

from pathlib import Path

from console.run.image_hint import fitting
from console.services.images import pull_hint
from tests.run.unit.conftest import MakePlan

BUILD = "{id: make, build: {context: ctx, dockerfile: D, tag: 'omni/x:1'}}"


def test_an_image_of_a_build_step_names_step_and_command(plan: MakePlan, tmp_path: Path) -> None:
    assert fitting(plan(BUILD), pull_hint("omni/x:1")) == (
        f"step make of this playbook builds it; by hand: cd {tmp_path} && docker build "
        "-t omni/x:1 -f D --label omni.built=omni/x:1 -- ctx"
    )


def test_what_no_step_builds_is_pulled(plan: MakePlan) -> None:
    made = plan(BUILD)
    assert fitting(made, pull_hint("omni/x:2")) == "docker pull omni/x:2"
    assert fitting(made, "look at the log") == "look at the log"
    assert fitting(made, "") == ""
