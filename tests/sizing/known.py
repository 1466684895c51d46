"""Headers of well-known models: layers, widths, heads, experts and windows as their publishers give
them, and a quantization near Q4_K_M.

They are real headers with a tensor table that llama.cpp loads, so that a build can be asked about
them (`console.models.gguf.skeleton`), and the console's own sum can be held against its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from console.models.gguf.header import BY_NUMBER, Array, Header, Tensor, Value, row_bytes

TYPES = {kind.name: (number, kind) for number, kind in BY_NUMBER.items()}
Key = int | float | str | Sequence[int]


class Sketch:
    """A header while it is put together; keys are written with `__` for a dot."""

    def __init__(self, arch: str, layers: int, width: int, vocabulary: int, **keys: Key) -> None:
        self.arch, self.layers, self.width = arch, layers, width
        self.kv: dict[str, Value] = {"general.architecture": arch}
        self.tensors: list[Tensor] = []
        known: dict[str, Key] = {
            "attention__layer_norm_rms_epsilon": 1e-6, "attention__layer_norm_epsilon": 1e-5,
            "block_count": layers, "embedding_length": width, "vocab_size": vocabulary,
            "rope__freq_base": 1e6, **keys,
        }  # fmt: skip
        for key, value in known.items():
            name = f"{arch}.{key.replace('__', '.')}"
            plain = isinstance(value, int | float | str)
            self.kv[name] = value if plain else Array("INT32", len(value), tuple(value))  # type: ignore[arg-type, assignment]
        self.add("token_embd.weight", "", width, vocabulary)
        self.add("output_norm.weight", "F32", width)

    def add(self, name: str, kind: str, *dims: int) -> None:
        """A tensor; without a type, one that its rows allow."""
        kind = kind or ("Q4_K" if dims[0] % 256 == 0 else "Q5_0")
        number, layout = TYPES[kind]
        size = row_bytes(layout, dims[0]) * prod(dims[1:])
        self.tensors.append(Tensor(name, dims, number, kind, size))

    def block(self, index: int, **tensors: Sequence[int] | int) -> None:
        """Matrices (several lengths) and vectors (one) of a block; `__` for a dot."""
        for name, dims in tensors.items():
            name = f"blk.{index}.{name.replace('__', '.')}"
            name = name if name.endswith((".bias", "ssm_a", "ssm_d")) else f"{name}.weight"
            if isinstance(dims, int):
                self.add(name, "F32", dims)
            else:
                small = "conv1d" in name or "gate_inp" in name or ".bias" in name or dims[0] < 32
                self.add(name, "F32" if small else "", *dims)

    def header(self, *, tied: bool = False) -> Header:
        if not tied:
            vocabulary = self.tensors[0].dims[1]
            self.add("output.weight", "Q6_K" if self.width % 256 == 0 else "Q8_0", self.width,
                     vocabulary)  # fmt: skip
        kv, tensors = self.kv, tuple(self.tensors)
        return Header(3, "little", 32, len(tensors), kv, tensors, 0)


def heads(heads: int, kv: int | Sequence[int], head: int) -> dict[str, Key]:
    return {
        "attention__head_count": heads, "attention__head_count_kv": kv,
        "attention__key_length": head, "attention__value_length": head,
        "rope__dimension_count": head,
    }  # fmt: skip


def attention(
    sketch: Sketch, index: int, heads: int, kv: int, head: int, *, bias: bool = False,
    norms: bool = False, doubled: int = 1,
) -> None:  # fmt: skip
    width, wide, narrow = sketch.width, heads * head, kv * head
    sketch.block(index, attn_norm=width, attn_q=(width, doubled * wide), attn_k=(width, narrow),
                 attn_v=(width, narrow), attn_output=(wide, width))  # fmt: skip
    if bias:
        sketch.block(index, attn_q__bias=wide, attn_k__bias=narrow, attn_v__bias=narrow)
    if norms:
        sketch.block(index, attn_q_norm=head, attn_k_norm=head)


def forward(sketch: Sketch, index: int, length: int, suffix: str = "") -> None:
    for name in ("gate", "up"):
        sketch.block(index, **{f"ffn_{name}{suffix}": (sketch.width, length)})
    sketch.block(index, **{f"ffn_down{suffix}": (length, sketch.width)})


def experts(sketch: Sketch, index: int, length: int, count: int, kind: str = "") -> None:
    width, name = sketch.width, f"blk.{index}.ffn_"
    sketch.block(index, ffn_gate_inp=(width, count))
    for part, dims in (
        ("gate", (width, length)),
        ("up", (width, length)),
        ("down", (length, width)),
    ):
        sketch.add(f"{name}{part}_exps.weight", kind, *dims, count)


def dense(
    arch: str, layers: int, width: int, count: int, kv: int, head: int, length: int,
    vocabulary: int, context: int, *, bias: bool = False, norms: bool = False, after: bool = False,
    before: bool = True, tied: bool = False, **keys: Key,
) -> Header:  # fmt: skip
    """`after`: norms behind attention and feed-forward, too; `before`: one before the latter."""
    sketch = Sketch(arch, layers, width, vocabulary, context_length=context,
                    feed_forward_length=length, **heads(count, kv, head), **keys)  # fmt: skip
    for index in range(layers):
        attention(sketch, index, count, kv, head, bias=bias, norms=norms)
        forward(sketch, index, length)
        if before:
            sketch.block(index, ffn_norm=width)
        if after:
            sketch.block(index, post_attention_norm=width, post_ffw_norm=width)
    return sketch.header(tied=tied)


def phi4() -> Header:
    """Queries, keys and values in one matrix, gate and up in another."""
    sketch = Sketch("phi3", 40, 5120, 100352, context_length=16384, feed_forward_length=17920,
                    rope__scaling__original_context_length=16384, **heads(40, 10, 128))  # fmt: skip
    for index in range(40):
        sketch.block(index, attn_norm=5120, attn_qkv=(5120, 5120 + 2 * 1280),
                     attn_output=(5120, 5120), ffn_norm=5120, ffn_up=(5120, 2 * 17920),
                     ffn_down=(17920, 5120))  # fmt: skip
    return sketch.header()


def mixture(
    arch: str, layers: int, width: int, count: int, kv: int, head: int, length: int, number: int,
    used: int, vocabulary: int, context: int, *, norms: bool = False, bias: bool = False,
    shared: int = 0, lead: int = 0, dense: int = 0, guessing: int = 0, after: bool = False,
    **keys: Key,
) -> Header:  # fmt: skip
    """Routed experts; the first `lead` layers have a feed-forward part of `dense` instead."""
    every = layers + guessing
    sketch = Sketch(
        arch, every, width, vocabulary, context_length=context,
        feed_forward_length=dense or length, expert_count=number, expert_used_count=used,
        expert_shared_count=shared // length, leading_dense_block_count=lead,
        nextn_predict_layers=guessing,
        **({} if arch == "llama" else {"expert_feed_forward_length": length}),
        **heads(count, kv, head), **keys,
    )  # fmt: skip
    for index in range(every):
        attention(sketch, index, count, kv, head, norms=norms, bias=bias)
        sketch.block(index, **{"post_attention_norm" if after else "ffn_norm": width})
        if index < lead:
            forward(sketch, index, dense)
            continue
        experts(sketch, index, length, number)
        if shared:
            forward(sketch, index, shared, "_shexp")
        if after:
            sketch.block(index, exp_probs_b__bias=number)
    for index in range(layers, every):
        sketch.block(index, nextn__eh_proj=(2 * width, width), nextn__enorm=width,
                     nextn__hnorm=width)  # fmt: skip
    return sketch.header()


def gpt_oss() -> Header:
    width, layers, number = 2880, 36, 128
    sketch = Sketch(
        "gpt-oss", layers, width, 201088, context_length=131072, feed_forward_length=width,
        expert_feed_forward_length=width, expert_count=number, expert_used_count=4,
        attention__sliding_window=128, **heads(64, 8, 64),
    )  # fmt: skip
    for index in range(layers):
        attention(sketch, index, 64, 8, 64, bias=True)
        experts(sketch, index, width, number, "MXFP4")
        sketch.block(
            index, post_attention_norm=width, attn_sinks=64, attn_output__bias=width,
            ffn_gate_inp__bias=number, ffn_gate_exps__bias=(width, number),
            ffn_up_exps__bias=(width, number), ffn_down_exps__bias=(width, number),
        )  # fmt: skip
    return sketch.header()


def latent(
    layers: int, width: int, count: int, length: int, number: int, used: int, shared: int,
    dense: int, vocabulary: int, context: int, *, lead: int, query: int, packed: bool = True,
    nope: int = 128, value: int = 128,
) -> Header:  # fmt: skip
    """DeepSeek-V2's attention; not `packed`: converted before April 2025."""
    rank, rope = 512, 64
    lengths: dict[str, Key] = {
        "attention__head_count_kv": count, "attention__key_length": nope + rope,
        "attention__value_length": value,
    }  # fmt: skip
    if packed:
        lengths = {
            "attention__head_count_kv": 1, "attention__key_length": rank + rope,
            "attention__value_length": rank, "attention__key_length_mla": nope + rope,
            "attention__value_length_mla": value,
        }  # fmt: skip
    sketch = Sketch(
        "deepseek2", layers, width, vocabulary, context_length=context, feed_forward_length=dense,
        attention__head_count=count, attention__kv_lora_rank=rank, rope__dimension_count=rope,
        expert_feed_forward_length=length, expert_count=number, expert_used_count=used,
        expert_shared_count=shared, leading_dense_block_count=lead, expert_weights_scale=1.0,
        **({"attention__q_lora_rank": query} if query else {}), **lengths,
    )  # fmt: skip
    for index in range(layers):
        wide = count * (nope + rope)
        sketch.block(
            index, attn_norm=width, attn_kv_a_norm=rank, ffn_norm=width,
            attn_kv_a_mqa=(width, rank + rope), attn_output=(count * value, width),
        )  # fmt: skip
        if query:
            sketch.block(index, attn_q_a=(width, query), attn_q_a_norm=query,
                         attn_q_b=(query, wide))  # fmt: skip
        else:
            sketch.block(index, attn_q=(width, wide))
        if packed:
            sketch.add(f"blk.{index}.attn_k_b.weight", "Q8_0", nope, rank, count)
            sketch.add(f"blk.{index}.attn_v_b.weight", "Q8_0", rank, value, count)
        else:
            sketch.block(index, attn_kv_b=(rank, count * (nope + value)))
        if index < lead:
            forward(sketch, index, dense)
        else:
            experts(sketch, index, length, number)
            forward(sketch, index, length * shared, "_shexp")
    return sketch.header()


def llama4_scout() -> Header:
    sketch = Sketch(
        "llama4", 48, 5120, 202048, context_length=10485760, feed_forward_length=16384,
        expert_feed_forward_length=8192, expert_count=16, expert_used_count=1,
        interleave_moe_layer_step=1, **heads(40, 8, 128),
    )  # fmt: skip
    for index in range(48):
        attention(sketch, index, 40, 8, 128)
        sketch.block(index, ffn_norm=5120)
        experts(sketch, index, 8192, 16)
        forward(sketch, index, 8192, "_shexp")
    return sketch.header()


def qwen3_next() -> Header:
    """Three layers of four are gated delta nets."""
    width, state, groups, values = 2048, 128, 16, 32
    inner, conv = state * values, 2 * state * groups + state * values
    sketch = Sketch(
        "qwen3next", 48, width, 151936, context_length=262144, feed_forward_length=5120,
        expert_feed_forward_length=512, expert_shared_feed_forward_length=512, expert_count=512,
        expert_used_count=10, ssm__conv_kernel=4, ssm__inner_size=inner, ssm__state_size=state,
        ssm__time_step_rank=values, ssm__group_count=groups,
        **(heads(16, 2, 256) | {"rope__dimension_count": 64}),
    )  # fmt: skip
    for index in range(48):
        if index % 4 == 3:
            attention(sketch, index, 16, 2, 256, norms=True, doubled=2)
        else:
            sketch.block(
                index, attn_norm=width, attn_qkv=(width, conv), attn_gate=(width, inner),
                ssm_conv1d=(4, conv), ssm_dt__bias=values, ssm_a=values,
                ssm_ba=(width, 2 * values), ssm_norm=state, ssm_out=(inner, width),
            )  # fmt: skip
        experts(sketch, index, 512, 512)
        forward(sketch, index, 512, "_shexp")
        sketch.block(index, post_attention_norm=width, ffn_gate_inp_shexp=width)
    return sketch.header()


def mamba_block(sketch: Sketch, index: int, inner: int, state: int, ranks: int) -> None:
    """Mamba 2: one group."""
    wide = inner + 2 * state
    sketch.block(index, attn_norm=sketch.width, ssm_in=(sketch.width, inner + wide + ranks),
                 ssm_conv1d=(4, wide), ssm_conv1d__bias=wide, ssm_dt__bias=ranks,
                 ssm_a=(1, ranks), ssm_d=(1, ranks), ssm_norm=(inner, 1),
                 ssm_out=(inner, sketch.width))  # fmt: skip


def mamba2() -> Header:
    """Mamba2-2.7B: nothing but states."""
    sketch = Sketch("mamba2", 64, 2560, 50288, context_length=1048576, feed_forward_length=0,
                    attention__head_count=0, ssm__conv_kernel=4, ssm__inner_size=5120,
                    ssm__state_size=128, ssm__time_step_rank=80, ssm__group_count=1)  # fmt: skip
    for index in range(64):
        mamba_block(sketch, index, 5120, 128, 80)
    return sketch.header(tied=True)


def granite_small() -> Header:
    """Granite-4.0-H-Small: four layers of forty have attention."""
    full, width = (5, 15, 25, 35), 4096
    kv = [8 if index in full else 0 for index in range(40)]
    sketch = Sketch(
        "granitehybrid", 40, width, 100352, context_length=131072, feed_forward_length=768,
        expert_count=72, expert_used_count=10, expert_shared_feed_forward_length=1536,
        ssm__conv_kernel=4, ssm__inner_size=8192, ssm__state_size=128, ssm__time_step_rank=128,
        ssm__group_count=1, **heads(32, kv, 128),
    )  # fmt: skip
    for index in range(40):
        if index in full:
            attention(sketch, index, 32, 8, 128)
        else:
            mamba_block(sketch, index, 8192, 128, 128)
        sketch.block(index, ffn_norm=width)
        experts(sketch, index, 768, 72)
        forward(sketch, index, 1536, "_shexp")
    return sketch.header(tied=True)


def jamba_mini() -> Header:
    """Jamba-1.5-Mini: one layer of eight has attention, every other one experts."""
    width, inner, state, rank = 4096, 8192, 16, 256
    kv = [8 if index % 8 == 4 else 0 for index in range(32)]
    sketch = Sketch("jamba", 32, width, 65536, context_length=262144, feed_forward_length=14336,
                    expert_count=16, expert_used_count=2, ssm__conv_kernel=4,
                    ssm__inner_size=inner, ssm__state_size=state, ssm__time_step_rank=rank,
                    **heads(32, kv, 128))  # fmt: skip
    for index in range(32):
        if kv[index]:
            attention(sketch, index, 32, 8, 128)
        else:
            sketch.block(
                index, attn_norm=width, ssm_in=(width, 2 * inner), ssm_conv1d=(4, inner),
                ssm_conv1d__bias=inner, ssm_x=(inner, rank + 2 * state), ssm_dt_norm=rank,
                ssm_dt=(rank, inner), ssm_dt__bias=inner, ssm_b_norm=state, ssm_c_norm=state,
                ssm_a=(state, inner), ssm_d=inner, ssm_out=(inner, width),
            )  # fmt: skip
        sketch.block(index, ffn_norm=width)
        if index % 2:
            experts(sketch, index, 14336, 16)
        else:
            forward(sketch, index, 14336)
    return sketch.header()


def gemma3_27b() -> Header:
    return dense("gemma3", 62, 5376, 32, 16, 128, 21504, 262208, 131072, norms=True, after=True,
                 tied=True, attention__sliding_window=1024)  # fmt: skip


def deepseek_r1(*, packed: bool = True) -> Header:
    return latent(61, 7168, 128, 2048, 256, 8, 1, 18432, 129280, 163840, lead=3, query=1536,
                  packed=packed)  # fmt: skip


KNOWN: dict[str, Callable[[], Header]] = {
    "Llama-3.1-8B": lambda: dense("llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072),
    "Llama-3.1-70B": lambda: dense("llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    "Mistral-Small-24B": lambda: dense("llama", 40, 5120, 32, 8, 128, 32768, 131072, 32768),
    "Qwen2.5-32B": lambda: dense(
        "qwen2", 64, 5120, 40, 8, 128, 27648, 152064, 131072, bias=True
    ),
    "Qwen3-32B": lambda: dense("qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960, norms=True),
    "Phi-4": phi4,
    "Gemma-2-27B": lambda: dense(
        "gemma2", 46, 4608, 32, 16, 128, 36864, 256000, 8192, after=True, tied=True,
        attention__sliding_window=4096,
    ),
    "Gemma-3-27B": gemma3_27b,
    "Command-R": lambda: dense(
        "command-r", 40, 8192, 64, 64, 128, 22528, 256000, 131072, before=False, tied=True
    ),
    "Command-A": lambda: dense(
        "cohere2", 64, 12288, 96, 8, 128, 36864, 256000, 262144, before=False, tied=True,
        attention__sliding_window=4096, logit_scale=0.25,
    ),
    "Mixtral-8x7B": lambda: mixture(
        "llama", 32, 4096, 32, 8, 128, 14336, 8, 2, 32000, 32768
    ),
    "Qwen3-30B-A3B": lambda: mixture(
        "qwen3moe", 48, 2048, 32, 4, 128, 768, 128, 8, 151936, 40960, norms=True
    ),
    "Qwen3-235B-A22B": lambda: mixture(
        "qwen3moe", 94, 4096, 64, 4, 128, 1536, 128, 8, 151936, 40960, norms=True
    ),
    "GLM-4.5-Air": lambda: mixture(
        "glm4moe", 46, 4096, 96, 8, 128, 1408, 128, 8, 151552, 131072, bias=True, shared=1408,
        lead=1, dense=10944, guessing=1, after=True,
    ),
    "gpt-oss-120b": gpt_oss,
    "Llama-4-Scout": llama4_scout,
    "DeepSeek-V2-Lite": lambda: latent(
        27, 2048, 16, 1408, 64, 6, 2, 10944, 102400, 163840, lead=1, query=0
    ),
    "DeepSeek-R1": deepseek_r1,
    "DeepSeek-R1, old conversion": lambda: deepseek_r1(packed=False),
    "Kimi-K2": lambda: latent(
        61, 7168, 64, 2048, 384, 8, 1, 18432, 163840, 131072, lead=1, query=1536
    ),
    "Qwen3-Next-80B-A3B": qwen3_next,
    "Jamba-1.5-Mini": jamba_mini,
    "Mamba2-2.7B": mamba2,
    "Granite-4.0-H-Small": granite_small,
}  # fmt: skip
