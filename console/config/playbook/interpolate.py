"""`${{ inputs.x }}` inside one value, after splitting: never a shell, never a second word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from console.config.playbook.inputs import Secret
from console.config.yaml import Document, Loc

_HOLE = re.compile(r"\$\{\{\s*([^{}]*?)\s*\}\}")

Values = Mapping[str, Any]
"""`inputs.x`, `playbook.dir` → value; a Secret stands for itself."""


def substitute(document: Document, data: Any, values: Values, loc: Loc) -> Any:
    """A copy of `data` with every hole filled.

    A value that is one hole takes the input's type; inside longer text it becomes text.
    Refused: an unknown name, a hole in a script body, a secret anywhere but as a whole
    environment value, an unclosed hole.
    """
    if isinstance(data, dict):
        for key in data:
            if "${{" in key:
                where = (*loc, key)
                document.refuse(where, "${{ in a key", "a plain key", key=True)
        return {k: substitute(document, v, values, (*loc, k)) for k, v in data.items()}
    if isinstance(data, list):
        return [substitute(document, v, values, (*loc, i)) for i, v in enumerate(data)]
    if not isinstance(data, str) or "${{" not in data:
        return data
    if len(loc) > 1 and loc[-1] == "script" and isinstance(loc[-2], int):
        expected = "environment variables, like $OMNI_INPUT_PORT"
        hint = "inputs reach a script as OMNI_INPUT_<NAME>"
        document.refuse(loc, "${{ inside a script body", expected, hint)
        return data
    return _fill(document, data, values, loc)


def _fill(document: Document, text: str, values: Values, loc: Loc) -> Any:
    whole = _HOLE.fullmatch(text)
    if whole:
        value = _look_up(document, whole[1], values, loc)
        if isinstance(value, Secret) and not (len(loc) >= 2 and loc[-2] == "env"):
            document.refuse(loc, "a secret here", "a secret only under env:")
            return text
        return value

    def one(match: re.Match[str]) -> str:
        value = _look_up(document, match[1], values, loc)
        if isinstance(value, Secret):
            document.refuse(loc, "a secret inside text", "a whole value under env:")
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    filled = _HOLE.sub(one, text)
    if "${{" in _HOLE.sub("", text):
        document.refuse(loc, "an unclosed ${{", "${{ inputs.name }}")
    return filled


def _look_up(document: Document, name: str, values: Values, loc: Loc) -> Any:
    if name in values:
        return values[name]
    known = ", ".join(sorted(values)) or "none are declared"
    document.refuse(loc, f"unknown name '{name}' in ${{{{ }}}}", f"one of: {known}")
    return ""
