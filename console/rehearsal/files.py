"""Stand-in files in a rehearsal's work directory: what a playbook expects, a made-up checkpoint."""

from __future__ import annotations

import json
import os
import shlex
import struct
import sys
from pathlib import Path
from typing import Any

from console.common.units import parse_bytes
from console.rehearsal import image
from console.rehearsal import workspace as place
from console.rehearsal.demo import model
from console.rehearsal.inside.settings import HOLDS, VARIABLE, packed
from console.rehearsal.workspace import Mapping

GGUF_ENGINES = ("llama.cpp", "ik_llama.cpp")
WIDTH, EXPERT_WIDTH, LAYERS, EXPERTS, VOCABULARY, HEADS, HEAD = 512, 128, 6, 64, 8192, 8, 64
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
    "hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "moe_intermediate_size": EXPERT_WIDTH,
    "num_hidden_layers": LAYERS, "num_experts": EXPERTS, "num_experts_per_tok": 8,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HEAD,
    "vocab_size": VOCABULARY, "max_position_embeddings": 32_768, "tie_word_embeddings": False,
}  # fmt: skip


def put_expected(path: Path, least: Any, mapping: Mapping) -> None:
    """A file of at least `least` bytes; beside a program of an engine, the others of its build."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name in image.COMMANDS:
        for name in image.COMMANDS:
            place.script(_in_a_container(name, mapping), path.with_name(name))
        (path.parent / "libggml-cuda.so").write_text("stand-in of a rehearsal\n")
    elif not path.suffix and path.name in ("lib", "bin", "include"):
        path.mkdir(exist_ok=True)
        return
    else:
        path.write_text("stand-in of a rehearsal\n")
    wanted = parse_bytes(least) if isinstance(least, str) else int(least or 0)
    if path.stat().st_size < wanted:
        _pad(path, wanted)


def python(path: Path) -> None:
    """An interpreter of an environment that is not here: this one, with the stand-in modules."""
    modules = place.directory() / "modules"
    for name, text in image.MODULES.items():
        file = modules / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    place.script(f'PYTHONPATH={shlex.quote(str(modules))} exec {sys.executable} "$@"', path)


def _pad(path: Path, size: int) -> None:
    """A script may be longer than what it does: comments behind `exit` are never read."""
    with path.open("a") as file:
        file.write("exit\n#" + "." * (size - os.fstat(file.fileno()).st_size) + "\n")


def _in_a_container(name: str, mapping: Mapping) -> str:
    """A command of the stand-in image, under the candidate's quota, ended by a rollback."""
    told = packed(mapping.for_image(name))
    return (
        f"exec docker run --rm --init --cpus {mapping.cpus:.4f} --network none "
        f'--label {place.role_label()}=oneoff --label "omni.run=$OMNI_RUN" '
        f"-v {shlex.quote(str(place.holds()))}:{HOLDS} -e {VARIABLE}={told} "
        f'{mapping.base} {name} "$@"'
    )


CHECKPOINT_WORD = "stand-in"
"""A checkpoint step's repository that means this."""


def put_checkpoint(gguf: bool) -> Path:
    """A small made-up checkpoint for `source=stand-in`: what a preflight can read where no hub is.
    Its directory, made where it is not there. Raises OSError.

    Names, config.json and headers are true to their kind; the weights are holes. What a preflight
    says of it says nothing of a real one.
    """
    where = place.work() / "checkpoint" / ("gguf" if gguf else "bf16")
    where.mkdir(parents=True, exist_ok=True)
    if gguf:
        model.write_llama(where / "stand-in-F16.gguf", model.ModelSpec(
            "stand-in", blocks=2, width=64, heads=2, feed_forward=128, seed=22, context=131_072,
        ))  # fmt: skip
        return where
    (where / "config.json").write_text(json.dumps(CONFIG, indent=1) + "\n")
    head, size = _header()
    with (where / "model.safetensors").open("wb") as file:
        file.write(head)
        file.truncate(len(head) + size)
    return where


def _header() -> tuple[bytes, int]:
    """A safetensors header, with its length in front, and the bytes of the weights behind it."""
    table, at = {}, 0
    for name, shape in _tensors().items():
        size = 2 * shape[0] * shape[1]
        table[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table).encode()
    return struct.pack("<Q", len(text)) + text, at


def _tensors() -> dict[str, tuple[int, int]]:
    """Matrices by name; what is smaller than a matrix is left out."""
    inner = HEADS * HEAD
    made = {"model.embed_tokens.weight": (VOCABULARY, WIDTH), "lm_head.weight": (VOCABULARY, WIDTH)}
    for n in range(LAYERS):
        at = f"model.layers.{n}"
        for part in ("q_proj", "k_proj", "v_proj"):
            made[f"{at}.self_attn.{part}.weight"] = (inner, WIDTH)
        made[f"{at}.self_attn.o_proj.weight"] = (WIDTH, inner)
        made[f"{at}.mlp.gate.weight"] = (EXPERTS, WIDTH)
        for expert in range(EXPERTS):
            one = f"{at}.mlp.experts.{expert}"
            made[f"{one}.gate_proj.weight"] = (EXPERT_WIDTH, WIDTH)
            made[f"{one}.up_proj.weight"] = (EXPERT_WIDTH, WIDTH)
            made[f"{one}.down_proj.weight"] = (WIDTH, EXPERT_WIDTH)
    return made
