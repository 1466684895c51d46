"""This machine as a verdict needs it: memory that can be had, cards, processor, disk.

Nothing is written and no disk is measured. Every figure says how it was come by, in `given`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from console.common.errors import ConsoleError, EngineTimeout
from console.common.text import one_line
from console.host.children import within
from console.host.disk import existing, space
from console.host.gpu import inventory as nvml
from console.host.gpu.inventory import Cards
from console.host.memory import MemoryReader, limits
from console.host.sample import Machine

DISK_S = 2.0
"""A dead mount does not answer at all."""
NOW = "measured now"
_FIELD = re.compile(r"^(\S[^:\t]*?)\s*:\s?(.*)$", re.MULTILINE)


def look(
    disk: Path | None = None, *, root: Path = Path("/"), cards: Cards | None = None
) -> Machine:
    """The machine at this moment; a figure that cannot be had is None, and `given` says why.

    `disk` is where a download goes (it need not be there yet). `root` is where /proc and /sys are;
    `cards` are asked of NVML unless they are handed in.
    """
    given: dict[str, str] = {}
    asked = nvml.ask() if cards is None else cards
    given["cards"] = asked.words or f"{NOW}, NVML, driver {asked.driver or 'unknown'}"
    nodes = numa_nodes(root)
    given["numa_nodes"] = "the kernel does not list them" if nodes is None else NOW
    return Machine(
        cards=asked.cards, disk_free=_disk(disk, given) if disk is not None else None,
        disk_path=str(disk) if disk is not None else "", numa_nodes=nodes, given=given,
        **_memory(root, given), **_processor(root, given),
    )  # fmt: skip


def numa_nodes(root: Path = Path("/")) -> int | None:
    """NUMA nodes, None where the kernel does not list them."""
    try:
        names = os.listdir(root / "sys/devices/system/node")
    except OSError:
        return None
    return sum(re.fullmatch(r"node\d+", name) is not None for name in names) or None


def disk_free(path: Path) -> int:
    """Bytes this user can still write where `path` is, or would be made.

    Raises OSError, and EngineTimeout for a mount that does not answer.
    """
    hint = "a dead mount? `findmnt -T` names it"
    return within(DISK_S, f"The disk of {one_line(str(path))}", lambda: space(path).free, hint)


def _memory(root: Path, given: dict[str, str]) -> dict[str, Any]:
    reader = MemoryReader(root / "proc")
    try:
        seen = reader.read(0.0)
    except ConsoleError as error:
        given["ram_total"] = given["ram_available"] = str(error)
        return {}
    finally:
        reader.close()
    found = {"ram_total": seen.total, "ram_available": seen.available}
    found |= {"swap_total": seen.swap_total, "swap_free": seen.swap_total - seen.swap_used}
    given["ram_total"] = given["swap_total"] = f"{NOW}, /proc/meminfo"
    given["ram_available"] = f"{NOW}, MemAvailable"
    given["swap_free"] = f"{NOW}, SwapFree"
    for limit in limits(root):
        group = f"cgroup {one_line(limit.group, 80)}"
        for name, most, words in (
            ("ram_total", limit.most, f"the limit of {group}"),
            ("ram_available", limit.left, f"what {group} leaves"),
            ("swap_free", limit.swap_left, f"what {group} leaves"),
        ):
            if most is not None and most < found[name]:
                found[name], given[name] = most, f"{NOW}, {words}"
    return found


def _disk(path: Path, given: dict[str, str]) -> int | None:
    try:
        free = disk_free(path)
    except (OSError, EngineTimeout) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        given["disk_free"] = one_line(words or "cannot be read")
        return None
    given["disk_free"] = f"{NOW}, {existing(path)}"
    return free


def _processor(root: Path, given: dict[str, str]) -> dict[str, Any]:
    """Flags and name of the first processor, and how many cores there are in all.

    Cores are counted, not the threads they run.
    """
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError as error:
        given["cpu_flags"] = f"/proc/cpuinfo: {error.strerror}"
        return {}
    given["cpu_flags"] = given["cores"] = f"{NOW}, /proc/cpuinfo"
    flags, name, pairs, threads = frozenset[str](), "", set(), 0
    for block in text.split("\n\n"):
        fields = dict(_FIELD.findall(block))
        threads += "processor" in fields
        flags = flags or frozenset((fields.get("flags") or fields.get("Features", "")).split())
        name = name or one_line(fields.get("model name", ""))
        if "core id" in fields:
            pairs.add((fields.get("physical id", "0"), fields["core id"]))
    return {"cpu_flags": flags, "cpu_name": name, "cores": len(pairs) or threads or None}
