"""A server's fingerprint: its answers to every case, asked more than once, so that what differs
from itself is known. It goes to JSON and back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from console.bench.contract.answer import SILENT, UNTOLD, Answer, answer_of
from console.bench.contract.ask import KINDS, Case, Server, ask, look
from console.bench.sse import json_object
from console.common.errors import ServiceError, UsageError
from console.common.files import read_bytes
from console.common.text import clean, one_line

SCHEMA = "omni.fingerprint/v1"
REPEAT = 2
"""How often each case is asked: twice shows what differs from itself."""
MAX_DEAD = 3
"""Requests without an answer, one after the other, after which the server counts as gone."""
MAX_BYTES = 32 * 2**20
MAX_AT = 1e12

Say = Callable[[int, int, str], None]
"""Called before each request with (requests made, requests in all, the case)."""


@dataclass(frozen=True, slots=True)
class CaseAnswers:
    """A case, and a server's answers to it, one for each time that it was asked."""

    kind: str
    digest: str
    answers: tuple[Answer, ...]

    @property
    def group(self) -> str:
        return KINDS[self.kind].group

    @property
    def states(self) -> list[str]:
        return [answer.state for answer in self.answers]

    @property
    def untold(self) -> str:
        """Why it is not known what the server answers: in words; "" where it is."""
        return next(
            (answer.why or answer.state for answer in self.answers if answer.state in UNTOLD), ""
        )

    def values(self, part: str, name: str) -> list[Any]:
        """What a fact of `form` or `content` was each time; None where it is missing."""
        return [getattr(answer, part).get(name) for answer in self.answers]

    def names(self, part: str) -> list[str]:
        """The facts of `form` or `content`, in their order."""
        return list(
            dict.fromkeys(name for answer in self.answers for name in getattr(answer, part))
        )

    def unsteady(self, part: str) -> bool:
        """Whether the server's own answers differ in `form` or in `content`."""
        return any(
            getattr(answer, part) != getattr(self.answers[0], part) for answer in self.answers[1:]
        )


@dataclass(frozen=True)
class Fingerprint:
    """All answers of one server. `at`: when it was taken, Unix seconds."""

    url: str = ""
    engine: str = ""
    build: str = ""
    at: float = 0.0
    cases: Mapping[str, CaseAnswers] = field(default_factory=dict)

    @property
    def offered(self) -> int:
        return sum("offered" in case.states for case in self.cases.values())

    @property
    def untold(self) -> dict[str, str]:
        """The cases of which nothing is known, and why."""
        return {name: case.untold for name, case in self.cases.items() if case.untold}

    @property
    def unsteady(self) -> list[str]:
        """Cases in which the server differs from itself."""
        return [
            name for name, case in self.cases.items()
            if case.unsteady("form") or case.unsteady("content") or len({*case.states}) > 1
        ]  # fmt: skip

    def lacks(self, cases: Sequence[Case]) -> list[Case]:
        """The cases that are not in it, or that ask something else by now."""
        return [
            case for case in cases
            if case.id not in self.cases or self.cases[case.id].digest != case.digest
        ]  # fmt: skip

    def of(self, cases: Sequence[Case]) -> Fingerprint:
        """Only what was answered to these cases, in their order."""
        kept = {case.id: self.cases[case.id] for case in cases if not self.lacks([case])}
        return replace(self, cases=kept)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA, "url": self.url, "engine": self.engine, "build": self.build,
            "at": self.at,
            "cases": {
                name: {"kind": case.kind, "digest": case.digest,
                       "answers": [answer.to_json() for answer in case.answers]}
                for name, case in self.cases.items()
            },
        }  # fmt: skip


def fingerprint_of(data: Any) -> Fingerprint:
    """A fingerprint from its JSON. Raises ValueError."""
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"expected a fingerprint ({SCHEMA})")
    cases, at = data.get("cases"), data.get("at")
    if not isinstance(cases, dict) or not isinstance(at, int | float):
        raise ValueError("a fingerprint has cases and the time when it was taken")
    if not abs(at) < MAX_AT:
        raise ValueError("a fingerprint has the time when it was taken")
    words = {key: clean(str(data.get(key) or ""), 300) for key in ("url", "engine", "build")}
    return Fingerprint(at=float(at), cases=dict(_read(cases)), **words)


def _read(cases: Mapping[str, Any]) -> Iterator[tuple[str, CaseAnswers]]:
    for name, case in cases.items():
        kind = case.get("kind") if isinstance(case, dict) else None
        answers = case.get("answers") if isinstance(case, dict) else None
        if kind not in KINDS or not isinstance(answers, list) or not answers:
            raise ValueError(f"case {one_line(name, 60)} has no kind or no answers")
        made = tuple(answer_of(answer) for answer in answers)
        yield one_line(name, 60), CaseAnswers(str(kind), str(case.get("digest")), made)


def read_fingerprint(path: Path) -> Fingerprint:
    """The fingerprint in a file. Raises UsageError."""
    try:
        data = read_bytes(path)
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES} bytes")
        return fingerprint_of(json_object(data))
    except OSError as error:
        words = error.strerror or str(error)
        raise UsageError(f"the fingerprint {one_line(str(path))} cannot be read", words) from error
    except ValueError as error:
        raise UsageError(f"{one_line(str(path))} is no fingerprint", str(error)) from error


def take(
    url: str, cases: Sequence[Case], *, repeat: int = REPEAT, model: str = "",
    say: Say | None = None, now: Callable[[], float] = time.time,
) -> Fingerprint:  # fmt: skip
    """Ask a server every case, all of them once before the second time. `say` may raise, which ends
    it. Raises ServiceError if the server answers no longer."""
    server = look(url, model)
    given: dict[str, list[Answer]] = {case.id: [] for case in cases}
    dead = made = 0
    for _ in range(repeat):
        for case in cases:
            if say is not None:
                say(made, repeat * len(cases), case.id)
            answer = ask(server, case)
            given[case.id].append(answer)
            made += 1
            dead = dead + 1 if answer.state == SILENT else 0
            if dead >= min(MAX_DEAD, repeat * len(cases)):
                raise ServiceError("the server does not answer", answer.why)
    case_answers = {
        case.id: CaseAnswers(case.kind, case.digest, tuple(given[case.id])) for case in cases
    }
    return Fingerprint(_shown(server), server.engine, server.build, now(), case_answers)


def _shown(server: Server) -> str:
    """The address without a password in it."""
    scheme, mark, rest = server.url.partition("://")
    host, slash, path = rest.partition("/")
    return clean(f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}", 200)
