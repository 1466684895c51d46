"""What processes hold in RAM, and how long the kernel may take to tear that down after a kill."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from console.common.files import read_text

KILL_WAIT_S = 10.0
"""How long whoever holds next to nothing may take to be gone after SIGKILL."""
TEARDOWN_S = 0.5
"""Seconds a GiB: 0.08 were measured on a quiet machine, 0.42 on one that swaps."""
GIB = 1 << 30
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""Docker and Podman name a container's control group by its full id, with cgroupfs and systemd."""


class Resident(NamedTuple):
    """Bytes of RAM: all pages, and those that come back only when their owner is gone (anonymous
    and shared memory; pages of files count as available already)."""

    total: int
    own: int


def of(pids: Iterable[int]) -> Resident:
    """The sum over some processes; shared pages count once for each of them."""
    total = own = 0
    for pid in pids:
        rows = _rows(pid)
        total += rows.get("VmRSS", 0)
        own += rows.get("RssAnon", 0) + rows.get("RssShmem", 0)
    return Resident(total, own)


def pids_of_container(identity: str) -> list[int]:
    """The pids of a container of this machine, by its full id in their control group."""
    names = filter(str.isdigit, os.listdir("/proc") if identity else ())
    return [int(name) for name in names if identity in read_text(f"/proc/{name}/cgroup")]


def container_of(pid: int) -> str:
    """The full id of the container that a process of this machine runs in; empty for none."""
    found = _CONTAINER.search(read_text(f"/proc/{pid}/cgroup"))
    return found[0] if found else ""


def kill_wait_s(resident: Resident) -> float:
    """Seconds that a killed process which held this may take to be gone."""
    return KILL_WAIT_S + resident.total / GIB * TEARDOWN_S


def _rows(pid: int) -> dict[str, int]:
    """The rows of /proc/PID/status that count kB, in bytes; empty where it is gone."""
    rows = {}
    for line in read_text(f"/proc/{pid}/status").splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdigit():
            rows[words[0].rstrip(":")] = int(words[1]) * 1024
    return rows
