"""What the site says of the machine against what the machine says: a declared figure wins in every
verdict, so a wrong one has to be seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.doctor.facts import Facts
from console.checks.doctor.model import Check, Finding
from console.common.units import format_bytes

if TYPE_CHECKING:
    from console.config.site.machine import MachineModel
    from console.config.site.site import Site
    from console.host.capacity import Machine

NEAR = 0.05
"""Of what was declared: the kernel keeps some of the memory, and figures are rounded."""


def declared(facts: Facts, check: Check) -> Iterator[Finding]:
    """Each figure of the site's `machine` that is not so here; measured figures need no line."""
    from console.host.gpu.inventory import Cards
    from console.host.machine import look

    site = facts.site()
    if site is None:
        return
    found = dict(_compared(site.model.machine, look(_disk(site), root=facts.root, cards=Cards())))
    for name, words in found.items():
        if words:
            hint = f"{_line(site, name)} says so; without that line it is measured"
            yield check.warning(f"{name}: {words}", hint)
    if found and not any(found.values()):
        yield check.ok(f"as the site file has it: {', '.join(found)}")


def _compared(told: MachineModel, seen: Machine) -> Iterator[tuple[str, str]]:
    """Key and what contradicts it, "" where nothing does; what is not known is left out."""
    if told.ram is not None and seen.ram_total is not None:
        yield "ram", _bytes(told.ram, seen.ram_total)
    if told.swap is not None and seen.swap_total is not None:
        yield "swap", _bytes(told.swap, seen.swap_total)
    if told.disk_free is not None and seen.disk_free is not None:
        # more room than was declared takes nothing from a verdict
        words = _bytes(told.disk_free, min(seen.disk_free, told.disk_free))
        yield "disk_free", words and f"{words}, where {seen.disk_path} is or would be"
    if told.cpu and seen.cpu_name:
        more = _words(told.cpu) - _words(seen.cpu_name)
        yield "cpu", _both(told.cpu, seen.cpu_name) if more else ""
    if told.cpu_flags and seen.cpu_flags:
        lacks = [flag for flag in told.cpu_flags if flag not in seen.cpu_flags]
        yield "cpu_flags", f"this processor is without {', '.join(lacks)}" if lacks else ""
    for name in ("cores", "numa_nodes"):
        said, has = getattr(told, name), getattr(seen, name)
        if said is not None and has is not None:
            yield name, _both(said, has) if said != has else ""


def _both(said: object, has: object) -> str:
    return f"{said} in the site file, {has} here"


def _bytes(said: int, has: int) -> str:
    near = abs(said - has) <= NEAR * said
    return "" if near else _both(format_bytes(said), format_bytes(has))


def _words(name: str) -> set[str]:
    """A processor's name as the kernel writes it has more words: (R), 96-Cores."""
    return set(name.lower().replace("(r)", " ").replace("(tm)", " ").split())


def _disk(site: Site) -> Path:
    """Where the baseline's models are: downloads go there."""
    named = [site.base / os.path.expanduser(name) for name in site.model.baseline.models]
    return named[0].parent if named else site.base


def _line(site: Site, name: str) -> str:
    """FILE:LINE of a key of `machine`."""
    from console.config.yaml import parse

    document = parse(site.text, str(site.path), "")
    return f"{site.path}:{document.place(('machine', name))[0]}"


CHECKS = (Check("machine.declared", "site's machine", declared),)
