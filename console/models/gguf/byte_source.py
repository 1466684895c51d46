"""Sources of a GGUF file's bytes, the window over them, and errors for unreadable headers.

The window moves forward over a file, whatever pieces its source gives, and keeps only what it
needs. Addresses are checked and printed without secrets; redirects are followed only if safe.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urljoin, urlsplit

from console.common.errors import ConsoleError, Exit
from console.common.text import decode, harmless, one_line
from console.common.units import format_bytes

HEAD = 1024
"""Bytes that suffice to tell what a file is."""
_POINTER = b"version https://git-lfs.github.com/spec/"
_SIZE = re.compile(rb"^size (\d{1,20})$", re.MULTILINE)
_OLD = (b"lmgg", b"fmgg", b"tjgg", b"algg")
_MAGICS = (
    (b"\x1f\x8b", "a gzip archive", "unpack it: gunzip"),
    (b"PK\x03\x04", "a zip archive, or a PyTorch checkpoint", ""),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it: zstd -d"),
    (b"%PDF", "a PDF document", ""),
)

FIRST_READ = 60 * 1024
"""Bytes of the first read: nearly every file has its architecture in the first hundred, and the
header of a later shard fits whole. With the body of a redirect it stays below 64 KiB."""
READ_LIMIT = 64 * 2**20
"""The longest real headers (260,000 tokens, 510,000 merges) take about 15 MiB."""
MAX_STRING = 2**30
"""llama.cpp's own limit."""

STEP = 2**20


class Kind(StrEnum):
    """What went wrong; the value is the operator's word for it."""

    NOT_GGUF = "not a GGUF file"
    MALFORMED = "malformed"
    UNSUPPORTED = "unsupported"
    TRUNCATED = "truncated"
    TOO_BIG = "too big"
    NO_ARCHITECTURE = "no architecture"
    MISSING = "missing"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    RATE_LIMITED = "rate limited"
    SERVER = "server error"
    UNREACHABLE = "unreachable"
    BROKEN_OFF = "broken off"
    TIMEOUT = "too slow"
    CHANGED = "changed while it was read"
    NO_RANGES = "no ranges"
    PROTOCOL = "wrong answer"


CERTAIN = frozenset({Kind.NOT_GGUF, Kind.MALFORMED, Kind.UNSUPPORTED, Kind.TRUNCATED, Kind.REFUSED})
"""No engine will load the file, or it cannot be had: NO-GO. Other errors may pass in a minute:
unknown. A missing file is a failure: a typing error must not read as a verdict."""


class GgufError(ConsoleError):
    """Why a header cannot be had."""

    def __init__(self, kind: Kind, title: str, detail: str = "", hint: str = "") -> None:
        super().__init__(title, detail, hint)
        self.kind = kind
        self.exit_code = Exit.NO_GO if kind in CERTAIN else Exit.HOLD
        if kind is Kind.MISSING:
            self.exit_code = Exit.FAILED


def identify(head: bytes) -> tuple[str, str]:
    """What a file without the magic `GGUF` is instead, by its first bytes, and a hint; clean."""
    if head.startswith(_POINTER):
        size = _SIZE.search(head)
        words = f" of {size[1].decode()} bytes" if size else ""
        return f"a git-lfs pointer to a file{words}", "git lfs pull fetches the file itself"
    for magic, words, hint in _MAGICS:
        if head.startswith(magic):
            return words, hint
    if head[:4] in _OLD:
        return "a model in a format older than GGUF", "convert the model again"
    if not head.strip(b"\0"):
        return "nothing but zero bytes", "a download that never finished: fetch it again"
    if head[8:9] == b"{" and head[4:8] == bytes(4):
        return "a safetensors file", "it is for SGLang or vLLM; llama.cpp takes GGUF"
    return _as_text(head.lstrip(b"\xef\xbb\xbf \t\r\n"), head)


def _as_text(start: bytes, head: bytes) -> tuple[str, str]:
    if start[:1] == b"<":
        title = re.search(rb"<title[^>]*>(.{1,200}?)</title>", head, re.IGNORECASE | re.DOTALL)
        named = f": {one_line(decode(title[1]), 80)}" if title else ""
        return f"a web page{named}", "a login or a proxy stands before the file; see the address"
    if start[:1] in (b"{", b"["):
        return f"JSON: {_message(head)}", "the server answered with a message, not with the file"
    if head.isascii() and decode(head[:64]).isprintable():
        return f"text: {one_line(decode(head), 80)}", ""
    return f"begins with the bytes {head[:4].hex(' ')}", "is this the right file?"


def _message(head: bytes) -> str:
    """The error in a JSON body, or the body's first words."""
    try:
        value = json.loads(head)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict):
        for key in ("error", "message", "detail"):
            if isinstance(value.get(key), str):
                return one_line(value[key], 120)
    return one_line(decode(head), 80)


class Source(Protocol):
    """A file that is read forwards.

    `name` is clean, for messages; `total` its bytes, None while unknown.
    """

    @property
    def name(self) -> str: ...
    @property
    def total(self) -> int | None: ...
    def read(self, offset: int) -> bytes:
        """Bytes from `offset` on, at least one of them; b"" at the end of the file.

        An offset is never below the end of what was given before. Raises GgufError.
        """


class Enough(Exception):
    """Raised when everything asked for is known, so that reading can end."""


class Window:
    """Takes values off a source in order; skipped bytes are not fetched if that can be avoided.

    Reading beyond `stop`, once set, raises Enough. `what` is the object of the search, for
    messages.
    """

    def __init__(self, source: Source, what: str, limit: int = READ_LIMIT) -> None:
        self._source, self._what, self._limit = source, what, limit
        self._chunk, self._base, self._at, self._pulled = b"", 0, 0, 0
        self.stop: int | None = None
        self.order("<")

    def order(self, sign: str) -> None:
        self.sign = sign
        self._u32, self._u64 = struct.Struct(f"{sign}I"), struct.Struct(f"{sign}Q")

    @property
    def offset(self) -> int:
        return self._base + self._at

    def error(self, kind: Kind, words: str, hint: str = "") -> GgufError:
        """The error for what stands before the offset."""
        title = f"the GGUF header of {self._source.name} cannot be used"
        return GgufError(kind, title, f"{kind}: {words} (byte {self.offset})", hint)

    def peek(self, count: int) -> bytes:
        """The next bytes, fewer at the end of the file."""
        if len(self._chunk) - self._at < count:
            parts = [self._chunk[self._at :]]
            self._base, self._at = self.offset, 0
            have = len(parts[0])
            while have < count and (more := self._pull(self._base + have)):
                parts.append(more)
                have += len(more)
            self._chunk = b"".join(parts)
        return self._chunk[self._at : self._at + count]

    def _pull(self, offset: int) -> bytes:
        if self._pulled >= self._limit:
            words = f"the {self._what} was not found within {format_bytes(self._limit)}"
            raise self.error(Kind.TOO_BIG, words)
        more = self._source.read(offset)
        self._pulled += len(more)
        return more

    def need(self, count: int) -> None:
        self._within(count)
        if len(self._chunk) - self._at < count and len(self.peek(count)) < count:
            raise self._cut_short()

    def _within(self, count: int) -> None:
        end = self.offset + count
        if self.stop is not None and end > self.stop:
            raise Enough
        if self._source.total is not None and end > self._source.total:
            raise self._cut_short()

    def _cut_short(self) -> GgufError:
        total = self._source.total
        ends = "the file ends" if total is None else f"the file ends at byte {total},"
        hint = "an unfinished download? compare its size with the repository's, and fetch it again"
        return self.error(Kind.TRUNCATED, f"{ends} before its header does", hint)

    def take(self, count: int) -> bytes:
        self.need(count)
        self._at += count
        return self._chunk[self._at - count : self._at]

    def name(self, count: int, what: str) -> tuple[bytes, str]:
        """A name, raw and as text. The engine compares with C's string functions, so one with
        control characters could stand for another: refused."""
        raw = self.take(count)
        text = decode(raw)
        if harmless(text) != text:
            words = f"{what} with control characters: {one_line(text)}"
            raise self.error(Kind.MALFORMED, words)
        return raw, text

    def u32(self) -> int:
        self.need(4)
        self._at += 4
        return int(self._u32.unpack_from(self._chunk, self._at - 4)[0])

    def u64(self) -> int:
        self.need(8)
        self._at += 8
        return int(self._u64.unpack_from(self._chunk, self._at - 8)[0])

    def skip(self, count: int) -> None:
        """Skip this many bytes. Those not read yet are not fetched: they may never come."""
        self._within(count)
        self._at += count
        if self._at > len(self._chunk):
            self._base, self._at, self._chunk = self.offset, 0, b""
            if self._source.total is None:  # nobody vouches for the bytes passed over
                self._base -= 1
                self.take(1)

    def skip_strings(self, count: int) -> None:
        length = self._u64.unpack_from
        while count:
            self.need(8)
            chunk, at, last, size = self._chunk, self._at, len(self._chunk) - 8, 0
            if self.stop is not None:
                last = min(last, self.stop - self._base - 8)
            while count and at <= last:
                size = length(chunk, at)[0]
                if size > MAX_STRING:
                    self._at = at
                    raise self.error(Kind.MALFORMED, f"a string of {size} bytes in a list")
                at += 8 + size
                count -= 1
            self._at = at
            if at > len(chunk):
                self._at -= size
                self.skip(size)


class LocalFile:
    """A GGUF file on this machine: an open regular file. Nothing else is opened, because a pipe
    would block for ever."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises GgufError."""
        self.name = one_line(str(path), 300)
        self.exchanges = self.body_bytes = 0
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:  # a name with NUL is a ValueError
            kind = Kind.MISSING if isinstance(error, FileNotFoundError) else Kind.UNREADABLE
            raise self._error(kind, error) from error
        info = os.fstat(self._file)
        if not stat.S_ISREG(info.st_mode):
            os.close(self._file)
            what = "is a directory" if stat.S_ISDIR(info.st_mode) else "is no regular file"
            raise GgufError(Kind.UNREADABLE, f"{self.name} {what}", "", "name the .gguf file")
        self.total: int | None = info.st_size

    def __enter__(self) -> LocalFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def read(self, offset: int) -> bytes:
        try:
            data = os.pread(self._file, STEP if self.exchanges else FIRST_READ, offset)
        except OSError as error:
            raise self._error(Kind.UNREADABLE, error) from error
        self.exchanges += 1
        self.body_bytes += len(data)
        return data

    def _error(self, kind: Kind, error: Exception) -> GgufError:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return GgufError(kind, f"{self.name} cannot be read", one_line(why))


PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_SAFE = "/%!$&'()*+,;=:@~?[]"


@dataclass(frozen=True, slots=True)
class Address:
    """One http or https address. `target` holds the query, so only `shown` may be printed."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """The host and port that may see a token."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address without its query: a signed one is a secret."""
        return one_line(f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}", 300)


def is_address(where: str) -> bool:
    return where.lower().startswith(("http://", "https://"))


def parse_address(url: str) -> Address:
    """Parse an address. Raises GgufError; its text holds neither the query nor a password."""
    if not url.isprintable() or " " in url:
        raise _unusable("it holds spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except ValueError:
        raise _unusable("its host or port is not valid") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS or not _HOST.fullmatch(host):
        raise _unusable("only http:// and https:// with a host are read")
    if "@" in parts.netloc:
        raise _unusable("it holds a user name", "give a token by HF_TOKEN instead")
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE)
    return Address(scheme, host, port or PORTS[scheme], target)


def follow(address: Address, location: str, start: Address) -> Address:
    """Where a redirect leads. Raises GgufError for an invalid address, or for plain http after a
    start with https."""
    try:
        destination = parse_address(
            urljoin(f"{address.scheme}://{address.authority}{address.target}", location)
        )
    except (GgufError, ValueError):
        words = "a redirect to an address that cannot be used"
        raise GgufError(Kind.PROTOCOL, f"{address.shown} cannot be read", words) from None
    if start.scheme == "https" and destination.scheme == "http":
        words = f"a redirect from https to plain http: {destination.shown}"
        hint = "a proxy or a captive portal in between?"
        raise GgufError(Kind.PROTOCOL, f"{address.shown} is not followed", words, hint)
    return destination


def _unusable(why: str, hint: str = "") -> GgufError:
    return GgufError(Kind.UNSUPPORTED, "the address cannot be used", why, hint)
