"""The fleet file: which hosts there are, by their ssh aliases. Read strictly, as the site file."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from console.common import paths
from console.common.errors import InvalidFile, UsageError
from console.common.text import one_line
from console.config.site.schedule import LEAST_LEASE_S
from console.config.validation import Duration, Strict, Text, validated
from console.config.yaml import parse, read_text

TITLE = "the fleet file cannot be used"
HINT = "docs/how-to/fleet.md describes the file"
COMMAND = "omni-console"
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
    command: Text = COMMAND
    lease: Lease = None


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the fleet. `lease_s`: None where the file does not say."""

    name: str
    ssh: str
    command: str = COMMAND
    lease_s: float | None = None

    def words(self, *arguments: str) -> str:
        """What its login shell runs: the console there with these arguments."""
        home, found = "~/", self.command
        program = f"~/{shlex.quote(found[2:])}" if found.startswith(home) else shlex.quote(found)
        return " ".join(["exec", program, *map(shlex.quote, arguments)])


@dataclass(frozen=True, slots=True)
class Fleet:
    """A loaded fleet file."""

    path: Path
    hosts: tuple[Host, ...]

    def chosen(self, given: str) -> tuple[Host, ...]:
        """The hosts of `A,B`, in that order, or of `all`. Raises UsageError."""
        names = [one.strip() for one in given.split(",") if one.strip()]
        if names == ["all"]:
            return self.hosts
        known = {one.name: one for one in self.hosts}
        there = f"there are: {', '.join(known)}"
        for name in names:
            if name not in known:
                raise UsageError(f"no host '{one_line(name, 60)}' in {self.path.name}", there)
        if not names or len(set(names)) < len(names):
            raise UsageError("which hosts?", "each at most once, or all", there)
        return tuple(known[name] for name in names)


def fleet_path(given: str | None) -> Path:
    """`--fleet`, then `OMNI_FLEET`, then the user's."""
    named = given or os.environ.get("OMNI_FLEET")
    return Path(named) if named else paths.config_dir() / "fleet.yaml"


def load_fleet(given: str | None) -> Fleet:
    """The fleet file that is meant. Raises InvalidFile with every problem."""
    path = fleet_path(given)
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model = validated(FleetModel, document, document.data)
    if model is None or document.problems:
        raise InvalidFile(TITLE, sorted(document.problems), HINT)
    hosts = [
        Host(
            name, one.ssh or name, one.command or model.command,
            one.lease if one.lease is not None else model.lease,
        )
        for name, one in model.hosts.items()
    ]  # fmt: skip
    return Fleet(path, tuple(hosts))
