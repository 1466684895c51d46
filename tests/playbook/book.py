"""Playbooks for tests, built from their parts."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import Exit, InvalidFile
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook

HEAD = "schema: omni.playbook/v1\nname: x\ntitle: t\n"
SERVICES = "services: {cand: {process: {argv: [serve]}, url: 'http://127.0.0.1:8001'}}\n"


class Book:
    """A playbook file in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "book.yaml"

    def text(self, body: str, head: str = HEAD) -> Path:
        self.path.write_text(head + textwrap.dedent(body), "utf-8")
        return self.path

    def load(
        self, body: str, given: dict[str, str] | None = None, head: str = HEAD, **options: Any
    ) -> Playbook:
        return load_playbook(self.text(body, head), given, **options)

    def steps(self, *steps: str, rest: str = SERVICES, **options: Any) -> Playbook:
        return self.load(rest + steps_text(*steps), **options)

    def problems(self, body: str, given: dict[str, str] | None = None, **options: Any) -> list[str]:
        """Every problem as `line:column: what`, without the file's name."""
        with pytest.raises(InvalidFile) as caught:
            self.load(body, given, **options)
        assert caught.value.exit_code is Exit.USAGE
        prefix = f"{self.path}:"
        said = [str(p) for p in caught.value.problems]
        assert [line for line in said if not line.startswith(prefix)] == []
        return [line.removeprefix(prefix) for line in said]

    def step_problems(self, *steps: str, rest: str = SERVICES, **options: Any) -> list[str]:
        """The problems of steps, without their places."""
        found = self.problems(rest + steps_text(*steps), **options)
        return [line.split(": ", 1)[1] for line in found]


def steps_text(*steps: str) -> str:
    return "phases:\n- title: p\n  steps:\n" + "".join(f"  - {step}\n" for step in steps)
