"""What verdicts of `check` rest on, as the machine has it: processor, limits, driver and cards."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.checks.doctor.facts import ASK_S, Facts
from console.checks.doctor.model import Check, Finding, Level
from console.common.units import format_bytes

if TYPE_CHECKING:
    from console.common import finding

SCARCE = 0.05
LEVELS = {"ok": Level.OK, "warn": Level.WARNING, "fail": Level.FAILED, "unknown": Level.NOTE}


def processor(facts: Facts, check: Check) -> Iterator[Finding]:
    """The processor and the vector units that kernels ask for."""
    from console.checks.preflight import host
    from console.host import machine
    from console.host.gpu.inventory import Cards

    seen = machine.look(root=facts.root, cards=Cards())
    yield from (_said(check, one) for one in host.processor(seen))


def limits(facts: Facts, check: Check) -> Iterator[Finding]:
    """Memory limits of the control groups that this login stands in."""
    from console.host import cgroup_limits

    found = cgroup_limits.limits(facts.root)
    if not found:
        yield check.ok("no cgroup limits the memory of this login")
    for one in found:
        words = f"cgroup {one.group} leaves {format_bytes(one.left)} of {format_bytes(one.most)}"
        if one.left < SCARCE * one.most:
            yield check.warning(words, "what is started from here is killed beyond that")
        else:
            yield check.note(words)


def driver(facts: Facts, check: Check) -> Iterator[Finding]:
    """The driver against the kernel, and each card's compute capability."""
    from console.checks.preflight import gpu
    from console.host.gpu import inventory

    seen = inventory.ask(ASK_S)
    if seen.driver:
        found = gpu.check_driver(seen.driver, kernel=platform.release())
        cuda = f", CUDA up to {seen.cuda[0]}.{seen.cuda[1]}" if seen.cuda else ""
        each = ", ".join(f"{card.name or card.uuid} {gpu.sm(card)}" for card in seen.cards)
        yield check.found(LEVELS[found.level], f"{found.words}{cuda}; {each}", found.hint)


def _said(check: Check, found: finding.Finding) -> Finding:
    return check.found(LEVELS[found.level], found.words, found.hint)


CHECKS = (
    Check("machine.processor", "processor", processor, Level.NOTE),
    Check("machine.limits", "limits", limits, Level.NOTE),
    Check("gpu.driver", "driver", driver, Level.WARNING),
)
