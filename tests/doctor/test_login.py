"""Terminal, locale and what a login leaves behind; the descriptors are tested in a real pty."""

from __future__ import annotations

import pytest

from console.doctor import login
from console.doctor.model import Level
from console.run import launch
from console.run.launch import Detachment
from tests.doctor.conftest import Look


def test_interpreter_and_console(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = look("login.python")
    assert (found.level, "omni-console" in found.detail) == (Level.OK, True)
    monkeypatch.setattr(login, "OLDEST_PYTHON", (9, 0))
    assert look("login.python")[0].level is Level.FAILED


TERMS = {
    "dumb": Level.WARNING, "": Level.WARNING, "no-such-terminal": Level.NOTE,
    "../../etc": Level.NOTE, "xterm-256color": Level.OK,
}  # fmt: skip


@pytest.mark.usefixtures("terminfo")
def test_the_terminals_name(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    for term, level in TERMS.items():
        monkeypatch.setenv("TERM", term)
        (found,) = look("login.terminal")
        assert (found.level, f"TERM={term or '(empty)'}" in found.detail) == (level, True), term


def test_colours() -> None:
    env = {"TERM": "xterm-256color"}
    assert login.colours({"TERM": "xterm"}).startswith("16 colours")
    assert login.colours(env).startswith("256 colours")
    assert login.colours(env | {"NO_COLOR": "1"}).startswith("no colours")
    for more in ({"TERM": "xterm-direct"}, {"COLORTERM": "truecolor"}):
        assert login.colours(env | more).startswith("16 million")


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


LINES: list[tuple[dict[str, str], str, Level]] = [
    ({"TMUX": "/tmp/t", "SSH_TTY": "/dev/pts/1"}, "", Level.OK),
    ({"TMUX": "/tmp/t"}, "ends; x", Level.NOTE), ({"STY": "1.x"}, "", Level.OK),
    ({"SSH_CONNECTION": "a"}, "", Level.NOTE), ({"SSH_CONNECTION": "a"}, "ends; x", Level.NOTE),
    ({}, "ends; x", Level.OK), ({}, "", Level.OK),
]  # fmt: skip


def test_the_line(look: Look) -> None:
    for env, warning, level in LINES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launch, "detachment", lambda w=warning: Detachment(False, w))
            for name, value in env.items():
                patch.setenv(name, value)
            (found,) = look("login.line")
        assert found.level is level, env
        assert not (warning and "survive" in found.detail)


def test_logout(monkeypatch: pytest.MonkeyPatch, look: Look) -> None:
    def how(answer: Detachment) -> tuple[Level, str, str]:
        monkeypatch.setattr(launch, "detachment", lambda: answer)
        (found,) = look("login.logout")
        return found.level, found.detail, found.hint

    assert [how(Detachment(unit))[0] for unit in (True, False)] == [Level.OK, Level.OK]
    assert how(Detachment(False, "why; what to do")) == (Level.WARNING, "why", "what to do")
