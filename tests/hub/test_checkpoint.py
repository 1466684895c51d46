"""What a listing holds, and what of it is on the machine already or only looks like it."""

import fcntl
import hashlib
import threading
from pathlib import Path

import pytest

from console.host.machine import Space
from console.models.hub import checkpoint, download, local_files, model_config, progress, reference
from console.models.hub.checkpoint import Format, read
from console.models.hub.errors import FileMissing, HubError
from console.models.hub.listing import RemoteFile
from console.models.hub.model_config import Index, read_index
from console.models.hub.progress import Meter
from tests.hub.conftest import listed, listing
from tests.test_architecture import loaded
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub

GB = 10**9


def shards(stem: str, total: int, size: int = GB, suffix: str = "gguf") -> list[tuple[str, int]]:
    return [(f"{stem}-{n:05}-of-{total:05}.{suffix}", size) for n in range(1, total + 1)]


QUANTIZED = {
    "DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf": "Q4_K_M",
    "UD-Q2_K_XL/x-UD-Q2_K_XL-00001-of-00005.gguf": "UD-Q2_K_XL",
    "qwen2.5-7b-instruct-q4_k_m.gguf": "Q4_K_M", "Llama-3.2.Q8_0.gguf": "Q8_0",
    "Q4_K_M/model-00001-of-00002.gguf": "Q4_K_M", "x-IQ2_XXS.gguf": "IQ2_XXS",
    "gpt-oss-20b-mxfp4.gguf": "MXFP4", "x-fp16.gguf": "F16", "BF16/x.gguf": "BF16",
    "model.gguf": "", "Q4_0foo.gguf": "",
}  # fmt: skip
BESIDE = {
    "mmproj-model-f16.gguf": "mmproj", "Qwen2-VL-mmproj-f16.gguf": "mmproj", "mtp-r1.gguf": "mtp",
    "model.imatrix.gguf": "imatrix", "imatrix_unsloth.gguf_file": "imatrix", "smtp-x.gguf": "",
    "mmprojx.gguf": "",
}  # fmt: skip


def test_what_a_name_says() -> None:
    assert {path: reference.gguf_quantization(path) for path in QUANTIZED} == QUANTIZED
    assert {name: reference.sidecar(name) for name in BESIDE} == BESIDE


def test_what_is_meant_of_several() -> None:
    found = read(listing(*shards("Q3_K_M/m-Q3_K_M", 2), *shards("Q4_K_M/m-Q4_K_M", 3)))
    assert found.choose("q4_k_m") is found.sets[1]
    both = read(listing(*shards("model", 2, suffix="safetensors"), ("consolidated.safetensors", 2)))
    assert both.choose().format is Format.SAFETENSORS
    assert both.size == 2 * GB + 2, "a download without patterns brings both"


def test_patterns_are_the_downloaders_own() -> None:
    """`hf download` decides with this function what it fetches."""
    from huggingface_hub.utils._paths import filter_repo_objects

    paths = ["a.gguf", "Q4/a.gguf", "Q4/deep/b.gguf", "README.md", "x[1].gguf", "Q4"]
    files = [RemoteFile(path, 1) for path in paths]
    for include in ([], ["*.gguf"], ["Q4/"], ["Q4/*"], ["*a*", "README*"], ["x[1].gguf"], ["q4/*"]):
        for exclude in ([], ["*.md"], ["Q4/"]):
            ours = [file.path for file in checkpoint.matching(files, include, exclude)]
            theirs = filter_repo_objects(
                paths, allow_patterns=include or None, ignore_patterns=exclude or None
            )
            assert ours == list(theirs)


def test_the_index_says_which_files() -> None:
    held = listing(
        *shards("model", 3, suffix="safetensors"), ("model.safetensors", 3 * GB), ("extra.bin", 1)
    )
    index = read_index({
        "metadata": {"total_size": 3 * GB - 1000},
        "weight_map": {f"w{n}": f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)},
    })  # fmt: skip
    assert len(read(held).sets) == 2
    with pytest.raises(HubError, match="several"):
        read(held).choose()
    found = read(held, index=index)
    assert found.choose().size == 3 * GB
    assert found.choose().shards == 3
    assert not any("claims" in note for note in found.notes)


def test_an_index_names_what_is_not_there() -> None:
    held = listing(*shards("model", 3, suffix="safetensors")[:2])
    named = {path for path, _ in shards("model", 3, suffix="safetensors")}
    (one,) = read(held, index=Index(frozenset(named | {"other.safetensors"}))).sets
    assert one.missing == (range(3, 4),)
    assert one.absent == ("model-00003-of-00003.safetensors", "other.safetensors")
    assert "other.safetensors" in one.gap


def test_shards_with_six_digits() -> None:
    rows = [(f"model-{n:05}-of-000163.safetensors", 4 * GB) for n in range(1, 164) if n != 7]
    (one,) = read(listing(*rows)).sets
    assert (one.shards, one.missing) == (163, (range(7, 8),))


def test_names_do_not_prove_config_does() -> None:
    held = listing(*shards("model", 2, suffix="safetensors"), repo="org/R1-Block-INT8")
    (one,) = read(held).sets
    assert (one.quantization, "name" in one.origin) == ("INT8", True)
    (one,) = read(held, config={"quantization_config": {"quant_method": "fp8"}}).sets
    assert (one.quantization, "config.json" in one.origin) == ("fp8", True)


def test_directories_with_different_checkpoints_are_a_choice() -> None:
    held = listing(("bf16/model.safetensors", 2), ("fp8/model.safetensors", 1))
    with pytest.raises(HubError, match="several"):
        read(held).choose()
    assert read(held, ["fp8/*"]).choose().quantization == "FP8"
    original = listing(("model.safetensors", 2), ("original/consolidated.00.pth", 2))
    assert read(original).choose().stem == "model"


def test_hostile_shard_numbers_take_no_room() -> None:
    rows = [(f"a{n}-00001-of-99999.gguf", 1) for n in range(5_000)]
    found = read(listing(*rows, ("z-00000-of-00000.gguf", 1), ("y-00009-of-00002.gguf", 1)))
    assert len(found.sets) == 5_002
    assert found.sets[0].missing == (range(2, 100_000),)


def test_block_int8_is_642_gib(hub: LocalHub) -> None:
    """F-022, P-005: "INT8, about 350 GB" by its name, 642 GiB on the disk."""
    held = listed(hub, hub_shapes.repo("meituan/DeepSeek-R1-Block-INT8"))
    found = checkpoint.read(
        held, config=model_config.fetch_config(held), index=model_config.fetch_index(held)
    )
    one = found.choose()
    assert len(one.files) == one.shards == 163
    assert one.whole
    assert one.size is not None
    assert one.size / 2**30 == pytest.approx(642, abs=0.05)
    assert one.quantization.startswith("blockwise_int8")
    assert found.notes == ()


def test_nothing_heavy_is_imported_with_the_package() -> None:
    gguf, hub = loaded(
        "import console.models.gguf.read",
        "import console.runner.executors.download, console.models.hub.checkpoint, "
        "console.models.hub.model_config",
    )
    assert gguf & {"httpx", "httpcore", "ssl", "pydantic"} == set()
    assert hub & {"huggingface_hub", "httpx", "httpx2", "yaml", "docker"} == set()


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
    assert list(local_files.verify(files, tmp_path)) == ["short", "gone"]
    by_hash = local_files.verify(files, tmp_path, hash_up_to=10)
    assert list(by_hash) == ["bad", "short", "gone"]
    assert len(local_files.verify(files, tmp_path, hash_up_to=9)) == 2
    cancelled = threading.Event()
    cancelled.set()
    assert local_files.verify(files, tmp_path, 10, cancelled) == {}


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


def test_the_floor(tmp_path: Path) -> None:
    assert (download.floor(10**12), download.floor(10**11)) == (50 * 10**9, 20 * 10**9)
    download.require(tmp_path, Space(700 * 10**9, 4 * 10**12), 500 * 10**9, 200 * 10**9)


@pytest.mark.parametrize(
    "parts",
    [("x.Q6_K.gguf.part1of2", "x.Q6_K.gguf.part2of2"), ("x.gguf-split-a", "x.gguf-split-b")],
)
def test_files_cut_by_hand_are_named(parts: tuple[str, ...]) -> None:
    cut = [(part, GB) for part in parts]
    with pytest.raises(HubError) as caught:
        read(listing(*cut)).choose()
    assert "join them with `cat`" in (caught.value.hint or "")
    beside = read(listing(*cut, ("x.Q4_K_M.gguf", GB)))
    assert beside.choose().quantization == "Q4_K_M"
    assert any("cut by hand" in note and parts[0] in note for note in beside.notes)
