"""The process that queries NVML for `inventory`; it imports little, because every look at a host
starts one.

`python -m console.host.gpu.listing` prints one JSON line, and with `--each` one for every line of
its stdin, until that ends. An unknown figure is null, never zero.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from typing import Any

from console.host.gpu import nvml as known


def read() -> dict[str, Any]:
    """Query NVML in this process; for the child."""
    nvml, why = known.opened()
    answer: dict[str, Any] = {"cards": [], "driver": "", "cuda": None, "words": why}
    if nvml is None:
        return answer
    answer["driver"] = known.text(known.got(nvml, "nvmlSystemGetDriverVersion") or "")
    version = known.got(nvml, "nvmlSystemGetCudaDriverVersion")
    answer["cuda"] = None if version is None else (version // 1000, version % 1000 // 10)
    try:
        answer["cards"] = [_read_card(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError as error:
        answer["words"] = known.words(error)
    return answer


def _read_card(nvml: Any, index: int) -> dict[str, Any]:
    got = partial(known.got, nvml)
    card: dict[str, Any] = {"uuid": f"index:{index}", "name": ""}
    card |= {"total": None, "free": None, "compute": None, "unified": False}
    handle = got("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return card
    card["uuid"] = known.text(got("nvmlDeviceGetUUID", handle) or card["uuid"])
    card["name"] = known.text(got("nvmlDeviceGetName", handle) or "")
    card["compute"] = got("nvmlDeviceGetCudaComputeCapability", handle)
    if any((got("nvmlDeviceGetMigMode", handle) or ())[:1]):
        return card  # memory belongs to the instances
    memory = got("nvmlDeviceGetMemoryInfo", handle, nvml.nvmlMemory_v2)
    memory = memory or got("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None and memory.total:
        card |= {"total": int(memory.total), "free": int(memory.free)}
    card["unified"] = memory is not None and not memory.total  # the card uses the host's RAM
    return card


def main() -> None:
    if sys.argv[1:] != ["--each"]:
        print(json.dumps(read()), flush=True)
        return
    for _ in sys.stdin:
        print(json.dumps(read()), flush=True)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # not through NVML's own ending, which a lost card can hold up
