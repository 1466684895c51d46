"""The models of public logs as headers: shapes as their publishers give them, tensor types or bytes
as the log prints them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from console.models.gguf.header import Array, Header, Tensor, row_bytes
from tests.sizing.known import (
    KNOWN,
    TYPES,
    Key,
    Sketch,
    attention,
    deepseek_r1,
    dense,
    experts,
    forward,
    heads,
    latent,
    mixture,
)

MIB = 1 << 20


def gated(
    arch: str, layers: int, width: int, count: int, kv: int, values: int, *, length: int = 0,
    expert: int = 0, number: int = 0, used: int = 0, ahead: bool = False,
) -> Header:  # fmt: skip
    """Qwen3.5: three layers of four are gated delta nets, with states of 128 by 128. `ahead`: one
    more layer in the file guesses ahead."""
    inner, conv = 128 * values, 2 * 128 * 16 + 128 * values
    mixed: dict[str, Key] = {
        "expert_feed_forward_length": expert, "expert_shared_feed_forward_length": expert,
        "expert_count": number, "expert_used_count": used,
    } if number else {"feed_forward_length": length}  # fmt: skip
    sketch = Sketch(
        arch, layers, width, 248320, context_length=262144, ssm__conv_kernel=4,
        ssm__inner_size=inner, ssm__state_size=128, ssm__time_step_rank=values,
        ssm__group_count=16, full_attention_interval=4, **mixed,
        **(heads(count, kv, 256) | {"rope__dimension_count": 64}),
    )  # fmt: skip
    sketch.kv[f"{arch}.rope.dimension_sections"] = Array("INT32", 4, (11, 11, 10, 0))
    if ahead:
        sketch.kv |= {f"{arch}.block_count": layers + 1, f"{arch}.nextn_predict_layers": 1}
        sketch.block(
            layers, nextn__eh_proj=(2 * width, width), nextn__enorm=width, nextn__hnorm=width,
            nextn__shared_head_norm=width,
        )  # fmt: skip
    for index in range(layers + ahead):
        if index % 4 == 3 or index == layers:
            attention(sketch, index, count, kv, 256, norms=True, doubled=2)
        else:
            sketch.block(
                index, attn_norm=width, attn_qkv=(width, conv), attn_gate=(width, inner),
                ssm_conv1d=(4, conv), ssm_dt__bias=values, ssm_a=values,
                ssm_alpha=(width, values), ssm_beta=(width, values), ssm_norm=128,
                ssm_out=(inner, width),
            )  # fmt: skip
        if number:
            experts(sketch, index, expert, number)
            forward(sketch, index, expert, "_shexp")
            sketch.block(index, ffn_gate_inp_shexp=width)
        else:
            forward(sketch, index, length)
        sketch.block(index, post_attention_norm=width)
    return sketch.header()


SHAPES = {
    "GLM-4.7-Flash": lambda: latent(
        47, 2048, 20, 1536, 64, 4, 1, 10240, 154880, 202752, lead=1, query=768, nope=192, value=256
    ),
    "GLM-4.5-Air": lambda: mixture(
        "glm4moe", 46, 4096, 96, 8, 128, 1408, 128, 8, 151552, 131072, bias=True, shared=1408,
        lead=1, dense=10944, guessing=1, after=True,
    ),
    "Mistral-Small-3.1-24B": lambda: dense(
        "llama", 40, 5120, 32, 8, 128, 32768, 131072, 131072
    ),
    "DeepSeek-R1": deepseek_r1,
    "DeepSeek-R1-Distill-Qwen-32B": lambda: dense(
        "qwen2", 64, 5120, 40, 8, 128, 27648, 152064, 131072, bias=True
    ),
    "Apertus-70B": lambda: dense("apertus", 80, 8192, 64, 8, 128, 43008, 131072, 65536, norms=True),
    "Qwen2.5-3B": lambda: dense(
        "qwen2", 36, 2048, 16, 2, 128, 11008, 151936, 32768, bias=True, tied=True
    ),
    "Qwen2.5-7B": lambda: dense("qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 32768, bias=True),
    "gpt-oss-120b": KNOWN["gpt-oss-120b"],
    "Qwen3.5-27B": lambda: gated("qwen35", 64, 5120, 24, 4, 48, length=17408),
    "Qwen3.8-27B": lambda: gated("qwen35", 64, 5120, 24, 4, 48, length=17408, ahead=True),
    "Qwen3.5-35B-A3B": lambda: gated(
        "qwen35moe", 40, 2048, 16, 2, 32, expert=512, number=256, used=8
    ),
    "Qwen3.5-397B-A17B": lambda: gated(
        "qwen35moe", 60, 4096, 32, 2, 64, expert=1024, number=512, used=10
    ),
    "Qwen3-235B-A22B": lambda: mixture(
        "qwen3moe", 94, 4096, 64, 4, 128, 1536, 128, 8, 151936, 131072, norms=True
    ),
    "Command-R 35B": lambda: dense(
        "command-r", 40, 8192, 64, 64, 128, 22528, 256000, 131072, before=False, tied=True
    ),
    "Command-R+ 104B": lambda: dense(
        "command-r", 64, 12288, 96, 8, 128, 33792, 256000, 131072, before=False, tied=True
    ),
    "Llama-2-70B": lambda: dense("llama", 80, 8192, 64, 8, 128, 28672, 32000, 4096),
    "Llama-3.3-70B": lambda: dense("llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    "TriLM-3.9B": lambda: dense("llama", 30, 3072, 24, 24, 128, 9216, 50688, 2048),
    "GLM-4-32B-0414": lambda: dense(
        "glm4", 61, 6144, 48, 2, 128, 23040, 151552, 32768, after=True
    ),
    "GLM-4-32B-0414, first conversion": lambda: dense(
        "glm4", 61, 6144, 48, 8, 128, 23040, 151552, 32768, after=True
    ),
}  # fmt: skip


def model(name: str, types: dict[str, str], mib: list[float] | None) -> Header:
    """The header of a model. `types`: of `token_embd`, of `output`, and of every other matrix;
    without, all matrices have the bytes in `mib`: those of the token table, and of the rest."""
    header = SHAPES[name]()
    if mib is None:
        return replace(header, tensors=tuple(_typed(one, types) for one in header.tensors or ()))
    table, *rest = header.tensors or ()
    total = sum(one.bytes or 0 for one in rest)
    share = mib[1] * MIB / total
    scaled = [replace(one, bytes=int((one.bytes or 0) * share)) for one in rest]
    return replace(header, tensors=(replace(table, bytes=int(mib[0] * MIB)), *scaled))


def _typed(tensor: Tensor, types: dict[str, str]) -> Tensor:
    if len(tensor.dims) == 1 or tensor.type_name == "F32":
        return tensor
    kind = types.get(tensor.name.removesuffix(".weight"), types["rest"])
    number, layout = TYPES[kind]
    size = row_bytes(layout, tensor.dims[0]) * prod(tensor.dims[1:])
    return replace(tensor, type=number, type_name=kind, bytes=size)
