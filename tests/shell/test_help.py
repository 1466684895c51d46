"""`--help` and the manual page: under headings, whole, and nothing of what no person types."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from console.cli import main
from console.frontends.cli.arguments import HEADINGS, described
from console.frontends.cli.parser import HIDDEN
from console.frontends.cli.shell.manual import page

COMMANDS = Path(__file__).parents[2] / "docs/reference/commands.md"
Capture = pytest.CaptureFixture[str]


def helped(capsys: Capture, *argv: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_every_command_stands_under_one_heading(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    named = [name for names in HEADINGS.values() for name in names]
    assert sorted(named) == sorted(described())
    lines = helped(capsys).splitlines()
    for heading, names in HEADINGS.items():
        at = lines.index(f"{heading}:") + 1
        assert [line.split()[0] for line in lines[at : at + len(names)]] == list(names)
        assert lines[at + len(names)] == ""
    assert "More:" not in lines


def test_what_no_person_types_is_nowhere(capsys: Capture) -> None:
    told = helped(capsys) + helped(capsys, "completion") + "\n".join(page())
    for argv in (["zzzz"], ["completion", "zzzz"]):
        with pytest.raises(SystemExit):
            main(argv)
        told += capsys.readouterr().err
    assert "there is no command 'zzzz'" in told
    for name in HIDDEN:
        assert f"'{name}'" not in told
        assert f"\n  {name} " not in told
        assert f"omni\\-console {name}" not in told


def test_help_is_as_wide_as_there_is_room(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    whole = helped(capsys, "run")
    assert max(map(len, whole.splitlines())) > 120, "a pipe gets whole lines"
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, helped(capsys, "run").splitlines())) <= 60
    assert len(helped(capsys, "run").splitlines()) > len(whole.splitlines())


def test_the_manual_page_has_every_command_and_option(capsys: Capture) -> None:
    assert main(["man"]) == 0
    text = capsys.readouterr().out.replace("\\-", "-")
    for name, words in described().items():
        assert f".B omni-console {name}" in text
        assert words in text
    assert "SUPPRESS" not in text
    for part in ("--rehearse", ".SH EXIT STATUS", "/etc/omni-console/site.yaml", "--prefer"):
        assert part in text


def test_the_page_of_commands_has_every_one() -> None:
    text = COMMANDS.read_text("utf-8")
    assert [name for name in described() if not re.search(rf"`{name}[` ]", text)] == []


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_the_manual_page_is_read_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings=w", "-l", "-"], input="\n".join(page()).encode(), capture_output=True,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"bring the baseline back, now; nothing is deleted" in done.stdout
