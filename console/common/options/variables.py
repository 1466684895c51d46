"""What the variables of an engine do that give no option's value (`variables.txt`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import NamedTuple

from console.common import redact
from console.common.options.since import Release, release_in
from console.common.options.table import FOLDER, Effect, Table
from console.common.text import one_line

OWN: Mapping[str, tuple[str, ...]] = {
    "vllm": ("VLLM_",), "sglang": ("SGLANG_", "SGL_"), "llama": ("GGML_", "LLAMA_ARG_"), "cuda": (),
}  # fmt: skip
"""How the names of each table's own variables begin; others are anybody's."""

OF_ENGINES = (
    "LLAMA_", "GGML_", "CUDA_", "NCCL_", "NVIDIA_", "VLLM_", "SGLANG_", "SGL_", "OLLAMA_", "HF_",
    "TRANSFORMERS_", "TORCH", "PYTORCH_", "TRITON_", "FLASHINFER_", "OMP_", "KMP_", "MKL_",
    "OPENBLAS_", "HIP_", "HSA_", "ROCR_", "GPU_", "LD_", "PYTHONPATH", "VIRTUAL_ENV",
    "CONDA_PREFIX",
)  # fmt: skip
"""How the names of variables begin that change what an engine does."""


class Row(NamedTuple):
    """`gone`: releases from then on pass it over; () where all take it."""

    effect: Effect
    gone: Release = ()


class Variable(NamedTuple):
    """A variable that is set: its effect, None where no release is known to have it, and itself
    with its value in words."""

    effect: Effect | None
    words: str


@cache
def rows(name: str) -> Mapping[str, Row]:
    """By name, `NAME=VALUE`, or a beginning with `*`."""
    table: dict[str, Row] = {}
    for line in (FOLDER / "variables.txt").read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        of, effect, names, *more = re.split(r"\s{2,}", line.strip())
        gone = release_in(more[0]) if more else ()
        if of == name:
            table |= {word: Row(Effect(effect), gone) for word in names.split()}
    return table


def _row(table: Mapping[str, Row], name: str, value: str) -> Row | None:
    exact = table.get(f"{name}={value}") or table.get(name)
    patterns = sorted((word for word in table if word.endswith("*")), key=len, reverse=True)
    return exact or next((table[word] for word in patterns if fnmatchcase(name, word)), None)


def judged(env: Mapping[str, str], of: Table, release: Release | None = None) -> Iterator[Variable]:
    """Each variable of an engine's own, and of CUDA, that is set and gives no option its value, in
    the order of their names."""
    family = of.name if of.name in OWN else "llama"
    of_options = {name for option in of.options for name in option.env}
    for name in sorted(env):
        if name in of_options or name.startswith("LLAMA_ARG_NO_"):
            continue
        own = name.startswith(OWN[family])
        row = _row(rows(family), name, env[name].strip()) or _row(rows("cuda"), name, env[name])
        if row is None and not own:
            continue
        if row is not None and row.gone and release is not None and release >= row.gone:
            continue
        value = redact.argv([f"{name}={env[name]}"])[0]
        yield Variable(row.effect if row is not None else None, one_line(value, 80))
