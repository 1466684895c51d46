"""Control of a run: a verb is taken only for what the operator has seen, and only once; its socket
takes any path and any garbage, with one answer each."""

import json
import os
import pwd
import queue
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ControlError, Exit
from console.journal.state import RunState
from console.journal.store import JournalError
from console.runner import control as module
from console.runner.control import LIMIT, Control, Server, Verb, send, short_address
from tests.runner.unit.cases import WAITING
from tests.runner.unit.cases import control as standing

R = RunState


def waiting(confirm: str = "") -> Control:
    return standing(**WAITING, confirm=confirm)


def ask(control: Control, verb: str, why: str = "", seen: Any = (), **args: Any) -> str:
    return control.ask(Verb(verb, "op", why, args), dict(seen))


def taken(control: Control) -> list[str]:
    found = []
    while True:
        try:
            found.append(control.inbox.get_nowait().verb)
        except queue.Empty:
            return found


MOVED = "the run has moved on"
SEEN = {"step": "ok", "attempt": 1, "evidence": "e1"}


@pytest.mark.parametrize("verb", ["approve", "reject", "abort"])
def test_a_verb_for_something_else_is_refused(verb: str) -> None:
    for change in (
        {"step": "other"}, {"attempt": 2}, {"evidence": "e0"}, {"evidence": ""},
        {"evidence": None}, {"step": ["ok"]}, {"attempt": "1"},
    ):  # fmt: skip
        one = waiting()
        assert MOVED in ask(one, verb, "because", {**SEEN, **change})
        assert (taken(one), one.cancelled.is_set()) == ([], False)


@pytest.mark.parametrize("verb", ["abort", "rollback", "halt", "pause", "approve"])
def test_what_stops_the_run_needs_no_journal_and_everything_else_does(verb: str) -> None:
    one = waiting() if verb == "approve" else standing(state=R.RUNNING)

    def full(*_: Any) -> None:
        raise JournalError("the journal cannot be written", "disk full")

    one.on_verb = full
    if verb == "halt":
        one.halt(Verb("rollback", "the sentinel"))
        no = ""
    else:
        no = ask(one, verb, "because", SEEN if verb == "approve" else ())
    stops = verb not in ("pause", "approve")
    assert (no == "", one.cancelled.is_set(), taken(one)) == (
        stops, stops, [verb.replace("halt", "rollback")] if stops else [],
    )  # fmt: skip
    assert stops or "disk full" in no
    assert not one.pause_asked
    one.halt(Verb("abort", "the sentinel"))
    assert len(taken(one)) == (not stops), "the first one stays"


@pytest.mark.parametrize(
    ("verb", "asked", "next_one"),
    [("approve", WAITING, {"step": "ok2", "evidence": "e2"}),
     ("retry", {"state": R.PAUSED, "reason": "step_failed"}, {"attempt": 2})],
)  # fmt: skip
def test_a_second_press_does_not_answer_the_next_question(
    verb: str, asked: dict[str, Any], next_one: dict[str, Any]
) -> None:
    one, seen = standing(**asked), SEEN if verb == "approve" else ()
    assert [ask(one, verb, seen=seen), ask(one, verb, seen=seen)] == ["", ""]
    assert one.inbox.get_nowait().verb == verb
    one.set(state=R.RUNNING, evidence="", confirm="")
    one.set(**asked | next_one)
    assert taken(one) == []
    assert verb == "retry" or MOVED in ask(one, verb, seen=seen), "a late one neither"


@pytest.mark.parametrize(
    ("where", "first", "second"),
    [(WAITING, "approve", "reject"), (WAITING, "reject", "approve"),
     ({"state": R.PAUSED, "reason": "step_failed"}, "retry", "skip"),
     ({"state": R.PAUSED, "reason": "operator"}, "continue", "skip")],
)  # fmt: skip
def test_of_two_answers_at_one_moment_only_the_first_is_acknowledged(
    where: dict[str, Any], first: str, second: str
) -> None:
    """The runner takes one and forgets the other, which nobody may be told was taken."""
    one, told, seen = standing(**where), list[str](), SEEN if where is WAITING else {}
    one.on_verb = lambda verb, step, attempt: told.append(verb.verb)
    assert ask(one, first, "because", seen) == ""
    assert f"answered a moment ago: {first}" in ask(one, second, "because", seen)
    assert (told, taken(one)) == ([first], [first])
    assert ask(one, "rollback") == "", "what stops the run is heard all the same"
    one = standing(**where)
    ask(one, first, "because", seen)
    one.set(state=R.RUNNING)
    one.set(**where)
    assert ask(one, second, "because", seen) == "", "the next question has an answer of its own"


def test_a_second_retry_with_other_inputs_is_another_answer() -> None:
    one = standing(state=R.PAUSED, reason="step_failed")
    said = [ask(one, "retry", inputs=inputs) for inputs in ({"n": "1"}, {"n": "1"}, {"n": "2"})]
    assert (said[:2], "answered a moment ago" in said[2]) == (["", ""], True)
    one = standing(state=R.PAUSED, reason="step_failed")
    assert [ask(one, "retry", inputs={}), ask(one, "retry")] == ["", ""]


@pytest.mark.parametrize("verb", ["abort", "rollback"])
def test_what_stops_the_run_is_never_forgotten(verb: str) -> None:
    one = standing()
    assert ask(one, verb) == ""
    one.set(state=R.PAUSED, step="next")
    assert taken(one) == [verb]
    assert one.cancelled.is_set()
    for later in ("rollback", "abort", "pause", "retry"):
        assert f"({verb})" in ask(one, later)


def test_modes() -> None:
    one = standing()
    assert ask(one, "pause") == ""
    assert (one.pause_asked, taken(one)) == (True, [])
    assert ask(one, "auto") == ""
    assert (one.mode, one.pause_asked, taken(one)) == ("gate", False, [])
    one.set(state=R.PAUSED, reason="operator")
    assert ask(one, "next") == ""
    assert (one.mode, taken(one)) == ("step", ["next"])
    assert ask(one, "continue") == ""
    assert (one.mode, taken(one)) == ("all", ["continue"])


def test_the_word_is_asked_for_as_it_is_and_is_clean_on_a_terminal() -> None:
    for wrong in ("", "Cutover", True):
        assert "cutover" in ask(waiting("cutover"), "approve", seen=SEEN, confirm=wrong)
    assert "\x1b" not in ask(waiting("\x1b[31mred"), "approve", seen=SEEN)
    assert "reason" in ask(standing(state=R.PAUSED, reason="step_failed"), "skip", " \n\t")


@pytest.fixture
def control() -> Control:
    return standing()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


@pytest.fixture
def server(path: Path, control: Control) -> Iterator[Server]:
    server = Server(path, control)
    yield server
    server.close()


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as peer:
        peer.settimeout(60)
        with short_address(path) as address:
            peer.connect(address)
        yield peer


def raw(path: Path, *parts: bytes) -> Any:
    """What a client that speaks no protocol is told; None when nothing comes back."""
    with connected(path) as peer:
        for part in parts:
            peer.sendall(part)
        peer.shutdown(socket.SHUT_WR)
        answer = peer.makefile("rb").read()
    return json.loads(answer) if answer else None


@pytest.mark.parametrize(
    ("message", "there"),
    [({"verb": "status"}, False), ({"verb": "status", "attached": True}, True),
     ({"verb": "status", "attached": "yes"}, False), ({"verb": "pause"}, True)],
)  # fmt: skip
def test_who_sits_in_front_of_a_run_says_so(
    server: Server, path: Path, control: Control, message: dict[str, Any], there: bool
) -> None:
    send(path, message)
    assert control.is_attended(time.monotonic(), 3600.0) is there


def test_what_was_seen_and_who_asks_are_not_taken_from_the_arguments(
    server: Server, path: Path, control: Control
) -> None:
    seen: list[str] = []
    control.on_verb = lambda verb, step, attempt: seen.append(verb.who)
    control.set(state=RunState.WAITING_APPROVAL, evidence="e1")
    assert send(path, {"verb": "approve", "args": {"evidence": "e0"}})["ok"] is False
    answer = send(path, {"verb": "approve", "evidence": "e1", "who": "x", "args": {"who": "me"}})
    assert (answer["ok"], answer["error"], answer["step"]) == (True, "", "bench")
    assert seen == [pwd.getpwuid(os.getuid()).pw_name]


def test_somebody_else_is_refused(
    server: Server, path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_who", lambda peer: None)
    assert raw(path, b'{"verb": "pause"}\n') == {"ok": False, "error": "not permitted"}
    assert not control.pause_asked


GARBAGE = (
    b"", b"\n", b"not json\n", b"[1, 2]\n", b"null\n", b'"pause"\n', b"\xff\xfe\x00\n",
    b"[" * (LIMIT - 1), b"{" * 5000 + b"\n", b'{"a":' * 2000 + b"\n", b'{"verb": "pause"',
    b"x" * (LIMIT - 1), b"GET / HTTP/1.1\r\n\r\n", b"1" * 5000 + b"\n",
)  # fmt: skip


def test_garbage_is_answered_and_the_next_client_served(
    server: Server, path: Path, control: Control
) -> None:
    for garbage in GARBAGE:
        assert raw(path, garbage) == {"ok": False, "error": "not a message"}, garbage[:20]
        assert not control.pause_asked
        assert send(path, {"verb": "status"})["ok"] is True


def test_a_message_that_makes_no_sense_is_refused(
    server: Server, path: Path, control: Control
) -> None:
    messages: tuple[dict[str, Any], ...] = (
        {}, {"verb": None}, {"verb": ["pause"]}, {"verb": {"a": 1}}, {"verb": "\x1b[31m" * 99},
        {"verb": "explode"}, {"verb": "pause", "step": {"a": [1]}}, {"verb": "skip", "args": "x"},
        {"verb": "pause", "attempt": "1"}, {"verb": "approve", "args": None},
    )  # fmt: skip
    for message in messages:
        answer = send(path, message)
        assert (answer["ok"], bool(answer["error"])) == (False, True), message
        assert answer["error"].isprintable()
        assert not control.pause_asked


def test_a_client_that_leaves_at_once_costs_nothing(server: Server, path: Path) -> None:
    for _ in range(20):
        with connected(path) as peer:
            peer.sendall(b'{"verb": "status"}\n')
    assert send(path, {"verb": "status"})["ok"] is True


def test_a_moment_without_descriptors_or_threads_ends_no_control(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is in its accept already: the first client is taken, the next ones are not."""
    real, refused = server._socket, threading.Event()

    class Full:
        def accept(self) -> Any:
            monkeypatch.setattr(server, "_socket", real)
            refused.set()
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(server, "_socket", Full())
    assert send(path, {"verb": "status"})["ok"] is True
    assert send(path, {"verb": "status"})["ok"] is True
    assert refused.is_set()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert send(path, {"verb": "status"})["ok"] is True
    assert send(path, {"verb": "pause"})["ok"] is True


def test_no_runner_is_a_message_with_a_way_out(path: Path, tmp_path: Path) -> None:
    dead = Server(path, Control())
    dead._socket.shutdown(socket.SHUT_RDWR)
    dead._socket.close()
    (tmp_path / "file").write_text("x")
    for name in (path.name, "missing", "gone/control.sock", "file"):
        with pytest.raises(ControlError) as caught:
            send(tmp_path / name, {"verb": "status"})
        assert caught.value.exit_code is Exit.FAILED
        assert "omni-console rollback" in caught.value.hint


@pytest.mark.parametrize("answer", [b"", b"garbage\n", b"[]\n"])
@pytest.mark.usefixtures("server")
def test_an_answer_that_is_garbled(
    path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    def answered(self: Server, peer: socket.socket) -> None:
        peer.recv(4096)
        peer.sendall(answer)
        peer.close()

    monkeypatch.setattr(Server, "_serve_peer", answered)
    with pytest.raises(ControlError, match="garbled"):
        send(path, {"verb": "status"})


def test_a_refusal_comes_with_where_the_run_is(
    server: Server, path: Path, control: Control
) -> None:
    answer = send(path, {"verb": "pause", "step": "build"})
    assert (answer["ok"], answer["step"], control.pause_asked) == (False, "bench", False)
    assert raw(path, b'{"ver', b'b": "pa', b'use"}', b"\n")["ok"] is True, "in pieces"
    assert control.pause_asked


def test_a_stale_socket_is_replaced_whatever_the_length_of_its_path(
    tmp_path: Path, control: Control
) -> None:
    path = tmp_path.joinpath(*["d" * 50] * 8, "control.sock")
    path.parent.mkdir(parents=True)
    old = Server(path, Control())
    old._socket.close()
    assert path.exists()
    server = Server(path, control)
    mode = path.stat().st_mode
    assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    assert send(path, {"verb": "status"})["step"] == "bench"
    server.close()
    assert not path.exists()
