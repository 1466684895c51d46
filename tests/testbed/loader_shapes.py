"""What llama.cpp's loader requires of an architecture, as the table that the console ships.

    python -m tests.testbed.loader_shapes llama qwen3 … > console/models/loader/tables.json

Two models of an architecture whose lengths all differ are learned from the loader of a real build
(`loader_tables`), so that a length of a tensor can be told from another of the same number. Every
key is left out once, to see whether the loader misses it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from console.models.gguf.header import Value
from console.models.loader.lengths import lengths
from tests.testbed.fit_params import ensure
from tests.testbed.loader_tables import (
    LATENT,
    MIXTURE,
    Table,
    asked_with_a_spare,
    grown,
)

SIZES: tuple[dict[str, Value], ...] = (
    {
        "block_count": 8, "embedding_length": 1024, "vocab_size": 32000, "context_length": 8192,
        "feed_forward_length": 1536, "attention.head_count": 8, "attention.head_count_kv": 2,
        "attention.key_length": 96, "attention.value_length": 96, "rope.dimension_count": 96,
    },
    {
        "block_count": 8, "embedding_length": 768, "vocab_size": 31000, "context_length": 4096,
        "feed_forward_length": 2304, "attention.head_count": 10, "attention.head_count_kv": 5,
        "attention.key_length": 160, "attention.value_length": 160, "rope.dimension_count": 160,
    },
    {
        "block_count": 8, "embedding_length": 2048, "vocab_size": 30000, "context_length": 4096,
        "feed_forward_length": 5632, "attention.head_count": 16, "attention.head_count_kv": 16,
        "attention.key_length": 128, "attention.value_length": 128, "rope.dimension_count": 128,
    },
)  # fmt: skip
"""The last is for architectures whose heads are as long together as a token is wide."""
BOTH: dict[str, Value] = {
    "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-5,
    "rope.freq_base": 1e6,
}  # fmt: skip
EXPERTS: tuple[dict[str, Value], ...] = (
    {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 640},
    {"expert_count": 12, "expert_used_count": 3, "expert_feed_forward_length": 448},
    {"expert_count": 12, "expert_used_count": 3, "expert_feed_forward_length": 448},
)  # fmt: skip


def learned(architecture: str, keys: dict[str, Value]) -> Table:
    """The table of a model with these keys; `whole` if the loader takes it. Raises Unavailable."""
    kv: dict[str, Value] = {"general.architecture": architecture}
    kv |= {f"{architecture}.{name}": value for name, value in keys.items()}
    tool = ensure("llama-bench")
    return grown(
        Table(architecture, kv), lambda header, path: asked_with_a_spare(header, path, tool)
    )


def required(table: Table) -> list[str]:
    """The keys that the loader misses when they are left out, without the architecture."""
    tool, prefix, found = ensure("llama-bench"), f"{table.architecture}.", []
    with tempfile.TemporaryDirectory() as folder:
        for key in table.kv:
            if not key.startswith(prefix):
                continue
            kv = {name: value for name, value in table.kv.items() if name != key}
            header = replace(table.header(), kv=kv)
            said = asked_with_a_spare(header, Path(folder) / "x.gguf", tool)
            if f"key not found in model: {key}" in said:
                found.append(key.removeprefix(prefix))
    return sorted(found)


def named(tables: list[Table], tensor: str) -> list[list[str]] | None:
    """For each length of a tensor the names of what it may be; None if it has no one shape."""
    shapes = [(lengths(one.header()), one.dims[tensor]) for one in tables if tensor in one.dims]
    if len({len(dims) for _, dims in shapes}) != 1:
        return None
    found = []
    for at in range(len(shapes[0][1])):
        sets = [{name for name, size in known.items() if size == dims[at]}
                for known, dims in shapes]  # fmt: skip
        found.append(sorted(set.intersection(*sets)))
    return found


def variant(tables: list[Table]) -> dict[str, Any]:
    """The model's own tensors, and its kinds of blocks: for each tensor its lengths' names."""
    first = tables[0]
    own = {name: named(tables, name) for name in first.dims if not name.startswith("blk.")}
    blocks: list[dict[str, Any]] = []
    for index in range(8):
        begin = f"blk.{index}."
        kind = {name.removeprefix(begin): named(tables, name)
                for name in first.dims if name.startswith(begin)}  # fmt: skip
        if kind not in blocks:
            blocks.append(kind)
    prefix = f"{first.architecture}."
    given = sorted(key.removeprefix(prefix) for key in first.kv if key.startswith(prefix))
    return {"keys": required(first), "given": given, "model": own, "blocks": blocks}


def shapes(architecture: str) -> dict[str, Any]:
    found = {}
    for name in ("dense", "experts", "latent"):
        tables = []
        for size, experts in zip(SIZES, EXPERTS, strict=True):
            more: dict[str, Value] = {} if name == "dense" else {**MIXTURE, **experts}
            if name == "latent":
                more = {**LATENT, **experts, "leading_dense_block_count": 0}
            table = learned(architecture, {**BOTH, **size, **more})
            if table.whole:
                tables.append(table)
            else:
                print(architecture, name, table.why, file=sys.stderr, flush=True)
            if len(tables) == 2:
                break
        if tables:
            found[name] = variant(tables)
        if name == "experts" and found:
            break
    return found


def main() -> None:
    for architecture in sys.argv[1:]:
        print(json.dumps({architecture: shapes(architecture)}), flush=True)


if __name__ == "__main__":
    main()
