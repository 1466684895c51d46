"""GPU memory by UUID, asked of NVML; meant for a process of its own, because NVML can hang.

`python -m console.host.gpu.vram` prints one JSON line; exit code 3 and a line on stderr say that a
driver or a GPU is missing. A value that is not known is null, never zero.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any, TypedDict

from console.common.errors import ConsoleError
from console.common.text import one_line
from console.host.gpu.nvml import load, mig_on, text

UNAVAILABLE = 3
LOST = "the GPU is lost to the driver"


class Vram(TypedDict, total=False):
    """Bytes of one GPU; null with `why` where NVML does not say."""

    used: int | None
    total: int | None
    why: str


class NoGpu(ConsoleError):
    """NVML cannot be asked: no library, no driver, or a driver that does not fit."""


def read() -> dict[str, Vram]:
    """Used and total bytes of each GPU by UUID; raises NoGpu when NVML cannot be asked.

    A GPU whose UUID is not to be had (it fell off the bus) is listed as `index:N`.
    """
    try:
        nvml = load()
    except ImportError as error:
        why = one_line(str(error))
        raise NoGpu("NVML cannot be loaded", why, "reinstall omni-console") from None
    try:
        nvml.nvmlInit()
        return dict(_one(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        why = one_line(str(error))
        raise NoGpu("No GPU driver answers", why, "`nvidia-smi` shows the driver") from None
    finally:
        with contextlib.suppress(nvml.NVMLError):  # a lost GPU can take the shutdown along
            nvml.nvmlShutdown()


def _one(nvml: Any, index: int) -> tuple[str, Vram]:
    key = f"index:{index}"
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        key = text(nvml.nvmlDeviceGetUUID(handle))
        if mig_on(nvml, handle):
            return key, _unknown("MIG mode: memory belongs to its instances")
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return key, {"used": int(memory.used), "total": int(memory.total)}
    except nvml.NVMLError_GpuIsLost:
        return key, _unknown(LOST)
    except nvml.NVMLError as error:
        return key, _unknown(one_line(str(error)).lower())


def _unknown(why: str) -> Vram:
    return {"used": None, "total": None, "why": why}


def main() -> int:
    """Print the line; 0, or 3 with the cause on stderr."""
    try:
        found = read()
    except NoGpu as error:
        print(error, file=sys.stderr)
        return UNAVAILABLE
    print(json.dumps(found), flush=True)
    lost = [key for key, value in found.items() if value.get("why") == LOST]
    if lost:
        print(f"{LOST}: {', '.join(lost)}", file=sys.stderr)
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
