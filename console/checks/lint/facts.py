"""What is known of the machine a file is written for: from the site, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from console.config.site.site import Site

BLACKWELL = (12, 0)


@dataclass(frozen=True, slots=True)
class Facts:
    """Memory of the cards in bytes, their compute capabilities, RAM and swap in bytes, the CPU's
    name; what the site does not say is empty or None."""

    memory: tuple[int, ...] = ()
    compute: tuple[tuple[int, int], ...] = ()
    ram_bytes: int | None = None
    swap_bytes: int = 0
    cpu: str = ""

    @property
    def asymmetric(self) -> bool | None:
        """Cards of different size; None where fewer than two are known."""
        if len(self.memory) < 2:
            return None
        return max(self.memory) > 1.1 * min(self.memory)

    @property
    def sm120(self) -> bool | None:
        """A card of compute capability 12.0; None where none is known."""
        return any(one >= BLACKWELL for one in self.compute) if self.compute else None

    @property
    def zen5(self) -> bool | None:
        """Whether the CPU is of AMD's fifth generation; None where the site does not name it."""
        if not self.cpu:
            return None
        words = self.cpu.upper().replace("-", " ").split()
        return any(_is_zen5(word) for word in words) and ("AMD" in words or "EPYC" in words)


def _is_zen5(model: str) -> bool:
    """Threadripper 99xxWX/X, Ryzen 9xxx, EPYC 9xx5."""
    digits = model[:4]
    if len(model) < 4 or not digits.isdecimal() or digits[0] != "9":
        return False
    return model[4:] in ("WX", "X", "X3D", "F", "P", "") and (
        model[4:] in ("WX", "X", "X3D") or digits[3] == "5"
    )


def facts_of(site: Site) -> Facts:
    """The facts a site file declares; nothing is measured."""
    machine, gpus = site.model.machine, site.model.gpus
    return Facts(
        tuple(gpu.memory for gpu in gpus if gpu.memory is not None),
        tuple(gpu.compute for gpu in gpus if gpu.compute is not None),
        machine.ram, machine.swap or 0, machine.cpu,
    )  # fmt: skip
