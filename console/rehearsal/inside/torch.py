"""Stands in for `torch`, with what a check of the build and of the cards uses."""

from __future__ import annotations

from types import SimpleNamespace

from console.rehearsal.inside.settings import announce, settings

__version__ = "2.9.0+cu128.stand.in"
version = SimpleNamespace(cuda="12.8", hip=None)

NO_KERNEL = "CUDA error: no kernel image is available for execution on the device"

announce("torch")


def _properties(index: int = 0) -> SimpleNamespace:
    card, (major, minor) = settings().cards[index], settings().capability
    return SimpleNamespace(
        name=card["name"], total_memory=int(card["total"]), major=major, minor=minor
    )


class Tensor:
    """A square of equal numbers: enough for a check that a kernel runs."""

    def __init__(self, value: float, rows: int, columns: int) -> None:
        self.value, self.rows, self.columns = value, rows, columns

    def matmul(self, other: Tensor) -> Tensor:
        """The product, if there are kernels for the card. Raises RuntimeError."""
        if settings().fault == "no-sm120":
            raise RuntimeError(NO_KERNEL)
        return Tensor(self.value * other.value * self.columns, self.rows, other.columns)

    __matmul__ = matmul

    def sum(self) -> Tensor:
        return Tensor(self.value * self.rows * self.columns, 1, 1)

    def item(self) -> float:
        return float(self.value)


def ones(rows: int, columns: int = 1, *, device: str = "cpu") -> Tensor:
    """A tensor of ones. Raises RuntimeError for a card that does not exist."""
    _, _, number = device.partition(":")
    if device.startswith("cuda") and int(number or 0) >= len(settings().cards):
        raise RuntimeError("CUDA error: invalid device ordinal")
    return Tensor(1.0, rows, columns)


cuda = SimpleNamespace(
    is_available=lambda: bool(settings().cards),
    device_count=lambda: len(settings().cards),
    get_arch_list=lambda: settings().architectures,
    get_device_name=lambda index=0: str(settings().cards[index]["name"]),
    get_device_capability=lambda index=0: settings().cards[index] and settings().capability,
    get_device_properties=_properties,
)
