"""What a preflight takes from the site: machine, loader, build, and what serves there today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.preflight.architecture.engines import Command, Connect, command_of, engine_of
from console.checks.preflight.loader import Loader
from console.common.errors import UsageError
from console.common.text import one_line
from console.config.site.site import SiteModel
from console.host.capacity import Machine
from console.models.sizing.assessment import Reference
from console.runtime.spec import ServiceSpec

if TYPE_CHECKING:
    from console.checks.preflight.architecture.support import Engine

MAPS = ("", "mmap")
LLAMA = ("", "llama.cpp")


def machine_for(site: SiteModel, disk: Path | None = None, *, beside: bool = False) -> Machine:
    """This machine with what the site declares over it.

    A card's whole memory counts, since the baseline stops first; with `beside` only what is free.
    """
    from console.host.machine import look

    seen = look(disk)
    if not beside:
        seen = replace(seen, cards=tuple(replace(card, free=None) for card in seen.cards))
    return site.machine.over(seen, site.gpus)


def reference_for(site: SiteModel, model: str = "") -> Reference | None:
    """What was measured of the baseline; it `serves` where `model` is one of its files."""
    known = site.baseline.reference
    if known is None:
        return None
    names = {Path(one).name for one in site.baseline.models}
    pace = (known.tok_s, max(known.tok_s, known.best or 0.0))
    return Reference(f"{site.name}'s baseline", pace, serves=bool(model) and model in names)


def loader_for(
    site: SiteModel,
    kind: str = "",
    engine: str = "",
    args: Sequence[str] = (),
    ctx: int | None = None,
    lent: Command | None = None,
) -> Loader:
    """The loader that is meant: with arguments given, lent by a service, or the baseline's own.

    The baseline's arguments written out are still the baseline's: they are known to serve.
    """
    if lent is not None:
        mine = lent.name == "baseline"
        whose = f"the arguments of {lent.name}"
        return Loader(kind, engine, lent.argv, dict(lent.env), ctx, whose, mine)
    known = site.baseline.args
    if known and (not args or tuple(args) == tuple(known)) and kind in MAPS and engine in LLAMA:
        whose = f"the arguments of {site.name}'s baseline"
        return Loader(kind, engine, tuple(known), {}, ctx, whose, own=True)
    return Loader(kind, engine, tuple(args), {}, ctx)


def build_of(
    specs: Mapping[str, ServiceSpec],
    connect: Connect,
    *,
    service: str = "baseline",
    image: str = "",
    binary: str = "",
    labels: Mapping[str, str] | None = None,
) -> Engine:
    """The llama.cpp build to ask: an image's, a binary's or a service's. Raises ConsoleError."""
    from console.checks.preflight.architecture.in_image import ImageBuild
    from console.checks.preflight.architecture.on_host import HostProgram

    if binary:
        return HostProgram((binary,))
    if image:
        return ImageBuild(connect(), image, labels=labels)
    if service not in specs:
        raise UsageError(f"unknown service {one_line(service, 40)}", hint=", ".join(specs))
    return engine_of(command_of(specs[service], connect), connect)
