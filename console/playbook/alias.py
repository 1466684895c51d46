"""Old names of services, replaced by today's before a playbook is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.text import one_line

_NAMED = {
    "service": ("start", "stop", "wait"), "benchmark": ("service",), "soak": ("service",),
    "where": ("service",), "checkpoint": ("service",), "gguf": ("service",),
    "imports": ("service",), "cutover": ("to",),
}  # fmt: skip
"""Where a step names a service."""


def rename(data: dict[str, Any], aliases: Mapping[str, str]) -> tuple[str, ...]:
    """Put today's names into a document, in place; what was replaced, a line each.

    A service that the playbook declares under the old name is its own and stays; the service of a
    compose file has no such protection: the site says that the old name is gone.
    """
    declared = _table(data.get("services"))
    found = {name: aliases[name] for name in aliases if name not in declared}
    said: dict[str, None] = {}
    for table, key in _steps(data):
        _replace(table, key, found, said)
    for guard in _list(data.get("guards")):
        for key in ("log", "of"):
            _replace(_table(guard), key, found, said)
    for service in declared.values():
        _replace(_table(_table(service).get("compose")), "service", aliases, said)
    return tuple(said)


def _steps(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every table of a step that names a service, and the key it does so under."""
    phases = [_table(phase).get("steps") for phase in _list(data.get("phases"))]
    for steps in (*phases, data.get("finally")):
        for step in _list(steps):
            for kind, keys in _NAMED.items():
                for key in keys:
                    yield _table(_table(step).get(kind)), key


def _replace(
    table: dict[str, Any], key: str, names: Mapping[str, str], said: dict[str, None]
) -> None:
    old = table.get(key)
    if isinstance(old, str) and old in names:
        table[key] = names[old]
        said[f"{one_line(old, 60)} is called {one_line(names[old], 60)} on this site"] = None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
