"""What a load held before it was stopped, out of the recorder's records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.run.guard_load import cause, curve, held
from console.run.guard_look import breach_of, with_loads
from tests.viewer.guard_ring import GIB, KILL_S, WALL, breach, record, run_of

RECORDS: list[dict[str, Any]] = [
    {"wall": 1.0, "loads": [{"name": "cand", "ram": 10}, {"name": "other", "ram": 7}]},
    {"wall": 2.0, "loads": [{"name": "cand", "ram": None}]},
    {"wall": 3.0, "loads": "garbage"},
    {"wall": 4.0, "loads": [{"name": "cand", "ram": 90}]},
]


def test_a_gap_is_a_gap() -> None:
    assert list(curve(RECORDS, "cand")) == [(1.0, 10.0), (2.0, None), (4.0, 90.0)]
    assert list(curve(RECORDS, "nobody")) == []


@pytest.mark.parametrize(
    ("victim", "found", "size"),
    [
        ({"name": "cand (pid 3)"}, {"at": 3.5}, 10),
        ({"name": "cand (pid 3)"}, {"at": 5.0}, 90),
        ({"name": "cand (pid 3)", "ram": 33}, {"at": 5.0}, 33),
        ({"name": "strays"}, {}, None),
        ({"name": None}, {"at": "x"}, None),
    ],
)
def test_what_a_victim_held(
    victim: dict[str, Any], found: dict[str, Any], size: float | None
) -> None:
    assert held(victim, RECORDS, found) == size


def test_the_figure_that_broke_the_limit_is_the_newest() -> None:
    found = {"limit": {"metric": "service.ram_used"}, "of": "cand", "value": 120, "at": 4.5}
    assert cause(found) == "cand"
    assert held({"name": "cand (pid 3)"}, RECORDS, found) == 120
    assert held({"name": "other (pid 4)"}, RECORDS, found) == 7
    assert cause({"limit": {"metric": "disk.free"}, "of": "/"}) == ""


def test_the_journal_keeps_it(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run-1a2b")
    record(run)
    limit = {"metric": "service.ram_used", "above": 70 * GIB, "of": "candidate"}
    breach(run, limit=limit, value=74.5 * GIB)
    found = breach_of(run)
    assert found is not None
    data = with_loads(run, found.data)
    (killed,) = data["killed"]
    assert killed["ram"] == 74.5 * GIB
    assert data["load"]["name"] == "candidate"
    assert [WALL + KILL_S, 74.5 * GIB] in data["load"]["rows"]
    times = [at for at, _ in data["load"]["rows"]]
    assert times == sorted(times)
