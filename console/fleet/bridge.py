"""The far side: answers one operator's questions on stdio, and ends with its stdin.

It holds nothing and decides nothing: plans, starts and verbs go through what the commands of this
host use. What acts needs a token that this process gave at most VALID_S ago, by this host's clock:
a question that was stuck in a dead line and arrives late does nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from console.common import redact
from console.common.clock import Clock
from console.common.errors import ConsoleError, Exit
from console.common.files import write_all
from console.common.paths import module_argv
from console.common.text import clean, one_line
from console.fleet.protocol import (
    BINDS,
    MAX_NAME,
    SEVERAL,
    TOO_LATE,
    VERSION,
    WHOLE,
    BridgeError,
    Lines,
    failure,
    hello,
    line,
    parsed,
    refusal,
)
from console.journal.run_dir import RunDir, SeveralRuns, all_runs, find_run
from console.recovery.rollback.shell.program_gone import newest_script, or_script

if TYPE_CHECKING:
    from console.config.site.site import Site
    from console.journal.store import Reader, Row

IDLE_S = 600.0
"""A bridge that nobody asks for that long ends: its line may be dead without a word."""
VALID_S = 10.0
MAX_EVENTS, MAX_PAGE = 500, 1 << 20
"""Events, and bytes of them, in one answer; at least one event."""
TELL_S = 5.0


class Bridge:
    """The questions of one operator. `look`: the state of this host; `site`: its site, loaded when
    it is wanted."""

    def __init__(
        self, look: Callable[[], dict[str, Any]], site: Callable[[], Site], clock: Clock,
        site_file: str = "",
    ) -> None:  # fmt: skip
        self._look, self._site, self._clock, self._site_file = look, site, clock, site_file
        self._tokens: dict[str, tuple[float, frozenset[str]]] = {}
        self._reader: Reader | None = None
        self._run: RunDir | None = None
        self._forward: Callable[[str], None] = lambda text: None
        self._questions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "state": lambda question: self._look(),
            "journal": self._journal,
            "plan": self._plan,
            "ready": self._ready,
            "started": self._started,
            "start": self._start,
            "tell": self._tell,
            "rollback": self._rollback,
        }

    def serve(self, lines: Lines, send: Callable[[bytes], None], version: str, host: str) -> None:
        """Answer until the input ends, or nobody takes the answers any more."""
        with contextlib.suppress(OSError, TimeoutError):
            send(line(hello(version, host)))
            while True:
                question: dict[str, Any] = {}
                try:
                    data = lines.next(IDLE_S)
                    if data is None:
                        return
                    question = parsed(data)
                    number = question.get("id")
                    self._forward = lambda text, number=number: send(  # type: ignore[misc]
                        line({"id": number, "said": clean(text, 1000)})
                    )
                    data = line({"id": number, "ok": True, **_shown(self.answer(question))})
                except BridgeError as error:
                    error_fields = _shown(failure(error))
                    data = line({"id": question.get("id"), "ok": False, "error": error_fields})
                send(data)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question. Raises BridgeError."""
        name = question.get("ask")
        ask = self._questions.get(name) if isinstance(name, str) else None
        if ask is None:
            there = ", ".join(self._questions)
            words = f"no question '{one_line(str(name), 40)}'"
            raise BridgeError("unknown_question", words, f"there are: {there}")
        # an emergency asks whatever console is there
        if name not in ("ready", "rollback") and question.get("v") != VERSION:
            raise BridgeError(
                "version",
                f"this host speaks version {VERSION} of the bridge, not "
                f"{one_line(str(question.get('v')), 20)}",
                "",
                "the same omni-console on both sides",
                Exit.USAGE,
            )
        try:
            return ask(question)
        except BridgeError:
            raise
        except Exception as error:  # the next question is answered whatever this one met
            raise refusal(failure(error)) from error

    # -- questions that look -----------------------------------------------------------------------

    def _journal(self, question: dict[str, Any]) -> dict[str, Any]:
        """A page of a run's journal after `since`; with `attend` it renews the run's lease."""
        from console.journal.lock import closer_alive, runner_alive
        from console.recovery.rollback.trigger import is_held

        run = self._run
        if run is None or run.id != question.get("run") or not run.path.is_dir():
            self._run = run = _named(question, exact=False)
        # first: a runner that ends after this has written its end before the page is read
        alive = runner_alive(run)
        goes_on = alive or closer_alive(run) or is_held(run.rollback)
        status: dict[str, Any] = {}
        follows, unit = question.get("attend") is True, False
        if follows and not goes_on:
            from console.runner.unattended import boot

            unit = boot.is_acting()
        if alive and follows:
            from console.runner import control

            with contextlib.suppress(ConsoleError, OSError):
                words = {"verb": "status", "attached": True}
                status = control.send(run.socket, words, TELL_S)
        events, more = self._page(run, _count(question, "since"), alive)
        return {
            "run": run.id, "events": events, "more": more, "alive": alive,
            "goes_on": goes_on or unit, "unit": unit, "status": status,
        }  # fmt: skip

    def _page(self, run: RunDir, since: int, alive: bool) -> tuple[list[list[Any]], bool]:
        from console.journal.store import JournalError, Reader

        if self._reader is None or self._reader.path != run.journal:
            if self._reader is not None:
                self._reader.close()
            self._reader = Reader(run.journal)
        try:
            rows = self._reader.rows(since, most=MAX_EVENTS)
        except JournalError:
            if not alive:
                raise
            rows = []  # its runner writes to it: the next question reads it
        page: list[list[Any]] = []
        size = 0
        for journal_row in rows:
            row = _row(journal_row)
            size += len(json.dumps(row))
            if page and size > MAX_PAGE:
                return page, True
            if size > MAX_PAGE:  # it alone is too long: its place is kept
                words = f"an event of {size} bytes is only in the journal on the host"
                row = [*row[:2], "run.note", *row[3:5], {"text": words}]
            page.append(row)
        return page, len(rows) == MAX_EVENTS

    def _plan(self, question: dict[str, Any]) -> dict[str, Any]:
        """What a playbook would do here, and the hash by which a start names it."""
        from console.fleet import starts

        plan = starts.shown(starts.Wanted.read(question), self._site())
        answer = starts.plan_answer(plan)
        starts.keep(plan)
        return answer

    def _started(self, question: dict[str, Any]) -> dict[str, Any]:
        """The run that a request has started, null for none; then the job of Slurm's, if it waits
        for one."""
        from console.fleet import starts

        request = _word(question, "request")
        run, waits = starts.run_of(request), None
        if run is None:
            waits = starts.waits(request)
        job = {"job": waits.as_json()} if waits is not None else {}
        return {"run": run.id if run is not None else None, **job}

    # -- questions that act ------------------------------------------------------------------------

    def _ready(self, question: dict[str, Any]) -> dict[str, Any]:
        """A token for one question that acts, and the newest run that is here now."""
        now, runs = self._clock.monotonic(), [run.id for run in all_runs()]
        self._tokens = {k: v for k, v in self._tokens.items() if now - v[0] <= VALID_S}
        token = os.urandom(8).hex()
        self._tokens[token] = (now, frozenset(runs))
        return {"token": token, "valid_s": VALID_S, "run": runs[0] if runs else ""}

    def _spend(self, question: dict[str, Any]) -> frozenset[str]:
        """The runs that were there when this token was given. Raises BridgeError if it was too long
        ago."""
        given, runs = self._tokens.pop(_word(question, "token"), (float("-inf"), frozenset[str]()))
        if self._clock.monotonic() - given > VALID_S:
            raise BridgeError(
                TOO_LATE, "this came too late, and nothing was done",
                f"what acts is taken within {VALID_S:.0f} s of `ready`, once",
            )  # fmt: skip
        return runs

    def _start(self, question: dict[str, Any]) -> dict[str, Any]:
        from console.fleet import starts

        request, confirmed = _word(question, "request"), _word(question, "hash")
        self._spend(question)
        run, begun = starts.start(
            request, confirmed, self._site(), lambda text: self._tell_said(text),
            headless=question.get("headless") is not False,
        )  # fmt: skip
        return {"run": run.id if run is not None else None, "begun": begun}

    def _tell(self, question: dict[str, Any]) -> dict[str, Any]:
        """Give a run a verb, bound to what the operator saw of it."""
        from console.journal.lock import runner_alive
        from console.journal.state import VERBS
        from console.runner import control

        run, verb, seen = (
            _named(question, exact=True),
            _word(question, "verb"),
            question.get("seen"),
        )
        self._spend(question)
        if verb not in VERBS or verb == "rollback":
            words = "a rollback is a question of its own" if verb == "rollback" else ""
            raise BridgeError("unknown_question", f"no verb '{one_line(verb, 40)}' here", words)
        if not runner_alive(run):
            raise BridgeError("no_run", f"run {run.id} has no runner any more")
        table = seen if isinstance(seen, dict) else {}
        bound = {name: table[name] for name in BINDS if name in table and verb not in WHOLE}
        if verb not in WHOLE and len(bound) < len(BINDS):
            raise BridgeError("bad_question", f"'{verb}' names step, attempt and evidence as seen")
        args = {
            "inputs": question.get("inputs") or {},
            "confirm": str(question.get("confirm") or ""),
        }
        message = {"verb": verb, "why": str(question.get("why") or ""), "args": args, **bound}
        answer = control.send(run.socket, message, TELL_S)
        if not answer.get("ok"):
            why = clean(str(answer.get("error", "")), 300)
            code = "moved_on" if "moved on" in why else "refused"
            raise BridgeError(code, f"{verb} refused", why)
        return {"status": answer}

    def _rollback(self, question: dict[str, Any]) -> dict[str, Any]:
        """Run this host's own `rollback`, and wait for it. It has a session of its own: with the
        line lost it goes on to its end."""
        known = self._spend(question)
        # one that was refused meanwhile, and is gone, is no newer one
        if new := [run.id for run in all_runs() if run.id not in known]:
            raise BridgeError("moved_on", f"run {new[0]} has begun meanwhile")
        site = [f"--site={self._site_file}"] if self._site_file else []
        heard: list[bytes] = []
        argv = [*module_argv("console.cli"), "rollback", "--json", *site]
        with subprocess.Popen(
            or_script(argv, newest_script(self._site_file), "--json"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        ) as child:  # fmt: skip
            out, stderr = child.stdout, child.stderr
            assert out is not None
            assert stderr is not None
            reader = threading.Thread(target=lambda: heard.append(out.read()), daemon=True)
            reader.start()
            for raw in stderr:
                self._tell_said(raw.decode("utf-8", "replace"))
            code = child.wait()
            reader.join()
        results = []
        for raw in heard[0].splitlines() if heard else ():
            with contextlib.suppress(ValueError, RecursionError):
                results.append(json.loads(raw))
        return {"exit": code, "results": results}

    def _tell_said(self, text: str) -> None:
        """Pass a line on; a line that is lost keeps nothing from happening."""
        with contextlib.suppress(OSError):
            self._forward(text)


def _shown(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without the secrets in what this host has read; the token of an act is meant for
    who asks."""
    return {
        name: value if name == "token" else redact.data(value) for name, value in answer.items()
    }


def _named(question: dict[str, Any], *, exact: bool) -> RunDir:
    """The run that a question names. `exact`: by its whole id. Raises BridgeError."""
    name = _word(question, "run")
    try:
        if not name or "/" in name:
            raise BridgeError("bad_question", "which run?")
        run = find_run(name)
    except BridgeError:
        raise
    except ConsoleError as error:
        code = SEVERAL if isinstance(error, SeveralRuns) else "no_run"
        raise BridgeError(code, error.title, error.detail, error.hint) from error
    if exact and run.id != name:
        raise BridgeError("no_run", f"'{one_line(name, 60)}' is no whole id of a run here")
    return run


def _word(question: dict[str, Any], name: str) -> str:
    value = question.get(name)
    if not isinstance(value, str) or len(value) > MAX_NAME:
        raise BridgeError("bad_question", f"{name} is missing, or no text")
    return value


def _count(question: dict[str, Any], name: str) -> int:
    value = question.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise BridgeError("bad_question", f"{name} is no count")
    return value


def _row(row: Row) -> list[Any]:
    """A row as it stands, with keys that this program does not know; who gets it judges it."""
    from console.journal.store import event_of

    event = event_of(*row)
    return [event.seq, event.at, event.kind, event.step, event.attempt, row.data or {}]


def own_stdio() -> tuple[int, Callable[[bytes], None]]:
    """The descriptor of the questions, and what takes answers. Whatever else prints on stdout, a
    library too, comes out on stderr from here on."""
    out = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return 0, lambda data: write_all(out, data)
