"""The terminal's socket and the console behind it: a real pseudo terminal, a stand-in program."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from console.frontends.tui.terminal.output import AWAITED_S, LEAVE_S
from console.frontends.web import server, terminal
from console.frontends.web.terminal import PtyConsole, environment, parsed, size_of
from tests.waiting import some, until
from tests.web.conftest import Door, Web, opened


def read_until(socket: ClientConnection, words: bytes) -> bytes:
    """What came, until these words are in it."""
    came = b""
    while words not in came:
        data = socket.recv(30)
        assert isinstance(data, bytes)
        came += data
    return came


def closed(socket: ClientConnection) -> tuple[int, str]:
    """The code and words with which the server closes; what comes before is dropped."""
    try:
        while True:
            socket.recv(30)
    except ConnectionClosed as end:
        said = some(end.rcvd)
        return said.code, said.reason


def consoles() -> list[psutil.Process]:
    """The consoles that this process has opened and that live."""
    return [one for one in psutil.Process().children() if lives(one)]


def lives(one: psutil.Process) -> bool:
    try:
        return one.status() != psutil.STATUS_ZOMBIE and "fixed" in one.cmdline()
    except psutil.NoSuchProcess:  # it has ended while it was looked at
        return False


def gone() -> None:
    until(lambda: not consoles(), "the console has ended")


@pytest.fixture(autouse=True)
def nobody_elses() -> Iterator[None]:
    """A test ends when its consoles have: the next one counts its own."""
    yield
    gone()


def opens(web: Web) -> bool:
    """Whether there is room for a console: one that has just gone may still have its place."""
    with web.console() as socket, contextlib.suppress(ConnectionClosed):
        return bool(read_until(socket, b">"))
    return False


def test_keys_go_one_way_and_the_screen_the_other_at_the_browsers_size(web: Web) -> None:
    web.enter()
    with web.console(first={"key": web.key, "size": [91, 31]}) as socket:
        assert b"fixed ready<91x31>" in read_until(socket, b">")
        socket.send(b"hello \xc3\xa9 \x1b[24~")
        assert b"HELLO \xc3\xa9 \x1b[24~" in read_until(socket, b"~")
        socket.send(json.dumps({"size": [120, 40]}))
        read_until(socket, b"<120x40>")
        (child,) = consoles()
        assert child.terminal(), "it has a terminal of its own"
        assert os.getsid(child.pid) == child.pid
    gone()


def test_nothing_of_the_browser_becomes_an_argument(web: Web) -> None:
    web.enter()
    first = {"key": web.key, "size": [80, 24], "argv": ["sh"], "args": "--write", "site": "/x"}
    with web.console(first=first) as socket:
        assert read_until(socket, b">").startswith(b"fixed ready<"), "the fixed argument alone"


@pytest.mark.parametrize("size", [[1, 1], [100000, 100000], [-5, 0], [10**30, 3]])
def test_a_size_that_no_screen_has_is_cut(web: Web, size: list[int]) -> None:
    web.enter()
    with web.console(first={"key": web.key, "size": size}) as socket:
        said = read_until(socket, b">").partition(b"<")[2]
        columns, rows = map(int, said.rstrip(b">").split(b"x"))
        assert terminal.COLUMNS[0] <= columns <= terminal.COLUMNS[1]
        assert terminal.ROWS[0] <= rows <= terminal.ROWS[1]


WATCHING = (
    "import os, tty; from console.frontends.tui.watch.watchers import Attendance\n"
    "tty.setraw(0)\n"
    "there = Attendance(environment={}).there\n"
    "while True:\n"
    "    os.write(1, b'<%d%d>' % (there(), os.get_terminal_size(0)[0]))\n"
    "    os.read(0, 1)\n"
)


def test_a_page_in_the_background_is_attended_by_nobody(door: Door) -> None:
    argv = (sys.executable, "-c", WATCHING, "fixed")
    with opened(door, write=True, argv=argv) as web:
        web.enter()
        with web.console() as socket:
            read_until(socket, b"<180>")
            for said, told in (
                ({"seen": False}, b"<080>"), ({"size": [91, 30]}, b"<091>"),
                ({"seen": True}, b"<191>"),
            ):  # fmt: skip
                socket.send(json.dumps(said))
                socket.send(b"?")
                read_until(socket, told)


@pytest.mark.parametrize(
    "first", [{"size": [80, 24]}, {"key": "x", "size": [80, 24]}, {"key": 7, "size": [80, 24]},
              {"key": "", "size": []}, [1], "x"],
)  # fmt: skip
def test_a_cookie_alone_opens_no_console(web: Web, first: Any) -> None:
    """Another port of this host name is sent the cookie, too."""
    web.enter()
    with web.console(first=first) as socket:
        assert closed(socket)[0] == terminal.OVER
    assert consoles() == []


def test_without_a_session_there_is_no_socket(web: Web) -> None:
    with pytest.raises(InvalidStatus, match="403"), web.console():
        pass


def test_messages_have_a_largest_size_and_a_form(web: Web) -> None:
    web.enter()
    with web.console() as socket:
        read_until(socket, b">")
        socket.send(b"x" * (terminal.MAX_MESSAGE + 1))
        assert closed(socket)[0] == 1009
    with web.console() as socket:
        read_until(socket, b">")
        socket.send('{"run": "sh"}')
        assert closed(socket) == (terminal.TOO_MUCH, "not a message")
    gone()


def test_too_many_messages_end_it(web: Web) -> None:
    web.enter()
    with web.console() as socket:
        read_until(socket, b">")
        for _ in range(terminal.MESSAGES + 1):
            socket.send('{"drawn": 0}')
        assert closed(socket) == (terminal.TOO_MUCH, "too many messages")
    gone()


def test_there_are_only_so_many_consoles(web: Web) -> None:
    web.enter()
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(web.console()) for _ in range(server.MAX_CONSOLES)]
        for socket in opened:
            read_until(socket, b">")
        with web.console() as one_more:
            code, words = closed(one_more)
        assert (code, f"{server.MAX_CONSOLES} consoles" in words) == (terminal.TOO_MUCH, True)
        opened[0].close()
        until(lambda: opens(web), "there is room for another")
    gone()


def test_a_session_that_is_over_loses_its_console(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "LOOK_S", 0.01)
    web.enter()
    with web.console() as socket:
        read_until(socket, b">")
        web.ask("POST", "/api/leave", send={})
        assert closed(socket)[0] == terminal.OVER
    gone()


def test_a_browser_that_does_not_read_holds_the_console_up_and_takes_no_memory(web: Web) -> None:
    """So much and no more comes without a word of what was drawn; with it, the next comes."""
    web.enter()
    with web.console() as socket:
        read_until(socket, b">")
        socket.send(b"flood")
        came = 0
        while came < terminal.WINDOW - 64:
            came += len(socket.recv(30))
        (child,) = consoles()
        until(lambda: child.status() == psutil.STATUS_SLEEPING, "it waits in a write")
        with contextlib.suppress(TimeoutError):
            while came < 2 * terminal.WINDOW:
                came += len(socket.recv(0.3))
        assert came < terminal.WINDOW + terminal.CHUNK, "a chunk more than the window, at most"
        socket.send(json.dumps({"drawn": came}))
        assert socket.recv(30)
    gone()


def test_a_console_that_ends_says_so(web: Web) -> None:
    web.enter()
    with web.console() as socket:
        read_until(socket, b">")
        (child,) = consoles()
        child.kill()
        assert closed(socket) == (terminal.ENDED, "the console has ended")
    until(lambda: not psutil.pid_exists(child.pid), "nothing of it is left, no zombie either")


def test_a_console_that_cannot_be_started_says_why(
    door: Door, caplog: pytest.LogCaptureFixture
) -> None:
    """No process or pseudo terminal is left, or the program was moved by an upgrade."""
    with opened(door, write=True, argv=("/no/such/program",)) as web:
        web.enter()
        with web.console() as socket:
            code, words = closed(socket)
    assert (code, words) == (
        terminal.ENDED, "the console cannot be started: No such file or directory",
    )  # fmt: skip
    assert caplog.records == []


DEAF = "import os, time, tty; tty.setraw(0); os.write(1, b'>'); time.sleep(600)"


def test_a_console_that_takes_no_keys_is_not_kept_for_a_browser_that_has_gone(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "TAKES_S", 0.05)
    monkeypatch.setattr(server, "MAX_CONSOLES", 1)
    argv = (sys.executable, "-I", "-c", DEAF, "fixed")
    with opened(door, write=True, argv=argv) as web:
        web.enter()
        with web.console() as socket:
            read_until(socket, b">")
            for _ in range(20):  # more than a pseudo terminal holds
                socket.send(b"x" * 10_000)
        gone()
        until(lambda: opens(web), "its place is free")


def test_a_browser_is_told_that_its_console_is_over_before_that_has_ended(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs has minutes to end: meanwhile the page stood still, and F12 went nowhere."""
    monkeypatch.setattr(terminal, "TAKES_S", 0.05)
    argv = (sys.executable, "-I", "-c", f"import signal; signal.signal(1, 1); {DEAF}", "fixed")
    with opened(door, write=True, argv=argv) as web:
        web.enter()
        with web.console() as socket:
            read_until(socket, b">")
            for _ in range(20):
                socket.send(b"x" * 10_000)
            assert closed(socket) == (
                terminal.ENDED, f"the console has taken no key for {terminal.TAKES_S:.0f} s",
            )  # fmt: skip
        (child,) = consoles()
        child.kill()


STUBBORN = (
    "import os, signal, time; signal.signal(1, signal.SIG_IGN); os.write(1, b'.'); time.sleep(600)"
)


def test_a_console_whose_page_is_closed_may_end_the_start_of_a_run() -> None:
    """It waits for that without a terminal, and a start that is killed half-way is lost."""
    assert terminal.GRACE_S > LEAVE_S + AWAITED_S


def test_what_ignores_the_hangup_is_killed() -> None:
    async def go() -> int:
        console = PtyConsole((sys.executable, "-I", "-c", STUBBORN), dict(os.environ), (80, 24))
        assert await console.read() == b"."
        await console.end(grace_s=0.1)
        return console.pid

    assert not psutil.pid_exists(asyncio.run(go()))


def test_the_server_takes_its_consoles_with_it() -> None:
    door = Door()
    try:
        with opened(door, write=True) as web:
            web.enter()
            with web.console() as socket:
                read_until(socket, b">")
                assert len(consoles()) == 1
                door.running.stop()
                assert closed(socket)[0] == 1012
            gone()
    finally:
        door.close()


def test_a_console_that_goes_on_ending_makes_no_noise_when_the_server_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that starts a run ends later: a traceback filled the terminal where the link stands."""
    door = Door()
    with opened(door, write=True, argv=(sys.executable, "-I", "-c", STUBBORN, "fixed")) as web:
        web.enter()
        with web.console() as socket:
            read_until(socket, b".")
            door.close()
            assert closed(socket)[0] == 1012
    (child,) = consoles()
    child.kill()
    assert [one.message for one in caplog.records] == []


def test_the_console_is_told_of_the_browsers_terminal_and_not_of_the_servers() -> None:
    given = {
        "TMUX": "/tmp/x",
        "STY": "1",
        "TERM": "dumb",
        "LC_ALL": "C",
        "PYTHONUTF8": "1",
        "PYTHONIOENCODING": "iso8859-1:replace",
        "COLUMNS": "5",
        "HOME": "/h",
    }
    told = environment(given)
    assert told == {
        "HOME": "/h", "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_CTYPE": "C.UTF-8",
        "OMNI_BROWSER": "1",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "7", '{"size": [1]}', '{"size": [true, 2]}', '{"size": ["1", "2"]}',
             '{"size": [1.5, 2]}', "[" * 9999],
)  # fmt: skip
def test_what_is_no_size_is_none(text: str) -> None:
    assert size_of(parsed(text)) is None
