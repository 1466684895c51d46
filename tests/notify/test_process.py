"""Real senders: one at a time, killed by SIGKILL at any moment, and what a server then has."""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from console.common import paths
from console.notify.outbox import SENDER, Outbox, post, wake
from tests.children import running
from tests.notify.hook import Hook
from tests.notify.made import channel, event
from tests.ports import free_port
from tests.waiting import until


def senders(state: str) -> list[psutil.Process]:
    """The live senders of the outbox in this state directory."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline()[-2:] == [*SENDER[1:]] and (
                process.environ().get("XDG_STATE_HOME") == state
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
    return found


@pytest.fixture
def state(tmp_path: Path) -> Iterator[str]:
    found = str(tmp_path / "STATE")
    yield found
    while left := senders(found):
        for process in left:
            with suppress(psutil.Error):
                process.kill()
                process.wait()


def kill(state: str) -> None:
    (sender,) = until(lambda: senders(state), "a sender lives")
    sender.kill()
    until(lambda: is_free(Outbox()), "all its threads are gone, and its lock with them")


def is_free(box: Outbox) -> bool:
    lock = box.lock()
    if lock >= 0:
        os.close(lock)
    return lock >= 0


def empty(box: Outbox) -> None:
    until(lambda: not box.items(), "all is delivered")


def test_what_is_posted_arrives_and_the_sender_ends(box: Outbox, hook: Hook, state: str) -> None:
    where = channel(webhook=hook.url)
    for number in range(3):
        post([where], event(f"r1:{number}"))
    empty(box)
    until(lambda: not senders(state), "nobody waits for more")
    assert sorted(hook.answered) == ["r1:0", "r1:1", "r1:2"]


def test_each_event_is_taken_once_across_three_kills(box: Outbox, hook: Hook, state: str) -> None:
    """Killed in the middle of a request, three times; each is repeated once with its key."""
    where = channel(webhook=hook.url)
    for number in range(3):
        hook.status = None
        post([where], event(f"r1:{number}"))
        came = 2 * number + 1
        until(lambda came=came: len(hook.came) == came, "the server has the request")
        kill(state)
        hook.status = 200
        wake()
        empty(box)
        post([where], event(f"r1:{number}"))
    assert hook.answered == ["r1:0", "r1:1", "r1:2"]
    assert [one.key for one in hook.came] == [key for key in hook.answered for _ in range(2)]


def test_a_second_sender_leaves_all_to_the_first(box: Outbox, hook: Hook, state: str) -> None:
    hook.status = None
    post([channel(webhook=hook.url)], event())
    until(lambda: hook.came, "the first sends")
    argv = [*paths.module_argv(SENDER[0]), *SENDER[1:]]
    with running(argv, env=dict(os.environ)) as second:
        assert second.wait() == 0
    assert len(senders(state)) == 1
    assert len(hook.came) == 1


def test_whoever_posts_does_not_wait_for_a_server_that_hangs(
    box: Outbox, hook: Hook, state: str
) -> None:
    """All are posted while the first request is still open, and one sender is started for all."""
    hook.status = None
    where = channel(webhook=hook.url)
    for number in range(20):
        post([where], event(f"r1:{number}"))
        assert len(senders(state)) <= 1
    assert len(box.items()) == 20
    until(lambda: hook.came, "the sender has begun")
    assert not hook.answered


def test_a_sender_holds_no_terminal_and_no_directory(box: Outbox, hook: Hook, state: str) -> None:
    hook.status = None
    post([channel(webhook=hook.url)], event())
    (sender,) = until(lambda: senders(state), "a sender lives")
    assert os.getsid(sender.pid) == sender.pid
    assert sender.cwd() == "/"
    os.kill(sender.pid, signal.SIGHUP)
    until(lambda: not senders(state), "a signal ends it")
    assert len(box.items()) == 1


def test_a_sender_without_the_secret_keeps_nothing_from_one_that_has_it(
    box: Outbox, hook: Hook, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first sender tries a server that is not there again and again, and lacks the token."""
    secret = channel(webhook=hook.url, headers={"Authorization": {"env": "HOOK_TOKEN"}})
    dead = channel(webhook=f"http://127.0.0.1:{free_port()}")
    post([dead, secret], event("r1:1"))
    until(lambda: "HOOK_TOKEN" in str(box.state(secret).answer), "it lacks the token")
    until(lambda: box.state(dead).fails, "the other server was asked")
    (first,) = senders(state)
    monkeypatch.setenv("HOOK_TOKEN", "Bearer hunter2hunter2")
    post([secret], event("r1:2"))
    until(lambda: sorted(hook.answered) == ["r1:1", "r1:2"], "both are sent")
    assert first.is_running()
    assert [one.key for one in hook.came] == hook.answered
