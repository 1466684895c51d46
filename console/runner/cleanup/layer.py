"""What an image really takes: layers are shared, and only those that no other image has go with it.

A layer is stored once however many images have it; the engine's list counts it in each.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from console.runtime.docker.client import NotFound, ask, send

if TYPE_CHECKING:
    from docker import DockerClient

LIST_S = 60.0
"""An old engine counts volumes and containers too when it is asked what images share."""
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Stored:
    """One image: `size` of all its layers, what of that other images `shared`, both bytes; its
    layers from the bottom, empty where nobody knows them."""

    id: str
    size: int
    shared: int
    layers: tuple[str, ...] = ()
    row: Any = None
    """The engine's own line about it."""

    @property
    def own(self) -> int:
        """Bytes that are free when it alone goes."""
        return self.size - self.shared


def stored(client: DockerClient) -> tuple[Stored, ...]:
    """Every image on the engine. Raises EngineError."""
    return tuple(
        Stored(one.id, one.size, one.shared, _layers(client, one.id), one.row)
        for one in listed(client)
    )


def listed(client: DockerClient) -> list[Stored]:
    """The same without layers. Raises EngineError."""
    api: Any = client.api
    # The library's own call does not know the parameter.
    call = partial(send, client, "GET", "/images/json", params={"shared-size": 1})
    rows: list[dict[str, Any]] = ask("Listing images", lambda: call().json(), LIST_S)
    if any(row.get("SharedSize", UNKNOWN) == UNKNOWN for row in rows):  # before API 1.42
        rows = ask("Listing what images share", api.df, LIST_S).get("Images") or rows
    return [
        Stored(str(row["Id"]), int(row.get("Size") or 0), max(0, int(row.get("SharedSize") or 0)),
               row=row)
        for row in rows
    ]  # fmt: skip


def _layers(client: DockerClient, identity: str) -> tuple[str, ...]:
    api: Any = client.api
    try:
        found = ask("Looking at an image", partial(api.inspect_image, identity))
    except NotFound:
        return ()
    return tuple((found.get("RootFS") or {}).get("Layers") or ())


def together(going: Collection[str], every: Sequence[Stored]) -> tuple[int, bool]:
    """Bytes that are free when these images (ids) go at once, and whether that is exact: where a
    layer's size is not known by itself it is left out, and it is at least that much."""
    known = _known(every)
    there = [one.layers for one in every if one.id not in going]
    freed, exact = 0, True
    for one in every:
        if one.id in going:
            below = known.get(one.layers[: _shared(one.layers, there)]) if one.layers else None
            freed += one.own if below is None else one.size - below
            exact = exact and below is not None
            there.append(one.layers)
    return freed, exact


def _known(every: Sequence[Stored]) -> dict[tuple[str, ...], int]:
    """Bytes of every pile of layers that an image ends with, or shares with another."""
    found: dict[tuple[str, ...], int] = {}
    for one in every:
        others = [other.layers for other in every if other is not one]
        found[one.layers[: _shared(one.layers, others)]] = one.shared
        found[one.layers] = one.size
    found[()] = 0
    return found


def _shared(layers: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> int:
    """How many layers from the bottom are those of another one, at most."""
    return max((_alike(layers, one) for one in others), default=0)


def _alike(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)
