"""What is left free and why, and how host memory that cannot be dropped is judged."""

from __future__ import annotations

from console.common.units import format_bytes
from console.host.capacity import Machine
from console.models.sizing.assessment import Ledger

GIB = 1 << 30
MIB = 1 << 20
CARD_MARGIN = 1 * GIB
"""On each card, for what no sum has: the driver's pools, fragments, a larger batch. llama.cpp's
own --fit leaves as much."""
HOST_MARGIN = 8 * GIB
"""For the rest of the machine, so that it still answers."""
FOOTPRINT = 512 * MIB
"""The process itself: vocabulary, graph, pinned buffers, libraries."""
HEADROOM = 0.10
"""Share of a card that stays free where a plan is not tight (lesson F-005)."""
SWAP_CREDIT = 0.5
"""Share of free swap that a resident load may count on, and then it is TIGHT at best."""
HOST, PAGES = "host RAM", "page cache"


def resident(ledger: Ledger, machine: Machine, *, locked: bool = False) -> None:
    """All of it is memory of the process: RAM has to hold it, and swap makes it TIGHT at best."""
    available = machine.ram_available or 0
    need = ledger.need(HOST)
    credit = 0 if locked else int((machine.swap_free or 0) * SWAP_CREDIT)
    if need <= available:
        ledger.limit(HOST, available)
        if available - need < HOST_MARGIN:
            ledger.tight.append(
                f"{format_bytes(available - need)} of RAM would be left, "
                f"less than {format_bytes(HOST_MARGIN)}"
            )
        return
    if need <= available + credit:
        ledger.limit(HOST, available + credit)
        ledger.tight.append(
            f"{format_bytes(need - available)} more than the RAM that is free: it would be swapped"
        )
        return
    ledger.limit(HOST, available)
    if credit:
        ledger.notes.append(
            f"swap does not help: half of what is free counts, {format_bytes(credit)}"
        )


def held(need: int, machine: Machine) -> tuple[int, int]:
    """How much of the memory a process asks for can be in RAM, and how much in swap."""
    ram = need if machine.ram_available is None else min(need, machine.ram_available)
    return ram, min(need - ram, machine.swap_free or 0)
