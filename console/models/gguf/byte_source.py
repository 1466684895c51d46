"""A window that moves forward over a file, however its source cuts it; it keeps what it needs."""

from __future__ import annotations

import struct
from typing import Protocol

from console.common.text import clean, decode, one_line
from console.common.units import format_bytes
from console.models.gguf.errors import GgufError, Kind

FIRST_READ = 60 * 1024
"""What is read first: an architecture stands in the first hundred bytes of nearly every file, and
the header of a later shard fits whole. With the body of a redirect it stays below 64 KiB."""
READ_LIMIT = 64 * 2**20
"""The longest real headers (260,000 tokens, 510,000 merges) take about 15 MiB."""
MAX_STRING = 2**30
"""llama.cpp's own limit."""


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
    """What was asked is known, and the next byte is not worth having."""


class Window:
    """Takes values off a source in order; what is skipped is not fetched where that is possible.

    Beyond `stop`, once set, nothing is read: Enough. `what` is sought, for a message.
    """

    def __init__(self, source: Source, what: str, limit: int = READ_LIMIT) -> None:
        self._source, self._what, self._limit = source, what, limit
        self._chunk, self._base, self._at, self._pulled = b"", 0, 0, 0
        self.stop: int | None = None
        self.order("<")

    def order(self, sign: str) -> None:
        """The byte order from here on: `<` little-endian, `>` big-endian."""
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
        """Have so many bytes at hand."""
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
        if clean(text) != text:
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
        """Go on behind so many bytes. What is not here yet is not asked for: it need not come."""
        self._within(count)
        self._at += count
        if self._at > len(self._chunk):
            self._base, self._at, self._chunk = self.offset, 0, b""
            if self._source.total is None:  # nobody vouches for the bytes passed over
                self._base -= 1
                self.take(1)

    def skip_strings(self, count: int) -> None:
        """Pass over an array of strings, keeping none."""
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
