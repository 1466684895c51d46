"""What a rehearsal can be told to let go wrong: one abort criterion each, and the grey zone."""

from __future__ import annotations

from console.common.errors import UsageError
from console.common.text import one_line

FAULTS = {
    "no-sm120": "the build has no kernels for the cards",
    "no-sched-ext": "the server's imports end at sched_ext, which no wheel brings (F-018)",
    "cuda-error": "a CUDA kernel error in the candidate's log, soon after it serves",
    "slow": "the candidate generates below the abort threshold, by 30 %",
    "grey": "the candidate generates in the grey zone, between abort and GO",
    "vram": "the candidate takes more VRAM than the budget",
    "ram": "the load eats RAM until the guard stops it",
    "crash": "the candidate dies under the soak",
    "never-ready": "the candidate loads for ever",
}


def known(name: str) -> str:
    """The name, as given; empty for none. Raises UsageError with the list for any other."""
    if name and name not in FAULTS:
        listed = "\n".join(f"{one:<12} {what}" for one, what in FAULTS.items())
        raise UsageError(f"there is no fault '{one_line(name, 40)}'", listed, "--fault NAME")
    return name
