"""The example of the format's page as `plan` shows it, the page itself, and each kind of step."""

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from console.cli import main
from console.common.errors import Exit
from console.config.candidates import CANDIDATES
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import reference
from console.config.playbook.steps import KINDS, WRITTEN, Step
from console.journal.state import ASKING, JUDGING
from console.runner.executors import executor

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
def site(tmp_path: Path) -> str:
    path = tmp_path / "site.yaml"
    path.write_text(SITE)
    return str(path)


def test_secrets_are_named_and_never_read(
    site: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hunter2-hunter2")
    main(["plan", str(EXAMPLE), "--site", site])
    out = capsys.readouterr().out
    assert "<secret hf_token>" in out
    assert "hunter2" not in out


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


def test_inputs_are_checked_and_reach_the_url(
    site: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for port in ("80", "http", "65536"):
        assert main(["plan", str(EXAMPLE), "--site", site, "--input", f"port={port}"]) == Exit.USAGE
        assert "'port'" in capsys.readouterr().err
    assert main(["plan", str(EXAMPLE), "--site", site, "--input", "port=9001"]) == Exit.OK
    assert "http://127.0.0.1:9001/health" in capsys.readouterr().out


DOCS = Path(__file__).parents[2] / "docs"


def test_the_file_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out == (DOCS / "reference" / "format.md").read_text(), (
        "omni-console schema --markdown > docs/reference/format.md"
    )


def test_every_kind_and_every_link_leads_somewhere() -> None:
    text = reference()
    step = text.split("\n## step\n")[1].split("\n## ")[0]
    assert [kind for kind in WRITTEN if f"| `{kind}` |" not in step] == []
    titles = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert len(titles) == len(set(titles)) > 25
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()) for title in titles}
    assert [link for link in re.findall(r"\(#(.+?)\)", text) if link not in anchors] == []


def test_the_walked_playbook_loads(tmp_path: Path) -> None:
    text = (DOCS / "tutorial" / "write-a-playbook.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "my-trial.yaml"
    path.write_text(blocks[0])
    demo = frozenset(CANDIDATES)
    assert load_playbook(path, site_services=demo).name == "my-trial"
    head, tail = blocks[0].split("phases:")
    path.write_text(
        f"{head}{blocks[1]}phases:{tail.replace('${{ inputs.candidate }}', 'candidate')}"
    )
    assert load_playbook(path).services()["candidate"].exclusive


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


@pytest.mark.parametrize("kind", WRITTEN)
def test_each_has_a_row_of_the_table(kind: str) -> None:
    page = (DOCS / "reference" / "playbooks.md").read_text()
    table = page.partition("| kind | what it does |\n")[2].partition("\n\n")[0]
    assert any(f"`{kind}`" in row.split("|")[1] for row in table.splitlines())


def test_viewers_know_who_asks_and_who_judges_without_the_models() -> None:
    assert {name for name, kind in KINDS.items() if kind.asks} == ASKING
    assert {name for name, kind in KINDS.items() if kind.judges} == JUDGING


@pytest.mark.parametrize(("what", "key"), [("playbook", "phases"), ("site", "baseline")])
def test_editors_get_a_schema_of_both_files(
    what: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", what]) == 0
    found = json.loads(capsys.readouterr().out)
    assert key in found["required"]
    assert found["additionalProperties"] is False


def test_the_page_of_the_site_is_written_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "site", "--markdown"]) == 2
    assert "site.md" in capsys.readouterr().err
