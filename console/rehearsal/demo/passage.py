"""What the generated models say: plain English about operating a server, and the walk through it.

A model knows the text as a row of pieces, each of which occurs once, so that every piece has one
that follows it. A word that occurs again becomes one piece with the words after it.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

SENTENCES = (
    "A server that answers quickly is not yet a server that answers well.",
    "Before you replace a working engine, write down how fast it is today.",
    "Measure both builds with the same prompts, one after the other, on an idle machine.",
    "Keep the old image until nobody has asked for it during a whole week.",
    "Memory is the first limit that most large models reach.",
    "Weights occupy a fixed share, while the cache grows with every conversation.",
    "If a card runs out of room, move some experts into main memory and accept fewer tokens.",
    "Long prompts cost time before any word appears, so look at that delay too.",
    "Watch temperatures during summer, because hot cards lower their clocks without warning.",
    "Logs explain more than graphs once something has gone wrong.",
    "Save the last lines of each process beside its exit code.",
    "Never trust an average alone; slow requests hide behind many quick ones.",
    "When two results differ by less than their noise, call them equal and take the simpler one.",
    "Disks fill up at night, usually through files which somebody meant to delete.",
    "Give each service its own port, user, directory and time limit.",
    "Restart only what has failed, and say why in one clear sentence.",
    "People read your messages half asleep, hence short words help them most.",
    "Practise the way back often, since an untested rollback is merely hope.",
    "Good operators change one setting, observe quietly, then decide about the next.",
    "Drivers, kernels and compilers have versions; record all three with every figure.",
    "Backups count from the moment somebody restored one successfully.",
    "Tell your colleagues early when maintenance begins, plus again after everything serves.",
    "Questions from customers reveal faults that synthetic checks overlook.",
    "Finally, leave this place tidier than it was, go home, and sleep soundly.",
)  # fmt: skip
"""No two begin with the same word."""


@cache
def pieces() -> tuple[tuple[str, ...], ...]:
    """The pieces of each sentence, all different; each ends in the space before the next word."""
    known: set[str] = set()
    return tuple(_cut(sentence, known) for sentence in SENTENCES)


def _cut(sentence: str, known: set[str]) -> tuple[str, ...]:
    row, piece = [], ""
    for word in sentence.split():
        piece += f"{word} "
        if piece not in known:
            known.add(piece)
            row.append(piece)
            piece = ""
    if piece:  # the sentence ends in words that are known: they belong to the piece before
        known.remove(row[-1])
        row[-1] += piece
        known.add(row[-1])
    return tuple(row)


def words() -> list[str]:
    """Every piece, in the order of the text."""
    return [piece for row in pieces() for piece in row]


def openings() -> frozenset[str]:
    """The first pieces of the sentences: an answer begins with one of them."""
    return frozenset(row[0] for row in pieces())


def before() -> dict[str, str]:
    """The piece that each piece follows; the text begins again after its end."""
    row = words()
    return {piece: earlier for earlier, piece in pairwise([row[-1], *row])}


@cache
def codes(channels: int) -> tuple[tuple[int, ...], ...]:
    """A row of plus and minus one for each piece; no two of them agree in many channels."""
    chance = random.Random(channels)
    taken: list[int] = []
    limit = channels * 3 // 4
    for _ in words():
        tries = 0
        while True:
            code = chance.getrandbits(channels)
            tries += 1
            most = limit + tries // 100
            if all(channels - (code ^ other).bit_count() <= most for other in taken):
                break
        taken.append(code)
    return tuple(tuple(1 if code >> bit & 1 else -1 for bit in range(channels)) for code in taken)
