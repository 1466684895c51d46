"""The cache formulas against what a real llama.cpp logs while it loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console.fit.from_gguf import from_gguf
from console.fit.kv import CacheAsk, cache_of
from tests.fit.headers import header_of
from tests.fit.tiny import MODELS

pytest.importorskip("xllamacpp")

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


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What llama.cpp logged for each case."""
    place = tmp_path_factory.mktemp("models")
    paths = {name: make().write(place / f"{name}.gguf") for name, make in MODELS.items()}
    wanted = place / "wanted.json"
    cases = [{"model": str(paths[name]), "parameters": how} for name, how in CASES]
    wanted.write_text(json.dumps(cases), "utf-8")
    child = Path(__file__).with_name("load_child.py")
    done = subprocess.run(
        [sys.executable, child, wanted], capture_output=True, check=True, timeout=120
    )
    parts = re.split(r"^@@ \d+$", (done.stdout + done.stderr).decode(errors="replace"), flags=re.M)
    return parts[1:]


def ask(parameters: dict[str, Any]) -> CacheAsk:
    names = {
        "n_ctx": "ctx", "n_parallel": "parallel", "kv_unified": "unified", "n_ubatch": "ubatch",
        "cache_type_k": "type_k", "cache_type_v": "type_v", "swa_full": "swa_full",
    }  # fmt: skip
    return CacheAsk(**{names[key]: value for key, value in parameters.items()})


NAMES = [f"{name}-{'-'.join(str(one) for one in how.values())}" for name, how in CASES]


@pytest.mark.parametrize("index", range(len(CASES)), ids=NAMES)
def test_the_cache_is_what_llama_cpp_makes(logs: list[str], index: int) -> None:
    name, how = CASES[index]
    cache = cache_of(from_gguf(header_of(MODELS[name]())), ask(how))
    assert cache is not None
    sizes = [float(size) for size in LINE.findall(logs[index])]
    assert sizes, logs[index][-2000:]
    assert cache.bytes / 2**20 == pytest.approx(sum(sizes), rel=TOLERANCE)


def test_every_case_was_loaded(logs: list[str]) -> None:
    assert len(logs) == len(CASES)
    assert [log for log in logs if "exiting due to" in log] == []
