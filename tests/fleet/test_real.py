"""The fleet over real ssh: a rollout with real baselines."""

import pytest

from tests.fleet.hosts import Operator
from tests.runner.e2e.sites import REPORT, UP, book

pytestmark = [pytest.mark.full, pytest.mark.alone]

SAY = 'id: say, run: [cat, rate], outputs: {rate: {pattern: "rate: ([0-9.]+)", unit: tok/s}}'
JUDGE = 'id: go, gate: [{metric: say.rate, go: ">= 20 tok/s", no_go: "< 10 tok/s"}]'


@pytest.mark.parametrize("operator", [("a", "b", "c")], indirect=True)
def test_a_rollout_stops_at_the_first_no_go_with_every_baseline_serving(operator: Operator) -> None:
    for name, rate in {"a": 50, "b": 40, "c": 5}.items():
        operator.boxes[name].world.write("rate", f"rate: {rate}\n")
    trial = operator.write("trial.yaml", book(UP, SAY, JUDGE, final=REPORT))
    named = [f"{name}: {{command: {box.command}}}" for name, box in operator.boxes.items()]
    named.append(f"d: {{ssh: a, command: {operator.boxes['a'].command}}}")
    text = f"schema: omni.fleet/v1\nhosts: {{{', '.join(named)}}}\n"
    (operator.root / "config/omni-console/fleet.yaml").write_text(text)
    done = operator.fleet("run", trial, "--on", "all", "--yes", "--json")
    assert done.code == 3, done
    legs = [(leg["host"], bool(leg["run"]), leg["exit_code"]) for leg in done.json["hosts"]]
    assert legs == [("a", True, 0), ("b", True, 0), ("c", True, 3), ("d", False, None)]
    assert "stopped at c: not begun on d" in done.err
    assert "lease      30 min" in done.err, "a run that takes the baseline down has a lease"
    assert [len(box.world.runs) for box in operator.boxes.values()] == [1, 1, 1]
    assert all(box.world.serves() for box in operator.boxes.values())
    told = operator.fleet("report").out
    assert [row.count("NO-GO") for row in told.splitlines()[2:]][:3] == [0, 0, 2]
    rows = {row["host"]: row for row in operator.fleet("--json").json["hosts"]}
    assert {name: row["state"]["baseline"]["word"] for name, row in rows.items()} == dict.fromkeys(
        "abcd", "serving"
    )
    assert rows["c"]["state"]["run"]["decision"] == "NO-GO"
