"""One thing that a trial left: what it is, where, how big, and why it has to stay if it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from console.runner.cleanup.layer import Stored, together

KINDS = ("container", "image", "download", "run")


@dataclass(frozen=True, slots=True)
class Leftover:
    """`id` names this very thing: `c-`, `i-`, `d-` or `r-` and what identifies it. `bytes`: free
    when it alone goes, as measured; None where nobody can tell. `stays`: why it may not be
    removed; "" where it may."""

    id: str
    kind: str
    what: str
    where: str
    bytes: int | None
    since: float = 0.0
    """When it was made, Unix seconds; 0.0 where unknown."""
    run: str = ""
    stays: str = ""
    waits: tuple[str, ...] = ()
    """Where that is all that keeps it: ids of what has to go first."""
    remove: Callable[[], int | None] | None = field(default=None, repr=False, compare=False)
    """Removes it; bytes that are free by that. Raises ConsoleError, OSError."""

    def kept(self, why: str) -> Leftover:
        """The same, with one more reason to stay; the first one stands."""
        return replace(self, stays=self.stays or why)


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that was found; `notes`: what could not be looked at, and why."""

    items: tuple[Leftover, ...]
    notes: tuple[str, ...] = ()
    images: tuple[Stored, ...] = ()
    """Every image on the engine: what the found ones share with others stays."""

    @property
    def removable(self) -> list[Leftover]:
        return [one for one in self.items if not one.stays]

    def freed(self, items: list[Leftover]) -> tuple[int, bool]:
        """Bytes that are free when all of these go, of those whose size is known; False where it
        may be more."""
        images = {one.where for one in items if one.kind == "image"}
        layers, exact = together(images, self.images)
        return layers + sum(one.bytes or 0 for one in items if one.kind != "image"), exact
