"""How a site has its baseline watched, and where its figures are served."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from console.config.validation import Duration, Strict

ADDRESS_FORM = "HOST:PORT of loopback, like 127.0.0.1:9909 or [::1]:9909"
MIN_S, MAX_S = 5.0, 3600.0


def _loopback(value: Any) -> str:
    """Raises ValueError for an address that others reach."""
    host, colon, port = str(value).rpartition(":")
    good = isinstance(value, str) and colon and port.isascii() and port.isdigit()
    if not good or not 0 < int(port) < 65536:
        raise ValueError(ADDRESS_FORM)
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        # a bare ::1 would leave open where the port begins
        own = ipaddress.ip_address(bare)
        loopback = own.is_loopback and (own.version == 6) == (bare != host)
    except ValueError:
        loopback = host == "localhost"
    if not loopback:
        raise ValueError(f"{ADDRESS_FORM}: the figures are for this machine alone")
    return f"{host}:{port}"


Loopback = Annotated[
    str, BeforeValidator(_loopback),
    WithJsonSchema({"type": "string", "examples": ["127.0.0.1:9909"]}),
]  # fmt: skip


class WatchModel(Strict):
    """The watch over the baseline (`omni-console watch`): a completion of `tokens` every
    `interval`, unless the server works for others; then it is asked after `ask_after` intervals.
    `restore`: a dead or frozen baseline is rolled back to, `at_most` so many times in 24 hours.
    `metrics`: where /metrics is served."""

    interval: Annotated[Duration, Field(ge=MIN_S, le=MAX_S)] = 60.0
    tokens: int = Field(16, gt=1, le=256)
    ask_after: int = Field(10, ge=1, le=1000)
    restore: bool = False
    at_most: int = Field(3, ge=1, le=100)
    metrics: Loopback | None = None
