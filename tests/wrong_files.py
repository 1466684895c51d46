"""Files of this program as nobody has written them: broken, or with one value of another kind."""

import json
from collections.abc import Iterator
from typing import Any

NO_OBJECTS = ("", "{", "[" * 100_000, '"x"', "[7]", "7", "null", '{"a": 1}}')


def wrong_files(text: str, *, leave: str = "") -> Iterator[tuple[str, str]]:
    """What is wrong, and the text of such a file: `text` with one value in it replaced. `leave`:
    the keys, after a space each, of what may hold anything."""
    yield from (("no object", wrong) for wrong in NO_OBJECTS)
    for key, value in _wrong(json.loads(text), leave.split()):
        yield key, json.dumps(value)


def _wrong(value: Any, leave: list[str], at: str = "") -> Iterator[tuple[str, Any]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in pairs:
        key = f"{at}.{name}" if at else name
        wrongs = [(key, 7 if isinstance(inner, list | dict | str) else [[7]])]
        if isinstance(inner, list | dict) and key not in leave:
            wrongs += _wrong(inner, leave, key)
        for inner_key, wrong in wrongs:
            copy = value.copy()
            copy[name] = wrong
            yield inner_key, copy
