"""Cards and driver through the real pynvml on a scripted NVML; processor, limits, declarations."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.checks.doctor.facts import Facts, Level
from tests.doctor.conftest import PROCESS, Look, tree
from tests.testbed.nvml import (
    ERROR_LIB_RM_VERSION_MISMATCH,
    ERROR_UNKNOWN,
    RTX_5090,
    RTX_PRO_6000,
    Card,
    Nvml,
)

Script = Callable[..., None]
BOTH = f"gpus: [{{uuid: {RTX_PRO_6000.uuid}, name: RTX PRO 6000}}, {{uuid: {RTX_5090.uuid}}}]\n"


@pytest.fixture
def cards(nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """Cards that every child process sees from now on."""

    def script(*which: Card, **more: Any) -> None:
        env = nvml.env(nvml.write(tmp_path / "script", which, **more))
        for name, value in env.items():
            monkeypatch.setenv(name, value)

    return script


def test_each_card_with_its_memory_and_its_name(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090)
    one, other = look("gpu.cards", PROCESS + BOTH)
    assert (one.level, other.level) == (Level.OK, Level.OK)
    assert RTX_PRO_6000.uuid in one.detail
    assert "612.0 MiB of 95.6" in one.detail
    assert RTX_5090.uuid in other.detail
    assert "15.0 MiB of 31.8" in other.detail


def test_a_driver_that_does_not_fit(cards: Script, look: Look) -> None:
    cards(RTX_5090, fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH})
    (found,) = look("gpu.cards")
    assert found.level is Level.FAILED
    assert "mismatch" in found.detail.lower()
    assert "reboot" in found.hint


def test_a_lost_card_fails_and_leaves_the_other(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090.but(lost=True))
    found = look("gpu.cards", PROCESS + BOTH)
    assert [one.level for one in found] == [Level.OK, Level.FAILED]
    assert "lost" in found[1].detail
    (missing,) = look("gpu.named", PROCESS + BOTH)
    assert (missing.level, RTX_5090.uuid in missing.detail) == (Level.FAILED, True)


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({"mig": 1}, Level.NOTE, "MIG mode"),
        ({"mem_used": None, "mem_total": None}, Level.NOTE, "not supported"),
        ({"fail": {"nvmlDeviceGetMemoryInfo": ERROR_UNKNOWN}}, Level.WARNING, "unknown error"),
    ],
)
def test_memory_that_is_not_known(
    cards: Script, look: Look, change: dict[str, Any], level: Level, word: str
) -> None:
    cards(RTX_5090.but(**change))
    (found,) = look("gpu.cards")
    assert (found.level, word.lower() in found.detail.lower()) == (level, True), found


@pytest.mark.usefixtures("impatient")
def test_a_driver_that_hangs_is_not_waited_for(cards: Script, look: Look) -> None:
    cards(RTX_5090, hang={"all": 60})
    (found,) = look("gpu.cards")
    assert (found.level, "within 0.5 s" in found.detail) == (Level.FAILED, True)
    assert "nvidia-smi" in found.hint


def test_cards_that_the_site_names(cards: Script, look: Look) -> None:
    cards(RTX_PRO_6000, RTX_5090)
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert (found.level, "2" in found.detail) == (Level.OK, True)
    cards(RTX_PRO_6000)
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert found.level is Level.FAILED
    assert (RTX_5090.uuid in found.detail, RTX_PRO_6000.uuid in found.hint) == (True, True)
    (found,) = look("gpu.named", PROCESS)
    assert found.level is Level.NOTE
    assert f"gpus: [{{uuid: {RTX_PRO_6000.uuid}}}]" in found.hint


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver_is_bad_only_where_the_site_names_cards(look: Look) -> None:
    (found,) = look("gpu.cards")
    assert (found.level, found.hint) == (Level.NOTE, "")
    assert "NVML" in found.detail
    assert look("gpu.named") == []
    (found,) = look("gpu.cards", PROCESS + BOTH)
    assert found.level is Level.FAILED
    (found,) = look("gpu.named", PROCESS + BOTH)
    assert found.level is Level.NOTE


GIB = 1 << 30
MOUNT = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def test_the_processor_is_named_with_what_kernels_ask_for(tmp_path: Path, look: Look) -> None:
    cpu = "processor\t: 0\nmodel name\t: AMD Threadripper\nflags\t\t: avx2 avx512f\n"
    (found,) = look("machine.processor", facts=tree(tmp_path, proc__cpuinfo=cpu))
    assert found.level is Level.OK
    have, _, lacks = found.detail.partition("; ")
    assert ("AMD Threadripper: AVX2, AVX-512" in have, "AMX INT8" in lacks) == (True, True)


@pytest.mark.parametrize(
    ("used", "level", "left"), [(2, Level.NOTE, "6.0 GiB"), (8, Level.WARNING, "0 B")]
)
def test_a_limit_above_this_login_is_named(
    tmp_path: Path, look: Look, used: int, level: Level, left: str
) -> None:
    group = "sys__fs__cgroup__userDOTslice__"
    files = {
        "proc__self__mountinfo": MOUNT,
        "proc__self__cgroup": "0::/user.slice\n",
        f"{group}memoryDOTmax": f"{8 * GIB}\n",
        f"{group}memoryDOTcurrent": f"{used * GIB}\n",
        f"{group}memoryDOTstat": "inactive_file 0\nactive_file 0\n",
    }
    (found,) = look("machine.limits", facts=tree(tmp_path, **files))
    assert found.level is level
    assert f"user.slice leaves {left} of 8.0 GiB" in found.detail


def test_the_driver_and_what_each_card_can_compute(
    nvml: Nvml, tmp_path: Path, look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: dict[str, Any] = nvml.env(nvml.write(tmp_path / "script", (RTX_5090,)))
    for name, value in script.items():
        monkeypatch.setenv(name, value)
    (found,) = look("gpu.driver")
    assert found.level is Level.OK
    assert "sm_120" in found.detail
    assert "CUDA up to" in found.detail


def test_without_a_driver_nothing_more_is_said(look: Look) -> None:
    assert not look("gpu.driver")


CPU = (
    "processor\t: {}\nmodel name\t: AMD Ryzen(R) 9995WX 96-Cores\ncore id\t: {}\nflags\t: avx2\n\n"
)
MEMORY = (
    "MemTotal: 402653184 kB\nMemAvailable: 300000000 kB\nSwapTotal: 1048576 kB\nSwapFree: 0 kB\n"
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """384 GiB of RAM, 1 GiB of swap, two cores, one node."""
    files = {"proc__meminfo": MEMORY, "proc__cpuinfo": "".join(CPU.format(n, n) for n in range(2)),
             "sys__devices__system__node__node0__cpulist": "0-1"}  # fmt: skip
    return tree(tmp_path / "machine", **files).root


def site(root: Path, machine: Path, *lines: str) -> Facts:
    path = root / "site.yaml"
    path.write_text("\n".join([PROCESS + "machine:", *(f"  {line}" for line in lines), ""]))
    return Facts(str(path), root=machine)


def test_figures_that_are_so_are_listed(tmp_path: Path, machine: Path, look: Look) -> None:
    told = ("ram: 377GiB", "swap: 1GiB", "disk_free: 1kB", "cpu: AMD Ryzen 9995WX",
            "cpu_flags: [avx2]", "cores: 2", "numa_nodes: 1")  # fmt: skip
    (found,) = look("machine.declared", facts=site(tmp_path, machine, *told))
    names = "ram, swap, disk_free, cpu, cpu_flags, cores, numa_nodes"
    assert (found.level, found.detail.partition(": ")[2]) == (Level.OK, names)
    (found,) = look("machine.declared", facts=site(tmp_path, machine, "disk_free: 900000TB"))
    assert (found.level, found.detail[:23]) == (Level.WARNING, "disk_free: 818545.2 TiB")


def test_what_is_not_declared_or_not_known_contradicts_nothing(tmp_path: Path, look: Look) -> None:
    assert not look("machine.declared", facts=Facts(None, root=tmp_path))
    assert not look("machine.declared", PROCESS)
    blind = tmp_path / "nothing"
    told = ("ram: 1TiB", "cpu: Other", "cpu_flags: [avx2]", "cores: 7", "numa_nodes: 9")
    assert not look("machine.declared", facts=site(tmp_path, blind, *told))
