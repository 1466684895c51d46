"""Old names of services, replaced by today's before a playbook is checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from console.common.text import one_line

BASELINE = "baseline"
_NAMED = {
    "service": ("start", "stop", "wait"), "benchmark": ("service",), "soak": ("service",),
    "where": ("service",), "checkpoint": ("service",), "gguf": ("service",),
    "imports": ("service",), "cutover": ("to",),
}  # fmt: skip
"""Where a step names a service."""


def resolved(aliases: Mapping[str, str], known: Set[str]) -> dict[str, str]:
    """Old names of `known` services, and what each is today; the baseline's container is the
    baseline, and an alias may lead to it."""
    found = {}
    for old, new in aliases.items():
        today = new if new in known else aliases.get(new, new)
        if today in known:
            found[old] = today
    return found


def rename(
    data: dict[str, Any], aliases: Mapping[str, str], site_services: Set[str] = frozenset()
) -> tuple[str, ...]:
    """Put today's names into a document, in place; what was replaced, a line each.

    A service that the playbook declares under the old name is its own and stays; the service of a
    compose file has no such protection: the site says that the old name is gone. A name that leads
    to no service stays as it was written.
    """
    declared = _table(data.get("services"))
    known = resolved(aliases, {*declared, *site_services, BASELINE})
    found = {old: new for old, new in known.items() if old not in declared}
    composed = {old: new for old, new in aliases.items() if new != BASELINE}
    said: dict[str, None] = {}
    for table, key in _steps(data):
        _replace(table, key, found, said)
    for guard in _list(data.get("guards")):
        for key in ("log", "of"):
            _replace(_table(guard), key, found, said)
    for service in declared.values():
        _replace(_table(_table(service).get("compose")), "service", composed, said)
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
