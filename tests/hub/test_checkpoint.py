"""What a listing holds: formats, variants, holes, and nothing counted twice."""

from __future__ import annotations

import pytest

from console.models.hub import checkpoint, reference
from console.models.hub.checkpoint import Format, read
from console.models.hub.errors import HubError
from console.models.hub.listing import Listing, RemoteFile
from console.models.hub.model_config import Index, read_index
from tests.hub.conftest import listing

GB = 10**9


def shards(stem: str, total: int, size: int = GB, suffix: str = "gguf") -> list[tuple[str, int]]:
    return [(f"{stem}-{n:05}-of-{total:05}.{suffix}", size) for n in range(1, total + 1)]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("DeepSeek-R1-Q4_K_M/DeepSeek-R1-Q4_K_M-00001-of-00009.gguf", "Q4_K_M"),
        ("UD-Q2_K_XL/x-UD-Q2_K_XL-00001-of-00005.gguf", "UD-Q2_K_XL"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("Llama-3.2.Q8_0.gguf", "Q8_0"),
        ("Q4_K_M/model-00001-of-00002.gguf", "Q4_K_M"),
        ("x-IQ2_XXS.gguf", "IQ2_XXS"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("x-fp16.gguf", "F16"),
        ("BF16/x.gguf", "BF16"),
        ("model.gguf", ""),
        ("Q4_0foo.gguf", ""),
    ],
)
def test_quantization_by_name(path: str, expected: str) -> None:
    assert reference.gguf_quantization(path) == expected


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mmproj-model-f16.gguf", "mmproj"),
        ("Qwen2-VL-mmproj-f16.gguf", "mmproj"),
        ("mtp-r1.gguf", "mtp"),
        ("model.imatrix.gguf", "imatrix"),
        ("imatrix_unsloth.gguf_file", "imatrix"),
        ("smtp-x.gguf", ""),
        ("mmprojx.gguf", ""),
    ],
)
def test_what_stands_beside(name: str, kind: str) -> None:
    assert reference.sidecar(name) == kind


def test_every_gguf_variant_is_its_own_set() -> None:
    found = read(listing(
        *shards("Q3_K_M/m-Q3_K_M", 2), *shards("Q4_K_M/m-Q4_K_M", 3), ("m-Q8_0.gguf", 9 * GB),
        ("mmproj-f16.gguf", 7), ("README.md", 5),
    ))  # fmt: skip
    assert [(one.quantization, len(one.files), one.size) for one in found.sets] == [
        ("Q3_K_M", 2, 2 * GB), ("Q4_K_M", 3, 3 * GB), ("Q8_0", 1, 9 * GB)
    ]  # fmt: skip
    assert found.size == 14 * GB + 12
    assert "mmproj-f16.gguf" in "\n".join(found.notes)
    assert found.choose("q4_k_m") is found.sets[1]
    with pytest.raises(HubError, match="several") as caught:
        found.choose()
    assert "Q8_0" in caught.value.detail
    with pytest.raises(HubError, match="Q6_K"):
        found.choose("Q6_K")


def test_missing_shards_are_named() -> None:
    rows = [row for row in shards("m-Q4_K_M", 9) if row[0][9:14] not in ("00002", "00005", "00006")]
    (one,) = read(listing(*rows)).sets
    assert one.missing == (range(2, 3), range(5, 7))
    assert "2, 5-6 of 9" in one.gap
    assert "incomplete" in one.line
    assert not one.whole


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


def test_consolidated_beside_shards_counts_once() -> None:
    held = listing(
        *shards("model", 2, suffix="safetensors"), ("consolidated.safetensors", 2 * GB),
        ("pytorch_model.bin", 2 * GB),
    )  # fmt: skip
    found = read(held)
    assert [one.format for one in found.sets] == [
        Format.SAFETENSORS, Format.CONSOLIDATED, Format.PYTORCH
    ]  # fmt: skip
    assert {one.size for one in found.sets} == {2 * GB}
    assert found.choose().format is Format.SAFETENSORS
    assert len(found.notes) == 1
    assert found.size == 6 * GB, "a download without patterns brings all three"


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


def test_an_index_that_lies_is_shown_and_not_believed() -> None:
    held = listing(*shards("model", 2, suffix="safetensors"))
    named = frozenset(path for path, _ in shards("model", 2, suffix="safetensors"))
    for claimed in (350 * GB, GB, 2 * GB + 1):
        found = read(held, index=Index(named, claimed))
        assert found.choose().size == 2 * GB
        assert len(found.notes) == 1


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


def test_files_without_weights_have_lines() -> None:
    empty = Listing("org/model", "c" * 40, "http://h", (RemoteFile("a.txt", 1),))
    assert len(read(empty).lines()) == 1
