"""Whether somebody sees this terminal: a real tmux with and without a client."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from console.frontends.tui.watch.watchers import ASK_EVERY_S, UNSEEN, Attendance, pixels_here
from tests.clock import FakeClock
from tests.waiting import until


def attendance(answers: list[str], environment: Mapping[str, str]) -> tuple[Attendance, FakeClock]:
    clock = FakeClock()
    return Attendance(clock, environment, lambda argv, env: answers.pop(0)), clock


INSIDE = {"TMUX": "/tmp/tmux-0/b,1,0", "TMUX_PANE": "%3"}


def test_tmux_is_asked_now_and_then() -> None:
    made, clock = attendance(["1\n", "0\n", "2"], INSIDE)
    assert [made.there(), made.there()] == [True, True]
    clock.sleep(ASK_EVERY_S)
    assert [made.there(), made.there()] == [False, False]
    clock.sleep(ASK_EVERY_S)
    assert made.there()
    assert attendance([""], INSIDE)[0].there(), "a tmux that says nothing takes nobody away"
    assert attendance([], {})[0].there(), "a terminal of its own is attended while it is there"


def test_screen_is_attended_where_it_is_attached() -> None:
    said, asked = ["1.work\t(Attached)\n", "1.work\t(Detached)\n", ""], list[tuple[str, ...]]()

    def screen(argv: tuple[str, ...], _: Mapping[str, str]) -> str:
        asked.append(argv)
        return said[len(asked) - 1]

    there = [Attendance(FakeClock(), {"STY": "1.work"}, ask=screen).there() for _ in said]
    assert (there, asked) == ([True, False, False], [("screen", "-ls", "1.work")] * 3)


def test_a_page_in_the_background_is_attended_by_nobody() -> None:
    told = [(0, 0), UNSEEN, (1280, 800)]
    there = [Attendance(FakeClock(), {}, pixels=lambda one=one: one).there() for one in told]  # type: ignore[misc]
    assert there == [True, False, True]
    assert pixels_here() != UNSEEN


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[list[str]]:
    assert shutil.which("tmux"), "tmux is part of the testbed"
    call = ["tmux", "-S", str(tmp_path / "tmux")]
    yield call
    subprocess.run([*call, "kill-server"], check=False, capture_output=True)


@pytest.mark.alone
def test_a_session_without_a_client_is_not_attended(tmux: list[str], tmp_path: Path) -> None:
    told = tmp_path / "environment"
    command = f'printf \'%s %s\' "$TMUX" "$TMUX_PANE" > {told}.new; mv {told}.new {told}; sleep 60'
    subprocess.run([*tmux, "new-session", "-d", "-x", "80", "-y", "24", command], check=True)
    until(told.exists, "it says where it is")
    names = dict(zip(("TMUX", "TMUX_PANE"), told.read_text().split(), strict=True))
    environment = {**os.environ, **names}
    until(lambda: not Attendance(environment=environment).there(), "nobody is seen")
    ours, theirs = os.openpty()
    client = subprocess.Popen(
        [*tmux, "attach"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    try:
        until(lambda: Attendance(environment=environment).there(), "the client is seen")
    finally:
        client.kill()
        client.wait(60)
        os.close(ours)
        os.close(theirs)
    until(lambda: not Attendance(environment=environment).there(), "the client is gone")
