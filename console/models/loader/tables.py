"""A header beside what llama.cpp's loader requires of its architecture.

`tables.json` was learned from the loader of a real build (`python -m tests.testbed.loader_shapes`):
for each architecture the keys that it cannot do without, its tensors, and which of the header's
lengths each of their dimensions has to be. Architectures that are not in it are only held against
what the loader does for all of them (`load_hparams` in src/llama-model.cpp).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain

from console.models.gguf.header import Array, Header, Tensor
from console.models.gguf.header_keys import HARMLESS
from console.models.loader.complaints import Complaint
from console.models.loader.lengths import lengths

Shape = tuple[tuple[str, ...], ...] | None
"""For each dimension the names of the lengths that it may be; None: not known."""
DEPENDS = frozenset({"attention.q_lora_rank"})
"""Keys that the loader requires of some models alone (not of DeepSeek-V2-Lite)."""
COMMON = ("context_length", "embedding_length", "block_count")
"""Keys that no architecture does without."""
WHOLE_HEAD = ("llama", "deci", "falcon", "llama-embed")
"""Architectures whose loader wants all of a head to be rotated."""
HARMLESS_HERE = HARMLESS | {
    "attention.sliding_window", "attention.sliding_window_pattern", "expert_feed_forward_length",
    "expert_shared_count", "expert_used_count", "leading_dense_block_count",
    "nextn_predict_layers", "vocab_size",
}  # fmt: skip
"""Keys beside those that were learned which take no tensor out of a block, but put others in."""
TOGETHER = (
    (("attn_q", "attn_k", "attn_v"), "attn_qkv"), (("ffn_gate", "ffn_up"), "ffn_gate_up"),
    (("ffn_gate_exps", "ffn_up_exps"), "ffn_gate_up_exps"),
)  # fmt: skip
"""Matrices that a file may have as one."""
SHARED = "shexp"
"""Shared experts: keys that were not varied say whether they are there, and how wide."""
BESIDE = (".bias", ".scale", ".input_scale")
"""What may stand beside a matrix, and is no other form of it."""
MAX_COMPLAINTS = 3
_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)")


@dataclass(frozen=True, slots=True)
class Required:
    """What the loader requires of one architecture, in a form of it (`dense`, `experts`,
    `latent`)."""

    keys: tuple[str, ...]
    given: frozenset[str]
    model: Mapping[str, Shape]
    blocks: tuple[Mapping[str, Shape], ...]


def complaints(header: Header) -> list[Complaint]:
    """Why the loader refuses a whole header's keys and tensors; the first few. Nothing is said
    where a table does not tell."""
    if not header.architecture:
        return [Complaint("unknown model architecture: '' (general.architecture is not there)")]
    required = _form(header)
    all_complaints = chain(
        _keys(header, required), _contradictions(header),
        () if required is None else _shapes(header, required),
        () if required is None else _missing(header, required),
        _unknown(header),
    )  # fmt: skip
    return [complaint for complaint, _ in zip(all_complaints, range(MAX_COMPLAINTS), strict=False)]


@cache
def _tables() -> Mapping[str, Mapping[str, Required]]:
    text = resources.files(__package__).joinpath("tables.json").read_text("utf-8")
    return {
        arch: {name: _required(form) for name, form in forms.items()}
        for arch, forms in json.loads(text).items()
    }


@cache
def _names() -> frozenset[str]:
    """How tensors of a block are called, without `.weight`: in llama.cpp's build 11669, the gguf
    package, and ik_llama.cpp 8337e4cd."""
    text = resources.files(__package__).joinpath("tensor_names.txt").read_text("utf-8")
    return frozenset(text.split())


def architectures() -> tuple[str, ...]:
    """Those that a table is known of."""
    return tuple(_tables())


def _required(form: Mapping[str, Mapping[str, object]]) -> Required:
    def shapes(part: Mapping[str, Sequence[Sequence[str]] | None]) -> dict[str, Shape]:
        return {
            name: None if dims is None else tuple(map(tuple, dims))
            for name, dims in part.items() if SHARED not in name
        }  # fmt: skip

    blocks = tuple(shapes(block) for block in form["blocks"])  # type: ignore[arg-type]
    model = shapes(form["model"])  # type: ignore[arg-type]
    return Required(tuple(form["keys"]), frozenset(form["given"]), model, blocks)


def _form(header: Header) -> Required | None:
    """The form of the architecture that the file has; None if it was not learned."""
    forms = _tables().get(header.architecture or "", {})
    arch = header.architecture
    if header.integer(f"{arch}.attention.key_length_mla"):
        return forms.get("latent")
    if header.integer(f"{arch}.attention.kv_lora_rank"):
        return None  # as it was converted before latent attention
    return forms.get("experts" if header.integer(f"{arch}.expert_count") else "dense")


def _keys(header: Header, required: Required | None) -> Iterator[Complaint]:
    own = () if required is None else required.keys
    for name in dict.fromkeys((*COMMON, *own)):
        key = f"{header.architecture}.{name}"
        if key not in header.kv:
            # whether any other is required may depend on the values of others
            sure = name in COMMON or name.endswith("epsilon")
            if sure or name not in DEPENDS:
                yield Complaint(f"key not found in model: {key}", sure)


def _contradictions(header: Header) -> Iterator[Complaint]:
    """Keys that belie each other, or what the architecture is."""
    arch = header.architecture
    if not header.integer(f"{arch}.expert_count") and tuple(_tables().get(arch or "", ())) == (
        "experts",
    ):
        yield Complaint(f"{arch}.expert_count is not given, and it was seen with experts", False)
    count = header.integer(f"{arch}.expert_count")
    used = header.kv.get(f"{arch}.expert_used_count")
    if count and not used:
        yield Complaint(f"{arch}.expert_count is {count}, and expert_used_count is not given")
    rotated = header.integer(f"{arch}.rope.dimension_count")
    head = lengths(header).get("key")
    if arch in WHOLE_HEAD and rotated is not None and head and rotated != head:
        yield Complaint(f"invalid n_rot: {rotated}, expected {head}")


def _shapes(header: Header, required: Required) -> Iterator[Complaint]:
    known = lengths(header)
    expected_by_kind: dict[tuple[bool, str, tuple[int, ...]], tuple[int, ...]] = {}
    for tensor in header.tensors or ():
        block = _BLOCK.fullmatch(tensor.name)
        kind = block is not None, block[2] if block else tensor.name, tensor.dims
        if kind not in expected_by_kind:  # blocks of one shape are many
            due = _due(tensor, required)
            expected_by_kind[kind] = _expected(tensor, due, known) if due else ()
        if expected := expected_by_kind[kind]:
            wanted, got = (", ".join(map(str, dims)) for dims in (expected, tensor.dims))
            yield Complaint(f"tensor '{tensor.name}' has wrong shape; expected {wanted}, got {got}")


def _due(tensor: Tensor, required: Required) -> Shape:
    """The shape that a tensor has in the table; None where its blocks differ in it."""
    block = _BLOCK.fullmatch(tensor.name)
    if block is None:
        return required.model.get(tensor.name)
    shapes = [
        required_block[block[2]] for required_block in required.blocks if block[2] in required_block
    ]
    return shapes[0] if shapes and all(shape == shapes[0] for shape in shapes) else None


def _expected(tensor: Tensor, due: Shape, known: Mapping[str, int]) -> tuple[int, ...]:
    """The lengths that a tensor ought to have; () where it has them, or they are not known."""
    dims, lacking = tensor.dims, False
    if due is None or len(dims) < len(due) or any(dim != 1 for dim in dims[len(due) :]):
        return ()
    expected = []
    for size, names in zip(dims, due, strict=False):
        sizes = [known.get(name) for name in names]
        if not names or None in sizes or size in sizes:
            expected.append(size)
            continue
        lacking = True
        expected.append(sizes[0] or 0)
    return tuple(expected) if lacking else ()


def _unknown(header: Header) -> Iterator[Complaint]:
    """The first tensor of a block that no release known here has: a loader that does not use it
    counts one too many."""
    for tensor in header.tensors or ():
        block = _BLOCK.fullmatch(tensor.name)
        if block and not {block[2], block[2].rpartition(".")[0]} & _names():
            yield Complaint(f"wrong number of tensors; nobody here knows {tensor.name}", False)
            return


def _missing(header: Header, required: Required) -> Iterator[Complaint]:
    """Tensors that the loader does not find, where the keys are those of the table."""
    if header.tensors is None or not _alike(header, required):
        return
    here = {tensor.name for tensor in header.tensors}
    for name in required.model:
        if name not in here:
            yield Complaint(f"missing tensor '{name}'")
    blocks = _blocks(header)
    whole = {index for index, names in blocks.items() if _lacking(names, required) == []}
    optional = {name for index in whole for name in blocks[index]}
    for index, names in blocks.items():
        lacking = _lacking(names, required)
        if not lacking or len(required.blocks) > 1:
            continue
        spare = names - set(required.blocks[0]) - optional
        if all(name.endswith(BESIDE) or SHARED in name for name in spare):
            yield Complaint(f"missing tensor 'blk.{index}.{lacking[0]}'")


def _alike(header: Header, required: Required) -> bool:
    """Whether all keys of the architecture are ones that were learned or take no tensor away, and
    none that decides on tensors is given for each layer."""
    prefix = f"{header.architecture}."
    own = {key.removeprefix(prefix): value for key, value in header.kv.items()
           if key.startswith(prefix)}  # fmt: skip
    listed = ("feed_forward_length", "attention.head_count", "attention.head_count_kv")
    return not any(isinstance(own.get(name), Array) for name in listed) and all(
        name in HARMLESS_HERE or name in required.given for name in own
    )


def _blocks(header: Header) -> dict[int, set[str]]:
    """The tensors of every block that runs; those for guessing ahead are not looked at."""
    arch = header.architecture
    spare = header.integer(f"{arch}.nextn_predict_layers") or 0
    layers = (header.integer(f"{arch}.block_count") or 0) - spare
    names_by_block: dict[int, set[str]] = {}
    for tensor in header.tensors or ():
        block = _BLOCK.fullmatch(tensor.name)
        if block and int(block[1]) < layers:
            names_by_block.setdefault(int(block[1]), set()).add(block[2])
    return names_by_block


def _lacking(names: set[str], required: Required) -> list[str]:
    """What a block lacks of the kind of block that it is nearest to."""
    have = names | {
        f"{part}.weight"
        for parts, matrix in TOGETHER
        if f"{matrix}.weight" in names
        for part in parts
    }
    lacking = ([name for name in kind if name not in have] for kind in required.blocks)
    return min(lacking, key=len, default=[])
