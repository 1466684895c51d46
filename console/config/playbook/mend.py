"""What still stands in a broken playbook, so that one pass can report every problem of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from console.config.playbook.playbook import PlaybookModel
from console.config.playbook.steps import Step
from console.config.site.guard import GuardModel
from console.config.validation import validate
from console.config.yaml import Document

_HARMLESS = {"metric": "host.ram_available", "below": "1GiB"}
_STAND_IN = {"process": {"argv": ["x"]}, "url": "http://127.0.0.1:1"}


def mend(document: Document, data: dict[str, Any]) -> tuple[PlaybookModel | None, frozenset[str]]:
    """A model with the same steps and services at the same places, and the ids of broken steps.

    A broken step is replaced by a note with its id, a broken service by another one; what no
    rule looks at is left out.
    """
    broken: set[str] = set()

    def step(given: Any) -> Any:
        if validate(Step, document, given)[0] is not None:
            return given
        note = {"id": given.get("id") if isinstance(given, dict) else None, "note": "broken"}
        if validate(Step, document, note)[0] is None:
            note["id"] = f"broken-{len(broken)}"
        broken.add(str(note["id"]))
        return note

    parts = {
        "schema": "omni.playbook/v1", "name": "x", "title": "x",
        "services": _services(document, data.get("services")),
        "guards": [_guard(document, one) for one in _list(data.get("guards"))],
        "phases": [
            {"title": "x", "steps": _steps(phase.get("steps"), step) or [step(None)]}
            if isinstance(phase, dict) else {"title": "x", "steps": [step(None)]}
            for phase in _list(data.get("phases"))
        ],
        "finally": _steps(data.get("finally"), step),
    }  # fmt: skip
    return validate(PlaybookModel, document, parts)[0], frozenset(broken)


def _guard(document: Document, given: Any) -> Any:
    return given if validate(GuardModel, document, given)[0] is not None else _HARMLESS


def _steps(given: Any, step: Callable[[Any], Any]) -> list[Any]:
    return [step(one) for one in _list(given)]


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _services(document: Document, given: Any) -> dict[str, Any]:
    services: dict[str, Any] = {}
    for name, data in given.items() if isinstance(given, dict) else ():
        for one in (data, _STAND_IN):
            if _is_playbook(document, {name: one}):
                services[name] = one
                break
    return services


def _is_playbook(document: Document, services: dict[str, Any]) -> bool:
    phases = [{"title": "x", "steps": [{"id": "x", "note": "x"}]}]
    parts = {"schema": "omni.playbook/v1", "name": "x", "title": "x", "phases": phases}
    return validate(PlaybookModel, document, {**parts, "services": services})[0] is not None
