"""A bounded reader of GGUF headers: linear in what it reads, and it keeps little of it.

It refuses what llama.cpp's loader (ggml/src/gguf.cpp) refuses, and what would cost this process too
much for a header; each limit says what real files have.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from enum import Enum
from math import prod

from console.common.text import clean, decode, one_line
from console.models.gguf import byte_source, chat_template
from console.models.gguf.byte_source import (
    FIRST_READ,
    MAX_STRING,
    READ_LIMIT,
    Enough,
    GgufError,
    Kind,
    Source,
    Window,
)
from console.models.gguf.chat_template import TEMPLATE
from console.models.gguf.header import (
    ARCHITECTURE,
    CODES,
    Array,
    Header,
    Tensor,
    Value,
    ValueType,
    pad,
    row_bytes,
    type_name,
    type_of,
)
from console.models.gguf.header_keys import (
    LOADER_NAMES,
    LOADER_TYPES,
    NAMES,
    OF_TOKENS,
    PER_LAYER,
    WHOLE_NUMBERS,
    WITHOUT_TOKENS,
)

MAX_NAME = 63
"""Bytes; GGML_MAX_NAME less its NUL."""
MAX_DIMS = 4
_INT64 = 2**63 - 1

MAX_PAIRS = 65_536
"""Real files have under 100."""
MAX_KEY = 1024
"""Bytes; real keys have under 100."""
MAX_ELEMENTS = 2 * 2**20
"""Of one array; the longest real lists, of merges, have about 515,000."""
MAX_TENSORS = 65_536
"""The largest models have a few thousand."""
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 2**20
MAX_ARCHITECTURE = 64
KEPT_NUMBERS = 4096
"""The longest array of numbers that is kept: a value per layer is a few hundred."""
LINE = 120
KEPT_TEXT = 1024
"""Bytes kept of a string."""
MAX_TEMPLATE = 2**17
"""Bytes of the longest chat template that is looked at; real ones have up to about 17,000."""
KEPT_IN_ALL = 2**18
"""Bytes of text and numbers of arrays, together; it bounds the memory of a hostile header. The same
again is for keys that change nothing; those that do not go in are passed over."""
_READ = (
    "split.", "general.architecture", "general.alignment", "general.type", "tokenizer.ggml.",
)  # fmt: skip
"""Keys beside those of the architecture that the console reads, by how they begin."""
_ENGINE_LIMIT = 2**30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def read_tensors(window: Window, count: int, alignment: int) -> tuple[Tensor, ...]:
    """The table of tensors that begins here: names, shapes, sizes, each where the one before ends.

    A tensor of a type unknown to this reader ends where the next one begins, padding included; the
    size of a last one stays unknown. Anything that llama.cpp refuses raises GgufError.
    """
    tensors: list[Tensor] = []
    begins = 0
    seen: set[bytes] = set()
    expected: int | None = 0
    for _ in range(count):
        size = window.u64()
        if size > MAX_NAME:
            raise window.error(Kind.MALFORMED, f"a tensor's name of {size} bytes")
        raw, name = window.name(size, "a tensor's name")
        if raw in seen:
            raise window.error(Kind.MALFORMED, f"two tensors {name}")
        seen.add(raw)
        tensor, offset = _tensor(window, name)
        if tensors and tensors[-1].bytes is None and begins < offset < _INT64:
            tensors[-1] = replace(tensors[-1], bytes=offset - begins)
            expected = offset
        begins = offset
        if expected is not None and offset != expected:
            words = f"{name} at {offset} of the data, where {expected} is due"
            raise window.error(Kind.MALFORMED, words)
        if expected is not None and tensor.bytes is not None:
            expected += pad(tensor.bytes, alignment)
            if expected > _INT64:
                raise window.error(Kind.MALFORMED, "more tensor data than a file can hold")
        else:
            expected = None
        tensors.append(tensor)
    return tuple(tensors)


def _tensor(window: Window, name: str) -> tuple[Tensor, int]:
    """A tensor, read after its name, and the offset it states."""
    count = window.u32()
    if count > MAX_DIMS:
        raise window.error(Kind.MALFORMED, f"{name} has {count} dimensions, more than {MAX_DIMS}")
    *dims, number, offset = struct.unpack(
        f"{window.sign}{count}QIQ", window.take(8 * count + 4 + 8)
    )
    if any(dimension > _INT64 for dimension in dims) or prod(dims) >= _INT64:
        raise window.error(Kind.MALFORMED, f"{name} has more elements than 63 bits count")
    if 0 in dims:
        raise window.error(Kind.MALFORMED, f"{name} has a dimension of zero: {tuple(dims)}")
    kind = type_of(number)
    size = None
    if kind is not None:
        try:
            size = row_bytes(kind, dims[0] if dims else 1) * prod(dims[1:])
        except ValueError as error:
            raise window.error(Kind.MALFORMED, f"{name}: {error}") from error
    return Tensor(name, tuple(dims), number, type_name(number), size), offset


class Want(Enum):
    """How much of a header is wanted."""

    ARCHITECTURE = "architecture"
    HEADER = "header"


def parse(source: Source, want: Want = Want.HEADER, limit: int = READ_LIMIT) -> Header:
    """The header of a source, read no further than wanted.

    With ARCHITECTURE, reading ends with the first range or with the architecture, whichever is
    later; errors and duplicates in bytes already read are still found. `tensors` is then None, and
    `header_bytes` what was read. Raises GgufError, with the sources' own kinds.
    """
    return _Parser(Window(source, want.value, limit), want).run()


class _Parser:
    def __init__(self, window: Window, want: Want) -> None:
        self._window, self._want = window, want
        self._kv: dict[str, Value] = {}
        self._seen: set[int] = set()
        self._room, self._spare = KEPT_IN_ALL, KEPT_IN_ALL
        self._changes_nothing = False
        self._alignment = DEFAULT_ALIGNMENT
        self._template_fault = ""

    def run(self) -> Header:
        version = self._version()
        tensor_count = self._count(self._window.u64(), MAX_TENSORS, "tensors")
        pairs = self._count(self._window.u64(), MAX_PAIRS, "keys")
        try:
            for _ in range(pairs):
                self._pair()
        except Enough:
            pass
        tensors = None
        if self._want is Want.HEADER:
            tensors = read_tensors(self._window, tensor_count, self._alignment)
        return Header(
            version,
            "little" if self._window.sign == "<" else "big",
            self._alignment,
            tensor_count,
            self._kv,
            tensors,
            self._window.offset,
            self._template_fault,
        )

    def _error(self, kind: Kind, words: str, hint: str = "") -> GgufError:
        return self._window.error(kind, words, hint)

    def _version(self) -> int:
        magic = self._window.peek(4)
        if magic != b"GGUF":
            if b"GGUF".startswith(magic):
                raise self._error(Kind.TRUNCATED, "the file is empty" if not magic else "cut off")
            words, hint = byte_source.identify(self._window.peek(byte_source.HEAD))
            raise self._error(Kind.NOT_GGUF, words, hint)
        self._window.take(4)
        raw = self._window.take(4)
        # No flag tells the byte order: a small number has its zeros where the high bytes are.
        little = int.from_bytes(raw, "little") & 0xFFFF != 0
        self._window.order("<" if little else ">")
        version = int.from_bytes(raw, "little" if little else "big")
        if version == 1:
            hint = "llama.cpp no longer loads version 1; convert the model again"
            raise self._error(Kind.UNSUPPORTED, "GGUF version 1", hint)
        if version not in (2, 3):
            raise self._error(Kind.UNSUPPORTED, f"GGUF version {version}; 2 and 3 are known")
        return version

    def _count(self, count: int, most: int, what: str) -> int:
        """A plausible count. Beyond llama.cpp's own limits no engine loads it."""
        if count > most:
            kind = Kind.MALFORMED if count > _ENGINE_LIMIT else Kind.TOO_BIG
            raise self._error(kind, f"it declares {count} {what}; at most {most} are read")
        return count

    def _keep(self, cost: int) -> None:
        if self._changes_nothing:
            self._spare -= cost
            return
        self._room -= cost
        if self._room < 0:
            raise self._error(Kind.TOO_BIG, "its metadata is too much to keep")

    def _pair(self) -> None:
        window = self._window
        size = window.u64()
        if not size:
            raise self._error(Kind.MALFORMED, "an empty key")
        raw, key = window.name(self._count(size, MAX_KEY, "bytes of a key"), "a key")
        if hash(raw) in self._seen:  # of fixed size, unlike the key
            raise self._error(Kind.MALFORMED, f"the key {key} is there twice")
        self._seen.add(hash(raw))
        kind = window.u32()
        own = self._kv.get(ARCHITECTURE)  # until it is known, any key may be the architecture's
        prefix = f"{own}." if isinstance(own, str) else ""
        self._changes_nothing = bool(prefix) and not key.startswith((prefix, *_READ))
        self._keep(size)
        if key == ARCHITECTURE:
            self._kv[key] = self._architecture(kind)
            if self._want is Want.ARCHITECTURE:
                window.stop = FIRST_READ
        else:
            value = self._value(key, kind)
            self._as_the_loader_wants(key, prefix, kind, value)
            if not self._changes_nothing or self._spare >= 0:
                self._kv[key] = value
            if key == ALIGNMENT:
                self._alignment = self._aligned(kind, value)

    def _as_the_loader_wants(self, key: str, prefix: str, kind: int, value: Value) -> None:
        """Refuse a value of another type than the loader's: it converts none."""
        name = key.removeprefix(prefix)
        own = LOADER_TYPES.get(name) if prefix and name != key else None
        wanted = own if own is not None else self._of_every_file(key)
        if wanted is None or kind == wanted:
            return
        actual_type = LOADER_NAMES[ValueType(kind)]
        if isinstance(value, Array):
            if own is not None and (value.element in WHOLE_NUMBERS or name not in PER_LAYER):
                return  # a newer build may read it for each layer
            actual_type += f"[{LOADER_NAMES[ValueType[value.element]]}]"
        words = f"key {key} has wrong type {actual_type} but expected type {LOADER_NAMES[wanted]}"
        raise self._error(Kind.MALFORMED, words, "convert the model again")

    def _of_every_file(self, key: str) -> ValueType | None:
        """The type of a key that the loader reads whatever the architecture is; None: it reads
        none, or takes any."""
        if self._kv.get("tokenizer.ggml.model") in WITHOUT_TOKENS:
            return NAMES.get(key)
        return NAMES.get(key, OF_TOKENS.get(key))

    def _architecture(self, kind: int) -> str:
        """A name that prints as it is spelled, so that the text shown is the one compared."""
        if kind != ValueType.STRING:
            words = f"{ARCHITECTURE} is of metadata type {kind}, not a string"
            raise self._error(Kind.MALFORMED, words)
        size = self._window.u64()
        if size > MAX_ARCHITECTURE:
            raise self._error(Kind.MALFORMED, f"{ARCHITECTURE} is {size} bytes long")
        text = decode(self._window.take(size))
        if not _NAME.fullmatch(text):
            shown = f"no name: {one_line(text, 80)}" if text else "empty"
            raise self._error(Kind.MALFORMED, f"{ARCHITECTURE} is {shown}")
        return text

    def _value(self, key: str, kind: int) -> Value:
        if kind == ValueType.STRING:
            return self._string(key)
        if kind == ValueType.ARRAY:
            return self._array(key)
        if kind not in CODES:
            raise self._error(Kind.MALFORMED, f"{key} is of unknown metadata type {kind}")
        return self._numbers(CODES[kind], 1)[0]

    def _numbers(self, code: str, count: int) -> tuple[int | float, ...]:
        layout = struct.Struct(f"{self._window.sign}{count}{code}")
        return layout.unpack(self._window.take(layout.size))

    def _string(self, key: str) -> str:
        size = self._window.u64()
        if size > MAX_STRING:
            raise self._error(Kind.MALFORMED, f"{key} declares {size} bytes of text")
        kept = min(size, KEPT_TEXT)
        self._keep(kept)
        data = self._window.take(size if key == TEMPLATE and size <= MAX_TEMPLATE else kept)
        if key == TEMPLATE and len(data) == size:
            self._template_fault = one_line(chat_template.fault(decode(data)), LINE)
        text = clean(decode(data[:kept]))
        self._window.skip(size - len(data))
        return text if kept == size else f"{text}…"

    def _array(self, key: str) -> Array:
        kind, count = self._window.u32(), self._window.u64()
        if kind != ValueType.STRING and kind not in CODES:
            what = "an array of arrays" if kind == ValueType.ARRAY else f"of unknown type {kind}"
            raise self._error(Kind.MALFORMED, f"{key} is {what}")
        self._count(count, MAX_ELEMENTS, f"elements of {key}")
        name = ValueType(kind).name
        if kind == ValueType.STRING:
            self._window.skip_strings(count)
        elif count > KEPT_NUMBERS:
            self._window.skip(count * struct.calcsize(f"<{CODES[kind]}"))
        else:
            self._keep(count)
            return Array(name, count, self._numbers(CODES[kind], count))
        return Array(name, count)

    def _aligned(self, kind: int, value: Value) -> int:
        if kind != ValueType.UINT32 or not isinstance(value, int):
            raise self._error(Kind.MALFORMED, f"{ALIGNMENT} is of metadata type {kind}, not UINT32")
        if value.bit_count() != 1 or value > MAX_ALIGNMENT:
            words = f"{ALIGNMENT} is {value}, no power of two up to {MAX_ALIGNMENT}"
            raise self._error(Kind.MALFORMED, words)
        return value
