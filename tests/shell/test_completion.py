"""Real shells complete commands, options, and what this machine has; no name is taken for more."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from console.cli import main
from console.common import paths
from console.config.locate import shipped
from console.frontends.cli.commands import HIDDEN
from console.frontends.cli.parser import parser_for
from console.frontends.cli.shell.completion import made
from console.frontends.cli.shell.values import KINDS, SAFE
from tests.waiting import until

RUN = "20260125-221000-demo-ab12"
Offers = Callable[..., list[str]]

DRIVER = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(( $# - 1 )); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
_omni_console omni-console "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
HOSTILE = """\
schema: omni.playbook/v1
name: hostile
title: x
inputs:
  good: {type: choice, choices: [a, "$(touch TOUCHED)"]}
  "$(touch TOUCHED)": {type: string}
  "two words": {type: string}
phases: [{title: p, steps: [{id: a, note: b}]}]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a run, a playbook, a lesson and a site, and the command in the PATH."""
    for part in ("STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{part}_HOME", str(tmp_path / part.lower()))
    for name in ("OMNI_SITE", "OMNI_FLEET"):
        monkeypatch.delenv(name, raising=False)
    run = paths.runs_dir() / RUN
    for name in ("logs/candidate.log", "attempts/bench.1.log"):
        (run / name).parent.mkdir(parents=True)
        (run / name).touch()
    shutil.copy(shipped() / "demo.yaml", run / "playbook.yaml")
    mine = paths.config_dir() / "playbooks"
    mine.mkdir(parents=True)
    shutil.copy(shipped() / "demo.yaml", mine / "my-trial.yaml")
    paths.lessons_dir().mkdir()
    (paths.lessons_dir() / "F-900.yaml").touch()
    (paths.config_dir() / "site.yaml").write_text("services: {engine: {}, other: {}}\n")
    (paths.config_dir() / "fleet.yaml").write_text("hosts: {boxa: {}, boxb: {}, my-box: {}}\n")
    (tmp_path / "more.yaml").write_text("hosts: {far: {}}\n")
    command = tmp_path / "bin/omni-console"
    command.parent.mkdir()
    here = Path(__file__).parents[2]
    command.write_text(f'#!/bin/sh\nPYTHONPATH={here} exec {sys.executable} -m console.cli "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bash(place: Path) -> Offers:
    """What bash offers for the last of the words; `=` and `:` are words of their own there."""
    (place / "script").write_text(made("bash"))

    def ask(*words: str) -> list[str]:
        done = subprocess.run(
            ["bash", "--norc", "-c", DRIVER, "bash", str(place / "script"), "omni-console", *words],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ru"], ["run", "runs"]),
        (["check", ""], ["gguf", "checkpoint", "host", "build", "contract", "imports"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["run", "demo", "--det"], ["--detach"]),
        (["tell", "ab12", "ap"], ["approve"]),
        (["show", ""], [RUN]),
        (["report", RUN, ""], [RUN]),
        (["logs", "--run", ""], [RUN]),
        (["logs", ""], ["candidate", "bench"]),
        (["resume", "--from", "b"], ["bench"]),
        (["run", "my-"], ["my-trial"]),
        (["run", "baseline-v"], ["baseline-verify"]),
        (["lessons", "F-9"], ["F-900"]),
        (["tune", "--service", ""], ["baseline", "engine", "other"]),
        (["bisect", "demo", "--over", ""], ["candidate", "go", "no_go", "runs"]),
        (["run", "demo", "--input", "c"], ["candidate="]),
        (["run", "demo", "--input", "candidate", "="], ["fast", "slow", "garbled"]),
        (["run", "demo", "--input", "candidate", "=", "s"], ["slow"]),
        (["run", "demo", "--input", "candidate", "=", "slow", "--y"], ["--yes"]),
        (["run", "--input", "candidate", "=", "slow", "my-"], ["my-trial"]),
        (["run", "baseline-verify", "--input", "reports", "=", "bi"], ["bin/"]),
        (["schema", ""], ["playbook", "site", "fleet"]),
        (["fleet", "rollback", ""], ["boxa", "boxb", "my-box"]),
        (["fleet", "rollback", "boxb,"], ["boxb,boxa", "boxb,my-box"]),
        (["fleet", "tell", "my"], ["my-box"]),
        (["fleet", "tell", "boxa", "ap"], ["approve"]),
        (["fleet", "run", "my-"], ["my-trial"]),
        (["fleet", "run", "demo", "--on", ""], ["all", "boxa", "boxb", "my-box"]),
        (["fleet", "run", "demo", "--on", "boxb,b"], ["boxb,boxa"]),
        (["fleet", "run", "--fleet", "more.yaml", "--on", "f"], ["far"]),
    ],
    ids=lambda words: " ".join(words),
)  # fmt: skip
def test_bash(bash: Offers, words: list[str], expected: list[str]) -> None:
    assert bash(*words) == expected


def test_bash_at_a_terminal(place: Path) -> None:
    """The Tab key itself: a whole word is followed by a space, and `NAME=` is not."""
    (place / "script").write_text(made("bash"))
    shell = pexpect.spawn("bash", ["--norc", "-i"], encoding="utf-8", dimensions=(50, 200))
    try:
        shell.sendline(f"PS1='$ '; bind 'set bell-style none'; source {place}/script; echo rea''dy")
        shell.expect("ready")
        shell.send("omni-console run demo --input cand\tfa\t--ye\t# end")
        shell.expect(re.escape("omni-console run demo --input candidate=fast --yes # end"))
    finally:
        shell.close(force=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish(place: Path) -> None:
    (place / "script").write_text(made("fish"))

    def ask(line: str) -> list[str]:
        done = subprocess.run(
            ["fish", "--no-config", "-c", f"source {place}/script; complete -C '{line}'"],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.stderr == ""
        return [one.split("\t")[0] for one in done.stdout.splitlines()]

    assert ask("omni-console rol") == ["rollback"]
    assert ask("omni-console show ") == [RUN]
    assert ask("omni-console run my-") == ["my-trial"]
    assert ask("omni-console fleet rollback my") == ["my-box"]
    assert ask("omni-console fleet tell boxb") == ["boxb"]
    assert sorted(ask("omni-console fleet run demo --on boxb,")) == ["boxb,boxa", "boxb,my-box"]
    assert ask("omni-console run demo --input ca") == ["candidate="]
    assert sorted(ask("omni-console run demo --input candidate=")) == [
        "candidate=fast", "candidate=garbled", "candidate=slow",
    ]  # fmt: skip
    assert set(HIDDEN) & set(ask("omni-console ")) == set()


ZSH = """
PS1='$ '; fpath=({place} $fpath); autoload -Uz compinit; compinit -u -D
say() {{ print -r -- "$BUFFER|" >>{place}/said; zle kill-buffer }}
zle -N say; bindkey '^T' say
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh(place: Path) -> None:
    (place / "_omni-console").write_text(made("zsh"))
    (place / "rc").write_text(ZSH.format(place=place))
    said = place / "said"
    shell = pexpect.spawn("zsh", ["-f", "-i"], env={**os.environ, "TERM": "dumb"})
    try:
        shell.sendline(f"source {place}/rc; touch {said}")
        until(said.exists)
        for typed in ("rol\t", "show \t", "run my-\t", "run demo --input cand\tfa\t",
                      "fleet rollback my\t", "fleet run demo --on boxb,my\t"):  # fmt: skip
            before = said.read_text()
            shell.send(f"omni-console {typed}\x14")
            until(lambda before=before: said.read_text() != before)
    finally:
        shell.close(force=True)
    assert said.read_text().splitlines() == [
        "omni-console rollback |", f"omni-console show {RUN} |", "omni-console run my-trial |",
        "omni-console run demo --input candidate=fast |",
        "omni-console fleet rollback my-box |",
        "omni-console fleet run demo --on boxb,my-box |",
    ]  # fmt: skip


def test_no_shell_runs_what_a_name_says(
    bash: Offers, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "hostile.yaml").write_text(HOSTILE)
    (paths.runs_dir() / "$(touch TOUCHED)").mkdir()
    (paths.runs_dir() / "a;b").mkdir()
    hosts = 'schema: x\nhosts: {"$(touch TOUCHED)": {}, "a;b": {}, fine: {}, 7: {}}\n'
    (paths.config_dir() / "fleet.yaml").write_text(hosts)
    assert bash("run", "hostile.yaml", "--input", "") == ["good="]
    assert bash("run", "hostile.yaml", "--input", "good", "=") == ["a"]
    assert bash("show", "") == [RUN]
    assert bash("fleet", "rollback", "") == ["fine", "7"]
    assert not (place / "TOUCHED").exists()


@pytest.mark.usefixtures("place")
def test_values_never_fail(capsys: pytest.CaptureFixture[str]) -> None:
    """In the middle of a line nobody wants an error: whatever is broken, nothing is offered."""
    (paths.config_dir() / "site.yaml").write_text("{[")
    (paths.config_dir() / "playbooks/broken.yaml").write_bytes(b"\xff\xfe{")
    assert main(["completion", "values", "services", "", "omni-console"]) == 0
    assert capsys.readouterr() == ("", "")
    for words in (["nope"], ["inputs", "", "omni-console", "run", "broken"], ["inputs"],
                  ["inputs", "--json", "--", "-x"], ["steps", "", "no-such-run"]):  # fmt: skip
        assert main(["completion", "values", *words]) == 0
        assert capsys.readouterr().err == ""
    for kind in KINDS:
        main(["completion", "values", kind, ""])
        assert all(SAFE.fullmatch(one) for one in capsys.readouterr().out.split())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed_and_offers_nothing_internal(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "rollback" in out
    for name in ("_omni_console_runner", "ready-fd", "omni_console_completion_values"):
        assert name not in out


def test_every_argument_says_what_it_is() -> None:
    """In `--help`, in the manual page, and beside what a shell offers."""

    def silent(parser: object, name: str) -> list[str]:
        found = []
        for action in parser._actions:  # type: ignore[attr-defined]
            if isinstance(action.choices, dict):
                for one, inner in action.choices.items():
                    if one not in HIDDEN:
                        found += silent(inner, f"{name} {one}")
            elif not action.help:
                found.append(f"{name} {action.metavar or action.dest}")
        return found

    assert silent(parser_for([]), "omni-console") == []
