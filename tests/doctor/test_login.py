"""Terminal, locale and what a login leaves behind; the descriptors are tested in a real pty."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.doctor import login
from console.doctor.model import Level
from console.run import launch
from console.run.launch import Detachment
from tests.doctor.conftest import Look


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(login, "on_terminal", lambda: True)
    return monkeypatch


def test_interpreter_and_console(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = look("login.python")
    assert (found.level, "omni-console" in found.detail) == (Level.OK, True)
    monkeypatch.setattr(login, "OLDEST_PYTHON", (9, 0))
    assert look("login.python")[0].level is Level.FAILED


@pytest.mark.parametrize(
    ("term", "level", "said"),
    [
        ("dumb", Level.WARNING, "TERM=dumb: it does not say"),
        ("", Level.WARNING, "TERM=(empty)"),
        ("no-such-terminal", Level.NOTE, "not in this machine's terminfo"),
        ("../../etc", Level.NOTE, "not in this machine's terminfo"),
        ("xterm-256color", Level.OK, "TERM=xterm-256color, 256 colours"),
    ],
)
def test_the_terminals_name(
    tmp_path: Path, tty: pytest.MonkeyPatch, look: Look, term: str, level: Level, said: str
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "xterm-256color").touch()
    tty.setenv("TERMINFO", str(tmp_path))
    tty.setenv("TERM", term)
    tty.delenv("COLORTERM", raising=False)
    (found,) = look("login.terminal")
    assert (found.level, found.detail.startswith(said) or said in found.detail) == (level, True)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"TERM": "xterm"}, "16 colours"),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, "16 million colours"),
        ({"TERM": "xterm-direct"}, "16 million colours"),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, "no colours (NO_COLOR is set)"),
    ],
)
def test_colours(env: dict[str, str], said: str) -> None:
    assert login.colours(env).startswith(said)


@pytest.mark.parametrize(
    ("env", "first", "name"),
    [
        ({"LANG": "de_DE.UTF-8"}, {}, "de_DE.UTF-8"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, {}, "C"),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LANG": "C"}, "C"),
        ({"LC_CTYPE": "C.UTF-8"}, {}, ""),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LC_CTYPE": "C.UTF-8"}, "C.UTF-8"),
        ({"LANG": "C", "LC_CTYPE": "de_DE.UTF-8"}, {}, "de_DE.UTF-8"),
        ({}, {}, ""),
    ],
)
def test_the_locale_that_the_operator_chose(
    env: dict[str, str], first: dict[str, str], name: str
) -> None:
    assert login.locale_of(env, first) == name


@pytest.mark.parametrize(("lang", "level"), [("C", Level.NOTE), ("C.utf8", Level.OK)])
def test_text(monkeypatch: pytest.MonkeyPatch, look: Look, lang: str, level: Level) -> None:
    monkeypatch.setenv("LC_ALL", lang)
    (found,) = look("login.text")
    assert (found.level, "ASCII" in found.detail) == (level, level is Level.NOTE)


@pytest.mark.parametrize(
    ("env", "warning", "level", "said"),
    [
        ({"TMUX": "/tmp/t", "SSH_TTY": "/dev/pts/1"}, "", Level.OK, "inside tmux: screens"),
        ({"TMUX": "/tmp/t"}, "ends; x", Level.NOTE, "inside tmux; what logind does"),
        ({"STY": "1.x"}, "", Level.OK, "inside screen: screens and runs survive"),
        ({"SSH_CONNECTION": "a"}, "", Level.NOTE, "a run survives a lost line anyway"),
        ({"SSH_CONNECTION": "a"}, "ends; x", Level.NOTE, "ssh without tmux; what logind does"),
        ({}, "ends; x", Level.OK, "local"),
    ],
)
def test_the_line(
    monkeypatch: pytest.MonkeyPatch, look: Look, env: dict[str, str], warning: str,
    level: Level, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(launch, "detachment", lambda: Detachment(False, warning))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    (found,) = look("login.line")
    assert (found.level, said in found.detail) == (level, True)
    assert not (warning and "survive" in found.detail)


def test_logout(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    def how(answer: Detachment) -> tuple[Level, str, str]:
        monkeypatch.setattr(launch, "detachment", lambda: answer)
        (found,) = look("login.logout")
        return found.level, found.detail, found.hint

    assert [how(Detachment(unit))[0] for unit in (True, False)] == [Level.OK, Level.OK]
    assert how(Detachment(False, "why; what to do")) == (Level.WARNING, "why", "what to do")
