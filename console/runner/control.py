"""The control socket: the operator's verbs, each acknowledged and bound to what the operator saw.

A verb names its step, attempt and evidence. If these have changed meanwhile the verb is refused, so
that a late key press cannot approve something else. Each message is one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import ConsoleError, ControlError
from console.common.text import clean, one_line
from console.journal.state import RunState, refusal

LIMIT = 64 * 1024
AGAIN_S = 0.2
"""How long the socket rests after a client could not be let in."""
NEEDS_REASON = frozenset({"skip"})
DECIDES = frozenset({"approve", "reject", "retry", "measure", "skip", "next"})
"""Verbs that answer what the run waits for; of several at one moment the first one counts."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What an operator asked for; `who` comes from the socket's peer credentials."""

    verb: str
    who: str = ""
    why: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    cause: str = ""
    """Why nobody asked for it: the cause that steps and run end with."""


class Control:
    """Where the runner stands and what was asked of it; shared by runner and socket threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.state = RunState.PENDING
        self.reason = ""
        self.step = ""
        self.attempt = 0
        self.evidence = ""
        self.is_gate = False
        self.implicit = False
        self.confirm = ""
        self.cancelled = threading.Event()
        self.pause_asked = False
        self.stop_verb: Verb | None = None
        self.mode = "all"
        self.lease: float | None = None
        self.attended_at = float("-inf")
        self.inbox: queue.Queue[Verb] = queue.Queue()
        self._answer: Verb | None = None
        self.check_inputs: Callable[[dict[str, Any], str], str] = lambda changes, why: ""
        self.on_verb: Callable[[Verb, str, int], None] = lambda verb, step, attempt: None

    def set(self, **values: Any) -> None:
        """Announce where the runner is; verbs for an earlier place are refused from now on."""
        with self._lock:
            for name, value in values.items():
                setattr(self, name, value)
            if not values.keys().isdisjoint(("state", "step", "attempt", "evidence")):
                self._forget()

    def _forget(self) -> None:
        """Drop repeated key presses meant for what is over; keep verbs that stop the run."""
        self._answer = None
        kept: list[Verb] = []
        with contextlib.suppress(queue.Empty):
            while True:
                verb = self.inbox.get_nowait()
                kept += [verb] if verb.verb in ("abort", "rollback") else []
        for verb in kept:
            self.inbox.put(verb)

    def status(self) -> dict[str, Any]:
        running = self.state is RunState.RUNNING
        return {
            "state": str(self.state), "reason": self.reason, "step": self.step,
            "attempt": self.attempt, "evidence": self.evidence,
            # how it goes on from here: to the end, to the next gate, one step, or not at all
            "mode": "pausing" if running and self.pause_asked else self.mode,
            "confirm": self.confirm, "lease": self.lease,
        }  # fmt: skip

    def attend(self) -> None:
        """Note that an operator is viewing this run now."""
        self.attended_at = time.monotonic()

    def is_attended(self, now: float, within_s: float) -> bool:
        """Whether an operator viewed the run in the last seconds; `now` is monotonic."""
        return now - self.attended_at <= within_s

    def halt(self, verb: Verb) -> None:
        """Stop the run without a verb, even if it cannot be recorded; no-op if it stops already."""
        with self._lock:
            if self.stop_verb is None:
                self._stop(verb)

    def _stop(self, verb: Verb) -> None:
        """Stop first and record afterwards if possible: it must work on a full disk."""
        self.stop_verb = verb
        self.cancelled.set()
        self.inbox.put(verb)
        self._write_down(verb)

    def _write_down(self, verb: Verb) -> str:
        """Record the verb; return "" if that worked, else why not."""
        try:
            self.on_verb(verb, self.step, self.attempt)
        except (ConsoleError, OSError) as error:
            return one_line(str(error), 200)
        return ""

    def ask(self, verb: Verb, seen: dict[str, Any]) -> str:
        """Take a verb; returns "" when accepted, else why not."""
        with self._lock:
            no = self._why_not(verb, seen)
            if no:
                return no
            if verb.verb in ("abort", "rollback"):
                self._stop(verb)
                return ""
            no = self._write_down(verb)
            if no:
                return f"the journal cannot be written, so nothing was done: {no}"
            if verb.verb == "pause":
                self.pause_asked = True
            else:
                if verb.verb in ("auto", "continue"):
                    self.mode = "gate" if verb.verb == "auto" else "all"
                    self.pause_asked = False
                if verb.verb == "next":
                    self.mode = "step"
                if self.state is not RunState.RUNNING:
                    self._answer = self._answer or verb
                    self.inbox.put(verb)
            return ""

    def _why_not(self, verb: Verb, seen: dict[str, Any]) -> str:
        if self.stop_verb is not None:
            return f"the run is stopping ({self.stop_verb.verb})"
        no = refusal(verb.verb, self.state, self.reason)
        if no:
            return no
        for name in ("step", "attempt", "evidence"):
            if name in seen and seen[name] != getattr(self, name):
                return (
                    f"the run has moved on: {name} is now {one_line(str(getattr(self, name)), 60)}"
                    f", not {one_line(str(seen[name]), 60)}"
                )
        if self._answer is not None and _is_another(verb, self._answer):
            return f"the run was answered a moment ago: {self._answer.verb}"
        if verb.verb in NEEDS_REASON and not verb.why.strip():
            return f"'{verb.verb}' needs a reason"
        if verb.verb in ("retry", "measure") and verb.args.get("inputs"):
            return self.check_inputs(verb.args["inputs"], verb.why)
        if verb.verb == "approve":
            return self._approve_why_not(verb, seen)
        if verb.verb == "skip" and self.implicit:
            return "the plan added this step, so it cannot be skipped; abort stops the run"
        if verb.verb == "skip" and self.is_gate:
            return "a gate cannot be skipped; approve overrides it, with a reason"
        return ""

    def _approve_why_not(self, verb: Verb, seen: dict[str, Any]) -> str:
        if "evidence" not in seen:
            return "an approval must name the evidence that it was shown"
        if self.state is RunState.PAUSED:
            return "" if verb.why.strip() else "overriding a gate needs a reason"
        if self.confirm and verb.args.get("confirm") != self.confirm:
            return f"type the word {clean(self.confirm, 300)} to approve"
        return ""


def _is_another(verb: Verb, first: Verb) -> bool:
    """Whether a verb answers otherwise than the first one, which the runner is about to take; the
    same one again is a second press."""
    inputs, before = (request.args.get("inputs") or {} for request in (verb, first))
    return verb.verb in DECIDES and (verb.verb, inputs) != (first.verb, before)


class Server:
    """The runner's socket, served by its own threads; a stuck client blocks only its thread."""

    def __init__(self, path: Path, control: Control) -> None:
        self.path = path
        self.control = control
        self._closed = threading.Event()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with short_address(path) as address:
            self._socket.bind(address)
        os.chmod(path, 0o600)
        self._socket.listen(128)
        threading.Thread(target=self._serve, name="control", daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        with contextlib.suppress(OSError):  # closing alone would leave the thread in its accept
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                if self._closed.wait(AGAIN_S):
                    return
                continue  # out of descriptors, for a moment: the next key press may be heard
            try:
                threading.Thread(
                    target=self._serve_peer, args=(peer,), name="verb", daemon=True
                ).start()
            except RuntimeError:  # no thread left
                self._serve_peer(peer)

    def _serve_peer(self, peer: socket.socket) -> None:
        with contextlib.suppress(OSError), peer:
            peer.settimeout(5.0)
            message, who = _receive(peer), _who(peer)
            if who is None:
                peer.sendall(_line({"ok": False, "error": "not permitted"}))
                return
            peer.sendall(_line(self._answer(message, who)))

    def _answer(self, message: dict[str, Any] | None, who: str) -> dict[str, Any]:
        if message is None:
            return {"ok": False, "error": "not a message"}
        name = str(message.get("verb", ""))
        if message.get("attached") is True or name != "status":
            self.control.attend()
        if name == "status":
            return {"ok": True, **self.control.status()}
        args = message.get("args")
        verb = Verb(
            one_line(name, 40), who, one_line(str(message.get("why", "")), 300),
            args if isinstance(args, dict) else {},
        )  # fmt: skip
        names = ("step", "attempt", "evidence")
        seen: dict[str, Any] = {k: message[k] for k in names if k in message}
        if "evidence" in seen:
            verb.args["evidence"] = seen["evidence"]
        no = self.control.ask(verb, seen)
        return {"ok": not no, "error": no, **self.control.status()}


def send(path: Path, message: dict[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
    """Send one verb to a runner and return its answer. Raises ControlError when none answers."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        try:
            with short_address(path) as address:
                peer.connect(address)
            peer.sendall(_line(message))
            answer = _receive(peer)
        except OSError as error:
            raise ControlError(
                "the runner does not answer", error.strerror or str(error),
                "omni-console show says whether it is alive; omni-console rollback always works",
            ) from error  # fmt: skip
    if answer is None:
        raise ControlError("the runner's answer is garbled")
    return answer


@contextlib.contextmanager
def short_address(path: Path) -> Iterator[str]:
    """A socket address for a path of any length: sockaddr_un holds only 108 bytes."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def _who(peer: socket.socket) -> str | None:
    """The peer's user name; None unless it is this user or root."""
    data = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", data)
    if uid not in (0, os.getuid()):
        return None
    import pwd

    try:
        return clean(pwd.getpwuid(uid).pw_name, 60)
    except KeyError:
        return f"uid {uid}"


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _receive(peer: socket.socket) -> dict[str, Any] | None:
    data = b""
    while not data.endswith(b"\n") and len(data) < LIMIT:
        chunk = peer.recv(4096)
        if not chunk:
            break
        data += chunk
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None
