"""The cache formulas against what a real llama.cpp logs while it loads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.kv_cache import cache_of
from console.models.sizing.loader_plan import LlamaPlan
from tests.fit.headers import header_of
from tests.fit.logs import logged
from tests.fit.tiny import MODELS

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.alone

TOLERANCE = 0.02
PLAIN: dict[str, Any] = {"n_ctx": 16384}
MORE: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"n_ctx": 5000, "n_parallel": 3}),
    ("llama", {"n_ctx": 5000, "n_parallel": 3, "kv_unified": True}),
    ("llama", {"n_ctx": 16384, "cache_type_k": "q8_0", "cache_type_v": "q4_0"}),
    ("llama", {"n_ctx": 0}),
    ("gemma3", {"n_ctx": 16384, "n_parallel": 4}),
    ("gemma3", {"n_ctx": 16384, "n_parallel": 4, "kv_unified": True}),
    ("gemma3", {"n_ctx": 16384, "swa_full": True}),
    ("gemma3", {"n_ctx": 8192, "n_parallel": 2, "n_ubatch": 128}),
    ("lfm2", {"n_ctx": 8192, "n_parallel": 4}),
    ("qwen3next", {"n_ctx": 16384, "n_parallel": 64}),
    ("mamba", {"n_ctx": 512, "n_parallel": 4}),
]
CASES = [(name, PLAIN) for name in MODELS] + MORE
# "llama_kv_cache:        CPU KV buffer size =    12.00 MiB", and RS for states.
LINE = re.compile(r"(?:KV|RS) buffer size = +([\d.]+) MiB")


def ask(parameters: dict[str, Any]) -> LlamaPlan:
    names = {
        "n_ctx": "ctx", "n_parallel": "parallel", "kv_unified": "kv_unified", "n_ubatch": "ubatch",
        "cache_type_k": "type_k", "cache_type_v": "type_v", "swa_full": "swa_full",
    }  # fmt: skip
    return LlamaPlan(**{"parallel": 1} | {names[key]: one for key, one in parameters.items()})


def test_the_cache_is_what_llama_cpp_makes(tmp_path: Path) -> None:
    paths = {name: make().write(tmp_path / f"{name}.gguf") for name, make in MODELS.items()}
    logs = logged(tmp_path, [(paths[name], how) for name, how in CASES])
    for (name, how), log in zip(CASES, logs, strict=True):
        cache = cache_of(from_gguf(header_of(MODELS[name]())), ask(how))
        assert cache is not None
        sizes = [float(size) for size in LINE.findall(log)]
        assert sizes, (name, how, log[-2000:])
        assert "exiting due to" not in log, (name, how, log[-2000:])
        real = pytest.approx(sum(sizes), rel=TOLERANCE)
        assert cache.bytes / 2**20 == real, (name, how)
