"""What is on the machine already, and what only looks like it."""

from __future__ import annotations

import fcntl
import hashlib
import threading
from pathlib import Path

import pytest

from console.host.machine import Space, space
from console.models.hub import download, local_files, progress
from console.models.hub.errors import DiskShort, FileMissing
from console.models.hub.listing import RemoteFile
from console.models.hub.progress import Meter
from tests.hub.conftest import listing

HELD = listing(("a.gguf", 10), ("dir/b.gguf", 20), ("c.gguf", 30), ("d.gguf", 40))
HASH, ETAG = "DaGOU-KRMVrY0aYktrsE34tL0Bs=", "e" * 64


def write(path: Path, data: bytes | int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else b"x" * data)
    return path


def note(top: Path, name: str, data: bytes | int = b"") -> Path:
    return write(local_files.place(top) / name, data)


def test_bytes_here_are_subtracted(tmp_path: Path, login: Path) -> None:
    top = tmp_path / "models"
    write(top / "a.gguf", 10)
    write(top / "dir/b.gguf", 7)
    note(top, f"{HASH}.{ETAG}.0123abcd.incomplete", 5000)
    blob = write(login / "hub/models--org--model/blobs/x", 30)
    link = login / f"hub/models--org--model/snapshots/{HELD.commit}/c.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    found = local_files.look(HELD, HELD.files, top)
    assert found.whole == ("a.gguf",)
    assert found.cached == ("c.gguf",)
    assert found.wrong == ("dir/b.gguf",)
    assert found.partial == 5000
    assert (found.have, found.to_fetch, found.to_write) == (40, 60, 90)
    assert "dir/b.gguf" in found.words
    in_cache = local_files.look(HELD, HELD.files)
    assert (in_cache.to_fetch, in_cache.to_write) == (70, 70)


def test_nothing_to_fetch(tmp_path: Path) -> None:
    held = listing(("a.gguf", 10))
    write(tmp_path / "a.gguf", 10)
    assert local_files.look(held, held.files, tmp_path).to_fetch == 0


def test_an_unknown_size_is_never_zero(tmp_path: Path) -> None:
    held = listing(("a.gguf", 10), ("b.gguf", None))
    write(tmp_path / "b.gguf", 10)
    found = local_files.look(held, held.files, tmp_path)
    assert found.to_fetch is None


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").mkdir()
    assert local_files.look(HELD, HELD.files, tmp_path).whole == ()


def test_a_local_directory_is_a_listing(tmp_path: Path) -> None:
    write(tmp_path / "Q4/m-00001-of-00002.gguf", 3)
    write(tmp_path / "Q4/m-00002-of-00002.gguf", 4)
    note(tmp_path, "m.lock")
    (tmp_path / "gone.gguf").symlink_to("nowhere")
    found = local_files.local(tmp_path)
    assert [(file.path, file.size) for file in found.files] == [
        ("Q4/m-00001-of-00002.gguf", 3), ("Q4/m-00002-of-00002.gguf", 4)
    ]  # fmt: skip


def test_a_local_shard_brings_its_set(tmp_path: Path) -> None:
    for name in ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "n-00001-of-00002.gguf"):
        write(tmp_path / name, 1)
    found = local_files.local(tmp_path / "m-00002-of-00002.gguf")
    assert [file.path for file in found.files] == ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    write(tmp_path / "one.gguf", 1)
    assert [file.path for file in local_files.local(tmp_path / "one.gguf").files] == ["one.gguf"]
    with pytest.raises(FileMissing):
        local_files.local(tmp_path / "none.gguf")


def test_unfinished_files_by_what_they_will_be(tmp_path: Path) -> None:
    note(tmp_path, f"{HASH}.{ETAG}.0123abcd.incomplete", 5000)
    note(tmp_path, f"sub/{HASH}.{ETAG}.89abcdef.incomplete", 3000)
    sparse = note(tmp_path, f"{HASH}.{'f' * 64}.00000000.incomplete")
    with sparse.open("wb") as file:
        file.truncate(1 << 30)
    assert local_files.unfinished_sizes(tmp_path) == {ETAG: 8000, "f" * 64: 0}
    assert local_files.unfinished_sizes(tmp_path / "none") == {}


def test_only_what_no_run_continues_is_swept(tmp_path: Path) -> None:
    lost = note(tmp_path, f"{HASH}.{ETAG}.0123abcd.incomplete", 5000)
    older = note(tmp_path, f"{HASH}.{ETAG}.incomplete", 5000)
    other = note(tmp_path, "notes.incomplete", 5000)
    weights = write(tmp_path / f"{HASH}.{ETAG}.0123abcd.incomplete", 5)
    local_files.sweep_unfinished(tmp_path)
    assert not lost.exists()
    assert older.exists()
    assert other.exists()
    assert weights.exists()


def test_a_held_lock_is_a_download_under_way(tmp_path: Path) -> None:
    lock = note(tmp_path, "a.gguf.lock")
    assert local_files.busy(tmp_path) is None
    with lock.open("wb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert local_files.busy(tmp_path) == lock
    assert local_files.busy(tmp_path) is None


def test_verify_names_the_wrong_files(tmp_path: Path) -> None:
    good = hashlib.sha256(b"x" * 10).hexdigest()
    files = [
        RemoteFile("good", 10, good), RemoteFile("bad", 10, "0" * 64), RemoteFile("short", 10),
        RemoteFile("gone", 10), RemoteFile("open", None),
    ]  # fmt: skip
    for name, size in (("good", 10), ("bad", 10), ("short", 9), ("open", 3)):
        write(tmp_path / name, size)
    assert [one.path for one in local_files.verify(files, tmp_path)] == ["short", "gone"]
    by_hash = local_files.verify(files, tmp_path, hash_up_to=10)
    assert [one.path for one in by_hash] == ["bad", "short", "gone"]
    assert len(local_files.verify(files, tmp_path, hash_up_to=9)) == 2
    cancelled = threading.Event()
    cancelled.set()
    assert local_files.verify(files, tmp_path, 10, cancelled) == ()


def test_the_rate_moves_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "WINDOW_S", 10.0)
    meter = Meter()
    assert (meter.rate, meter.eta(100)) == (None, None)
    meter.add(0, 0)
    meter.add(1, 50)
    assert meter.rate is None, "one second is noise"
    for second in range(2, 11):
        meter.add(second, second * 50)
    assert meter.rate == 50
    assert meter.eta(1000) == 10
    assert meter.eta(None) is None
    assert meter.eta(500) == 0
    for second in range(11, 31):
        meter.add(second, 500 + (second - 10) * 200)
    assert meter.rate == 200, "the slow start has left the window"


def test_a_stall_is_a_minute_without_bytes() -> None:
    meter = Meter()
    meter.add(0, 0)
    meter.add(30, 10)
    meter.add(89, 10)
    assert not meter.stalled(89)
    assert meter.stalled(90)
    assert meter.rate == 0
    assert meter.eta(100) is None
    meter.add(91, 11)
    assert not meter.stalled(91)


def test_a_file_begun_again_is_no_negative_rate() -> None:
    meter = Meter()
    meter.add(0, 0)
    meter.add(10, 1000)
    meter.add(11, 200)
    assert meter.rate is None
    meter.add(21, 700)
    assert meter.rate == 50


def test_the_floor() -> None:
    assert download.floor(10**12) == 50 * 10**9
    assert download.floor(10**11) == 20 * 10**9


def test_room_is_asked_for_before_a_byte_comes(tmp_path: Path) -> None:
    free = Space(free=700 * 10**9, total=4 * 10**12)
    download.require(tmp_path, free, 500 * 10**9, 200 * 10**9)
    with pytest.raises(DiskShort) as caught:
        download.require(tmp_path, free, 642 << 30, download.floor(free.total))
    assert "176.3 GiB" in caught.value.title
    assert "642.0 GiB" in caught.value.detail


def test_space_of_a_directory_that_is_not_there_yet(tmp_path: Path) -> None:
    found = space(tmp_path / "not/yet")
    assert 0 < found.free <= found.total
