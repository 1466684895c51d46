"""The console's terminal, lent to a program in the place of ssh: what reaches it, and how the
terminal and the page are when it has ended, whatever ended it."""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from console.frontends.tui.terminal.driver import POP_TITLE, PUSH_TITLE
from tests.runner.e2e.world import COMMAND
from tests.ui.place import Place, ended, restored
from tests.ui.terminal import Terminal
from tests.waiting import until

pytestmark = pytest.mark.alone
SSH = r"""#!/bin/sh
case "$*" in *bridge*) echo "no route" >&2; exit 255 ;; esac
echo $$ >PLACE/pid
printf '%s\n' "$@" >PLACE/argv
trap 'echo heard >>PLACE/interrupted; exit 130' INT
stty raw -echo isig
printf '\033[?1049h\033[?25l\033[>1uWELCOME\r\n'
while :; do
  key=$(dd bs=8 count=1 2>/dev/null)
  printf '%s\n' "$key" >>PLACE/keys
  case "$key" in
    q) printf '\033[<u\033[?25h\033[?1049l'; exit 0 ;;
    z) stty sane; kill -TSTP $$; stty raw -echo isig; printf 'GOES ON\r\n' ;;
    l) printf 'it \033]0;owned\007is \033[2Jlost\n' >&2; exit 255 ;;
  esac
done
"""
F12 = "\x1b[24~"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place.begin(tmp_path / "place")
    (made.root / "bin").mkdir()
    ssh = made.root / "bin/ssh"
    ssh.write_text(SSH.replace("PLACE", str(made.root)))
    ssh.chmod(0o755)
    fleet = made.write("fleet.yaml", "schema: omni.fleet/v1\nhosts: {boxa: {}, boxb: {}}\n")
    made.env |= {"PATH": f"{ssh.parent}:{made.env['PATH']}", "OMNI_FLEET": str(fleet)}
    try:
        yield made
    finally:
        made.close()


def noted(place: Place, name: str) -> list[str]:
    path = place.root / name
    return path.read_text().splitlines() if path.exists() else []


def names_under(pid: int) -> list[str]:
    """The commands that a process has started and waits for."""
    try:
        return [child.name() for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def enter(terminal: Terminal) -> None:
    if "boxb" not in terminal.text:
        terminal.press("7")
        terminal.until("boxb")
    terminal.press("enter")
    terminal.until("WELCOME")


def back(terminal: Terminal, words: str) -> None:
    """The whole page is drawn again, and says this."""
    terminal.until(lambda: words in terminal.text and "WELCOME" not in terminal.text)


def test_a_visit_has_the_terminal_and_ends_on_the_page(place: Place) -> None:
    with place.open() as terminal:
        enter(terminal)
        argv = noted(place, "argv")
        assert argv[0] == "-t"
        assert argv[-2:] == ["boxa", "exec omni-console"]
        terminal.press(F12)
        until(lambda: noted(place, "keys") == [F12], "the key is the host's")
        assert not (place.root / "state/omni-console/emergency.log").exists()
        terminal.resize(100, 30)
        terminal.press("q")
        back(terminal, "back from boxa")
        assert len(terminal.lines) == 30
        terminal.press("j")
        terminal.until("Enter opens boxb")
        terminal.press("q")
        assert ended(terminal) == 0
        restored(terminal)


def test_keys_that_come_with_the_enter_go_nowhere(place: Place) -> None:
    with place.open() as terminal:
        terminal.press("7")
        terminal.until("boxb")
        os.write(terminal.master, b"\r2\x1b")
        terminal.until("WELCOME")
        terminal.press("q")
        back(terminal, "back from boxa")
        terminal.until("Enter opens boxa")


def test_the_mouse_stays_off_if_it_was_turned_off(place: Place) -> None:
    with place.open() as terminal:
        for words in ("mouse on", "mouse off"):
            terminal.press("M")
            terminal.until(words)
        enter(terminal)
        before = len(terminal.raw)
        terminal.press("q")
        back(terminal, "back from boxa")
        terminal.press("q")
        assert ended(terminal) == 0
        assert b"\x1b[?1000h" not in terminal.raw[before:]


def test_the_windows_title_is_the_consoles_again(place: Place) -> None:
    title = b"\x1b]2;paused: trial - omni-console\a"
    place.bring_up()
    place.stepping()
    with place.open() as terminal:
        terminal.until(lambda: title in terminal.raw)
        enter(terminal)
        before = len(terminal.raw)
        terminal.press("q")
        back(terminal, "back from boxa")
        terminal.until(lambda: title in terminal.raw[before:])
        terminal.press("q")
        assert ended(terminal) == 0
        assert terminal.raw.count(PUSH_TITLE.encode()) == terminal.raw.count(POP_TITLE.encode())


def test_a_visit_that_is_suspended_gives_the_shell_the_terminal(place: Place) -> None:
    shell = ["bash", "--norc", "--noprofile", "-i"]
    with place.open(argv=shell, see="$", env={"PS1": "prompt$ "}) as terminal:
        terminal.press(f"{COMMAND}\r")
        terminal.until("Help")
        enter(terminal)
        terminal.press("z")
        terminal.until("Stopped")
        terminal.press("clear; fg\r")
        terminal.until("GOES ON")
        terminal.press("q")
        back(terminal, "back from boxa")
        terminal.press("q")
        terminal.until(lambda: terminal.raw.endswith(b"prompt$ "))


def test_an_emergency_key_that_comes_with_the_enter_acts_nowhere_and_the_next_does(
    place: Place,
) -> None:
    pressed = place.root / "state/omni-console/emergency.log"
    with place.open() as terminal:
        terminal.press("7")
        terminal.until("boxb")
        os.write(terminal.master, b"\r" + F12.encode())
        terminal.until("WELCOME")
        terminal.press("q")
        back(terminal, "back from boxa")
        assert not pressed.exists()
        terminal.press(F12)
        until(pressed.exists, "it acts here")


def test_a_visit_that_is_cut_off_leaves_no_modes_and_says_why_in_clean_words(place: Place) -> None:
    with place.open() as terminal:
        enter(terminal)
        terminal.press("l")
        back(terminal, "boxa: ssh failed (255): it is lost")
        assert b"owned" not in terminal.raw
        enter(terminal)
        # a shell that is interrupted just before it starts `dd` obeys only when that has ended
        (pid,) = noted(place, "pid")
        until(lambda: names_under(int(pid)) == ["dd"], "it reads the keyboard")
        terminal.press("ctrl+c")
        back(terminal, "boxa: ended with exit code 130")
        assert noted(place, "interrupted") == ["heard"]
        terminal.press("q")
        assert ended(terminal) == 0
        sent = bytes(terminal.raw)
        # of the keyboard's modes that were pushed, all are taken back
        assert sent.count(b"\x1b[<u") >= sent.count(b"\x1b[>")
        assert sent.rindex(b"\x1b[?1049l") > sent.rindex(b"\x1b[?1049h")
        assert sent.rindex(b"\x1b[?25h") > sent.rindex(b"\x1b[?25l")


def test_a_console_without_a_descriptor_left_says_so_and_goes_on(place: Place) -> None:
    with place.open() as terminal:
        terminal.press("7")
        terminal.until("boxb")
        pid, limit = terminal.child.pid, resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limit[1]))
        terminal.press("enter")
        terminal.until("boxa: ssh failed (255): [Errno 24] Too many open files")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
        enter(terminal)
        terminal.press("q")
        back(terminal, "back from boxa")


def test_a_terminal_that_goes_away_meanwhile_ends_both(place: Place) -> None:
    with place.open() as terminal:
        enter(terminal)
        (pid,) = noted(place, "pid")
        terminal.close()
        assert terminal.child.returncode == 128 + signal.SIGHUP
        until(lambda: not psutil.pid_exists(int(pid)), "ssh has ended")


def test_a_console_that_is_ended_meanwhile_takes_the_visit_with_it(place: Place) -> None:
    with place.open() as terminal:
        enter(terminal)
        (pid,) = noted(place, "pid")
        os.kill(terminal.child.pid, signal.SIGTERM)
        assert ended(terminal) == 128 + signal.SIGTERM
        until(lambda: not psutil.pid_exists(int(pid)), "ssh has ended")
        sent = bytes(terminal.raw)
        assert sent.rindex(b"\x1b[?1049l") > sent.rindex(b"\x1b[?1049h")
