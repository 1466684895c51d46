"""A model's header as a file of its own, with a hole where its weights would be."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.models.gguf.header import Array, Header
from console.models.gguf.read import read_header
from console.models.gguf.skeleton import write_skeleton
from tests.testbed.models import tiny_deepseek2, visible_llama


def header_of(path: Path) -> Header:
    return read_header(str(path)).header


@pytest.mark.parametrize("make", [visible_llama, tiny_deepseek2])
def test_it_says_what_the_model_says_and_takes_no_room(tmp_path: Path, make: object) -> None:
    model, bare = tmp_path / "model.gguf", tmp_path / "bare.gguf"
    assert callable(make)
    make(model)
    real = header_of(model)
    size = write_skeleton(real, bare)
    again = header_of(bare)
    assert again.tensors == real.tensors
    ours = {k: v for k, v in again.kv.items() if not k.startswith("tokenizer.")}
    theirs = {
        k: v for k, v in real.kv.items()
        if not k.startswith("tokenizer.") and not (isinstance(v, Array) and v.values is None)
    }  # fmt: skip
    assert ours == theirs
    assert again.text("tokenizer.ggml.model") == "none"
    assert size == bare.stat().st_size == again.file_bytes
    assert model.stat().st_size - 65_536 < size <= model.stat().st_size
    assert bare.stat().st_blocks * 512 < 256 * 1024


def test_the_number_of_tokens_is_said_where_only_their_list_says_it(tmp_path: Path) -> None:
    visible_llama(tmp_path / "model.gguf")
    real = header_of(tmp_path / "model.gguf")
    key = "llama.vocab_size"
    silent = replace(real, kv={name: value for name, value in real.kv.items() if name != key})
    write_skeleton(silent, tmp_path / "bare.gguf")
    assert header_of(tmp_path / "bare.gguf").integer(key) == real.integer(key)


def test_what_a_loader_wants_of_a_tokenizer_without_words_stays(tmp_path: Path) -> None:
    """ "bert model needs to define token type count": no build could be asked about its memory."""
    visible_llama(tmp_path / "model.gguf")
    real = header_of(tmp_path / "model.gguf")
    key = "tokenizer.ggml.token_type_count"
    write_skeleton(replace(real, kv={**real.kv, key: 2}), tmp_path / "bare.gguf")
    assert header_of(tmp_path / "bare.gguf").integer(key) == 2


def test_a_header_that_is_not_known_whole_is_refused(tmp_path: Path) -> None:
    visible_llama(tmp_path / "model.gguf")
    real = header_of(tmp_path / "model.gguf")
    assert real.tensors is not None
    newer = (replace(real.tensors[0], bytes=None, type_name="type 99"), *real.tensors[1:])
    for broken, words in (
        (replace(real, tensors=None), "no tensors"), (replace(real, tensors=newer), "type 99"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            write_skeleton(broken, tmp_path / "bare.gguf")
        assert not (tmp_path / "bare.gguf").exists()
