"""A repository that holds one model in many quantizations, as GGUF: headers of true shapes."""

from collections.abc import Iterator

from console.models.gguf.header import BY_NUMBER
from tests.testbed.gguf_write import Item, Planned
from tests.testbed.hub import File
from tests.testbed.hub_shapes import gguf, qwen_tensors, vocabulary

WORDS, ROWS = 64, 152064
"""Words of a vocabulary, few for speed, and so rows of the token table: a loader takes no other
number. And how many that model really has."""
TYPES = {one.name.upper(): number for number, one in BY_NUMBER.items()}
NAMES = (
    "BF16", "Q8_0", "Q6_K", "Q5_1", "Q5_K_M", "Q5_0", "Q5_K_S", "Q4_1", "Q4_K_M", "Q4_0", "Q4_K_S",
    "IQ4_NL", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "IQ3_M", "IQ3_S", "IQ3_XS", "IQ3_XXS",
    "Q2_K_L", "Q2_K", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "MXFP4",
)  # fmt: skip


def type_of(name: str) -> int:
    """The number of the type that most tensors of a quantization have."""
    for known in (name, name.rpartition("_")[0], f"{name.rpartition('_')[0]}_S"):
        if known in TYPES:
            return TYPES[known]
    raise KeyError(name)


def mixture_tensors(
    kind: int, layers: int = 94, experts: int = 128, words: int = WORDS
) -> Iterator[Planned]:
    """A Qwen3-235B-A22B: all experts of a layer in three tensors."""
    yield Planned("token_embd.weight", (4096, words), kind)
    for n in range(layers):
        for name, dims in (
            ("attn_norm", (4096,)), ("attn_q", (4096, 8192)), ("attn_k", (4096, 512)),
            ("attn_v", (4096, 512)), ("attn_output", (8192, 4096)), ("attn_q_norm", (128,)),
            ("attn_k_norm", (128,)), ("ffn_norm", (4096,)), ("ffn_gate_inp", (4096, experts)),
            ("ffn_gate_exps", (4096, 1536, experts)), ("ffn_up_exps", (4096, 1536, experts)),
            ("ffn_down_exps", (1536, 4096, experts)),
        ):  # fmt: skip
            small = len(dims) == 1 or name == "ffn_gate_inp"
            yield Planned(f"blk.{n}.{name}.weight", dims, 0 if small else kind)
    yield Planned("output_norm.weight", (4096,), 0)
    yield Planned("output.weight", (4096, words), kind)


def mixture_metadata(words: int = WORDS, layers: int = 94) -> dict[str, Item]:
    a = "qwen3moe"
    return {
        "general.architecture": a, "general.name": "Qwen3 235B A22B",
        f"{a}.block_count": layers, f"{a}.context_length": 262144, f"{a}.embedding_length": 4096,
        f"{a}.feed_forward_length": 12288, f"{a}.attention.head_count": 64,
        f"{a}.attention.head_count_kv": 4, f"{a}.attention.key_length": 128,
        f"{a}.attention.value_length": 128, f"{a}.rope.freq_base": 5000000.0,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-6, f"{a}.expert_count": 128,
        f"{a}.expert_used_count": 8, f"{a}.expert_feed_forward_length": 1536,
        **vocabulary(words, max(1, words - 500), "qwen2"),
    }  # fmt: skip


def dense_metadata(words: int = WORDS) -> dict[str, Item]:
    a = "qwen2"
    return {
        "general.architecture": a, "general.name": "Qwen2.5 32B",
        f"{a}.block_count": 64, f"{a}.context_length": 131072, f"{a}.embedding_length": 5120,
        f"{a}.feed_forward_length": 27648, f"{a}.attention.head_count": 40,
        f"{a}.attention.head_count_kv": 8, f"{a}.rope.freq_base": 1000000.0,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5, **vocabulary(words, words, "qwen2"),
    }  # fmt: skip


def dense_tensors(kind: int, words: int = WORDS, layers: int = 64) -> Iterator[Planned]:
    for one in qwen_tensors(layers):
        dims = tuple(words if size == ROWS else size for size in one.dims)
        yield Planned(one.name, dims, one.type and kind)


def repository(model: str, names: tuple[str, ...] = NAMES, words: int = WORDS) -> dict[str, File]:
    """`mixture` or `dense` in these quantizations; `words`: of the vocabulary. Some are split into
    files of a directory."""
    made: dict[str, File] = {}
    for name in names:
        kind = type_of(name)
        if model == "mixture":
            metadata, tensors = mixture_metadata(words), list(mixture_tensors(kind, words=words))
        else:
            metadata, tensors = dense_metadata(words), list(dense_tensors(kind, words))
        parts = gguf(metadata, tensors, 4 if model == "mixture" else 1)
        for n, file in enumerate(parts, 1):
            stem = f"{name}/model-{name}-{n:05}-of-{len(parts):05}"
            made[f"{stem}.gguf" if len(parts) > 1 else f"model-{name}.gguf"] = file
    return made
