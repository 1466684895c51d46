"""The cards, asked through NVML in a process of its own, and those the site names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from console.checks.doctor.facts import Facts
from console.checks.doctor.model import Check, Finding
from console.common.units import format_bytes
from console.host.gpu.vram import LOST

if TYPE_CHECKING:
    from console.host.gpu.vram import Vram

_HINTS = (
    ("library not found", "is the NVIDIA driver installed? `nvidia-smi` comes with it"),
    ("mismatch", "the driver was updated under a running kernel: reboot, then `nvidia-smi`"),
    ("lost", "`dmesg | grep -i xid` tells why; a reboot brings the card back"),
    ("no answer", "`nvidia-smi` hangs too? `dmesg | grep -i -e xid -e nvrm`, then a reboot"),
    ("permission", "this login may not use the driver: `ls -l /dev/nvidia*`"),
    (
        "not loaded",
        "sudo modprobe nvidia; `dkms status` shows whether it was built for this kernel",
    ),
    ("unknown error", "inside a container? start it again; else `nvidia-smi`, then a reboot"),
)
_UNSURE = ("mig mode", "not supported")
"""Not known by design: MIG instances, unified memory."""


def cards(facts: Facts, check: Check) -> Iterator[Finding]:
    """Each card with its memory, or the words of the driver."""
    answer = facts.cards()
    site = facts.site()
    names = {gpu.uuid: gpu.name for gpu in site.model.gpus} if site else {}
    for uuid, memory in answer.cards.items():
        yield _card(check, uuid, names.get(uuid, ""), memory)
    if answer.words and not answer.cards:
        if names or answer.there:
            yield check.failed(answer.words, _hint(answer.words))
        else:
            yield check.note(f"no NVIDIA driver here ({answer.words}): GPU gauges stay empty")
    elif not answer.cards:
        yield check.note("the driver answers, and knows no card")


def named(facts: Facts, check: Check) -> Iterator[Finding]:
    """Every card the site names has to be there: their memory is awaited after a stop."""
    site = facts.site()
    if site is None:
        return
    answer = facts.cards()
    there = answer.cards
    if not site.model.gpus:
        if there:
            uuids = ", ".join(f"{{uuid: {uuid}}}" for uuid in there)
            yield check.note(
                "the site names no card: their memory is not awaited between two models",
                f"gpus: [{uuids}]   in the site file",
            )
        return
    if answer.words and not there:
        yield check.note(f"{len(site.model.gpus)} named; not known while no driver answers")
        return
    missing = [gpu for gpu in site.model.gpus if gpu.uuid not in there]
    for gpu in missing:
        found = ", ".join(there) or "none"
        label = f"{gpu.uuid} ({gpu.name})" if gpu.name else gpu.uuid
        yield check.failed(
            f"{label} is not on this machine", f"`nvidia-smi -L` names those there are: {found}"
        )
    if not missing:
        yield check.ok(f"all {len(site.model.gpus)} that the site names are there")


def _card(check: Check, uuid: str, name: str, memory: Vram) -> Finding:
    label = f"{name} ({uuid})" if name else uuid
    used, total, why = memory.get("used"), memory.get("total"), memory.get("why", "")
    if used is not None and total is not None:
        return check.ok(f"{label}: {format_bytes(used)} of {format_bytes(total)} used")
    words = f"{label}: {why or 'its memory is not known'}"
    if why == LOST:
        return check.failed(words, _hint(why))
    if any(sign in why.lower() for sign in _UNSURE):
        return check.note(f"{words}; its memory is not shown")
    return check.warning(words, _hint(why))


def _hint(words: str) -> str:
    low = words.lower()
    return next((hint for sign, hint in _HINTS if sign in low), "`nvidia-smi` shows the driver")


CHECKS = (
    Check("gpu.cards", "cards", cards),
    Check("gpu.named", "site's cards", named),
)
