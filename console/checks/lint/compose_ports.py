"""Ports and volumes of a compose service as compose reads their short and long forms.

The short form of a port is `[[ADDRESS:]PUBLISHED:]TARGET[/PROTOCOL]`, each port a number or a range
(compose-spec, 05-services.md, ports); that of a volume is `[SOURCE:]TARGET[:OPTIONS]`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from console.checks.lint.unit import Hit, Place
from console.checks.lint.yaml_tree import Node

PROTOCOLS = ("tcp", "udp", "sctp")
MAX_PORT = 65535
EVERYWHERE = ("", "0.0.0.0", "::")
SHORT = "[ADDRESS:]PUBLISHED:TARGET, like `127.0.0.1:8000:8000`"
SHORT_VOLUME = "SOURCE:TARGET, or SOURCE:TARGET:ro"


@dataclass(frozen=True, slots=True)
class Published:
    """A port of this machine that a service publishes."""

    port: int
    address: str
    protocol: str
    target: str
    place: Place

    def meets(self, other: Published) -> bool:
        """Whether both cannot be had at once."""
        if (self.port, self.protocol) != (other.port, other.protocol):
            return False
        either = (self.address, other.address)
        return self.address == other.address or any(address in EVERYWHERE for address in either)


def refused(service: Node, path: str) -> Iterator[Hit]:
    """What compose refuses of a service's ports and volumes."""
    for item in _items(service, "ports"):
        if why := _wrong_port(item):
            yield Hit(item.place, f"{path}.ports: {why}", fix=SHORT)
    for item in _items(service, "volumes"):
        if why := _wrong_volume(item):
            yield Hit(item.place, f"{path}.volumes: {why}", fix=SHORT_VOLUME)


def published(service: Node) -> Iterator[Published]:
    """The single ports that a service publishes; none of a range, of a variable, or of what the
    engine picks."""
    for item in _items(service, "ports"):
        if item.text is not None:
            address, outer, target, protocol = _split(item.text)
        else:
            address, outer = item.text_at("host_ip"), item.text_at("published")
            target, protocol = item.text_at("target"), item.text_at("protocol") or "tcp"
        if outer.isdecimal() and int(outer):
            yield Published(int(outer), address, protocol, target, item.place)


def _items(service: Node, key: str) -> Iterator[Node]:
    """What of a list is to be judged: no variable, and nothing that is empty."""
    section = service.get(key)
    for item in section.each() if section is not None else ():
        texts = [item.text] if item.text is not None else [node.text for _, node in item.pairs()]
        if not any("$" in (text or "") for text in texts):
            yield item


def _split(text: str) -> tuple[str, str, str, str]:
    """(address, published, target, protocol) of a short form."""
    numbers, _, protocol = text.partition("/")
    rest, _, target = numbers.rpartition(":")
    address, _, outer = rest.rpartition(":")
    return address.strip("[]"), outer, target, protocol or "tcp"


def _wrong_port(item: Node) -> str:
    """Why compose does not take a port; "" if it does."""
    if item.text is None:
        return _wrong_long(item)
    address, outer, target, protocol = _split(item.text)
    if not target:
        return f"`{item.text}` names no port of the container"
    if ":" in address and not item.text.startswith("["):
        return f"`{address}` is an address with colons, which stands in brackets: `[{address}]`"
    spans = _span(target, 1), _span(outer, 0) if outer else (0, 0)
    for span, text, whose in zip(spans, (target, outer), ("container", "machine"), strict=True):
        if span is None:
            return f"`{text}` is no port of a {whose}: 1 to {MAX_PORT}, or a range of them"
    inner, ours = spans
    assert inner is not None
    assert ours is not None
    wide, wide_ours = inner[1] - inner[0], ours[1] - ours[0]
    if outer and wide != wide_ours and wide:
        return f"{outer} and {target} are ranges of different lengths"
    return _wrong_rest(address, protocol)


def _wrong_long(item: Node) -> str:
    target, outer = item.get("target"), item.get("published")
    if target is None:
        return "a port has no `target`"
    for node, lowest in ((target, 1), (outer, 0)):
        if node is not None and node.text and _span(node.text, lowest) is None:
            return f"`{node.text}` is no port"
    return _wrong_rest(item.text_at("host_ip"), "tcp")


def _wrong_rest(address: str, protocol: str) -> str:
    if protocol.lower() not in PROTOCOLS:
        return f"`{protocol}` is no protocol: {', '.join(PROTOCOLS)}"
    if address:
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return f"`{address}` is no address of this machine: compose takes no name here"
    return ""


def _span(text: str, lowest: int) -> tuple[int, int] | None:
    """The first and the last port of `8000` or `8000-8010`; None if it is neither."""
    first, sign, last = text.partition("-")
    if not first.isdecimal() or (sign and not last.isdecimal()):
        return None
    span = int(first), int(last or first)
    return span if lowest <= span[0] <= span[1] <= MAX_PORT else None


def _wrong_volume(item: Node) -> str:
    """Why compose does not take a volume; "" if it does."""
    if item.text is not None:
        if not item.text.strip():
            return "an empty volume"
        parts = item.text.split(":")
        if len(parts) > 1 and not all(parts[:2]):
            return f"`{item.text}` has nothing on one side of its colon"
        windows = len(parts[0]) == 1 and parts[0].isalpha()
        return f"`{item.text}` has too many colons" if len(parts) > 3 and not windows else ""
    if item.fields is None:
        return ""
    kind = item.text_at("type")
    if not item.text_at("target") and kind in ("bind", "volume", "tmpfs"):
        return "a volume has no `target`"
    if kind == "bind" and not item.text_at("source"):
        return "a bind mount has no `source`"
    return ""
