"""Terminal, locale and what a login leaves behind; the descriptors are tested in a real pty."""

from __future__ import annotations

import pytest

from console.checks.doctor import user
from console.checks.doctor.facts import Level
from tests.doctor.conftest import Look


def test_interpreter_and_console(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = look("login.python")
    assert (found.level, "omni-console" in found.detail) == (Level.OK, True)
    monkeypatch.setattr(user, "OLDEST_PYTHON", (9, 0))
    assert look("login.python")[0].level is Level.FAILED


TERMS = ("dumb", "", "no-such-terminal", "../../etc", "xterm-256color")


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
    assert user.locale_of(env, first) == name


LINES: list[tuple[dict[str, str], str]] = [
    ({"TMUX": "/tmp/t", "SSH_TTY": "/dev/pts/1"}, ""),
    ({"TMUX": "/tmp/t"}, "ends; x"), ({"STY": "1.x"}, ""),
    ({"SSH_CONNECTION": "a"}, ""), ({"SSH_CONNECTION": "a"}, "ends; x"),
    ({}, "ends; x"), ({}, ""),
]  # fmt: skip
