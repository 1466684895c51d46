"""Tiny random models of one architecture each, which a real llama.cpp loads in milliseconds.

Their key-value caches are made large enough (some MiB at a few thousand tokens) for llama.cpp's
own figures, which it prints with two decimals of a MiB, to be told apart by a per cent.
"""

from dataclasses import dataclass, field
from pathlib import Path

from console.models.gguf.header import Array
from console.rehearsal.demo.model import (
    Tensor,
    Value,
    feed_forward_tensors,
    token_tensors,
    tokenizer_metadata,
    vocabulary,
    write_gguf,
)
from tests.testbed.models import _deepseek_metadata, _deepseek_tensors

WIDTH, HEADS, KV_HEADS, HEAD = 64, 4, 2, 32
FORWARD, EXPERTS, USED = 128, 4, 2


@dataclass(frozen=True)
class Model:
    """The two parts of a file, before it is written."""

    metadata: dict[str, Value]
    tensors: list[Tensor]

    def write(self, path: Path) -> Path:
        write_gguf(path, self.metadata, self.tensors, seed=7)
        return path


def _metadata(arch: str, layers: int, **extra: Value) -> dict[str, Value]:
    """The keys all of them share, and `extra` with `__` for `.`."""
    keys: dict[str, Value] = {
        "vocab_size": len(vocabulary()),
        "block_count": layers,
        "context_length": 32768,
        "embedding_length": WIDTH,
        "feed_forward_length": FORWARD,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": HEAD,
        "rope.freq_base": 10_000.0,
        **{key.replace("__", "."): value for key, value in extra.items()},
    }
    return {
        "general.architecture": arch,
        **{f"{arch}.{key}": value for key, value in keys.items()},
        **tokenizer_metadata(),
    }


def _attention(block: str, kv_heads: int = KV_HEADS, head: int = HEAD) -> list[Tensor]:
    return [
        Tensor(f"{block}.attn_norm.weight", (WIDTH,), "norm"),
        Tensor(f"{block}.attn_q.weight", (HEADS * head, WIDTH)),
        Tensor(f"{block}.attn_k.weight", (kv_heads * head, WIDTH)),
        Tensor(f"{block}.attn_v.weight", (kv_heads * head, WIDTH)),
        Tensor(f"{block}.attn_output.weight", (WIDTH, HEADS * head), "residual"),
    ]


def _query_key_norms(block: str, head: int = HEAD) -> list[Tensor]:
    return [Tensor(f"{block}.attn_{which}_norm.weight", (head,), "norm") for which in "qk"]


def _experts(block: str) -> list[Tensor]:
    up, down = (EXPERTS, FORWARD // 2, WIDTH), (EXPERTS, WIDTH, FORWARD // 2)
    return [
        Tensor(f"{block}.ffn_norm.weight", (WIDTH,), "norm"),
        Tensor(f"{block}.ffn_gate_inp.weight", (EXPERTS, WIDTH)),
        Tensor(f"{block}.ffn_gate_exps.weight", up),
        Tensor(f"{block}.ffn_up_exps.weight", up),
        Tensor(f"{block}.ffn_down_exps.weight", down),
    ]


def llama(layers: int = 3) -> Model:
    """Grouped-query attention."""
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += _attention(block) + feed_forward_tensors(block, WIDTH, FORWARD, layers)
    return Model(_metadata("llama", layers), tensors)


def gemma2(layers: int = 5, window: int = 512) -> Model:
    """Every other layer, from the first on, looks at a window; the output is the token table."""
    tensors = [tensor for tensor in token_tensors(WIDTH) if tensor.name != "output.weight"]
    for index in range(layers):
        block = f"blk.{index}"
        tensors += _attention(block) + feed_forward_tensors(block, WIDTH, FORWARD, layers)
        tensors += _post_norms(block)
    return Model(_metadata("gemma2", layers, attention__sliding_window=window), tensors)


def gemma3(layers: int = 7, window: int = 512) -> Model:
    """Five of six layers look at a window."""
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += _attention(block) + feed_forward_tensors(block, WIDTH, FORWARD, layers)
        tensors += _post_norms(block) + _query_key_norms(block)
    return Model(_metadata("gemma3", layers, attention__sliding_window=window), tensors)


def _post_norms(block: str) -> list[Tensor]:
    names = ("post_attention_norm", "post_ffw_norm")
    return [Tensor(f"{block}.{name}.weight", (WIDTH,), "norm") for name in names]


def qwen3moe(layers: int = 3) -> Model:
    """Experts in every layer."""
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += _attention(block) + _query_key_norms(block) + _experts(block)
    extra: dict[str, Value] = {
        "expert_count": EXPERTS, "expert_used_count": USED,
        "expert_feed_forward_length": FORWARD // 2,
    }  # fmt: skip
    return Model(_metadata("qwen3moe", layers, **extra), tensors)


def glm4moe(layers: int = 3) -> Model:
    """Its last layer is for guessing ahead (MTP): in the file, never loaded."""
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += _attention(block) + _experts(block)
        tensors.append(Tensor(f"{block}.post_attention_norm.weight", (WIDTH,), "norm"))
        tensors.append(Tensor(f"{block}.exp_probs_b.bias", (EXPERTS,), "norm"))
        tensors = [tensor for tensor in tensors if tensor.name != f"{block}.ffn_norm.weight"]
    last = f"blk.{layers - 1}.nextn"
    tensors += [
        Tensor(f"{last}.eh_proj.weight", (WIDTH, 2 * WIDTH)),
        Tensor(f"{last}.enorm.weight", (WIDTH,), "norm"),
        Tensor(f"{last}.hnorm.weight", (WIDTH,), "norm"),
    ]
    extra: dict[str, Value] = {
        "expert_count": EXPERTS, "expert_used_count": USED, "expert_shared_count": 0,
        "expert_feed_forward_length": FORWARD // 2, "leading_dense_block_count": 0,
        "nextn_predict_layers": 1,
    }  # fmt: skip
    return Model(_metadata("glm4moe", layers, **extra), tensors)


def deepseek2() -> Model:
    """Latent attention with experts, as files are made today."""
    return Model(_deepseek_metadata("deepseek2", "tiny"), _deepseek_tensors())


def deepseek2_old() -> Model:
    """The same model as it was converted before the latent cache: every head is kept."""
    metadata = _deepseek_metadata("deepseek2", "tiny")
    nope, rope, value, rank = 16, 16, 16, 32
    metadata |= {
        "deepseek2.attention.head_count_kv": HEADS,
        "deepseek2.attention.key_length": nope + rope,
        "deepseek2.attention.value_length": value,
    }
    for key in ("key_length_mla", "value_length_mla"):
        del metadata[f"deepseek2.attention.{key}"]
    tensors = []
    for tensor in _deepseek_tensors():
        if ".attn_v_b." in tensor.name:
            continue
        if ".attn_k_b." in tensor.name:
            name = tensor.name.replace("attn_k_b", "attn_kv_b")
            tensor = Tensor(name, (HEADS * (nope + value), rank))
        tensors.append(tensor)
    return Model(metadata, tensors)


def deepseek32() -> Model:
    """Latent attention with a lightning indexer beside it."""
    rank, heads, key = 48, 2, 64
    metadata = _deepseek_metadata("deepseek32", "tiny")
    metadata |= {
        "deepseek32.attention.indexer.head_count": heads,
        "deepseek32.attention.indexer.key_length": key,
        "deepseek32.attention.indexer.top_k": 64,
    }
    tensors = _deepseek_tensors()
    for index in range(2):
        block = f"blk.{index}.indexer"
        tensors += [
            Tensor(f"{block}.k_norm.weight", (key,), "norm"),
            Tensor(f"{block}.k_norm.bias", (key,), "norm"),
            Tensor(f"{block}.proj.weight", (heads, WIDTH)),
            Tensor(f"{block}.attn_k.weight", (key, WIDTH)),
            Tensor(f"{block}.attn_q_b.weight", (heads * key, rank)),
        ]
    return Model(metadata, tensors)


def glm_dsa() -> Model:
    """As deepseek32, but only the first layer has an indexer of its own."""
    like = deepseek32()
    metadata = {
        key.replace("deepseek32.", "glm-dsa."): value for key, value in like.metadata.items()
    }
    metadata["general.architecture"] = "glm-dsa"
    metadata["glm-dsa.attention.indexer.types"] = [1, 0]
    return Model(metadata, like.tensors)


def qwen3next(layers: int = 4) -> Model:
    """Three layers of four keep a state (gated delta net), the fourth a cache."""
    state, groups, values, kernel, expert = 32, 2, 4, 4, FORWARD // 2
    keys_wide, inner = state * groups, state * values
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += [tensor for tensor in _experts(block) if "ffn_norm" not in tensor.name]
        tensors += [
            Tensor(f"{block}.post_attention_norm.weight", (WIDTH,), "norm"),
            Tensor(f"{block}.ffn_gate_inp_shexp.weight", (WIDTH,), "norm"),
            Tensor(f"{block}.ffn_gate_shexp.weight", (expert, WIDTH)),
            Tensor(f"{block}.ffn_up_shexp.weight", (expert, WIDTH)),
            Tensor(f"{block}.ffn_down_shexp.weight", (WIDTH, expert)),
        ]
        if index % 4 == 3:
            tensors += [t for t in _attention(block) if "attn_q" not in t.name]
            tensors.append(Tensor(f"{block}.attn_q.weight", (2 * HEADS * HEAD, WIDTH)))
            tensors += _query_key_norms(block)
            continue
        tensors += [
            Tensor(f"{block}.attn_norm.weight", (WIDTH,), "norm"),
            Tensor(f"{block}.attn_qkv.weight", (2 * keys_wide + inner, WIDTH)),
            Tensor(f"{block}.attn_gate.weight", (inner, WIDTH)),
            Tensor(f"{block}.ssm_conv1d.weight", (2 * keys_wide + inner, kernel), "norm"),
            Tensor(f"{block}.ssm_dt.bias", (values,), "norm"),
            Tensor(f"{block}.ssm_a", (values,), "norm"),
            Tensor(f"{block}.ssm_ba.weight", (2 * values, WIDTH)),
            Tensor(f"{block}.ssm_norm.weight", (state,), "norm"),
            Tensor(f"{block}.ssm_out.weight", (WIDTH, inner)),
        ]
    extra: dict[str, Value] = {
        "expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": expert,
        "expert_shared_feed_forward_length": expert, "ssm__conv_kernel": kernel,
        "ssm__inner_size": inner, "ssm__state_size": state, "ssm__time_step_rank": values,
        "ssm__group_count": groups,
    }  # fmt: skip
    return Model(_metadata("qwen3next", layers, **extra), tensors)


def lfm2(layers: int = 4) -> Model:
    """Convolutions with a state, and attention where `head_count_kv` is not 0."""
    kv_heads = [0 if index % 2 == 0 else KV_HEADS for index in range(layers)]
    tensors = [t for t in token_tensors(WIDTH) if t.name != "output_norm.weight"]
    tensors.append(Tensor("token_embd_norm.weight", (WIDTH,), "norm"))
    head = WIDTH // HEADS
    for index, count in enumerate(kv_heads):
        block = f"blk.{index}"
        tensors += feed_forward_tensors(block, WIDTH, FORWARD, layers)
        if count:
            tensors += _attention(block, count, head) + _query_key_norms(block, head)
        else:
            tensors += [
                Tensor(f"{block}.attn_norm.weight", (WIDTH,), "norm"),
                Tensor(f"{block}.shortconv.in_proj.weight", (3 * WIDTH, WIDTH)),
                Tensor(f"{block}.shortconv.out_proj.weight", (WIDTH, WIDTH)),
                Tensor(f"{block}.shortconv.conv.weight", (WIDTH, 3), "norm"),
            ]
    metadata = _metadata("lfm2", layers, shortconv__l_cache=3)
    metadata["lfm2.attention.head_count_kv"] = kv_heads
    metadata["lfm2.rope.dimension_count"] = head
    for key in ("key_length", "value_length"):
        del metadata[f"lfm2.attention.{key}"]
    return Model(metadata, tensors)


def mamba(layers: int = 3, state: int = 1024) -> Model:
    """Nothing but states: the context costs nothing."""
    rank, kernel, inner = 8, 4, 2 * WIDTH
    tensors = token_tensors(WIDTH)
    for index in range(layers):
        block = f"blk.{index}"
        tensors += [
            Tensor(f"{block}.attn_norm.weight", (WIDTH,), "norm"),
            Tensor(f"{block}.ssm_in.weight", (2 * inner, WIDTH)),
            Tensor(f"{block}.ssm_conv1d.weight", (inner, kernel), "norm"),
            Tensor(f"{block}.ssm_conv1d.bias", (inner,), "norm"),
            Tensor(f"{block}.ssm_x.weight", (rank + 2 * state, inner)),
            Tensor(f"{block}.ssm_dt.weight", (inner, rank)),
            Tensor(f"{block}.ssm_dt.bias", (inner,), "norm"),
            Tensor(f"{block}.ssm_a", (inner, state), "norm"),
            Tensor(f"{block}.ssm_d", (inner,), "norm"),
            Tensor(f"{block}.ssm_out.weight", (WIDTH, inner)),
        ]
    extra: dict[str, Value] = {
        "ssm__conv_kernel": kernel, "ssm__inner_size": inner, "ssm__state_size": state,
        "ssm__time_step_rank": rank,
    }  # fmt: skip
    metadata = _metadata("mamba", layers, **extra)
    metadata["mamba.attention.head_count"] = 0
    for key in ("head_count_kv", "key_length", "value_length"):
        del metadata[f"mamba.attention.{key}"]
    return Model(metadata, tensors)


MODELS = {
    "llama": llama, "gemma2": gemma2, "gemma3": gemma3, "qwen3moe": qwen3moe, "glm4moe": glm4moe,
    "deepseek2": deepseek2, "deepseek2_old": deepseek2_old, "deepseek32": deepseek32,
    "glm_dsa": glm_dsa, "qwen3next": qwen3next, "lfm2": lfm2, "mamba": mamba,
}  # fmt: skip


@dataclass(frozen=True)
class FakeTensor:
    name: str
    dims: tuple[int, ...]
    type_name: str
    bytes: int | None
    type: int = 0


@dataclass(frozen=True)
class FakeHeader:
    kv: dict[str, object]
    tensors: list[FakeTensor] | None = field(default_factory=list)

    @property
    def architecture(self) -> str | None:
        name = self.kv.get("general.architecture")
        return name if isinstance(name, str) else None


def header_of(model: Model) -> FakeHeader:
    """The header that the file of a tiny model has."""
    tensors = [
        FakeTensor(t.name, tuple(reversed(t.shape)), "F32" if t.role == "norm" else "F16", t.size)
        for t in model.tensors
    ]
    return FakeHeader({key: kept(value) for key, value in model.metadata.items()}, tensors)


def kept(value: Value) -> object:
    """A value as a reader keeps it: small arrays of numbers with their numbers."""
    if not isinstance(value, list):
        return value
    if value and isinstance(value[0], str):
        return Array("STRING", len(value))
    return Array("INT32", len(value), tuple(int(one) for one in value))
