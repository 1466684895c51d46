"""A GGUF file behind a web address, read by ranges; no byte is fetched twice."""

from __future__ import annotations

import re

from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.common.units import format_bytes
from console.models.gguf.byte_source import (
    FIRST_READ,
    Address,
    GgufError,
    Kind,
    follow,
    parse_address,
)
from console.models.gguf.http import Answer, Wire, refusal

STEP = 2 * 2**20
"""Bytes per read after the first range: four make the longest usual headers."""
MAX_REDIRECTS = 5
MAX_EXCHANGES = 64
"""Most requests: a header that jumps from string to string could need millions."""
_REDIRECTS = (301, 302, 303, 307, 308)
_SMALL_BODY = 4 * 1024
"""A redirect's body up to this size is read, so that its connection can be reused."""
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,18})")
_TOKEN = re.compile(r"[!-~]{1,4096}")
_PINNED = ("x-repo-commit", "x-linked-etag", "x-linked-size")


class RemoteFile:
    """A file that a server gives in ranges; redirects are followed by hand and remembered.

    The token goes only to the host and port of the first address. What the answers say about the
    file must stay the same from range to range. `notes` are remarks on the server for the operator.
    Raises GgufError throughout.
    """

    def __init__(
        self, url: str, token: str, clock: Clock | None, deadline_s: float, first: int = FIRST_READ
    ) -> None:
        """`first` are the bytes of the first range."""
        self._start = self._at = parse_address(url)
        if token and not _TOKEN.fullmatch(token):
            raise GgufError(
                Kind.REFUSED,
                "the token cannot be sent",
                "it holds spaces or unprintable characters",
            )
        self._token = token
        self._clock = clock or SystemClock()
        self._wire = Wire(self._clock, deadline_s)
        self._facts: dict[str, str] = {}
        self._end, self._first = 0, first
        self._whole = False
        self.name = self._start.shown
        self.total: int | None = None
        self.notes: list[str] = []

    def __enter__(self) -> RemoteFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.close()

    @property
    def exchanges(self) -> int:
        """Requests sent, redirects counted."""
        return self._wire.exchanges

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies received, of redirects too."""
        return self._wire.body_bytes

    def read(self, offset: int) -> bytes:
        if self.total is not None and offset >= self.total:
            return b""
        if self._whole:
            words = f"the server ignores Range: reading stopped after {format_bytes(self._end)}"
            hint = "a mirror or a proxy in between? ask the hub itself, or fetch the file"
            raise self._error(Kind.NO_RANGES, f"{words}, and more is needed", hint)
        step = STEP if offset - self._end < STEP else FIRST_READ
        last = offset + (step if self._end else self._first) - 1
        if self.total is not None:
            last = min(last, self.total - 1)
        answer = self._fetch(offset, last)
        data = self._data(answer, offset, last)
        self._end = offset + len(data)
        return data

    def _error(self, kind: Kind, words: str, hint: str = "") -> GgufError:
        return GgufError(kind, f"{self.name} cannot be read", words, hint)

    def _fetch(self, first: int, last: int) -> Answer:
        been: set[Address] = set()
        headers = {
            "User-Agent": "omni-console",
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "Range": f"bytes={first}-{last}",
        }
        while self.exchanges < MAX_EXCHANGES:
            own = self._token and self._at.origin == self._start.origin
            sent = headers | ({"Authorization": f"Bearer {self._token}"} if own else {})
            answer = self._wire.get(self._at, sent, lambda code: _wanted(code, first, last))
            self._pin(answer)
            if answer.status not in _REDIRECTS or "location" not in answer.headers:
                return answer
            been.add(self._at)
            self._at = follow(self._at, answer.headers["location"], self._start)
            if self._at in been:
                raise self._error(Kind.PROTOCOL, "its redirects go round in a circle")
            if len(been) > MAX_REDIRECTS:
                raise self._error(Kind.PROTOCOL, f"more than {MAX_REDIRECTS} redirects")
        raise self._error(Kind.TOO_BIG, f"the header is not read after {MAX_EXCHANGES} requests")

    def _pin(self, answer: Answer) -> None:
        """Compare what an answer says about the file with earlier answers."""
        final = answer.status in (200, 206)
        for key in (*_PINNED, *(("etag",) if final else ())):
            header = answer.headers.get(key)
            if header is not None and self._facts.setdefault(key, header) != header:
                raise self._changed(f"{key} was another")
        linked = self._facts.get("x-linked-size", "")
        if re.fullmatch(r"\d{1,18}", linked, re.ASCII):
            self._settle(int(linked))

    def _settle(self, total: int) -> None:
        if self.total is not None and self.total != total:
            raise self._changed(f"{self.total} bytes, then {total}")
        self.total = total

    def _changed(self, words: str) -> GgufError:
        hint = "somebody is uploading, or mirrors differ: try again, with a fixed revision"
        return self._error(Kind.CHANGED, f"it changed while it was read: {words}", hint)

    def _data(self, answer: Answer, first: int, last: int) -> bytes:
        """The bytes of an answer, if it is the answer to the request."""
        if answer.status == 416:
            return self._past_the_end(answer, first)
        if answer.status not in (200, 206):
            own = bool(self._token) and self._at.origin == self._start.origin
            raise refusal(
                answer.status, answer.headers, self._at, token_sent=own, now=self._clock.now()
            )
        coding = answer.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            words = f"the server sent it compressed ({one_line(coding, 30)}), unasked"
            raise self._error(Kind.PROTOCOL, words, "a proxy in between?")
        return self._all(answer) if answer.status == 200 else self._part(answer, first, last)

    def _all(self, answer: Answer) -> bytes:
        """The start of the file from a server that ignores Range."""
        if self._end:
            raise self._error(Kind.NO_RANGES, "the server gave a range, and then ignored the next")
        self._whole = True
        length = answer.headers.get("content-length", "")
        if answer.complete:
            self.total = len(answer.body)
        elif self.total is None and re.fullmatch(r"\d{1,18}", length, re.ASCII):
            self.total = int(length)
        self.notes.append(
            f"the server ignores Range: reading stopped after {format_bytes(len(answer.body))}"
        )
        return answer.body

    def _part(self, answer: Answer, first: int, last: int) -> bytes:
        content_range = answer.headers.get("content-range")
        several = "multipart" in answer.headers.get("content-type", "")
        if content_range is None and first == 0 and not several:
            self.notes.append("the server does not say which range it sends (a mirror?)")
            begin, end, total = 0, len(answer.body) - 1, "*"
        else:
            match = _RANGE.fullmatch((content_range or "").strip())
            if match is None:
                shown = one_line(content_range or "none", 60)
                raise self._error(Kind.PROTOCOL, f"a range without a usable place: {shown}")
            begin, end, total = int(match[1]), int(match[2]), match[3]
        if begin != first or not begin <= end <= last:
            words = f"asked for bytes {first}-{last}, given bytes {begin}-{end}"
            raise self._error(Kind.PROTOCOL, f"the server sent another range: {words}")
        if len(answer.body) != end - begin + 1 or not answer.complete:
            words = f"a range of {end - begin + 1} bytes with {len(answer.body)} of them or more"
            raise self._error(Kind.PROTOCOL, words)
        if total != "*":
            self._settle(int(total))
        return answer.body

    def _past_the_end(self, answer: Answer, first: int) -> bytes:
        match = _UNSATISFIED.fullmatch(answer.headers.get("content-range", "").strip())
        if match and int(match[1]) > first:
            words = f"the server has {match[1]} bytes and refuses bytes from {first} on"
            raise self._error(Kind.PROTOCOL, words)
        self._settle(int(match[1]) if match else first)
        return b""


def _wanted(status: int, first: int, last: int) -> int:
    if status == 206:
        return last - first + 1
    if status == 200:
        return FIRST_READ if first == 0 else 0
    return _SMALL_BODY if status in _REDIRECTS else 0
