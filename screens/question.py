"""What a dialog asks: plain data, so that a screen can ask without loading the dialog."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked. `confirm`: the very word to be typed; `required`: an empty answer is none."""

    title: str
    lines: list[str] = field(default_factory=list)
    prompt: str = ""
    verb: str = ""
    confirm: str = ""
    required: bool = False
