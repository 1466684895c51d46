"""Numbers out of a foreign table of keys: checked, bounded, and named when they are nonsense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

from console.common.text import one_line
from console.models.sizing.model_facts import MOST_LAYERS, MOST_LENGTH, MOST_TOKENS, BadFacts


class Keys:
    """Reads a table whose keys are looked up under a prefix; remembers what was not there.

    `unpack` turns an array value of the table's own kind into a tuple (None: not an array).
    """

    def __init__(
        self,
        table: Mapping[str, object],
        prefix: str,
        source: str,
        unpack: Callable[[object], tuple[object, ...] | None],
    ) -> None:
        self.table = table
        self.prefix = prefix
        self.source = source
        self._unpack = unpack
        self.missing: list[str] = []

    def name(self, key: str) -> str:
        return one_line(f"{self.prefix}{key}", 120)

    def has(self, key: str) -> bool:
        return self.table.get(f"{self.prefix}{key}") is not None

    def raw(self, key: str) -> object:
        return self.table.get(f"{self.prefix}{key}")

    def lacks(self, key: str, what: str) -> None:
        """An essential key is not there: the verdict will say so."""
        self.missing.append(f"{self.name(key)} ({what})")

    def bad(self, key: str, value: object, expected: str) -> NoReturn:
        huge = isinstance(value, int) and value.bit_length() > 128
        shown = "a number beyond all measure" if huge else one_line(repr(value), 60)
        raise BadFacts(
            f"the {self.source} cannot be true",
            f"{self.name(key)} is {shown}; expected {expected}",
            "the file is damaged or was made to mislead: get it again from its publisher",
        )

    def count(self, key: str, most: int = MOST_LENGTH, least: int = 0) -> int | None:
        """A whole number; None where the key is missing. Raises BadFacts."""
        value = self.raw(key)
        return None if value is None else self._whole(key, value, most, least)

    def counts(self, key: str, size: int, most: int = MOST_LENGTH) -> tuple[int, ...] | None:
        """A number for each of `size` layers, given as an array or once for all."""
        value = self.raw(key)
        if value is None:
            return None
        items = self._unpack(value)
        if items is None:
            return (self._whole(key, value, most),) * size
        if len(items) < size or len(items) > MOST_LAYERS:
            self.bad(key, f"an array of {len(items)}", f"one number for each of {size} layers")
        return tuple(self._whole(key, item, most) for item in items[:size])

    def is_array(self, key: str) -> bool:
        return self._unpack(self.raw(key)) is not None

    def layers(self, key: str) -> int | None:
        return self.count(key, MOST_LAYERS, 1)

    def tokens(self, key: str) -> int | None:
        return self.count(key, MOST_TOKENS)

    def _whole(self, key: str, value: object, most: int, least: int = 0) -> int:
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int):
            self.bad(key, value, "a whole number")
        if not least <= value <= most:
            self.bad(key, value, f"{least} to {most}")
        return value
