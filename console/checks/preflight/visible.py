"""Which cards a program sees: what CUDA_VISIBLE_DEVICES leaves of the machine's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from console.checks.preflight import Finding, Level
from console.common.text import one_line
from console.host.sample import Card, Machine

VISIBLE, ORDER, BY_SLOT = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
TITLE = "visible cards"


def seen(machine: Machine, env: Mapping[str, str]) -> tuple[Machine, list[Finding]]:
    """The machine with the cards that a program with this environment sees, in its order. CUDA
    stops at the first word that names no card."""
    value = env.get(VISIBLE)
    if value is None or not machine.cards:
        return machine, []
    cards: list[Card] = []
    by_number = False
    for word in (part.strip() for part in value.split(",")):
        card = _named(word, machine.cards)
        if card is None or card in cards:
            break
        by_number = by_number or word.isdigit()
        cards.append(card)
    visible_machine = replace(machine, cards=tuple(cards))
    if by_number and env.get(ORDER) != BY_SLOT and len({card.total for card in machine.cards}) > 1:
        words = (
            f"{VISIBLE}={one_line(value, 60)}: without {ORDER}={BY_SLOT} CUDA numbers the fastest "
            "card first, and which of these unequal cards is meant is not known"
        )
        return visible_machine, [
            Finding(Level.UNKNOWN, TITLE, words, f"set {ORDER}={BY_SLOT}, or give UUIDs")
        ]
    return visible_machine, []


def _named(word: str, cards: tuple[Card, ...]) -> Card | None:
    if word.isdigit():
        return cards[int(word)] if int(word) < len(cards) else None
    matching = [card for card in cards if word and card.uuid.startswith(word)]
    return matching[0] if len(matching) == 1 else None
