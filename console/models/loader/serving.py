"""What a loader takes and the server then ends with, or answers nothing: seen with build 11669 of
llama.cpp. A build that is asked for keys and tensors does not come that far."""

from __future__ import annotations

from console.common.text import one_line
from console.models.gguf.chat_template import TEMPLATE
from console.models.gguf.header import Header, pad
from console.models.gguf.header_keys import WITHOUT_TOKENS
from console.models.loader.complaints import TOKENIZER, Complaint

TABLE = "token_embd.weight"
MAPPED = 32
"""Bytes that the address of mapped tensors has to be a multiple of (TENSOR_ALIGNMENT in
ggml/src/ggml-impl.h)."""


def of_start(header: Header) -> list[Complaint]:
    """What the keys tell; it takes no more than the start of a header."""
    return [*_of_zeros(header), *_of_words(header)]


def of_whole(header: Header) -> list[Complaint]:
    """What takes a whole header besides."""
    return [*of_start(header), *_of_template(header)]


def _of_zeros(header: Header) -> list[Complaint]:
    """A model for texts of no tokens, or without blocks."""
    arch = header.architecture
    complaints = []
    if header.integer(f"{arch}.context_length") == 0:
        words = "failed to create llama_context from model"
        complaints.append(
            Complaint(f"{arch}.context_length is 0: {words}, or no request fits in it")
        )
    if header.integer(f"{arch}.block_count") == 0:
        complaints.append(
            Complaint(f"{arch}.block_count is 0: GGML_ASSERT(hparams.n_layer_all > 0)")
        )
    return complaints


def _of_words(header: Header) -> list[Complaint]:
    tokenizer = header.text(TOKENIZER)
    if tokenizer not in WITHOUT_TOKENS:
        return []
    words = f"{TOKENIZER} is '{tokenizer}': the server starts, and the first completion ends it"
    hint = "its requests cannot be texts; for these take a conversion with a vocabulary"
    return [Complaint(words, sure=False, hint=hint)]


def of_alignment(header: Header, *, maps: bool | None = None) -> list[Complaint]:
    """Tensors that lie in the file where no mapped ones may lie. `maps`: whether the loader maps
    the file (None: not known). Of what it maps for the host the token table is always a part: where
    that lies wrong every build ends, elsewhere it depends on which layers stay on the host."""
    if maps is False or header.alignment % MAPPED == 0 or not header.tensors:
        return []
    begin = pad(header.header_bytes, header.alignment)
    sizes = [tensor.bytes for tensor in header.tensors]
    steps = [pad(size, header.alignment) for size in sizes if size is not None]
    split = (header.integer("split.count") or 1) > 1  # each file has a start of its own
    if not split and all(start % MAPPED == 0 for start in (begin, *steps)):
        return []
    first = header.tensors[0].name == TABLE and begin % MAPPED != 0
    sure = bool(maps) and first and not split
    words = (
        f"general.alignment is {header.alignment}: a loader that maps the file "
        f"{'ends' if sure else 'may end'} with GGML_ASSERT(ptr % TENSOR_ALIGNMENT == 0), "
        f"{MAPPED} bytes"
    )
    hint = "load it without mapping it (--no-mmap, --load-mode none), or convert it again"
    return [Complaint(words, sure=sure, hint=hint)]


def _of_template(header: Header) -> list[Complaint]:
    if not header.template_fault:
        return []
    fault = one_line(header.template_fault, 120)
    words = f"{TEMPLATE} cannot be read, and llama-server ends at its start: {fault}"
    hint = "serve it with --chat-template or --chat-template-file, or take another conversion"
    return [Complaint(words, sure=False, hint=hint)]
