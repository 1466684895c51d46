"""The layout of the flight recorder's file: fixed places, and a checksum for each record, so that a
torn one is noticed.

    header   run, pid, start, boot, when it was made
    status   two slots of JSON, written in turn, so that one of them is always whole
    fast     one sample per tick, 122 s of them at the shortest interval
    slow     one JSON record per second: GPUs, loads, rates
    events   the last 64 lines: armed, warned, breach, each stage of a kill

Each record has a number; the newest records have the highest. Little-endian, no padding.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

MAGIC = b"OMNIRING"
VERSION = 1
HEADER = struct.Struct("<8sII96sIQ40sdd")
STATUS_AT, STATUS_SLOT = 256, 8192
FAST = struct.Struct("<QddQQQffI")
"""number, wall, mono, total, available, swap used, some %, full % (NaN: not known), level."""
FAST_SLOT, FAST_SLOTS = 64, 6112
FAST_AT = STATUS_AT + 2 * STATUS_SLOT
TEXT = struct.Struct("<QHI")
"""number, length, checksum; the JSON follows."""
SLOW_SLOT, SLOW_SLOTS = 2048, 128
SLOW_AT = FAST_AT + FAST_SLOT * FAST_SLOTS
EVENT_SLOT, EVENT_SLOTS = 512, 64
EVENT_AT = SLOW_AT + SLOW_SLOT * SLOW_SLOTS
SIZE = EVENT_AT + EVENT_SLOT * EVENT_SLOTS
LEVELS = ("", "ok", "warn", "act")
_CRC = struct.Struct("<I")
Fast = tuple[int, float, float, int, int, int, float, float, int]


def sealed(record: bytes) -> bytes:
    """Return a record with its checksum appended."""
    return record + _CRC.pack(zlib.crc32(record))


def unsealed(data: bytes, size: int) -> bytes | None:
    """Return the record of `size` bytes at the start of `data`; None if it is not whole."""
    record, seal = data[:size], data[size : size + 4]
    whole = len(record) == size and len(seal) == 4 and _CRC.unpack(seal)[0] == zlib.crc32(record)
    return record if whole else None


def packed(number: int, text: bytes) -> bytes:
    """Return JSON text as a record."""
    return TEXT.pack(number, len(text), zlib.crc32(text, number & 0xFFFFFFFF)) + text


def unpacked(slot: bytes) -> tuple[int, bytes] | None:
    """Return (number, JSON) of a slot; None if it is empty or torn."""
    if len(slot) < TEXT.size:
        return None
    number, length, seal = TEXT.unpack_from(slot)
    text = slot[TEXT.size : TEXT.size + length]
    if not number or len(text) != length or zlib.crc32(text, number & 0xFFFFFFFF) != seal:
        return None
    return number, text


def table(text: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def page(head: bytes) -> dict[str, Any] | None:
    """Return the newest whole status page at the beginning of a ring buffer, or None."""
    found = []
    for slot in slots(head[STATUS_AT:FAST_AT], STATUS_SLOT):
        if (pair := unpacked(slot)) and (value := table(pair[1])) is not None:
            found.append((pair[0], value))
    return max(found, key=lambda one: one[0])[1] if found else None


def newest(data: bytes) -> tuple[int, int, int]:
    """Return the highest numbers of fast records, slow records and events in `data`, which begins
    after the status; 0 for none."""
    fast, rest = data[: SLOW_AT - FAST_AT], data[SLOW_AT - FAST_AT :]
    slow, events = rest[: EVENT_AT - SLOW_AT], rest[EVENT_AT - SLOW_AT :]
    whole = (one for slot in slots(fast, FAST_SLOT) if (one := unsealed(slot, FAST.size)))
    texts = [
        max((pair[0] for slot in slots(area, size) if (pair := unpacked(slot))), default=0)
        for area, size in ((slow, SLOW_SLOT), (events, EVENT_SLOT))
    ]
    return max((FAST.unpack(one)[0] for one in whole), default=0), texts[0], texts[1]


def slots(data: bytes, size: int) -> Iterator[bytes]:
    """Yield the complete slots of one area."""
    for at in range(0, len(data) - size + 1, size):
        yield data[at : at + size]
