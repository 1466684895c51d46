"""The format of the fleet file: strict, and every problem with its place."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic.json_schema import SkipJsonSchema

from console.common.errors import InvalidFile, UsageError
from console.config.site.schedule import Lease
from console.config.validation import Refused, Strict, Text, validated
from console.config.yaml import parse, read_text
from console.runner.slurm.job import MIN_TIME_S, TIME, WORD, require_sound

TITLE = "the fleet file cannot be used"
HINT = "`omni-console schema fleet` prints what may be in it"
ALIAS = r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*"
"""Never a dash in front: ssh would take it for an option."""
NAME = r"(?!all$)[A-Za-z0-9][A-Za-z0-9_.-]{0,59}"
COMMAND = r"[^\s-](.*\S)?"
MAX_HOSTS = 200
"""Hosts in a file."""


def _alias(value: str) -> str:
    if not re.fullmatch(ALIAS, value):
        raise ValueError("a name that ssh knows: letters, digits, _ . @ : -, no - in front")
    user, at, host = value.rpartition("@")
    try:
        sound = bool(host and (user or not at)) and (":" not in host or ipaddress.ip_address(host))
    except ValueError:
        sound = False
    if not sound:
        hint = "a port belongs in ~/.ssh/config: `Host NAME`, below it `HostName` and `Port`"
        raise Refused("a name that ssh knows, or USER@NAME", hint)
    return value


def _name(value: str) -> str:
    if value == "all":
        raise ValueError("another name: `all` means every host")
    if not re.fullmatch(NAME, value):
        words = "ASCII letters, digits, _ . -, at most 60, a letter or a digit first"
        raise ValueError(f"a host's name: {words}")
    return value


def _command(value: str) -> str:
    if not re.fullmatch(COMMAND, value) or not value.isprintable():
        raise Refused(
            "the name or path of omni-console on the host, no - and no blank in front",
            "leave `command` away for the omni-console that its login shell finds",
        )
    return value


def _shape(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _text(pattern: str) -> WithJsonSchema:
    return WithJsonSchema(_shape(pattern))


Alias = Annotated[Text, AfterValidator(_alias), _text(f"(?![^:]*:[^:]*$){ALIAS}")]
Name = Annotated[str, AfterValidator(_name)]
Command = Annotated[Text, AfterValidator(_command), _text(COMMAND)]
Word = Annotated[str, _text(WORD.pattern)]
Minutes = WithJsonSchema({
    **_shape(TIME.pattern), "type": ["string", "integer"], "examples": [90, "8:00:00", "1-12"],
    "minimum": MIN_TIME_S // 60 + 1,
})  # fmt: skip


class SlurmModel(Strict):
    """What a run's allocation is asked for with, as `sbatch` takes it. `node`: what Slurm calls the
    host, where that is not its host name; `exclusive`: nobody else's job there meanwhile."""

    partition: Word = ""
    gres: Word = ""
    begin: Word = ""
    time: Annotated[str, Minutes] = ""
    account: Word = ""
    qos: Word = ""
    reservation: Word = ""
    node: Word = ""
    exclusive: bool = True

    @field_validator("*", mode="before")
    @classmethod
    def _sound(cls, value: Any, info: ValidationInfo) -> Any:
        """As `--slurm KEY=VALUE` is judged."""
        key = str(info.field_name)
        if key == "exclusive":
            return value
        if key == "time" and type(value) is int:
            value = str(value)
        if value is not None and not isinstance(value, str):
            raise ValueError("text; put it in quotes")
        try:
            require_sound(key, value or "")
        except UsageError as error:
            raise Refused(error.detail.removeprefix("expected "), error.hint) from None
        return value

    def words(self) -> dict[str, str]:
        """As the host reads it; never empty."""
        options = {
            key: value for key, value in self.model_dump(exclude={"exclusive"}).items() if value
        }
        return {**options, "exclusive": str(self.exclusive).lower()}


class HostModel(Strict):
    """`ssh`: its alias, where that is not its name here; `command`: where omni-console is there;
    `lease`: how long its baseline may be down with the line lost; `slurm`: its runs wait for an
    allocation of Slurm's."""

    ssh: Alias | None = None
    command: Command | None = None
    lease: Lease | None = None
    slurm: SlurmModel | SkipJsonSchema[None] = None

    @field_validator("slurm", mode="before")
    @classmethod
    def _asks(cls, value: Any) -> Any:
        """A key whose lines below it are comments takes cards that Slurm gives to others."""
        if value is None:
            raise Refused("a mapping", "`slurm: {}` asks Slurm for this machine, without wishes")
        return value


class FleetModel(Strict):
    schema_: Literal["omni.fleet/v1"] = Field(alias="schema")
    hosts: Annotated[
        dict[Name, HostModel],
        Field(
            min_length=1, max_length=MAX_HOSTS,
            json_schema_extra={"propertyNames": _shape(NAME)},
        ),
    ]  # fmt: skip
    command: Command | None = None
    lease: Lease | None = None


def read_hosts(path: Path) -> list[dict[str, Any]]:
    """The hosts of a file, as fields of `inventory.Host`. Raises InvalidFile with every problem."""
    document = parse(read_text(path, TITLE), str(path), TITLE)
    model = validated(FleetModel, document, document.data)
    if model is None or document.problems:
        raise InvalidFile(TITLE, sorted(document.problems), HINT)
    rows = []
    for name, host in model.hosts.items():
        lease_s = host.lease if host.lease is not None else model.lease
        slurm = host.slurm.words() if host.slurm is not None else {}
        row = {"name": name, "ssh": host.ssh or name, "lease_s": lease_s, "slurm": slurm}
        command = host.command or model.command
        rows.append({**row, "command": command} if command else row)
    return rows
