"""Channels and events to be sent."""

from typing import Any

from console.config.site.notify import NotifyModel
from console.notify.event import Event


def channel(**keys: Any) -> NotifyModel:
    return NotifyModel.model_validate(keys)


def event(key: str = "r1:7", kind: str = "run-end", **more: Any) -> Event:
    told = {"title": f"title of {key}", "text": "It ended.", "at": 1_000_000.0, "site": "ws"}
    return Event(kind, key, **{**told, **more})
