"""Web addresses: checked, printable without their secrets, and followed only where it is safe."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, urljoin, urlsplit

from console.common.text import one_line
from console.models.gguf.byte_source import GgufError, Kind

PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9_.:-]+")
_SAFE = "/%!$&'()*+,;=:@~?[]"


@dataclass(frozen=True, slots=True)
class Address:
    """One http or https address. `target` holds the query, so only `shown` may be printed."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who a token may be shown to."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def shown(self) -> str:
        """The address without its query: a signed one is a secret."""
        return one_line(f"{self.scheme}://{self.authority}{self.target.partition('?')[0]}", 300)


def is_address(where: str) -> bool:
    return where.lower().startswith(("http://", "https://"))


def parse_address(url: str) -> Address:
    """Raises GgufError; its text holds neither the query nor a password."""
    if not url.isprintable() or " " in url:
        raise _unusable("it holds spaces or control characters")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except ValueError:
        raise _unusable("its host or port is none") from None
    scheme = parts.scheme.lower()
    if scheme not in PORTS or not _HOST.fullmatch(host):
        raise _unusable("only http:// and https:// with a host are read")
    if "@" in parts.netloc:
        raise _unusable("it holds a user name", "give a token by HF_TOKEN instead")
    target = quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + quote(parts.query, safe=_SAFE)
    return Address(scheme, host, port or PORTS[scheme], target)


def follow(address: Address, location: str, start: Address) -> Address:
    """Where a redirect leads. Raises GgufError for an address that is none, or for plain http
    where the way began with https."""
    try:
        found = parse_address(
            urljoin(f"{address.scheme}://{address.authority}{address.target}", location)
        )
    except (GgufError, ValueError):
        words = "a redirect to an address that cannot be used"
        raise GgufError(Kind.PROTOCOL, f"{address.shown} cannot be read", words) from None
    if start.scheme == "https" and found.scheme == "http":
        words = f"a redirect from https to plain http: {found.shown}"
        hint = "a proxy or a captive portal in between?"
        raise GgufError(Kind.PROTOCOL, f"{address.shown} is not followed", words, hint)
    return found


def _unusable(why: str, hint: str = "") -> GgufError:
    return GgufError(Kind.UNSUPPORTED, "the address cannot be used", why, hint)
