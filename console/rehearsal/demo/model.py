"""Tiny GGUF models that a real llama.cpp loads and serves, and that speak, for the demonstration.

The files are written with the standard library alone: the GGUF 3 layout is a header, a
metadata table, a tensor table and the aligned tensor data. Every byte follows from the
arguments, so an existing file is verified by its length and its header, without a sidecar.

The weights are noise, yet the models speak English. The first channels of the residual stream
are reserved: no block writes to them, so they carry the current token unchanged up to the output
rows. A piece of the passage (`passage`) has a code there, and the row of the piece that follows
scores that code, so an answer walks through the passage to its token limit and begins again after
its end. Any other token, which is any end of a prompt, leads to the beginnings of the sentences;
which of them it is follows from the noise, so prompts and models get different answers. No answer
ends early unless the model `ends`.

The demonstration models differ in depth alone: a token costs in proportion to the blocks.
"""

from __future__ import annotations

import math
import os
import random
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from console.rehearsal.demo import passage

Progress = Callable[[str, int, int], None]
Value = str | bool | int | float | list[str] | list[int]
Role = Literal["norm", "weight", "residual", "embedding", "output", "ending"]

RECIPE = "2"  # part of the header: raise it when the same header gets other weights
_POOL = 65_537
_ALIGNMENT, _F32, _F16 = 32, 0, 1
_STALE_AFTER_S = 60.0
_SHARPNESS = 4.0
ATTENTION_SHARE, _FEED_FORWARD_SHARE = 3.0, 1.0

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"
MERGES = ["t h", "Ġ a"]
SPACE = "Ġ"  # how GPT-2's tokenizer writes it
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5

FLAGS = 3
"""Reserved channels before the code of a piece: one is the same for every token, one is set by
tokens outside of the passage, one by the last piece of a sentence."""
_LOUDNESS = 2.0
"""What a token puts into a channel of its code, where noise has a deviation of 1."""
_QUIETER = 6.0
"""How much quieter a flag is than a code: what is in a prompt has to be heard beside its flags."""
_SURE = 40.0
"""Nats by which the next piece is ahead of those whose code has nothing in common with it."""
_SPOKEN, _BARRED, _SPARE = 30.0, -10.0, -60.0
"""Weights of the constant channel in the rows of pieces, of other tokens and of spare ones. What a
piece scores is never below zero, as a penalty for repetition turns round there."""
_CHOICE = 1.5
"""Deviation of an output row's noise, which chooses the sentence that an answer begins with."""


@dataclass(frozen=True)
class Tensor:
    """One tensor to write.

    ``shape`` is row-major, slowest axis first, so a matrix that maps ``n`` inputs to ``m``
    outputs is ``(m, n)``. ``role`` decides type and content: ``norm`` is ones in F32, the rest
    is F16 noise of deviation ``gain`` / sqrt(inputs). ``residual`` marks a matrix that writes
    to the residual stream, ``embedding`` the token table (its deviation is ``gain``) and
    ``output`` the matrix that scores the tokens, ``ending`` the same of a model that ends its
    answer after each sentence.
    """

    name: str
    shape: tuple[int, ...]
    role: Role = "weight"
    gain: float = 1.0

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes of the data, without padding."""
        return self.count * (4 if self.role == "norm" else 2)


@dataclass(frozen=True)
class ModelSpec:
    """A ``llama`` model: ``context`` in tokens, the other sizes in elements.

    ``spare`` tokens never occur in answers. They enlarge the output matrix, which costs time once
    per answered token but only once per prompt, so that prompts are cheap against answers, as on a
    card. A model that ``ends`` says one sentence, as real models do, unless a request ignores that.
    """

    name: str
    blocks: int
    seed: int
    width: int = 128
    heads: int = 4
    feed_forward: int = 384
    context: int = 4096
    spare: int = 0
    ends: bool = False


MODELS: dict[str, ModelSpec] = {
    "baseline": ModelSpec("baseline", blocks=136, seed=11),
    "fast": ModelSpec("fast", blocks=20, seed=12),
    "slow": ModelSpec("slow", blocks=260, seed=13),
}
"""The models of the demonstration: the baseline, one of many times and one of half its speed."""


def byte_symbols() -> list[str]:
    """The 256 one-character symbols that GPT-2's byte-level tokenizer gives the bytes."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(byte if byte in plain else next(spare)) for byte in range(256)]


def vocabulary(spare: int = 0) -> list[str]:
    """Token texts in order of their ids: bytes, merged pairs, BOS and EOS, the pieces of the
    passage, then spare ones."""
    spoken = [*byte_symbols(), *(pair.replace(" ", "") for pair in MERGES), BOS, EOS]
    spoken += [piece.replace(" ", SPACE) for piece in passage.words()]
    return spoken + [f"<|spare {number}|>" for number in range(spare)]


def tokenizer_metadata(spare: int = 0) -> dict[str, Value]:
    """The ``tokenizer.*`` keys of a byte-level GPT-2 tokenizer with a chat template."""
    tokens = vocabulary(spare)
    kinds = [_CONTROL if token in (BOS, EOS) else _NORMAL for token in vocabulary()]
    kinds += [_UNUSED] * spare
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": tokens.index(BOS),
        "tokenizer.ggml.eos_token_id": tokens.index(EOS),
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def reserved(width: int) -> int:
    """Channels of a residual stream that no block writes to."""
    return FLAGS + width // 2


def _token_rows(width: int) -> Iterator[list[float]]:
    """The reserved channels in the token table, of each token that is not spare."""
    channels = width // 2
    flag = _LOUDNESS * math.sqrt(channels) / _QUIETER
    codes = dict(zip(_pieces(), passage.codes(channels), strict=True))
    last = {row[-1].replace(" ", SPACE) for row in passage.pieces()}
    for token in vocabulary():
        code = codes.get(token)
        if code is None:
            yield [_LOUDNESS, flag, 0.0, *[0.0] * channels]
        else:
            ended = flag if token in last else 0.0
            yield [_LOUDNESS, 0.0, ended, *(_LOUDNESS * sign for sign in code)]


def _output_rows(width: int, *, ends: bool) -> Iterator[list[float]]:
    """The same channels in the output matrix: a piece scores the code of the one before it."""
    channels = width // 2
    weight, flag = _SURE / channels, _QUIETER * _SURE / math.sqrt(channels)
    codes = dict(zip(passage.words(), passage.codes(channels), strict=True))
    follows = dict(zip(_pieces(), passage.words(), strict=True))
    before, openings = passage.before(), passage.openings()
    for token in vocabulary():
        piece = follows.get(token)
        if piece is not None:
            opens = flag if piece in openings else 0.0
            yield [_SPOKEN, opens, 0.0, *(weight * sign for sign in codes[before[piece]])]
        elif token == EOS and ends:
            yield [_SPOKEN, 0.0, 2 * flag, *[0.0] * channels]
        else:
            yield [_BARRED, 0.0, 0.0, *[0.0] * channels]


def _pieces() -> list[str]:
    """The pieces of the passage as the vocabulary writes them."""
    return [piece.replace(" ", SPACE) for piece in passage.words()]


class _Noise:
    """Deterministic F16 noise of any length, cut from one short pool of normal numbers."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = [self._random.gauss(0.0, 1.0) for _ in range(_POOL)]
        self._scaled: dict[float, bytes] = {}

    def cut(self, count: int, deviation: float) -> bytearray:
        """``count`` F16 numbers (2 bytes each) of standard deviation ``deviation``."""
        if deviation not in self._scaled:
            numbers = (number * deviation for number in self._numbers)
            self._scaled[deviation] = struct.pack(f"<{_POOL}e", *numbers)
        pool = self._scaled[deviation]
        start = 2 * self._random.randrange(_POOL)
        data = bytearray(pool[start : start + 2 * count])
        whole, part = divmod(2 * count - len(data), len(pool))
        return data + pool * whole + pool[:part]


def _content(tensor: Tensor, noise: _Noise) -> bytes | bytearray:
    """Little-endian data of one tensor: ``tensor.size`` bytes."""
    if tensor.role == "norm":
        return struct.pack("<f", 1.0) * tensor.count
    inputs = tensor.shape[-1]
    deviation = tensor.gain / (1.0 if tensor.role == "embedding" else math.sqrt(inputs))
    data = noise.cut(tensor.count, deviation)
    if tensor.role == "residual":
        silent = bytes(2 * reserved(tensor.shape[-2]) * inputs)
        for start in range(0, tensor.size, 2 * tensor.shape[-2] * inputs):
            data[start : start + len(silent)] = silent
    elif tensor.role != "weight":
        _reserve(data, tensor)
    return data


def _reserve(data: bytearray, tensor: Tensor) -> None:
    """Write the reserved channels of every token over the noise of a table of tokens."""
    tokens, width = tensor.shape
    if tensor.role == "embedding":
        rows, spare = _token_rows(width), [_LOUDNESS, *[0.0] * (reserved(width) - 1)]
    else:
        rows = _output_rows(width, ends=tensor.role == "ending")
        spare = [_SPARE, *[0.0] * (reserved(width) - 1)]
    packed = [struct.pack(f"<{reserved(width)}e", *row) for row in rows]
    packed += [struct.pack(f"<{reserved(width)}e", *spare)] * (tokens - len(packed))
    for number, row in enumerate(packed):
        data[2 * number * width : 2 * number * width + len(row)] = row


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    """Type tag and value of one metadata entry (u32, f32, bool, string, arrays of i32, string)."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    items = [_text(item) if isinstance(item, str) else struct.pack("<i", item) for item in value]
    kind = 8 if value and isinstance(value[0], str) else 5
    return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)


def _padding(length: int) -> bytes:
    return bytes(-length % _ALIGNMENT)


def _layout(metadata: Mapping[str, Value], tensors: Sequence[Tensor]) -> tuple[bytes, int]:
    """Everything before the tensor data of a GGUF 3 file, padded to 32 bytes; the bytes of all."""
    parts = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        rank, kind = len(tensor.shape), _F32 if tensor.role == "norm" else _F16
        sides = struct.pack(f"<I{rank}Q", rank, *reversed(tensor.shape))
        parts.append(_text(tensor.name) + sides + struct.pack("<IQ", kind, offset))
        offset += tensor.size + len(_padding(tensor.size))
    header = b"".join(parts)
    header += _padding(len(header))
    return header, len(header) + offset


def write_gguf(
    path: Path,
    metadata: Mapping[str, Value],
    tensors: Sequence[Tensor],
    *,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Write a GGUF file and return its bytes.

    The file appears under ``path`` complete or not at all: it is written beside it, synced
    and renamed. ``progress`` gets (bytes written, bytes in total). Memory stays at a few
    times the largest tensor. Raises ``OSError`` as writing does; no partial file is left.
    """
    header, total = _layout(metadata, tensors)
    noise = _Noise(seed)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with unfinished.open("wb") as file:
            written = file.write(header)
            for tensor in tensors:
                written += file.write(bytes(_content(tensor, noise)) + _padding(tensor.size))
                if progress is not None:
                    progress(written, total)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    return written


def _key_value_heads(heads: int) -> int:
    """Key-value heads of a model with ``heads`` heads: a quarter of them if that divides."""
    return heads // 4 if heads % 4 == 0 else heads


def _llama_metadata(spec: ModelSpec) -> dict[str, Value]:
    """Metadata of a ``llama`` model. Raises ``ValueError`` if its heads do not fit its width."""
    if spec.width % (2 * spec.heads):
        raise ValueError(f"width {spec.width} is not a multiple of twice {spec.heads} heads")
    return {
        "general.architecture": "llama",
        "general.name": spec.name,
        "general.version": RECIPE,
        "general.file_type": 1,
        "llama.block_count": spec.blocks,
        "llama.context_length": spec.context,
        "llama.embedding_length": spec.width,
        "llama.feed_forward_length": spec.feed_forward,
        "llama.attention.head_count": spec.heads,
        "llama.attention.head_count_kv": _key_value_heads(spec.heads),
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": spec.width // spec.heads,
        "llama.rope.freq_base": 10_000.0,
        "llama.vocab_size": len(vocabulary()) + spec.spare,
        **tokenizer_metadata(spec.spare),
    }


def token_tensors(width: int, spare: int = 0, *, ends: bool = False) -> list[Tensor]:
    """The token table, the output norm and the output matrix of any of these models."""
    tokens = len(vocabulary()) + spare
    return [
        Tensor("token_embd.weight", (tokens, width), "embedding"),
        Tensor("output_norm.weight", (width,), "norm"),
        Tensor("output.weight", (tokens, width), "ending" if ends else "output", _CHOICE),
    ]


def feed_forward_tensors(block: str, width: int, hidden: int, blocks: int) -> list[Tensor]:
    """The gated feed-forward part, ``hidden`` wide, of the block with the name ``block``."""
    share = _FEED_FORWARD_SHARE / math.sqrt(blocks)
    return [
        Tensor(f"{block}.ffn_norm.weight", (width,), "norm"),
        Tensor(f"{block}.ffn_gate.weight", (hidden, width)),
        Tensor(f"{block}.ffn_up.weight", (hidden, width)),
        Tensor(f"{block}.ffn_down.weight", (width, hidden), "residual", share),
    ]


def _llama_tensors(spec: ModelSpec) -> list[Tensor]:
    width = spec.width
    narrow = width // spec.heads * _key_value_heads(spec.heads)
    share = ATTENTION_SHARE / math.sqrt(spec.blocks)
    tensors = token_tensors(width, spec.spare, ends=spec.ends)
    for index in range(spec.blocks):
        block = f"blk.{index}"
        tensors += [
            Tensor(f"{block}.attn_norm.weight", (width,), "norm"),
            Tensor(f"{block}.attn_q.weight", (width, width), gain=_SHARPNESS),
            Tensor(f"{block}.attn_k.weight", (narrow, width), gain=_SHARPNESS),
            Tensor(f"{block}.attn_v.weight", (narrow, width)),
            Tensor(f"{block}.attn_output.weight", (width, width), "residual", share),
            *feed_forward_tensors(block, width, spec.feed_forward, spec.blocks),
        ]
    return tensors


def write_llama(
    path: Path, spec: ModelSpec, progress: Callable[[int, int], None] | None = None
) -> int:
    """Write a model that llama.cpp loads and serves; returns its bytes.

    Weights are F16, norms F32. The same arguments give the same file. Raises ``ValueError`` for
    a ``width`` that is not a multiple of ``2 * heads`` and ``OSError`` as writing does.
    """
    metadata, tensors = _llama_metadata(spec), _llama_tensors(spec)
    return write_gguf(path, metadata, tensors, seed=spec.seed, progress=progress)


def _is_complete(path: Path, spec: ModelSpec) -> bool:
    """Whether ``path`` has the length and, byte for byte, the header of the model ``spec``."""
    header, total = _layout(_llama_metadata(spec), _llama_tensors(spec))
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return size == total and file.read(len(header)) == header
    except FileNotFoundError:
        return False


def _remove_stale(directory: Path) -> None:
    """Remove partial files of killed writers: those that nothing has written to lately."""
    for left in directory.glob(".*.gguf.*.partial"):
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > _STALE_AFTER_S:
                left.unlink()


def ensure_models(directory: Path, progress: Progress | None = None) -> dict[str, Path]:
    """Paths of all :data:`MODELS` by name, after writing the ones that are missing or wrong.

    ``directory`` is created if need be and takes about 150 MB. ``progress`` gets (name, bytes
    written, bytes of that model) as a file grows, nothing for a file that is already there.
    Raises ``OSError`` if the directory cannot be written or is full.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _remove_stale(directory)
    paths = {name: directory / f"{name}.gguf" for name in MODELS}
    for name, spec in MODELS.items():
        if not _is_complete(paths[name], spec):
            report = partial(progress, name) if progress is not None else None
            write_llama(paths[name], spec, report)
    return paths
