"""Of which machine something is known, and the objects in which the commands print it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.common import paths
from console.fleet.inventory import Host, load_fleet
from console.fleet.known import Known, last
from tests.fleet.far import documented
from tests.fleet.standin import STATE, ToldHost
from tests.wrong_files import wrong_files


def test_what_was_known_of_a_name_is_not_known_of_another_machine(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["fleet"]) == 0
    assert "serving" in capsys.readouterr().out
    fars["a"].lose = ["state"]
    assert main(["fleet"]) == 4
    assert "serving ?" in capsys.readouterr().out
    for other in ("ssh: nowhere.example", "command: /opt/omni"):
        (tmp_path / "fleet.yaml").write_text(f"schema: omni.fleet/v1\nhosts: {{a: {{{other}}}}}\n")
        fars["a"].host = load_fleet(None).hosts[0]
        fars["a"].lose = ["state"]
        assert main(["fleet", "--json"]) == 4
        (told,) = json.loads(capsys.readouterr().out)["hosts"]
        assert (told["known_at"], told["state"], told["back_at"]) == (None, None, None)
    assert last(Host("a", "a")).at
    assert main(["fleet"]) == 0
    assert not last(Host("a", "a")).at, "it answers under another name now"


@pytest.mark.parametrize(
    ("word", "alive", "code"),
    [("down", False, 5), ("garbled", False, 5), ("down", True, 0), ("loading", False, 0)],
)
def test_a_baseline_that_is_down_without_a_run_is_no_success(
    fars: dict[str, ToldHost], word: str, alive: bool, code: int
) -> None:
    """`omni-console fleet && …` went on though a host had no baseline."""
    run = {**STATE["run"], "alive": alive}
    fars["a"].state_told = {**STATE, "baseline": {"word": word}, "run": run}
    assert main(["fleet"]) == code
    fars["a"].lose = ["state"]
    assert main(["fleet"]) == 4, "what is not known comes first"


def test_a_wrong_file_of_a_host_leaves_it_unknown_or_without_its_state(
    fars: dict[str, ToldHost],
) -> None:
    assert main(["fleet"]) == 0
    host = load_fleet(None).hosts[0]
    (path,) = (paths.fleet_dir() / "hosts").glob("a.json")
    before = last(host)
    for key, text in wrong_files(path.read_text(), leave="state"):
        path.write_text(text)
        kept = replace(before, state={}) if key == "state" else Known(host.name)
        assert last(host) == kept, key


def test_every_field_of_an_object_is_documented(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*words: str) -> dict[str, Any]:
        main(["fleet", *words, "--json"])
        (line,) = capsys.readouterr().out.splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    rolled = told("rollback", "a")
    fars["a"].lose = ["open"]
    lost = told("rollback", "a")
    for words, found in (
        ("fleet", told()), ("fleet rollback", rolled), ("fleet rollback", lost),
        ("fleet tell", told("tell", "a", "approve")),
        ("fleet run", told("run", "trial.yaml", "--on", "a", "--yes")),
        ("fleet report", told("report")),
    ):  # fmt: skip
        rows = [*found.get("hosts", []), *found.get("runs", [])]
        named = documented("reference/commands.md", words)
        assert {key for one in (found, *rows) for key in one} - named == set(), words
        assert rows or words == "fleet tell"


@pytest.mark.parametrize("lease_s", [1e17, -1e17])
def test_no_lease_of_one_host_keeps_the_others_from_the_table(
    fars: dict[str, ToldHost], capsys: pytest.CaptureFixture[str], lease_s: float
) -> None:
    """No calendar has such a time; it is kept on disk, so that each later call met it again."""
    fars["a"].state_told = {**STATE, "guard": {"lease_s": lease_s}}
    assert main(["fleet"]) == 0
    fars["a"].lose = ["state", "open"]
    assert main(["fleet"]) == 4
    assert "b     serving" in capsys.readouterr().out
    assert main(["fleet", "rollback", "--all", "--json"]) == 7
    assert [one["host"] for one in json.loads(capsys.readouterr().out)["hosts"]] == ["a", "b"]
