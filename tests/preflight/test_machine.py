"""The machine under made-up /proc and /sys trees and a real limit; cards by pynvml, scripted."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.host import machine
from console.host.gpu.inventory import Cards, GpuInventory, ask
from console.host.machine import existing, look, numa_nodes
from console.host.memory import limits
from console.host.sample import Card
from tests.preflight.conftest import Labels
from tests.testbed import nvml as testbed
from tests.testbed.engine import Engine
from tests.testbed.nvml import (
    ERROR_LIB_RM_VERSION_MISMATCH,
    MIB,
    RTX_5090,
    RTX_PRO_6000,
    Nvml,
    ensure_nvml,
)

GIB = 1 << 30
NO_CARDS = Cards(words="no NVIDIA driver")
V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
CPU = (
    "processor\t: {n}\nmodel name\t: AMD Ryzen Threadripper PRO 9995WX 96-Cores\n"
    "physical id\t: 0\ncore id\t\t: {core}\nflags\t\t: fpu avx2 avx512f avx512_bf16\n"
)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """384 GiB with 300 available, 4 threads of 2 cores, one node, no limit."""
    meminfo = {"MemTotal": 384, "MemAvailable": 300, "SwapTotal": 207, "SwapFree": 200}
    cpus = (CPU.format(n=n, core=n % 2) for n in range(4))
    files = {
        "proc/meminfo": "".join(f"{k}: {v * GIB // 1024} kB\n" for k, v in meminfo.items()),
        "proc/cpuinfo": "\n".join(cpus),
        "proc/self/cgroup": "0::/user.slice/me\n",
        "proc/self/mountinfo": V2,
        "sys/devices/system/node/node0/cpulist": "0-3\n",
        "sys/devices/system/node/online": "0\n",
    }
    return tree(tmp_path / "host", files)


def v2(root: Path, group: str, most: int | str, used: int, cache: int = 0) -> None:
    folder = f"sys/fs/cgroup/{group}".rstrip("/")
    stat = f"anon 1\ninactive_file {cache // 2}\nactive_file {cache - cache // 2}\n"
    tree(root, {f"{folder}/memory.max": f"{most}\n", f"{folder}/memory.current": f"{used}\n",
                f"{folder}/memory.stat": stat})  # fmt: skip


def test_a_machine_without_limits(host: Path) -> None:
    found = look(host, root=host, cards=NO_CARDS)
    assert (found.ram_total, found.ram_available) == (384 * GIB, 300 * GIB)
    assert (found.swap_total, found.swap_free) == (207 * GIB, 200 * GIB)
    assert (found.cores, found.numa_nodes) == (2, 1)
    assert found.cpu_flags == {"fpu", "avx2", "avx512f", "avx512_bf16"}
    assert "9995WX" in found.cpu_name
    assert found.disk_free is not None
    assert found.disk_free > 0
    assert found.disk_read_bps is None, "nothing is measured unasked"
    assert "MemAvailable" in found.given["ram_available"]
    assert found.given["cards"] == "no NVIDIA driver"


def test_page_cache_is_no_use(host: Path) -> None:
    """A group at its limit by file pages alone has nearly all of it left."""
    v2(host, "user.slice", 70 * GIB, 69 * GIB, cache=68 * GIB)
    v2(host, "user.slice/me", "max", 69 * GIB, cache=68 * GIB)
    found = look(root=host, cards=NO_CARDS)
    assert found.ram_available == 69 * GIB
    assert found.ram_total == 70 * GIB
    assert "cgroup/user.slice" in found.given["ram_available"]


def test_the_tightest_group_counts(host: Path) -> None:
    v2(host, "user.slice", 100 * GIB, 90 * GIB)
    v2(host, "user.slice/me", 50 * GIB, 10 * GIB)
    assert look(root=host, cards=NO_CARDS).ram_available == 10 * GIB
    v2(host, "user.slice/me", 5 * GIB, 6 * GIB)
    assert look(root=host, cards=NO_CARDS).ram_available == 0, "over its limit, never below zero"


def test_swap_of_a_group(host: Path) -> None:
    v2(host, "user.slice/me", 50 * GIB, GIB)
    tree(host, {"sys/fs/cgroup/user.slice/me/memory.swap.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/user.slice/me/memory.swap.current": f"{GIB}\n"})  # fmt: skip
    assert look(root=host, cards=NO_CARDS).swap_free == 3 * GIB


@pytest.mark.parametrize(("mounted", "inner"), [("/", "docker/c1"), ("/docker/c1", "")])
def test_version_one_also_inside_a_container(host: Path, mounted: str, inner: str) -> None:
    place = f"sys/fs/cgroup/memory/{inner}".rstrip("/")
    tree(host, {
        "proc/self/cgroup": "4:memory:/docker/c1\n3:cpuset:/\n0::/\n",
        "proc/self/mountinfo": V1.format(root=mounted) + V2,
        f"{place}/memory.limit_in_bytes": f"{8 * GIB}\n",
        f"{place}/memory.usage_in_bytes": f"{5 * GIB}\n",
        f"{place}/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB}\n"
                                f"total_active_file {2 * GIB}\n",
    })  # fmt: skip
    if inner:
        tree(host, {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                    "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n"})  # fmt: skip
    (limit,) = limits(host)
    assert (limit.most, limit.left) == (8 * GIB, 6 * GIB)


@pytest.mark.parametrize(
    "damage",
    [
        {"proc/self/mountinfo": "nonsense\n1 2 - x\n", "proc/self/cgroup": "::\n4\n"},
        {"proc/self/cgroup": "0::/../../../etc\n"},
        {"sys/fs/cgroup/user.slice/me/memory.max": "-1\n"},
        {"sys/fs/cgroup/user.slice/me/memory.max": "\x1b[31m"},
    ],
)
def test_a_damaged_tree_is_no_limit(host: Path, damage: dict[str, str]) -> None:
    tree(host, damage)
    assert look(root=host, cards=NO_CARDS).ram_available == 300 * GIB


def test_what_cannot_be_had_is_none_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine.os, "statvfs", refuse)
    found = look(tmp_path, root=tmp_path / "nothing", cards=NO_CARDS)
    assert found.ram_total is found.ram_available is found.swap_free is None
    assert found.cores is found.numa_nodes is found.disk_free is None
    assert found.cpu_flags == frozenset()
    assert found.given["disk_free"] == "Permission denied"
    assert found.given["ram_available"]
    assert "No such file" in found.given["cpu_flags"]


def test_a_dead_mount_does_not_hold_it_up(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forever = threading.Event()
    monkeypatch.setattr(machine, "DISK_S", 0.05)
    monkeypatch.setattr(machine.os, "statvfs", lambda path: forever.wait(120))
    found = look(host, root=host, cards=NO_CARDS)
    forever.set()
    assert found.disk_free is None
    assert "did not answer" in found.given["disk_free"]


def test_places(tmp_path: Path) -> None:
    assert existing(tmp_path / "not/yet/made") == tmp_path
    for number in range(3):
        (tmp_path / f"sys/devices/system/node/node{number}").mkdir(parents=True)
    (tmp_path / "sys/devices/system/node/possible").touch()
    assert numa_nodes(tmp_path) == 3


def test_cards_are_handed_on(host: Path) -> None:
    card = Card("RTX 5090", "GPU-1", 32 * GIB, 31 * GIB, (12, 0))
    found = look(root=host, cards=Cards((card,), "580.95.05", (13, 0)))
    assert found.cards == (card,)
    assert "580.95.05" in found.given["cards"]


SHOW = (
    "import json; from console.host.machine import look; m = look(); "
    "print(json.dumps([m.ram_total, m.ram_available, m.given['ram_available']]))"
)


@pytest.mark.engine
def test_a_real_limit(engine: Engine, python: str, mine: Labels) -> None:
    """In a container with 96 MiB, most of them page cache: what the kernel says is read right."""
    (label,) = mine.items()
    source = Path(machine.__file__).parents[1]
    fill = 'head -c 56M /dev/zero > /tmp/f; cat /tmp/f >/dev/null; exec python3 -c "$0"'
    out = engine.run(
        *("run", "--rm", "-m", "96m", "--network", "none", "--label", "=".join(label)),
        *("-v", f"{source}:/src/console:ro", "-e", "PYTHONPATH=/src"),
        *(python, "sh", "-c", fill, SHOW),
    )
    total, available, given = json.loads(out.splitlines()[-1])
    assert total == 96 * MIB
    assert 48 * MIB < available < 96 * MIB, "56 MiB of page cache are not counted as used"
    assert "cgroup" in given


def asked(
    nvml: Nvml, tmp_path: Path, *which: testbed.Card, seconds: float = 30, **more: Any
) -> Cards:
    env = nvml.env(nvml.write(tmp_path / "script", which, **more))
    return ask(seconds, {**os.environ, **env})


def test_two_cards_with_their_capability(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(nvml, tmp_path, RTX_PRO_6000, RTX_5090)
    assert (found.driver, found.cuda, found.words) == ("580.105.08", (13, 0), "")
    assert found.cards == (
        Card(RTX_PRO_6000.name, RTX_PRO_6000.uuid, 97_887 * MIB, 97_275 * MIB, (12, 0)),
        Card(RTX_5090.name, RTX_5090.uuid, 32_607 * MIB, 32_592 * MIB, (12, 0)),
    )


def test_what_a_card_does_not_say_is_none(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(
        nvml, tmp_path,
        RTX_5090.but(capability=None), RTX_5090.but(mem_total=None), RTX_5090.but(mig=1),
        RTX_5090.but(lost=True),
    )  # fmt: skip
    plain, without, parted, lost = found.cards
    assert (plain.compute, plain.total) == (None, 32_607 * MIB)
    assert (without.compute, without.total, without.free) == ((12, 0), None, None)
    assert (parted.compute, parted.total) == ((12, 0), None), "its memory is its instances'"
    assert (lost.uuid, lost.total, lost.compute) == ("index:3", None, None)


def test_a_driver_that_does_not_fit(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(
        nvml, tmp_path, RTX_5090, fail={"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    )
    assert found.cards == ()
    assert "mismatch" in found.words


def test_a_driver_that_hangs_is_left(nvml: Nvml, tmp_path: Path) -> None:
    found = asked(nvml, tmp_path, RTX_5090, seconds=1.0, hang={"nvmlDeviceGetCount_v2": 60})
    assert (found.cards, "within 1.00 s" in found.words) == ((), True)


@pytest.fixture
def over_and_over() -> Iterator[GpuInventory]:
    made = GpuInventory(SystemClock())
    yield made
    made.close()


def shown(
    nvml: Nvml, tmp_path: Path, patch: pytest.MonkeyPatch, *which: testbed.Card, **more: Any
) -> None:
    for name, value in nvml.env(nvml.write(tmp_path / "script", which, **more)).items():
        patch.setenv(name, value)


def again(one: GpuInventory, seconds: float = 30.0) -> Cards:
    one.begin()
    return one.answer(seconds)


def test_one_process_is_asked_over_and_over(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_and_over: GpuInventory
) -> None:
    shown(nvml, tmp_path, monkeypatch, RTX_5090)
    first = again(over_and_over)
    process = over_and_over._child.pid
    shown(nvml, tmp_path, monkeypatch, RTX_5090.but(mem_used=9 * 1024 * MIB))
    second = again(over_and_over)
    assert [one.words for one in (first, second)] == ["", ""]
    assert first.cards[0].free is not None
    assert second.cards[0].free is not None
    assert second.cards[0].free < first.cards[0].free, "it is read anew"
    assert over_and_over._child.pid == process


def test_a_driver_that_hangs_is_not_asked_twice_and_answers_late(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_and_over: GpuInventory
) -> None:
    shown(nvml, tmp_path, monkeypatch, RTX_5090, hang={"nvmlDeviceGetCount_v2": 600})
    assert "no answer within" in again(over_and_over, 0.1).words
    process = over_and_over._child.pid
    assert "no answer within" in again(over_and_over, 0.1).words
    assert over_and_over._child.pid == process, "a second one would hang, too"


def test_a_driver_that_is_mended_is_asked_by_a_new_process(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over_and_over: GpuInventory
) -> None:
    broken = {"nvmlInitWithFlags": ERROR_LIB_RM_VERSION_MISMATCH}
    shown(nvml, tmp_path, monkeypatch, RTX_5090, fail=broken)
    assert "mismatch" in again(over_and_over).words
    shown(nvml, tmp_path, monkeypatch, RTX_5090)
    assert (found := again(over_and_over)).words == ""
    assert len(found.cards) == 1


def test_an_old_driver_without_the_newer_calls(tmp_path: Path) -> None:
    old = ensure_nvml(without=["nvmlDeviceGetMemoryInfo_v2", "nvmlSystemGetCudaDriverVersion_v2"])
    found = asked(old, tmp_path, RTX_5090)
    assert found.cards[0].total == 32_607 * MIB
    assert found.words == ""


def test_an_answer_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "console.host.gpu.inventory.module_argv", lambda name: ("echo", '{"cards": 1}')
    )
    assert "cannot be read" in ask(10).words
    monkeypatch.setattr("console.host.gpu.inventory.module_argv", lambda name: ("/nowhere",))
    assert "cannot be asked" in ask(10).words


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_no_driver() -> None:
    assert "NVIDIA driver" in ask(60).words
