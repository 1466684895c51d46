"""The site's `machine` against a machine: every figure that is not so is said, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.checks.doctor.facts import Facts, Level
from tests.doctor.conftest import PROCESS, Look

CPU = (
    "processor\t: {}\nmodel name\t: AMD Ryzen(R) 9995WX 96-Cores\ncore id\t: {}\nflags\t: avx2\n\n"
)
MEMORY = (
    "MemTotal: 402653184 kB\nMemAvailable: 300000000 kB\nSwapTotal: 1048576 kB\nSwapFree: 0 kB\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """384 GiB of RAM, 1 GiB of swap, two cores, one node."""
    for name, text in {
        "proc/meminfo": MEMORY,
        "proc/cpuinfo": "".join(CPU.format(n, n) for n in range(2)),
        "sys/devices/system/node/node0/cpulist": "0-1",
    }.items():
        path = tmp_path / "machine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "machine"


def site(root: Path, machine: Path, *lines: str) -> Facts:
    path = root / "site.yaml"
    path.write_text("\n".join([PROCESS + "machine:", *(f"  {line}" for line in lines), ""]))
    return Facts(str(path), root=machine)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ram: 512GiB", "ram: 512.0 GiB"), ("ram: 128GiB", "ram: 128.0 GiB"),
        ("swap: 207GiB", "swap: 207.0 GiB"), ("cores: 96", "cores: 96"),
        ("cpu: AMD Ryzen 7995WX", "cpu: AMD Ryzen 7995WX"), ("numa_nodes: 4", "numa_nodes: 4"),
        ("cpu_flags: [avx2, amx_int8]", "cpu_flags: "), ("disk_free: 900000TB", "disk_free: 8185"),
    ],
)  # fmt: skip
def test_a_figure_that_is_not_so_is_said_with_its_line(
    tmp_path: Path, machine: Path, look: Look, line: str, words: str
) -> None:
    (found,) = look("machine.declared", facts=site(tmp_path, machine, "ram_used: 1GiB", line))
    assert found.level is Level.WARNING
    assert found.detail.startswith(words)
    assert f"{tmp_path / 'site.yaml'}:6" in found.hint


def test_figures_that_are_so_are_listed(tmp_path: Path, machine: Path, look: Look) -> None:
    told = ("ram: 377GiB", "swap: 1GiB", "disk_free: 1kB", "cpu: AMD Ryzen 9995WX",
            "cpu_flags: [avx2]", "cores: 2", "numa_nodes: 1")  # fmt: skip
    (found,) = look("machine.declared", facts=site(tmp_path, machine, *told))
    names = "ram, swap, disk_free, cpu, cpu_flags, cores, numa_nodes"
    assert (found.level, found.detail.partition(": ")[2]) == (Level.OK, names)


def test_what_is_not_declared_or_not_known_contradicts_nothing(tmp_path: Path, look: Look) -> None:
    assert not look("machine.declared", facts=Facts(None, root=tmp_path))
    assert not look("machine.declared", PROCESS)
    blind = tmp_path / "nothing"
    told = ("ram: 1TiB", "cpu: Other", "cpu_flags: [avx2]", "cores: 7", "numa_nodes: 9")
    assert not look("machine.declared", facts=site(tmp_path, blind, *told))
