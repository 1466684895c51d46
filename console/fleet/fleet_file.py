"""The format of the fleet file: strict, and every problem with its place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from console.common.errors import InvalidFile
from console.config.site.schedule import LEAST_LEASE_S
from console.config.validation import Duration, Strict, Text, validated
from console.config.yaml import parse, read_text

TITLE = "the fleet file cannot be used"
HINT = "docs/how-to/fleet.md describes the file"
ALIAS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*")
"""Never a dash in front: ssh would take it for an option."""
Lease = Annotated[Duration | None, Field(ge=LEAST_LEASE_S)]


def _alias(value: str | None) -> str | None:
    if value is not None and not ALIAS.fullmatch(value):
        raise ValueError("a name that ssh knows: letters, digits, _ . @ : -, no - in front")
    return value


class HostModel(Strict):
    """`ssh`: its alias, where that is not its name here; `command`: where omni-console is there;
    `lease`: how long its baseline may be down with the line lost."""

    ssh: Annotated[Text | None, AfterValidator(_alias)] = None
    command: Text | None = None
    lease: Lease = None


class FleetModel(Strict):
    schema_: Literal["omni.fleet/v1"] = Field(alias="schema")
    hosts: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*$", max_length=60)], HostModel],
        Field(min_length=1, max_length=200),
    ]
    command: Text | None = None
    lease: Lease = None


def read_hosts(path: Path) -> list[dict[str, Any]]:
    """The hosts of a file, as fields of `inventory.Host`. Raises InvalidFile with every problem."""
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model = validated(FleetModel, document, document.data)
    if model is None or document.problems:
        raise InvalidFile(TITLE, sorted(document.problems), HINT)
    found = []
    for name, one in model.hosts.items():
        lease_s = one.lease if one.lease is not None else model.lease
        row = {"name": name, "ssh": one.ssh or name, "lease_s": lease_s}
        command = one.command or model.command
        found.append({**row, "command": command} if command else row)
    return found
