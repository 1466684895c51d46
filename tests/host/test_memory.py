"""Memory figures from a /proc of our own, and from this machine's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.common.errors import ConsoleError
from console.host.memory import ARC, MemoryReader, meminfo, swap_in_ram

PAGE = os.sysconf("SC_PAGE_SIZE")
MEMINFO = """MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    400 kB
SwapCached:        7 kB
SwapTotal:       500 kB
SwapFree:        200 kB
"""
PRESSURE = """some avg10=12.50 avg60=1.00 avg300=0.10 total=5
full avg10=3.25 avg60=0.00 avg300=0.00 total=1
"""


def swaps(into: int, out: int) -> str:
    return f"pgpgin 1\npswpin {into}\npswpout {out}\npswpin_zero 9\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "vmstat").write_text(swaps(10, 20))
    (tmp_path / "pressure/memory").write_text(PRESSURE)
    return tmp_path


@pytest.fixture
def reader(proc: Path) -> Iterator[MemoryReader]:
    one = MemoryReader(proc)
    yield one
    one.close()


def test_every_figure(reader: MemoryReader) -> None:
    found = reader.read(1.0)
    assert (found.total, found.available) == (1000 * 1024, 400 * 1024)
    assert (found.swap_total, found.swap_used) == (500 * 1024, 300 * 1024)
    assert (found.pressure_some, found.pressure_full) == (12.5, 3.25)


def test_rates_need_two_looks(reader: MemoryReader, proc: Path) -> None:
    first = reader.read(1.0)
    assert (first.swap_in_rate, first.swap_out_rate) == (None, None)
    (proc / "vmstat").write_text(swaps(14, 30))
    second = reader.read(3.0)
    assert (second.swap_in_rate, second.swap_out_rate) == (2 * PAGE, 5 * PAGE)
    again = reader.read(3.0)
    assert again.swap_in_rate is None  # no time has gone by


def test_what_a_kernel_lacks_is_none(reader: MemoryReader, proc: Path) -> None:
    (proc / "vmstat").unlink()
    (proc / "pressure/memory").unlink()
    for at in (1.0, 2.0):
        found = reader.read(at)
        assert found.available == 400 * 1024
        assert (found.swap_in_rate, found.swap_out_rate) == (None, None)
        assert (found.pressure_some, found.pressure_full) == (None, None)


@pytest.mark.parametrize(
    ("text", "word"), [("MemTotal: 5 kB\n", "MemAvailable"), ("nonsense", "MemTotal")]
)
def test_no_figure_is_guessed(reader: MemoryReader, proc: Path, text: str, word: str) -> None:
    (proc / "meminfo").write_text(text)
    with pytest.raises(ConsoleError, match=word):
        reader.read(1.0)


def test_no_meminfo(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="No such file"):
        MemoryReader(tmp_path).read(1.0)


def test_descriptors_stay_open_and_are_given_back(proc: Path) -> None:
    def mine() -> set[str]:
        links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
        return {os.readlink(one) for one in links if one.is_symlink()} & paths

    paths = {str(proc / name) for name in ("meminfo", "vmstat", "pressure/memory")}
    reader = MemoryReader(proc)
    reader.read(1.0)
    assert mine() == paths
    reader.close()
    assert mine() == set()
    assert reader.read(2.0).total == 1000 * 1024
    reader.close()


def zfs(proc: Path, size_kib: int, least_kib: int) -> None:
    """The statistics of a ZFS cache, as OpenZFS 2 prints them."""
    path = proc / ARC
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "9 1 0x01 147 39984 1 2\nname                            type data\n"
        f"size                            4    {size_kib * 1024}\n"
        f"compressed_size                 4    17\nc_min                           4    "
        f"{least_kib * 1024}\nc_max                           4    999999999\n"
    )


def test_the_cache_of_zfs_is_available(proc: Path, reader: MemoryReader) -> None:
    zfs(proc, 350, 50)
    assert reader.read(1.0).available == (400 + 300) * 1024
    assert meminfo(proc / "meminfo")["MemAvailable"] == (400 + 300) * 1024
    zfs(proc, 40, 50)  # it has shrunk below its least size
    assert reader.read(2.0).available == 400 * 1024


def test_the_cache_of_zfs_is_never_more_than_the_machine(proc: Path, reader: MemoryReader) -> None:
    zfs(proc, 5000, 0)
    assert reader.read(1.0).available == 1000 * 1024


def test_compressed_ram_is_no_swap() -> None:
    swaps = (
        b"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        b"/dev/zram0                              partition\t8388604\t1024\t100\n"
        b"/swap.img                               file\t\t1000\t\t7\t\t-2\n"
    )
    assert swap_in_ram(swaps) == (8388604 * 1024, 1024 * 1024)
    assert swap_in_ram(b"") == (0, 0)


def test_this_machine() -> None:
    reader = MemoryReader()
    try:
        reader.read(1.0)
        found = reader.read(2.0)
    finally:
        reader.close()
    assert 0 < found.available <= found.total
    assert found.swap_in_rate is not None
