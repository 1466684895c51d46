"""The JSON Schema of a playbook, for editors (`# yaml-language-server: $schema=…`)."""

from __future__ import annotations

from typing import Any

from console.config.playbook.playbook import PlaybookModel


def playbook_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `omni.playbook/v1`; a `${{ }}` hole is text anywhere."""
    schema = PlaybookModel.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "omni-console playbook"
    return schema
