"""Whether `ssh HOST omni-console rollback` and `sudo omni-console rollback` find the command."""

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor import reach
from console.checks.doctor.facts import Facts, Finding, Level
from console.host.process import stat
from tests.doctor.conftest import Look, tree
from tests.waiting import LIMIT_S, until

Ask = Callable[..., list[Finding]]
SECURE = "Defaults env_reset, secure_path={0}\n"


@pytest.fixture
def ask(tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The findings of a machine with sshd; the command is in `pipx/bin`, which is on PATH."""
    monkeypatch.setattr(reach, "shell_of", lambda: "/bin/sh")
    monkeypatch.setattr(reach, "SSHD_PATH", f"{tmp_path}/local:/usr/bin:/bin")
    monkeypatch.setattr(reach, "LINKS", (f"{tmp_path}/local", "/usr/bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no" / "python"))
    (tmp_path / "local").mkdir()
    own = tmp_path / "pipx" / "bin"
    command(own)
    monkeypatch.setenv("PATH", f"{own}:/usr/bin:/bin")
    on_path = shutil.which

    def without_the_machines_sudo(name: str, *more: Any, **options: Any) -> str | None:
        path = on_path(name, *more, **options)
        return None if path == "/usr/bin/sudo" else path

    monkeypatch.setattr(reach.shutil, "which", without_the_machines_sudo)

    def findings(**files: str) -> list[Finding]:
        return look("login.reach", facts=tree(tmp_path / "root", usr__sbin__sshd="", **files))

    return findings


def command(folder: Path, name: str = "omni-console", text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / name
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sudo that tells an ordinary user nothing, and never gets a password."""
    command(tmp_path / "pipx" / "bin", "sudo", '[ "$*" = "-n -V" ] && echo "Sudo version 1.9"')


def test_a_one_shot_ssh_that_does_not_find_it(ask: Ask, tmp_path: Path) -> None:
    (found,) = ask()
    assert (found.level, "ssh HOST omni-console rollback" in found.detail) == (Level.WARNING, True)
    link = f"sudo ln -s {tmp_path}/pipx/bin/omni-console {tmp_path}/local/"
    assert found.hint == link
    (tmp_path / "local" / "omni-console").symlink_to(tmp_path / "pipx/bin/omni-console")
    (found,) = ask()
    assert (found.level, found.hint) == (Level.OK, "")


def test_what_pam_and_the_shell_add_counts(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = ask(etc__environment=f'PATH="{tmp_path}/pipx/bin:/usr/bin:/bin"\n')
    assert found.level is Level.OK
    shell = command(tmp_path, "shell", f'echo hello\nPATH="$PATH:{tmp_path}/pipx/bin"\neval "$2"')
    monkeypatch.setattr(reach, "shell_of", lambda: str(shell))
    (tmp_path / "root/etc/environment").unlink()
    assert ask()[0].level is Level.OK


def test_a_shell_that_hangs_and_one_that_is_not_there(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "ASK_S", 0.3)
    shell = command(tmp_path, "shell", "sleep 60")
    monkeypatch.setattr(reach, "shell_of", lambda: str(shell))
    began = time.monotonic()
    (found,) = ask()
    assert (found.level, "has not begun" in found.detail) == (Level.WARNING, True)
    assert time.monotonic() - began < 30
    monkeypatch.setattr(reach, "shell_of", lambda: str(tmp_path / "none"))
    assert "No such file" in ask()[0].detail


@pytest.mark.parametrize("after", ["", "; sleep 60"])
def test_a_start_up_file_that_keeps_its_output_open_costs_no_answer(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """An agent that a start-up file leaves in the background, or a shell that ends late."""
    monkeypatch.setattr(reach, "ASK_S", 0.5 if after else LIMIT_S)
    lines = (
        f'sleep 600 &\necho $! > {tmp_path}/pid\nPATH="$PATH:{tmp_path}/pipx/bin"\neval "$2"{after}'
    )
    shell = command(tmp_path, "shell", lines)
    monkeypatch.setattr(reach, "shell_of", lambda: str(shell))
    (found,) = ask()
    assert found.level is Level.OK
    pid = int((tmp_path / "pid").read_text())
    until(lambda: (one := stat(pid)) is None or one.state in "ZX", "what it started is ended")


@pytest.mark.usefixtures("sudo")
def test_settings_of_sudoers_for_others_do_not_count_and_lines_go_on(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "_name", lambda: "alice")
    (tmp_path / "local" / "omni-console").symlink_to(tmp_path / "pipx/bin/omni-console")
    good, bad = SECURE.format(f"{tmp_path}/local"), "secure_path=/none\n"
    for wrong in ("Defaults:bob ", "Defaults:bob,carol ", "Defaults@elsewhere ", "Defaults>bob ",
                  "Defaults!/usr/bin/vi ", "# Defaults "):  # fmt: skip
        assert ask(etc__sudoers=f"{good}{wrong}{bad}")[-1].level is Level.OK, wrong
    for right in ("Defaults:alice ", "Defaults:bob, alice ", "Defaults: alice ", "Defaults>root ",
                  "Defaults:ALL ", "Defaults env_reset, \\\n    ", "Defaults \\\n  "):  # fmt: skip
        found = ask(etc__sudoers=f"{good}{right}{bad}")
        assert "looks in /none" in found[0].detail, right


@pytest.mark.usefixtures("sudo")
def test_one_line_mends_both(ask: Ask, tmp_path: Path) -> None:
    (found,) = ask()
    assert (found.level, found.hint.count("\n")) == (Level.WARNING, 0)
    assert "sudo omni-console rollback" in found.detail
    assert "sudoers cannot be read" in found.detail
    (found,) = ask(etc__sudoers=SECURE.format("/usr/bin:/bin"))
    assert found.hint == f"sudo ln -s {tmp_path}/pipx/bin/omni-console /usr/bin/"
    good = f"{tmp_path}/local\\:{tmp_path}/pipx/bin"
    one, two = ask(etc__sudoers=SECURE.format(good))
    assert (one.level, "sudo" in one.detail, two.level) == (Level.WARNING, False, Level.OK)
    assert "sudo omni-console rollback" in two.detail


@pytest.mark.usefixtures("sudo")
def test_a_sudo_that_sets_no_path_keeps_the_users(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "local" / "omni-console").symlink_to(tmp_path / "pipx/bin/omni-console")
    for text in ("root ALL=(ALL) ALL\n", SECURE.format("/bin") + "Defaults !secure_path\n"):
        (found,) = ask(etc__sudoers=text)
        assert found.level is Level.OK
    (found, ok) = ask(etc__sudoers="", etc__sudoersDOTd__own=SECURE.format('"/bin:/sbin"'))
    assert (found.level, ok.level) == (Level.WARNING, Level.OK)
    assert "looks in /bin:/sbin" in found.detail


def test_what_sudo_tells_root(ask: Ask, tmp_path: Path) -> None:
    said = f"Value to override user's $PATH with: {tmp_path}/pipx/bin:/bin"
    command(tmp_path / "pipx" / "bin", "sudo", f"cat <<'E'\n{said}\nE")
    levels = [one.level for one in ask()]
    assert levels == [Level.WARNING, Level.OK]


def test_another_installation(ask: Ask, tmp_path: Path) -> None:
    command(tmp_path / "local")
    (found,) = ask()
    assert (found.level, "another installation" in found.detail) == (Level.NOTE, True)


def test_neither_sshd_nor_sudo(ask: Ask, look: Look, tmp_path: Path) -> None:
    assert look("login.reach", facts=Facts(root=tmp_path)) == []
