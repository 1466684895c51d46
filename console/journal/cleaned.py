"""Foreign values made harmless: whoever can write a journal or a ladder's file can forge one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from console.common.text import clean
from console.journal.store import Event

WORDS = frozenset({
    "cause", "detail", "id", "kind", "metric", "name", "outcome", "overridden", "owner", "phase",
    "playbook", "reason", "run_id", "rung", "scope", "service", "site", "state", "step", "text",
    "title", "trigger", "verb", "verdict", "who", "why",
})  # fmt: skip
"""Keys of an event, of its steps and criteria that readers take for text."""
LISTS = frozenset({"criteria", "effects", "lessons", "lines", "steps"})
DEEPEST = 12
"""No real value is nested deeper; what is, is cut off."""


def cleaned(value: Any, depth: int = 0) -> Any:
    """The same JSON value with every string in it clean, keys too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        items = value.items() if depth < DEEPEST else ()
        return {clean(str(key)): cleaned(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [cleaned(item, depth + 1) for item in (value if depth < DEEPEST else ())]
    return value


def cleaned_event(event: Event) -> Event:
    """An event of a journal, safe to fold and to draw."""
    return replace(
        event, kind=_text(event.kind), step=_text(event.step), data=_typed(cleaned(event.data))
    )


def _typed(table: dict[str, Any]) -> dict[str, Any]:
    """With text and lists where readers take them for granted."""
    found = {key: _text(value) if key in WORDS else value for key, value in table.items()}
    for key in LISTS & found.keys():
        items = found[key] if isinstance(found[key], list) else []
        found[key] = [_typed(i) if isinstance(i, dict) else _text(i) for i in items]
    return found


def _text(value: Any) -> str:
    return "" if value is None else clean(value if isinstance(value, str) else str(value))
