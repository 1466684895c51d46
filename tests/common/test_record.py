"""Records: what is written comes back equal, and what is no such record is refused by its key."""

from __future__ import annotations

import builtins
import json
from dataclasses import dataclass, field, is_dataclass
from dis import get_instructions
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any, Literal, NotRequired, TypedDict, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common import record
from console.common.record import Key, ReadBy, RecordError

ROOT = Path(__file__).parents[2] / "console"
WHOLE, SIZE = "a whole number", "a size in inches"


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True, slots=True)
class Wheel:
    size: Annotated[float, record.within(0.0, 100.0, SIZE)]
    spokes: int = 32


@dataclass(frozen=True, slots=True)
class Cart:
    name: str
    wheels: tuple[Wheel, ...] = ()
    colour: Colour = Colour.RED
    brake: Literal["disc", "rim"] | None = None
    load: float | None = None
    pairs: tuple[tuple[str, int], ...] = ()
    tags: frozenset[str] = frozenset()
    by_name: dict[str, Wheel] = field(default_factory=dict)
    place: Path = Path("/")
    carries: Annotated[list[str], Key("cargo")] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    kind: Annotated[str, record.one_of("hand", "horse", "ox")] = "hand"


TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=8)
WHEELS = st.builds(Wheel, st.floats(0, 99), st.integers(-(2**40), 2**40))
CARTS = st.builds(
    Cart, TEXTS, st.lists(WHEELS, max_size=3).map(tuple), st.sampled_from(Colour),
    st.sampled_from([None, "disc", "rim"]), st.none() | st.floats(-1e9, 1e9),
    st.lists(st.tuples(TEXTS, st.integers(0, 9)), max_size=3).map(tuple),
    st.frozensets(TEXTS, max_size=3), st.dictionaries(TEXTS, WHEELS, max_size=3),
    TEXTS.map(lambda name: Path("/", name)), st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, st.none() | TEXTS | st.integers(0, 9), max_size=3),
    st.sampled_from(["hand", "horse", "ox"]),
)  # fmt: skip


@given(CARTS)
def test_what_is_written_comes_back_equal(cart: Cart) -> None:
    assert record.of(Cart, record.parse(record.text(cart, schema="cart/v1"))) == cart


def test_a_field_may_have_another_name_in_the_file() -> None:
    assert record.plain(Cart("a", carries=["hay"]))["cargo"] == ["hay"]
    assert record.of(Cart, {"name": "a", "cargo": ["hay"]}).carries == ["hay"]


def _even(value: object) -> int:
    if not isinstance(value, int) or value % 2:
        raise RecordError("an even number")
    return value


class Load(TypedDict):
    weight: Annotated[int, ReadBy(_even)]
    owner: NotRequired[str]


@dataclass(frozen=True, slots=True)
class Wagon:
    axles: Annotated[float, ReadBy(_even)]
    loads: list[Load] = field(default_factory=list)
    colour: str = ""


def test_a_type_may_have_a_reader_of_its_own_and_a_table_stays_what_it_is() -> None:
    table = {"weight": 4, "of_next_year": 1}
    wagon = record.of(Wagon, {"axles": 2, "loads": [table]})
    assert (str(wagon.axles), wagon.loads[0]) == ("2", table), "1 does not become 1.0"
    odd = {"weight": 4, "owner": 3}
    for loads, key in (([{}], "loads.0.weight"), ([table, odd], "loads.1.owner"), ([3], "loads.0")):
        with pytest.raises(RecordError) as caught:
            record.of(Wagon, {"axles": 2, "loads": loads})
        assert caught.value.key == key
    with pytest.raises(RecordError, match="axles: expected an even number"):
        record.of(Wagon, {"axles": 3})


def test_some_fields_alone_are_written_in_the_order_in_which_they_are_named() -> None:
    wagon = Wagon(4, colour="red")
    assert list(record.plain(wagon, ("colour", "axles")).items()) == [
        ("colour", "red"),
        ("axles", 4),
    ]


def test_unknown_keys_are_left_alone_and_missing_ones_take_the_default() -> None:
    assert record.of(Cart, {"name": "a", "of_next_year": [1]}) == Cart("a")


@pytest.mark.parametrize(
    ("value", "key", "expected"),
    [
        ([], "", "a JSON object"),
        ({}, "name", "a text"),
        ({"name": None}, "name", "a text"),
        ({"name": "a\0b"}, "name", "a text"),
        ({"name": "a", "wheels": [{"size": 1}, {"size": 100}]}, "wheels.1.size", SIZE),
        ({"name": "a", "wheels": [{"size": True}]}, "wheels.0.size", "a number"),
        ({"name": "a", "wheels": [{"size": float("nan")}]}, "wheels.0.size", "a number"),
        ({"name": "a", "wheels": [{"size": 10**400}]}, "wheels.0.size", "a number"),
        ({"name": "a", "wheels": [{"size": 1, "spokes": 0.5}]}, "wheels.0.spokes", WHOLE),
        ({"name": "a", "wheels": [{"size": 1, "spokes": 2**63}]}, "wheels.0.spokes", WHOLE),
        ({"name": "a", "wheels": [{}]}, "wheels.0.size", "a number"),
        ({"name": "a", "wheels": {"size": 1}}, "wheels", "a list"),
        ({"name": "a", "colour": "blue"}, "colour", "red or green"),
        ({"name": "a", "colour": []}, "colour", "red or green"),
        ({"name": "a", "brake": "drum"}, "brake", "disc or rim"),
        ({"name": "a", "load": "heavy"}, "load", "a number"),
        ({"name": "a", "pairs": [["x"]]}, "pairs.0", "a list of 2"),
        ({"name": "a", "pairs": [["x", "y"]]}, "pairs.0.1", "a whole number"),
        ({"name": "a", "by_name": {"left": {"size": -1}}}, "by_name.left.size", SIZE),
        ({"name": "a", "tags": "x"}, "tags", "a list"),
        ({"name": "a", "more": None}, "more", "a JSON object"),
        ({"name": "a", "kind": "dog"}, "kind", "hand, horse or ox"),
    ],
)  # fmt: skip
def test_what_is_no_such_record_is_refused_by_its_key(value: Any, key: str, expected: str) -> None:
    with pytest.raises(RecordError) as caught:
        record.of(Cart, value)
    assert (caught.value.key, caught.value.expected) == (key, expected)
    assert str(caught.value) == (f"{key}: expected {expected}" if key else f"expected {expected}")


def test_a_mark_beside_the_fields_is_written_first_and_asked_for() -> None:
    text = record.text(Cart("a"), indent=1, version=2)
    assert text.startswith('{\n "version": 2,\n "name": "a"')
    assert record.of(Cart, record.parse(text), version=2) == Cart("a")
    for value in ({"name": "a"}, {"name": "a", "version": 1}):
        with pytest.raises(RecordError, match="version: expected 2"):
            record.of(Cart, value, version=2)
    with pytest.raises(RecordError, match="a JSON object"):
        record.of(Cart, [], version=2)


def test_a_lenient_reader_takes_the_default_where_a_value_is_wrong() -> None:
    assert record.lenient(Cart, {"name": "a", "load": "x", "tags": 1, "kind": 2}) == Cart("a")
    assert record.lenient(Cart, {"name": "a", "load": 2}) == Cart("a", load=2.0)
    for value in ([], {}, {"name": 1}):
        with pytest.raises(RecordError):
            record.lenient(Cart, value)


def test_what_the_record_itself_refuses_is_no_such_record() -> None:
    @dataclass
    class Even:
        number: int

        def __post_init__(self) -> None:
            if self.number % 2:
                raise ValueError("an even number")

    with pytest.raises(RecordError, match="an even number"):
        record.of(Even, {"number": 3})


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: (
    st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)))  # fmt: skip
def test_no_value_raises_anything_else(value: Any) -> None:
    for field_name in (None, *Cart.__dataclass_fields__):
        changed = value if field_name is None else {"name": "a", field_name: value}
        try:
            record.of(Cart, changed)
        except RecordError:
            pass


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff", '{"a": 1}}', "9" * 5000])
def test_a_text_that_is_no_json_says_so(text: str | bytes) -> None:
    with pytest.raises(RecordError, match="JSON"):
        record.parse(text)
    assert record.table(text) is None


def test_a_path_with_bytes_that_are_no_utf8_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "cart.json"
    file.write_bytes(b'{"name": "b\xe9b"}')
    assert record.read(Cart, file).name == "b\udce9b"


def test_what_is_no_regular_file_or_too_long_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cart.json"
    with pytest.raises(FileNotFoundError):
        record.load(file)
    with pytest.raises(OSError, match="not a regular file"):
        record.load(tmp_path)
    file.write_text(json.dumps({"name": "x" * 100}))
    with pytest.raises(RecordError, match="at most 50 bytes"):
        record.load(file, 50)
    assert record.read(Cart, file).name == "x" * 100


def test_a_field_that_no_record_can_have_is_a_fault_of_the_program() -> None:
    @dataclass
    class Odd:
        number: complex | type[int]

    with pytest.raises(TypeError, match="cannot have a field"):
        record.of(Odd, {"number": 1})


def test_every_record_of_the_program_can_be_read() -> None:
    """The types of its fields are looked at when the first one is read."""
    names = ("record.of(", "record.read(", "record.lenient(", "record.those(", "records.lenient(")
    files = [file for file in ROOT.rglob("*.py") if any(n in file.read_text() for n in names)]
    assert len(files) > 20
    for file in files:
        module = import_module(".".join(file.relative_to(ROOT.parent).with_suffix("").parts))
        for record_type in vars(module).values():
            if isinstance(record_type, type) and is_dataclass(record_type):
                _used_names(record_type)


def _used_names(record_type: type[Any]) -> None:
    try:
        hints = get_type_hints(record_type, include_extras=True)
    except NameError:  # of a class beside the records, with names that only type checkers import
        return
    for hint in hints.values():
        for check in getattr(hint, "__metadata__", ()):
            if isinstance(check, FunctionType):
                used = {op.argval for op in get_instructions(check) if op.opname == "LOAD_GLOBAL"}
                assert used <= {*check.__globals__, *dir(builtins)}, (record_type, used)
