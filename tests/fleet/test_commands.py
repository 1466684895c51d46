"""The operator's commands over a line that the test holds: what is confirmed, sent and said, and
the exit codes."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.fleet import known
from console.fleet.inventory import Host
from console.fleet.known import last, remember
from console.fleet.protocol import BridgeError, LineLost
from console.frontends.cli.fleet import commands, rollout
from tests.clock import FakeClock
from tests.fleet.test_rollout import FarHost

Json = dict[str, Any]
BOOK = "schema: omni.playbook/v1\nname: trial\ntitle: T\nphases: []\n"
SEEN = {"step": "sure", "attempt": 1, "evidence": "e"}
STATE: Json = {
    "baseline": {"word": "serving"}, "guard": {"lease_s": 60.0},
    "run": {"id": "run-a", "alive": True, "outage": True, "status": {**SEEN, "state": "x"}},
}  # fmt: skip


class Typed(io.StringIO):
    """What a person types, or nobody."""

    def __init__(self, text: str | None) -> None:
        super().__init__(text or "")
        self._there = text is not None

    def isatty(self) -> bool:
        return self._there


class Far(FarHost):
    """A host as the commands reach it. `told`: what acts, as it came; `lost`: the question at which
    the line breaks."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.told: list[Json] = []
        self.rolled: Json | BridgeError = {"exit": 0, "results": [{"serving": True}]}

    def open(self) -> "Far":
        self._line("open")
        return self

    def _state(self, asked: Json) -> Json:
        return STATE

    def _ready(self, asked: Json) -> Json:
        return {"token": "t"}

    def _tell(self, asked: Json) -> Json:
        self.told.append(asked)
        return {"status": {"step": "sure"}}

    def _rollback(self, asked: Json) -> Json:
        self.told.append(asked)
        if isinstance(self.rolled, BridgeError):
            raise self.rolled
        return self.rolled


@pytest.fixture
def fars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Far]:
    for name in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("OMNI_FLEET", str(tmp_path / "fleet.yaml"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.yaml").write_text("schema: omni.fleet/v1\nhosts: {a: {}, b: {}}\n")
    (tmp_path / "trial.yaml").write_text(BOOK)
    made = {name: Far(name) for name in "ab"}

    def line(host: Host, control: object) -> Far:
        return made[host.name]

    for module in (commands, rollout, known):
        monkeypatch.setattr(module, "Line", line)
    monkeypatch.setattr(sys, "stdin", Typed(None))
    monkeypatch.setattr(rollout, "SystemClock", FakeClock)
    return made


@pytest.mark.parametrize(
    ("typed", "code", "begun"),
    [("abababab\n", 0, 1), ("\n", 5, 0), ("abababa\n", 5, 0), ("y\n", 5, 0), ("", 5, 0)],
)
def test_a_plan_is_taken_by_its_hash_alone(
    fars: dict[str, Far], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    typed: str, code: int, begun: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    assert main(["fleet", "run", "trial.yaml", "--on", "a"]) == code
    assert fars["a"].begun == begun
    said = capsys.readouterr()
    assert "plan of a\nplan abababab of a" in said.out
    assert "type abababab to start it on a" in said.err


def test_nobody_at_a_terminal_takes_no_plan(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "run", "trial.yaml", "--on", "a"]) == 2
    assert "--yes takes it" in capsys.readouterr().err
    assert fars["a"].begun == 0


def test_a_rollout_without_questions_prints_one_object(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].verdict = "HOLD"
    assert main(["fleet", "run", "trial.yaml", "--on", "all", "--yes", "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert [(x["host"], x["run"], x["exit_code"]) for x in told["hosts"]] == [
        ("a", "run-a", 0), ("b", "run-b", 4),
    ]  # fmt: skip
    assert fars["a"].plans[0]["yes"] is True


@pytest.mark.parametrize(
    "words", [["--on", "c"], ["--on", ""], ["--on", "a", "--lease", "0"], ["--on", "a,a"]]
)
def test_what_cannot_be_meant_asks_no_host(fars: dict[str, Far], words: list[str]) -> None:
    assert main(["fleet", "run", "trial.yaml", "--yes", *words]) == 2
    assert fars["a"].asked == []


def test_the_table_keeps_what_was_known_of_a_host_that_does_not_answer(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet"]) == 0
    fars["b"].lose = ["open"]
    assert main(["fleet", "--json"]) == 4
    rows = {
        row["host"]: row for row in json.loads(capsys.readouterr().out.splitlines()[-1])["hosts"]
    }
    assert [rows[name]["answered"] for name in "ab"] == [True, False]
    assert rows["b"]["state"]["baseline"]["word"] == "serving"
    assert rows["b"]["known_at"] == last("b").at


def test_a_verb_is_bound_to_what_the_host_said(fars: dict[str, Far]) -> None:
    assert main(["fleet", "tell", "a", "approve", "--reason", "fine", "--confirm", "word"]) == 0
    (told,) = fars["a"].told
    assert (told["run"], told["seen"], told["why"], told["confirm"]) == (
        "run-a", SEEN, "fine", "word",
    )  # fmt: skip


def test_a_rollback_waits_for_each_host_and_ends_with_the_worst(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["b"].rolled = {"exit": 7, "results": []}
    assert main(["fleet", "rollback", "--all", "--json"]) == 7
    told = json.loads(capsys.readouterr().out)["hosts"]
    assert [(one["host"], one["exit_code"]) for one in told] == [("a", 0), ("b", 7)]
    assert main(["fleet", "rollback"]) == 2
    assert main(["fleet", "rollback", "a", "--all"]) == 2


@pytest.mark.parametrize(
    ("lost", "words", "asked"),
    [
        ("open", "nothing was asked of it", 0), ("ready", "nothing was asked of it", 0),
        ("rollback!", "its rollback goes on there", 1),
    ],
)  # fmt: skip
def test_a_rollback_without_a_line_says_what_is_known_and_waits_for_nothing(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str], lost: str, words: str, asked: int
) -> None:
    remember("a", STATE, 1_000.0)
    fars["a"].lose = [lost]
    assert main(["fleet", "rollback", "a"]) == 7
    said = capsys.readouterr().out
    assert words in said
    assert "by the lease of run run-a" in said
    assert len(fars["a"].told) == asked


def test_a_console_without_a_bridge_names_the_way_by_hand(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    fars["a"].rolled = BridgeError("version", "a: its console has no bridge")
    assert main(["fleet", "rollback", "a"]) == 7
    assert "by hand: ssh a omni-console rollback" in capsys.readouterr().out


def test_a_report_says_who_decided_where(
    fars: dict[str, Far], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "report"]) == 2, "there was no rollout yet"
    main(["fleet", "run", "trial.yaml", "--on", "all", "--yes"])
    capsys.readouterr()
    fars["b"].lose = ["open"]
    assert main(["fleet", "report"]) == 0
    _, _, a, b, *_ = capsys.readouterr().out.splitlines()
    assert a.startswith("| a | `run-a` |")
    assert "| GO |" in a
    assert "gate g: GO" in a
    assert "no route" in b


def test_a_line_that_is_lost_is_no_failure_of_the_host() -> None:
    assert LineLost("x").exit_code == 4
