"""Cards against builds: compute capability, CUDA, PyTorch's list of kernels, the driver.

A build holds machine code for some capabilities (`sm_90`: this and later ones of the same major
version) and may hold PTX (`compute_90`), which the driver compiles for any later card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from console.checks.preflight import Finding, Level
from console.checks.preflight.compatibility import table
from console.common.text import one_line
from console.host.sample import Card

Pair = tuple[int, int]

NO_KERNEL = ("F-001", "F-012")
NO_CARD = ("F-014",)
ADVISED = ("S-013",)
FIXED_DRIVER = (580, 126, 9)
NEW_KERNEL = (6, 19)
"""S-013: 580.126.09 brings compatibility with Linux 6.19."""
_ARCH = re.compile(r"\b(sm|compute)_(\d{2,3})([af]?)\b")


def parse_archs(text: str) -> tuple[str, ...] | None:
    """The architectures that PyTorch reports (`['sm_80', 'sm_120']`, `sm_80 compute_90`).

    Empty for `[]`; None if the text is no such list.
    """
    architectures = tuple(match[0] for match in _ARCH.finditer(text))
    empty = text.strip() in ("[]", "None", "")
    return architectures if architectures or empty else None


def runs_on(archs: Iterable[str], capability: Pair) -> bool:
    """Whether a build with these architectures has code for a card."""
    for arch in archs:
        match = _ARCH.fullmatch(arch)
        if match is None:
            continue
        built = int(match[2][:-1]), int(match[2][-1])
        exact, family = match[3] == "a", match[3] == "f"
        same = built[0] == capability[0] and built[1] <= capability[1]
        if exact and built == capability:
            return True
        if not exact and same and (match[1] == "sm" or family):
            return True
        if match[1] == "compute" and not match[3] and built <= capability:
            return True
    return False


def check_archs(cards: Sequence[Card], archs: Sequence[str] | None, what: str) -> Finding:
    """Whether `what` (a PyTorch, a library) has kernels for every card."""
    title = f"kernels of {one_line(what, 50)}"
    known = [card for card in cards if card.compute is not None]
    if archs is None:
        return Finding(Level.UNKNOWN, title, "its list of architectures cannot be read")
    if not archs:
        words = "the list is empty, which only says that no card was visible to it"
        hint = "torch.cuda.get_arch_list() needs a card; torch._C._cuda_getArchFlags() does not"
        return Finding(Level.UNKNOWN, title, words, hint, NO_CARD)
    listed = ", ".join(one_line(arch, 20) for arch in archs)
    if not known:
        words = f"{listed}; the cards' compute capability is not known here"
        return Finding(Level.UNKNOWN, title, words)
    missing = [card for card in known if not runs_on(archs, card.compute or (0, 0))]
    if missing:
        names = ", ".join(f"{card.name or card.uuid} ({sm(card)})" for card in missing)
        words = f"none for {names}: it was built for {listed}"
        hint = "`no kernel image is available` would follow; for sm_120 take a build for CUDA 12.8"
        return Finding(Level.FAIL, title, words, hint, NO_KERNEL)
    if len(known) < len(cards):
        return Finding(Level.UNKNOWN, title, f"{listed}; not every card says what it is")
    return Finding(Level.OK, title, f"has them for {', '.join(sorted({sm(c) for c in known}))}")


def check_cuda(cards: Sequence[Card], cuda: Pair | None, what: str) -> tuple[Finding, ...]:
    """Whether the CUDA version that `what` was built with supports each kind of card."""
    title = f"CUDA of {one_line(what, 50)}"
    if cuda is None:
        return (Finding(Level.UNKNOWN, title, "it does not say its version"),)
    findings = []
    for capability in sorted({card.compute for card in cards if card.compute}):
        name = f"sm_{capability[0]}{capability[1]}"
        row = next(
            (card_row for card_row in table().cards if _version(card_row.sm) == capability), None
        )
        if row is None:
            words = f"the table does not say which CUDA is the first with {name}"
            findings.append(Finding(Level.UNKNOWN, title, words))
        elif cuda < _version(row.cuda):
            words = f"{cuda[0]}.{cuda[1]} has no {name}; the first that has it is {row.cuda}"
            hint = f"a base image with CUDA {row.cuda} or newer" + (
                f", PyTorch {row.pytorch} or newer with it" if row.pytorch else ""
            )
            source = f"{row.source}, {row.date}"
            findings.append(Finding(Level.FAIL, title, words, hint, tuple(row.lessons), source))
        else:
            findings.append(Finding(Level.OK, title, f"{cuda[0]}.{cuda[1]} has {name}"))
    return tuple(findings)


def check_driver(
    driver: str, cuda: Pair | None = None, kernel: str = "", least: str = ""
) -> Finding:
    """Whether the driver is new enough, serves a CUDA version, and fits the kernel; each if
    given."""
    title, version = "NVIDIA driver", numbers(driver)
    if not version:
        return Finding(Level.UNKNOWN, title, "no driver answers, so its version is not known")
    if version < numbers(least):
        words = f"{driver}; {one_line(least, 40)} or newer is wanted"
        return Finding(Level.FAIL, title, words, "update the driver, then reboot")
    row = next(
        (driver_row for driver_row in table().drivers if cuda and driver_row.cuda == cuda[0]), None
    )
    if row is not None and version < numbers(row.driver):
        words = f"{driver} is too old for CUDA {row.cuda}, which wants {row.driver} or newer"
        source = f"{row.source}, {row.date}"
        return Finding(Level.FAIL, title, words, "update the driver, then reboot", source=source)
    if cuda is not None and row is None:
        words = f"{driver}; the table does not say what CUDA {cuda[0]} wants"
        return Finding(Level.UNKNOWN, title, words)
    if numbers(kernel)[:2] >= NEW_KERNEL and version < FIXED_DRIVER:
        words = f"{driver} on Linux {one_line(kernel, 40)}: 580.126.09 is the first made for 6.19"
        return Finding(Level.WARN, title, words, "update the driver", ADVISED, "S-013, 2026-01-27")
    serves = f", serves CUDA {cuda[0]}.x" if cuda else ""
    return Finding(Level.OK, title, f"{driver}{serves}")


def sm(card: Card) -> str:
    """`sm_120` for compute capability 12.0."""
    return "sm_?" if card.compute is None else f"sm_{card.compute[0]}{card.compute[1]}"


def _version(text: str) -> Pair:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def numbers(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with."""
    match = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, match[0].split("."))) if match else ()
