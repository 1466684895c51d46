"""Playbooks, criteria and evidence from their parts; nobody's runs and site but the test's."""

from __future__ import annotations

import statistics as stats
import textwrap
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import Exit, InvalidFile
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import Playbook
from console.config.playbook.threshold import parse_threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("OMNI_SITE", raising=False)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


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


RANK = {Verdict.NO_GO: 0, Verdict.HOLD: 1, Verdict.GO: 2}
SPREAD = (19.2, 19.6, 19.9, 20.1, 20.3, 20.5, 20.6)


def criterion(
    go: str = "", no_go: str = "", min_samples: int = 1, metric: str = "bench.tok_s", **more: Any
) -> Criterion:
    parsed = [parse_threshold(text) if text else None for text in (go, no_go)]
    return Criterion(metric, *parsed, min_samples, **more)


def tok_s(value: float | None, n: int = 9, **values: Any) -> Evidence:
    return Evidence(value, "tok/s", n, **values)


def of(samples: tuple[float, ...], before: tuple[float, ...] = (), **more: Any) -> Evidence:
    """Evidence whose figures are the means of their samples."""
    base: dict[str, Any] = {}
    if before:
        base = {"baseline": stats.fmean(before), "baseline_n": len(before)}
    values = {"samples": samples, "baseline_samples": before, **base, **more}
    return tok_s(stats.fmean(samples), len(samples), **values)


def moved(by: float, samples: tuple[float, ...] = SPREAD) -> tuple[float, ...]:
    return tuple(one + by for one in samples)
