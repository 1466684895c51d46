"""Repositories of true size through the whole of it: listing, sets, index, GGUF headers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from console.models.gguf.read import read_header
from console.models.hub import checkpoint, model_config
from console.models.hub.errors import Asked
from console.models.hub.listing import Listing, read
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub

GIB = 1 << 30


def listed(hub: LocalHub, name: str) -> Listing:
    """The listing of a shape, read from the library's own view of the hub."""
    repo = hub_shapes.repo(name)
    hub.add(repo)
    rows = [
        {"path": row["rfilename"], "size": row["size"], "lfs": "lfs" in row}
        for row in repo.siblings()
    ]
    return read(Asked(name, "main", hub.url, False), {"commit": repo.commit, "files": rows}, None)


def test_block_int8_is_642_gib(hub: LocalHub) -> None:
    """F-022, P-005: "INT8, about 350 GB" by its name, 642 GiB on the disk."""
    listing = listed(hub, "meituan/DeepSeek-R1-Block-INT8")
    found = checkpoint.read(
        listing, config=model_config.fetch_config(listing), index=model_config.fetch_index(listing)
    )
    one = found.choose()
    assert len(one.files) == one.shards == 163
    assert one.whole
    assert one.size is not None
    assert one.size / GIB == pytest.approx(642, abs=0.05)
    assert one.quantization.startswith("blockwise_int8")
    assert found.notes == ()


@pytest.mark.parametrize(
    ("name", "set_name", "files", "low", "high"),
    [
        ("deepseek-ai/DeepSeek-R1", "", 163, 641 * GIB, 642 * GIB),
        ("unsloth/DeepSeek-R1-GGUF", "Q3_K_M", 7, 295 * GIB, 300 * GIB),
        ("unsloth/DeepSeek-R1-GGUF", "Q4_K_M", 9, 375 * GIB, 381 * GIB),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "", 8, 65 * 10**9, 66 * 10**9),
        ("unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF", "", 1, 19 * 10**9, 20 * 10**9),
    ],
)
def test_sizes(hub: LocalHub, name: str, set_name: str, files: int, low: int, high: int) -> None:
    one = checkpoint.read(listed(hub, name)).choose(set_name)
    assert len(one.files) == files
    assert one.size is not None
    assert low < one.size < high


def test_a_missing_shard(hub: LocalHub) -> None:
    one = checkpoint.read(listed(hub, "example/missing-shard")).choose()
    assert "4 of 7" in one.gap


def test_a_header_is_true_to_its_file(hub: LocalHub) -> None:
    listing = listed(hub, "unsloth/DeepSeek-R1-GGUF")
    one = checkpoint.read(listing).choose("Q4_K_M")
    header = read_header(listing.url(one.files[0].path)).header
    assert header.architecture == "deepseek2"
    assert header.kv["split.count"] == 9
    assert header.tensors is not None
    data = sum(tensor.bytes or 0 for tensor in header.tensors)
    size = one.files[0].size
    assert size is not None
    assert 0 <= size - data - header.header_bytes < 32 * len(header.tensors)


def test_nothing_heavy_is_imported_with_the_package() -> None:
    code = (
        "import sys, console.runner.executors.download, console.models.hub.checkpoint;"
        "import console.models.hub.model_config;"
        "print({'huggingface_hub', 'httpx', 'httpx2', 'yaml', 'docker'} & set(sys.modules))"
    )
    told = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "set()"
