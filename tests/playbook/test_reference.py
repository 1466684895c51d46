"""The format's description is what the models say; the walk through a playbook can be walked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from console.cli import main
from console.config.playbook.kinds import WRITTEN
from console.config.playbook.load import load_playbook
from console.config.playbook.playbook import reference

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
    demo = frozenset({"fast", "slow"})
    assert load_playbook(path, site_services=demo).name == "my-trial"
    head, tail = blocks[0].split("phases:")
    path.write_text(
        f"{head}{blocks[1]}phases:{tail.replace('${{ inputs.candidate }}', 'candidate')}"
    )
    assert load_playbook(path).services()["candidate"].exclusive
