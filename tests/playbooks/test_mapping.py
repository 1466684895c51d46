"""The mapping from the operator's documents: every value in it stands where it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from console.config.locate import shipped
from console.config.yaml import parse

MAPPING = Path(__file__).parents[2] / "docs/reference/mapping.md"
CELL = re.compile(r"(?<!\\)\|")
HEAD = ("Seed", "It says", "Where", "Value")
LEAST = {"000": 45, "001": 45, "002": 40, "004": 80}
"""Rows that each document has at least."""


@dataclass(frozen=True)
class Row:
    seed: str
    says: str
    where: str
    value: str


def _rows() -> list[Row]:
    found = []
    for line in MAPPING.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in CELL.split(line)[1:-1]]
        if line.startswith("| ") and tuple(cells) != HEAD:
            assert len(cells) == len(HEAD), line
            found.append(Row(*cells))
    return found


ROWS = _rows()
CARRIED = [row for row in ROWS if row.where != "not carried"]


@cache
def playbook(name: str) -> dict[str, Any]:
    path = shipped() / f"{name}.yaml"
    data: dict[str, Any] = parse(path.read_text(), name, "").data
    return data


def place(where: str) -> Any:
    """What a place names: a step by its id, or a part of the playbook by its dotted path."""
    if where.startswith(("stack/", "sites/")):
        return (shipped() / where).read_text()
    name, _, part = where.partition("/")
    data = playbook(name)
    groups = [phase["steps"] for phase in data["phases"]]
    for step in [step for group in (*groups, data.get("finally", [])) for step in group]:
        if step["id"] == part:
            return step
    for key in part.split("."):
        data = data[key]
    return data


def _texts(node: Any, key: str = "") -> list[str]:
    """A node as lines: each value, each mapping of values as `k: v, k: v`, each list as words."""
    if isinstance(node, dict):
        flat = ", ".join(f"{k}: {v}" for k, v in node.items() if not isinstance(v, dict | list))
        return [flat, *node, *(line for k, v in node.items() for line in _texts(v, k))]
    if isinstance(node, list):
        words = " ".join(str(one) for one in node if not isinstance(one, dict | list))
        return [f"{key}: {words}", *(line for one in node for line in _texts(one, key))]
    return [f"{key}: {node}", str(node)]


@cache
def texts(where: str) -> list[str]:
    return _texts(place(where))


def lacking(row: Row) -> list[str]:
    """Parts of a row's value that its place does not have."""
    known = texts(row.where)
    parts = [row.value] if any(row.value in line for line in known) else row.value.split("; ")
    return [part for part in parts if not any(part in line for line in known)]


def test_every_value_stands_in_its_place() -> None:
    assert [row for row in CARRIED if not row.value or lacking(row)] == []


def test_a_wrong_value_and_a_wrong_place_would_be_noticed() -> None:
    row = next(row for row in CARRIED if row.seed == "000:183")
    assert lacking(Row(row.seed, row.says, row.where, "go: > 13 tok/s")) == ["go: > 13 tok/s"]
    with pytest.raises(KeyError):
        place("operation-lazarus/nonesuch")


def test_what_is_not_carried_says_why() -> None:
    left = [row for row in ROWS if row.where == "not carried"]
    assert len(left) > 20
    for row in left:
        assert re.match(r"[FSP]-\d{3}", row.value) or len(row.value.split()) >= 2, row


def test_every_document_is_carried_in_its_order() -> None:
    for seed, least in LEAST.items():
        numbers = [int(row.seed[4:]) for row in ROWS if row.seed.startswith(f"{seed}:")]
        assert len(numbers) >= least, seed
        assert numbers == sorted(numbers), seed


def test_every_gate_and_guard_of_a_trial_is_somebodys() -> None:
    """No threshold of a trial that the mapping does not name."""
    for name in ("operation-lazarus", "kt-sglang-resurrection", "kt-sglang-evaluation",
                 "ik-llama-phase2"):  # fmt: skip
        named = {row.where for row in CARRIED if row.where.startswith(f"{name}/")}
        for phase in playbook(name)["phases"]:
            for step in phase["steps"]:
                assert "gate" not in step or f"{name}/{step['id']}" in named, step["id"]
        assert f"{name}/guards" in named or name == "kt-sglang-resurrection"
