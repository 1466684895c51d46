"""The example of the format's description: what `plan` says about it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from console.cli import main
from console.errors import Exit

EXAMPLE = Path(__file__).parent / "data" / "example.yaml"
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: omni-baseline, url: "http://127.0.0.1:8000"}
"""
ROWS = [
    "build", "kernels", "baseline:measure", "baseline:stop", "up", "bench", "go", "soak",
    "stable", "cutover", "baseline:restore-1", "restore", "baseline:measure-again", "report",
]  # fmt: skip
DOWN = ["baseline:stop", "up", "bench", "go", "soak", "stable", "cutover"]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return str(path)


@pytest.fixture
def shown(site: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(["plan", str(EXAMPLE), "--site", site]) == Exit.OK
    return capsys.readouterr().out.splitlines()


def marked(shown: list[str], mark: str) -> list[str]:
    rows = (re.match(rf"{re.escape(mark)} *\d+\. ([\w:-]+): ", line) for line in shown)
    return [row[1] for row in rows if row]


def test_every_row_is_there_in_order_with_the_outage_marked(shown: list[str]) -> None:
    assert marked(shown, "!") == ["baseline:stop"]
    assert marked(shown, "│") == DOWN[1:]
    assert marked(shown, "") == [row for row in ROWS if row not in DOWN]
    (words,) = [line for line in shown if "THE BASELINE STOPS HERE" in line]
    assert words.startswith("!")
    assert "candidate needs its GPU memory; its restore time has not been measured" in words
    words = "DOWN from baseline:stop to the end of cutover; rows marked │"
    assert f"  baseline   {words}" in shown


def test_the_argv_is_what_would_run(shown: list[str]) -> None:
    assert "        $ cmake --build build -j" in shown
    compose = next(line for line in shown if "docker compose" in line)
    stack = EXAMPLE.parent / "stack" / "omni-stack.yaml"
    assert f"$ docker compose -f {stack} -f OVERRIDE --profile phase2-sandbox up -d" in compose
    assert compose.endswith("--no-deps --no-build --pull never --no-recreate deepseek-v32-ik")
    assert any("`cuobjdump build/bin/libggml-cuda.so` matches sm_120" in line for line in shown)


def test_secrets_are_named_and_never_read(
    site: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2-hunter2")
    main(["plan", str(EXAMPLE), "--site", site])
    out = capsys.readouterr().out
    assert "<secret hf_token>" in out
    assert "hunter2" not in out


def test_the_cutover_says_where_clients_go(shown: list[str]) -> None:
    (words,) = [line for line in shown if "CLIENTS REACH" in line]
    assert words.startswith("│")
    assert words.endswith("a relay hands 127.0.0.1:8000 to it (127.0.0.1:8001)")
    at = shown.index(words)
    assert any("then goes back" in line for line in shown[at : at + 8])


def test_the_same_as_json(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(EXAMPLE), "--site", site, "--json"]) == Exit.OK
    plan = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in plan["steps"]] == ROWS
    assert [row["id"] for row in plan["steps"] if row["baseline_down"]] == DOWN
    assert [row["id"] for row in plan["steps"] if row["implicit"]] == [
        "baseline:measure", "baseline:stop", "baseline:restore-1", "restore",
        "baseline:measure-again",
    ]  # fmt: skip
    assert plan["takes_baseline_down"] is True


def test_lint_finds_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lint", str(EXAMPLE)]) == Exit.OK


@pytest.mark.parametrize("given", ["port=80", "port=http", "port=65536"])
def test_inputs_are_checked(site: str, capsys: pytest.CaptureFixture[str], given: str) -> None:
    assert main(["plan", str(EXAMPLE), "--site", site, "--input", given]) == Exit.USAGE
    assert "input 'port' given is" in capsys.readouterr().err


def test_the_port_reaches_the_url(site: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", str(EXAMPLE), "--site", site, "--input", "port=9001"])
    assert "ready when http://127.0.0.1:9001/health" in capsys.readouterr().out


def test_lint_of_what_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["lint", str(tmp_path / "nope.yaml"), str(EXAMPLE)]) == Exit.USAGE
    assert "nope.yaml" in capsys.readouterr().out
