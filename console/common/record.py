"""JSON to frozen dataclasses and back, for the files and messages of this program.

A record is a dataclass: `of(Plan, value)` checks a decoded JSON value against the types of its
fields, and `plain(plan)` is the JSON value again. A key that no field has is left alone, because a
newer version may have written it. A missing key takes the field's default.

Fields may be: str (without a zero byte), bool, int, float (finite), Any, a StrEnum, a Literal, a
record, a TypedDict (it stays the table that it is), `X | None`, list, tuple, frozenset and dict of
these. A class with `to_json` and `from_json` is written and read by them. What `Annotated` adds to
a type is a `Key`, the name in the file where it is another one, a `ReadBy`, or a function that
takes the value and returns the one to keep, and that raises ValueError with what was expected. Such
a type has a name of its own beside the record: no linter sees what a lambda within a field's
annotation uses.

Only the standard library is used: the rollback reads its files with this.
"""

from __future__ import annotations

import contextlib
import json
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from itertools import repeat
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from console.common.files import open_regular
from console.common.text import one_line

T = TypeVar("T")
Convert = Callable[[object], Any]
SIZE_LIMIT = 1 << 20
"""Bytes of a file that is one record, unless its reader allows more."""
MAX_INT = 1 << 63


class RecordError(ValueError):
    """A value that is no such record. `key`: where, like `baseline.url`, "" for the whole of it;
    `expected`: what belongs there."""

    def __init__(self, expected: str, key: str = "") -> None:
        super().__init__(f"{key}: expected {expected}" if key else f"expected {expected}")
        self.key, self.expected = key, expected

    def under(self, key: str) -> RecordError:
        """The same error as seen from the record around it."""
        return RecordError(self.expected, f"{key}.{self.key}" if self.key else key)


@dataclass(frozen=True, slots=True)
class Key:
    """What a field is called in the file, where an earlier version called it otherwise."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadBy:
    """How a value of this type is read, instead of by the type itself: `convert` returns the value
    to keep and raises RecordError. A number that is to be written back as it stood needs one."""

    convert: Convert


_ABSENT = object()


def one_of(*words: str) -> Callable[[str], str]:
    """A check for one of these words."""
    expected = " or ".join((", ".join(words[:-1]), words[-1])) if words[1:] else words[0]

    def check(word: str) -> str:
        if word not in words:
            raise ValueError(expected)
        return word

    return check


def within(low: float, high: float, expected: str) -> Callable[[float], float]:
    """A check for a number from `low` up to, but not including, `high`."""

    def check(number: float) -> float:
        if not low <= number < high:
            raise ValueError(expected)
        return number

    return check


def parse(text: str | bytes) -> Any:
    """The JSON value of a text. Raises RecordError."""
    try:
        # a path may hold bytes that are no UTF-8, and has to come back as it was
        decoded = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
        return json.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"JSON: {one_line(str(error), 80)}") from None


def table(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object of a text, such as a line of a file; None for whatever is none, also for
    bytes that are no UTF-8."""
    try:
        value = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def load(path: Path | str, limit: int = SIZE_LIMIT) -> Any:
    """The JSON value of a regular file of at most `limit` bytes. Raises OSError and RecordError."""
    with open_regular(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise RecordError(f"at most {limit} bytes")
    return parse(data)


def read(record_type: type[T], path: Path | str, limit: int = SIZE_LIMIT, **marks: object) -> T:
    """The record in a file. Raises OSError and RecordError."""
    return of(record_type, load(path, limit), **marks)


def of(record_type: type[T], value: object, **marks: object) -> T:
    """The record in a decoded JSON value that has these `marks`, such as its version, beside the
    fields. Raises RecordError at the first that is wrong."""
    for key, mark in marks.items():
        if isinstance(value, dict) and value.get(key) != mark:
            raise RecordError(str(mark), key)
    return reader(record_type)(value)


def reader(record_type: type[T]) -> Callable[[object], T]:
    """What `of` does for this type, for whoever reads many of them."""
    if record_type not in _readers:
        kind = _of_table if is_typeddict(record_type) else _of_record
        _readers[record_type] = kind(record_type)
    return _readers[record_type]


def lenient(record_type: type[T], value: object) -> T:
    """The same, but a field with a default takes it where its value is wrong. Raises RecordError
    for a field without one."""
    if not isinstance(value, dict):
        raise RecordError("a JSON object")
    known: dict[str, Any] = {}
    for slot in _layout(record_type).slots:
        try:
            if slot.key in value:
                known[slot.name] = slot.convert(value[slot.key])
        except RecordError as error:
            if slot.required:
                raise error.under(slot.key) from None
    return _made(record_type, _layout(record_type), known)


def those(record_type: type[T], values: object) -> list[T]:
    """The records in a list; what is none of them is left out, and so is what is no list."""
    records = []
    for value in values if isinstance(values, list) else []:
        with contextlib.suppress(RecordError):
            records.append(of(record_type, value))
    return records


def lines(record_type: type[T], data: bytes) -> list[T]:
    """The records of a text with one JSON object a line; a torn line or another one is left out."""
    values = (table(line) for line in data.split(b"\n"))
    return those(record_type, [value for value in values if value is not None])


def plain(record: Any, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The JSON object of a record; `of` makes the record of it again. `names`: only these fields,
    in this order."""
    slots = _layout(type(record)).slots
    if names is not None:
        by_name = {slot.name: slot for slot in slots}
        slots = tuple(by_name[name] for name in names)
    return {slot.key: _plain(getattr(record, slot.name)) for slot in slots}


def text(record: Any, indent: int | None = None, **more: Any) -> str:
    """A record as JSON with a newline behind it, `more` keys before its own."""
    return json.dumps(more | plain(record), indent=indent) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return plain(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(element) for key, element in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        elements = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(element) for element in elements]
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True, slots=True)
class _Slot:
    """A field of a record: its name, its key in the file, and how its value is read."""

    name: str
    key: str
    required: bool
    convert: Convert


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of a record, by their keys their names and how they are read, and the names of
    those without a default."""

    slots: tuple[_Slot, ...]
    by_key: dict[str, tuple[str, Convert]]
    required: frozenset[str]


_layouts: dict[type[Any], _Layout] = {}
_readers: dict[type[Any], Convert] = {}


def _layout(record_type: type[Any]) -> _Layout:
    if (layout := _layouts.get(record_type)) is not None:
        return layout
    hints = get_type_hints(record_type, include_extras=True)
    slots = tuple(
        _slot(member, hints[member.name]) for member in fields(record_type) if member.init
    )
    by_key = {slot.key: (slot.name, slot.convert) for slot in slots}
    required = frozenset(slot.name for slot in slots if slot.required)
    return _layouts.setdefault(record_type, _Layout(slots, by_key, required))


def _slot(member: Field[Any], hint: Any) -> _Slot:
    extras = hint.__metadata__ if get_origin(hint) is Annotated else ()
    key = next((extra.name for extra in extras if isinstance(extra, Key)), member.name)
    required = member.default is MISSING and member.default_factory is MISSING
    return _Slot(member.name, key, required, _converter(hint))


def _of_record(record_type: type[Any]) -> Convert:
    layout: _Layout | None = None

    def convert(value: object) -> Any:
        if not isinstance(value, dict):
            raise RecordError("a JSON object")
        nonlocal layout
        if layout is None:  # not before: a record may be a part of itself
            layout = _layout(record_type)
        by_key = layout.by_key
        known: dict[str, Any] = {}
        for key, element in value.items():
            if key in by_key:
                name, convert = by_key[key]
                try:
                    known[name] = convert(element)
                except RecordError as error:
                    raise error.under(key) from None
        return _made(record_type, layout, known)

    return convert


def _of_table(shape: type[Any]) -> Convert:
    """How a table is read that a TypedDict describes: it stays as it is."""
    keys: dict[str, tuple[Convert, bool]] = {}

    def convert(value: object) -> Any:
        nonlocal keys
        if not keys:
            keys = {
                key: (_converter(_unwrapped(hint)), get_origin(hint) is not NotRequired)
                for key, hint in get_type_hints(shape, include_extras=True).items()
            }
        table = _dict(value)
        for key, (element, required) in keys.items():
            if key in table or (required and key in shape.__required_keys__):
                try:
                    element(table.get(key, _ABSENT))
                except RecordError as error:
                    raise error.under(key) from None
        return table

    return convert


def _unwrapped(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint


def _made(record_type: type[T], layout: _Layout, known: dict[str, Any]) -> T:
    if not layout.required <= known.keys():
        raise _missing(next(s for s in layout.slots if s.name in layout.required - known.keys()))
    try:
        return record_type(**known)
    except ValueError as error:  # what __post_init__ refuses
        raise RecordError(str(error)) from None


def _missing(slot: _Slot) -> RecordError:
    try:
        slot.convert(_ABSENT)
    except RecordError as error:
        return error.under(slot.key)
    return RecordError("a value", slot.key)


def _converter(hint: Any) -> Convert:
    """How a value of a type is read."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if hasattr(hint, "from_json"):
        return _checked(_SIMPLE[Any], [hint.from_json])
    if origin is Annotated:
        own = next((part.convert for part in parts[1:] if isinstance(part, ReadBy)), None)
        checks = [part for part in parts[1:] if callable(part)]
        base = own or _converter(parts[0])
        return _checked(base, checks) if checks else base
    if origin in (Union, types.UnionType):
        return _either([_converter(part) for part in parts], nullable=types.NoneType in parts)
    if is_typeddict(hint):
        return _of_table(hint)
    if origin is Literal:
        return _literal(parts)
    if origin is tuple and parts[-1] is not Ellipsis:
        return _tuple([_converter(part) for part in parts])
    if origin in (tuple, list, frozenset, set):
        return _each(origin, _converter(parts[0]))
    if origin in (dict, Mapping):
        return _by_name(_converter(parts[0]), _converter(parts[1]))
    if is_dataclass(hint) and isinstance(hint, type):
        return _of_record(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    raise TypeError(f"a record cannot have a field of {hint}")


def _str(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise RecordError("a text")
    return value


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise RecordError("true or false")
    return value


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1e300:
        raise RecordError("a number")
    if not math.isfinite(value):
        raise RecordError("a number")
    return float(value)


def _int(value: object) -> int:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not whole or not -MAX_INT <= value < MAX_INT:  # type: ignore[operator]
        raise RecordError("a whole number")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _none(value: object) -> None:
    if value is not None:
        raise RecordError("null")


def _dict(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RecordError("a JSON object")
    return value


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise RecordError("a list")
    return value


_SIMPLE: dict[Any, Convert] = {
    str: _str,
    bool: _bool,
    int: _int,
    float: _float,
    types.NoneType: _none,
    dict: _dict,
    list: _list,
    Path: lambda value: Path(_str(value)),
    Any: lambda value: value,
    object: lambda value: value,
}


def _enum(kind: type[Enum]) -> Convert:
    words = " or ".join(str(member.value) for member in kind)

    def convert(value: object) -> Enum:
        try:
            return kind(value)
        except ValueError:
            raise RecordError(words) from None

    return convert


def _literal(words: tuple[Any, ...]) -> Convert:
    def convert(value: object) -> object:
        if not any(value == word and type(value) is type(word) for word in words):
            raise RecordError(" or ".join(map(str, words)))
        return value

    return convert


def _either(converters: list[Convert], *, nullable: bool) -> Convert:
    def convert(value: object) -> Any:
        if nullable and value is None:
            return None
        errors = []
        for converter in converters:
            try:
                return converter(value)
            except RecordError as error:
                errors.append(error)
        # null is what every optional field takes: the other error says more
        raise next((error for error in errors if error.expected != "null"), errors[0])

    return convert


def _each(collection: Callable[[Iterator[Any]], Any], element: Convert) -> Convert:
    def convert(value: object) -> Any:
        return collection(_elements(_list(value), repeat(element)))

    return convert


def _tuple(converters: list[Convert]) -> Convert:
    def convert(value: object) -> Any:
        values = _list(value)
        if len(values) != len(converters):
            raise RecordError(f"a list of {len(converters)}")
        return tuple(_elements(values, converters))

    return convert


def _elements(values: list[Any], converters: Iterable[Convert]) -> Iterator[Any]:
    for at, (value, converter) in enumerate(zip(values, converters, strict=False)):
        try:
            yield converter(value)
        except RecordError as error:
            raise error.under(str(at)) from None


def _by_name(key: Convert, element: Convert) -> Convert:
    def convert(value: object) -> Any:
        known = {}
        for name, each in _dict(value).items():
            try:
                known[key(name)] = element(each)
            except RecordError as error:
                raise error.under(name) from None
        return known

    return convert


def _checked(base: Convert, checks: list[Callable[[Any], Any]]) -> Convert:
    def convert(value: object) -> Any:
        known = base(value)
        try:
            for check in checks:
                known = check(known)
        except ValueError as error:
            raise error if isinstance(error, RecordError) else RecordError(str(error)) from None
        return known

    return convert
