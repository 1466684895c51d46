"""Tensor tables of llama.cpp's architectures, learned from the loader of a real build.

    python -m tests.testbed.loader_tables gemma3 mamba2 …

The loader is given a header and ends at the first key or tensor that it misses, or whose shape is
another, and says so: that is mended, and it is asked again, until it reserves its buffers.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from console.models.gguf.header import Array, Header, Tensor, Value, row_bytes
from console.models.gguf.skeleton import write_skeleton
from tests.sizing.known import TYPES, Key, heads
from tests.testbed.fit_params import ensure, ensure_fit_params

LAYERS, WIDTH, VOCABULARY, CONTEXT = 8, 1024, 32000, 8192
MAX_ROUNDS, ASK_S = 400, 60
VALUES: tuple[tuple[str, Value], ...] = (
    ("expert_weights_scale", 1.0), ("head_count_kv", 4), ("key_length_mla", 96),
    ("value_length_mla", 64), ("indexer.head_count", 16), ("head_count", 16), ("key_length", 64),
    ("value_length", 64), ("epsilon", 1e-5), ("expert_feed_forward_length", 512),
    ("expert_shared_feed_forward_length", 512), ("expert_used_count", 2), ("expert_count", 8),
    ("expert_gating_func", 2), ("feed_forward_length", 2048), ("context_length", CONTEXT),
    ("embedding_length", WIDTH), ("sliding_window_pattern", 4), ("sliding_window", 512),
    ("q_lora_rank", 256), ("kv_lora_rank", 128), ("conv_kernel", 4), ("inner_size", 2048),
    ("state_size", 128), ("time_step_rank", 16), ("head_size", 64), ("token_shift_count", 2),
    ("extra_dim", 32), ("lora_rank", 64), ("rescale_every_n_layers", 6), ("scale", 1.0),
    ("freq_base", 1e6), ("freq_base_swa", 1e4), ("max_alibi_bias", 8.0), ("clamp_kqv", 8.0),
    ("logit_softcapping", 30.0), ("softcapping", 30.0), ("l_cache", 3), ("top_k", 512),
    ("original_context_length", 4096), ("attn_factor", 1.0), ("causal", True),
    ("dimension_count", 64),
    ("use_parallel_residual", True), ("hyper_connection.count", 2), ("token_type_count", 2),
    ("dimension_sections", Array("INT32", 4, (16, 24, 24, 0))), ("type", "none"),
)  # fmt: skip
"""By how a key ends; any other is 1."""
MIXTURE: dict[str, Value] = {
    "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 512,
    "attention.sliding_window": 512, "ssm.conv_kernel": 4, "ssm.inner_size": 2048,
    "ssm.state_size": 128, "ssm.time_step_rank": 16, "ssm.group_count": 1,
    "attention.q_lora_rank": 256, "attention.kv_lora_rank": 128,
}  # fmt: skip
LATENT: dict[str, Value] = {
    **MIXTURE, "attention.head_count_kv": 1, "attention.key_length": 128 + 32,
    "attention.value_length": 128, "attention.key_length_mla": 96, "attention.value_length_mla": 64,
    "rope.dimension_count": 32, "leading_dense_block_count": 1, "expert_shared_count": 1,
    "attention.indexer.head_count": 16, "attention.indexer.key_length": 64,
    "attention.indexer.top_k": 512, "expert_weights_scale": 1.0,
}  # fmt: skip
"""DeepSeek's latent attention, with and without an indexer."""
PRESETS: tuple[dict[str, Value], ...] = ({}, MIXTURE, LATENT)
DEMANDS: tuple[tuple[str, str, Value], ...] = (
    ("sqrtsoftplus", "{arch}.expert_gating_func", 4),
    ("needs to define token type count", "tokenizer.ggml.token_type_count", 2),
)
"""What a loader says without the name of the key, the key, and its value."""
_READY = re.compile(r"^(?:Host|CPU)\S* +\d+ \d+ \d+", re.MULTILINE)
_ABSENT = re.compile(r"(?:tensor '([^']+)' not found|missing tensor '([^']+)')")
_SHAPE = re.compile(r"tensor '([^']+)' has wrong shape; expected\s+([^;]*?), got")
_KEY = re.compile(r"key not found in model: (\S+)")
_KIND = re.compile(r"key (\S+) has wrong type \S+ but expected type (\S+)")
_ERROR = re.compile(r"error loading model[^:]*: (.*)")
_SPARE = re.compile(r"wrong number of tensors; expected (\d+), got (\d+)")
_BLOCK = re.compile(r"blk\.(\d+)\.(.*)")


@dataclass
class Table:
    """What is known of an architecture so far. `whole`: the loader takes it."""

    architecture: str
    kv: dict[str, Value]
    dims: dict[str, tuple[int, ...]] = field(
        default_factory=lambda: {
            "token_embd.weight": (WIDTH, VOCABULARY), "output_norm.weight": (WIDTH,),
        }
    )  # fmt: skip
    copies: bool = True
    whole: bool = False
    why: str = ""

    def header(self) -> Header:
        made = []
        for name, dims in self.dims.items():
            kind = "Q4_K" if dims[0] % 256 == 0 else "Q8_0"
            if len(dims) == 1 or dims[0] % 32 or "conv1d" in name or "norm" in name:
                kind = "F32"
            number, layout = TYPES[kind]
            made.append(
                Tensor(name, dims, number, kind, row_bytes(layout, dims[0]) * prod(dims[1:]))
            )
        return Header(3, "little", 32, len(made), self.kv, tuple(made), 0)

    def add(self, name: str) -> bool:
        """A tensor that is missing, with those beside it as an earlier layer has them."""
        block = _BLOCK.fullmatch(name)
        if block is not None and self.copies:
            for back in range(int(block[1]) - 1, -1, -1):
                own = [one for one in self.dims if one.startswith(f"blk.{back}.")]
                if own and own[0] == f"blk.{back}.{block[2]}":
                    for one in own:
                        self.dims.setdefault(
                            one.replace(f"blk.{back}.", f"blk.{block[1]}.", 1), self.dims[one]
                        )
                    break
        if name not in self.dims:
            like = [
                dims for one, dims in self.dims.items()
                if block is not None and one.endswith(f".{block[2]}")
            ]  # fmt: skip
            self.dims[name] = like[-1] if like else (1,)
        return True


def start(architecture: str, more: dict[str, Value]) -> Table:
    keys: dict[str, Key] = {
        "block_count": LAYERS, "embedding_length": WIDTH, "vocab_size": VOCABULARY,
        "context_length": CONTEXT, "feed_forward_length": 2048,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.layer_norm_epsilon": 1e-5,
        "rope.freq_base": 1e6,
        **{name.replace("__", "."): one for name, one in heads(16, 4, 64).items()},
    }  # fmt: skip
    kv: dict[str, Value] = {"general.architecture": architecture}
    kv |= {f"{architecture}.{name}": one for name, one in (keys | more).items()}  # type: ignore[misc]
    return Table(architecture, kv)


def learn(architecture: str, more: dict[str, Value] | None = None) -> Table:
    """The table of an architecture, or how far it came and `why` no further. Raises Unavailable."""
    tools = ensure_fit_params(), ensure("llama-bench")
    return grown(
        start(architecture, more or {}), lambda header, path: _complaint(header, path, tools)
    )


def grown(table: Table, ask: Callable[[Header, Path], str]) -> Table:
    """The table, mended for each complaint until there is none (`whole`) or nothing helps (`why`).
    `ask`: what the loader misses first of a header, for which it may write a file."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(MAX_ROUNDS):
            try:
                complaint = ask(table.header(), Path(folder) / "x.gguf")
            except subprocess.TimeoutExpired:
                complaint = "no answer in time"
            if not complaint:
                table.whole = True
                break
            if not mend(table, complaint) and not complete(table):
                table.why = complaint
                break
    return table


def _complaint(header: Header, path: Path, tools: tuple[str, str]) -> str:
    """What the loader misses first; "" if it reserves its buffers."""
    told = _loaded(header, path, tools[1])
    if error := _ERROR.search(told):
        return error[1]
    words = ("-fitp", "on", "-nr", "-c", "4096", "-np", "1", "-m", str(path))
    if _READY.search(_run(tools[0], *words).stdout):
        return ""
    return (told.strip().splitlines() or ["nothing"])[-1]


def asked_with_a_spare(header: Header, path: Path, bench: str) -> str:
    """What the loader misses first; "" if it takes all. It is given one tensor too many, so that it
    ends before it reserves anything, and says so last."""
    spare = Tensor("spare.weight", (32,), 0, "F32", 128)
    tensors = (*(header.tensors or ()), spare)
    told = _loaded(replace(header, tensors=tensors, tensor_count=len(tensors)), path, bench)
    error = _ERROR.search(told)
    counts = _SPARE.search(told)
    if counts:
        have, used = int(counts[1]) - 1, int(counts[2])
        return "" if have == used else f"wrong number of tensors; expected {have}, got {used}"
    return error[1] if error else (told.strip().splitlines() or ["nothing"])[-1]


def _loaded(header: Header, path: Path, bench: str) -> str:
    """What a program that only loads says of a file with that header."""
    write_skeleton(header, path)
    return _run(
        bench, "-v", "-p", "0", "-n", "0", "-pg", "1,0", "-t", "1", "-ngl", "0", "-m", str(path)
    ).stderr


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, capture_output=True, text=True, errors="replace", timeout=ASK_S, check=False,
        env={"GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip


def mend(table: Table, complaint: str) -> bool:
    """Whether something of the table was changed for it."""
    if found := _ABSENT.search(complaint):
        return table.add(found[1] or found[2])
    if found := _SHAPE.search(complaint):
        dims = tuple(int(one) for one in re.findall(r"\d+", found[2]))
        while len(dims) > 1 and dims[-1] == 1:
            dims = dims[:-1]
        changed = table.dims.get(found[1]) != dims
        table.dims[found[1]] = dims
        return changed
    if found := _KEY.search(complaint):
        name = found[1]
        table.kv[name] = next((one for end, one in VALUES if name.endswith(end)), 1)
        return True
    if found := _KIND.search(complaint):
        kinds: dict[str, Value] = {
            "bool": True, "str": "none", "f32": 1.0, "arr": Array("INT32", LAYERS, (1,) * LAYERS),
        }  # fmt: skip
        before, table.kv[found[1]] = table.kv.get(found[1]), kinds.get(found[2], 1)
        return type(before) is not type(table.kv[found[1]])
    for words, name, one in DEMANDS:
        key = name.format(arch=table.architecture)
        if words in complaint and table.kv.get(key) != one:
            table.kv[key] = one
            return True
    counts = _SPARE.search(complaint)
    if counts and int(counts[1]) == int(counts[2]) + 1 and "output_norm.weight" in table.dims:
        del table.dims["output_norm.weight"]  # it was there before it was asked for
        return True
    if counts and table.copies:
        table.copies = False
        table.dims = start(table.architecture, {}).dims
        return True
    return False


def complete(table: Table) -> bool:
    """Whether something was added that the loader does without and the graph does not: what goes
    into a gated delta net, beside which a file may have an older form of it."""
    added = False
    for index in range(LAYERS):
        begin = f"blk.{index}."
        mixed, out = (table.dims.get(f"{begin}{name}.weight") for name in ("ssm_conv1d", "ssm_out"))
        own = (f"{begin}ssm_in.weight", f"{begin}attn_qkv.weight")
        if mixed and out and not any(name in table.dims for name in own):
            table.dims[own[1]] = (WIDTH, mixed[-1])
            table.dims[f"{begin}attn_gate.weight"] = (WIDTH, out[0])
            added = True
    return added


def main() -> None:
    for architecture in sys.argv[1:]:
        for more in PRESETS:
            table = learn(architecture, more)
            if table.whole:
                break
        print(architecture, len(table.dims) if table.whole else f"no: {table.why}", flush=True)


if __name__ == "__main__":
    main()
