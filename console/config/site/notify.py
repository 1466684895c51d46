"""Who is told what: the `notify:` list of a site. Nothing here sends anything."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from console.common.text import one_line
from console.config.playbook.inputs import Secret, SecretSource
from console.config.validation import Arg, OneOf, Text

KINDS = ("run-end", "approval", "waiting", "guard-kill", "lease", "baseline-down", "baseline-back",
         "slower", "lessons-due")  # fmt: skip
"""What a channel can be told of."""
USUAL = tuple(kind for kind in KINDS if kind != "lessons-due")
"""What it is told of unless `on` says otherwise."""
SURROUNDINGS = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
                "all_proxy", "no_proxy", "DBUS_SESSION_BUS_ADDRESS")  # fmt: skip
"""Variables that any channel may need: the way to a web server, and to a desktop."""
_HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"


def _kind(value: str) -> str:
    if value in KINDS:
        return value
    near = difflib.get_close_matches(value, KINDS, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"one of {', '.join(KINDS)}{hint}")


def url(value: str) -> str:
    """An address of a web server as it is. Raises ValueError with the expected form."""
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or not value.isprintable() or " " in value:
        raise ValueError("http://HOST/… or https://HOST/…, or {env: NAME}")
    return value


def ntfy_url(value: str) -> str:
    """The address of a topic as it is. Raises ValueError with the expected form."""
    if not urlsplit(url(value)).path.strip("/"):
        raise ValueError("an address with its topic, like https://ntfy.sh/TOPIC, or {env: NAME}")
    return value


def header_value(value: str) -> str:
    """A header's value as it is. Raises ValueError with the expected form."""
    if not value.isprintable():
        raise ValueError("text on one line, or {env: NAME}")
    return value


def _address(value: str) -> str:
    if not re.fullmatch(r"[\w.+][\w.+-]*(@[\w.-]+)?", value, re.ASCII):
        raise ValueError("one mail address, like operator@example.org")
    return value


def _argv(value: list[str]) -> list[str]:
    if "/" in value[0] and not value[0].startswith("/"):
        raise ValueError(f"!name the program {one_line(value[0], 60)} by its whole path: no shell "
                         "reads it, and it starts in no directory of yours")  # fmt: skip
    return value


def _form(value: Any) -> str:
    return "secret" if isinstance(value, dict | SecretSource) else "text"


_Source = Annotated[SecretSource, Tag("secret")]
Kind = Annotated[
    str, AfterValidator(_kind), WithJsonSchema({"type": "string", "enum": list(KINDS)})
]
WebAddress = Annotated[
    Annotated[str, AfterValidator(url), Tag("text")] | _Source, Discriminator(_form)
]
TopicAddress = Annotated[
    Annotated[str, AfterValidator(ntfy_url), Tag("text")] | _Source, Discriminator(_form)
]
HeaderName = Annotated[str, Field(pattern=_HEADER)]
HeaderValue = Annotated[
    Annotated[str, AfterValidator(header_value), Tag("text")] | _Source, Discriminator(_form)
]


class NotifyModel(OneOf):
    """A channel: exactly one of a `command` (the event as JSON on its stdin), a `webhook` (POST of
    the same), a topic of `ntfy`, or `mail` through this machine's sendmail. `on`: what it is told
    of. An address or a header may be `{env: NAME}` or `{file: PATH}`, read when it is needed."""

    ONE_OF = ("command", "webhook", "ntfy", "mail")
    REFUSED = "an entry of notify is exactly one of command, webhook, ntfy or mail"

    command: Annotated[list[Arg], Field(min_length=1), AfterValidator(_argv)] | None = None
    webhook: WebAddress | None = None
    ntfy: TopicAddress | None = None
    mail: Annotated[Text, AfterValidator(_address)] | None = None
    on: list[Kind] = Field(list(USUAL), min_length=1)
    headers: dict[HeaderName, HeaderValue] = {}

    @model_validator(mode="after")
    def _sent_by_http(self) -> NotifyModel:
        if self.headers and self.webhook is None and self.ntfy is None:
            raise ValueError("!headers belong to webhook and ntfy")
        return self

    @property
    def way(self) -> str:
        """The key that the entry has: command, webhook, ntfy or mail."""
        return next(key for key in self.ONE_OF if getattr(self, key) is not None)

    @property
    def words(self) -> str:
        """The channel for people: of an address only the server, as the rest may be a secret."""
        target = getattr(self, self.way)
        if isinstance(target, SecretSource):
            return f"{self.way} {source_words(target)}"
        if self.command is not None:
            return f"command {one_line(self.command[0], 80)}"
        if self.mail is not None:
            return f"mail {self.mail}"
        parts = urlsplit(target)
        port = f":{parts.port}" if parts.port else ""
        return f"{self.way} {parts.scheme}://{one_line(parts.hostname or '', 80)}{port}"


def source_words(source: SecretSource) -> str:
    """Where a secret is, in words: `$NAME` or the file's path."""
    return one_line(f"${source.env}" if source.env is not None else f"{source.file}", 80)


def value_of(what: str, given: str | SecretSource) -> str:
    """The value of an address or a header, read now. Raises ValueError in words without it."""
    if isinstance(given, SecretSource):
        return Secret(what, given.env, given.file).read()
    return given


def variables(channels: Sequence[NotifyModel]) -> tuple[str, ...]:
    """The names of environment variables that a process needs to reach the channels."""
    if not channels:
        return ()
    given = (
        v
        for channel in channels
        for v in (channel.webhook, channel.ntfy, *channel.headers.values())
    )
    secret = {v.env for v in given if isinstance(v, SecretSource) and v.env is not None}
    return (*SURROUNDINGS, *sorted(secret))
