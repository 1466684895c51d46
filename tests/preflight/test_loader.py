"""What a loader refuses in a header is told before the download: in its words where it is sure, as
not known where only the build can tell, and nothing of a file that it takes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from console.checks.preflight import Finding, Level, header, worst
from console.checks.preflight.architecture import vocabulary, whole_header
from console.checks.preflight.architecture.check import check
from console.checks.preflight.architecture.names import Presence, Scan
from console.checks.preflight.architecture.on_host import HostProgram
from console.models.gguf.byte_source import GgufError
from console.models.gguf.header import ARCHITECTURE, Header, pad
from console.models.gguf.header import Tensor as header_tensor
from console.models.gguf.read import read_header
from console.models.loader import likeness
from console.models.loader.complaints import PRE, TOKENIZER
from console.models.loader.tables import (
    COMMON,
    DEPENDS,
    _form,
    _keys,
    architectures,
    complaints,
)
from console.rehearsal.demo.model import Tensor, Value
from tests.preflight.test_tensor_types import Build
from tests.sizing import log_models, tiny
from tests.sizing.known import KNOWN, Sketch
from tests.sizing.loading import logged
from tests.testbed.cache import Unavailable
from tests.testbed.fit_params import ensure
from tests.testbed.plugin import lacking

UNASKED = Finding(Level.OK, "nothing", "")
Tensors = Callable[[list[Tensor]], list[Tensor]]


def without(*parts: str) -> Tensors:
    return lambda tensors: [one for one in tensors if not any(part in one.name for part in parts)]


def reshaped(part: str, shape: tuple[int, ...]) -> Tensors:
    return lambda tensors: [
        Tensor(one.name, shape, one.role) if part in one.name else one for one in tensors
    ]


def written(
    folder: Path, make: Callable[[], tiny.Model], keys: dict[str, Value | None],
    change: Tensors | None = None,
) -> Path:  # fmt: skip
    """A tiny model with other keys (None: without) and tensors."""
    model = make()
    metadata = {**model.metadata, **keys}
    kept = {key: value for key, value in metadata.items() if value is not None}
    tensors = change(list(model.tensors)) if change else model.tensors
    return tiny.Model(kept, tensors).write(folder / "model.gguf")


REFUSED: Sequence[tuple[Callable[[], tiny.Model], dict[str, Value | None], Tensors | None, str]] = (
    (tiny.llama, {"llama.context_length": None}, None, "not found in model: llama.context_length"),
    (tiny.llama, {"llama.attention.layer_norm_rms_epsilon": None}, None, "layer_norm_rms_epsilon"),
    (tiny.llama, {"llama.feed_forward_length": None}, None, "expected 64, 0, got 64, 128"),
    (tiny.llama, {"llama.feed_forward_length": 256}, None, "expected 64, 256, got 64, 128"),
    (tiny.llama, {"llama.embedding_length": 128}, None, "'token_embd.weight' has wrong shape"),
    (tiny.llama, {"llama.attention.head_count": 3}, None, "'blk.0.attn_q.weight' has wrong shape"),
    (tiny.llama, {"llama.attention.head_count_kv": 3}, None, "expected 64, 96, got 64, 64"),
    (tiny.llama, {"llama.rope.dimension_count": 33}, None, "invalid n_rot: 33, expected 32"),
    (tiny.llama, {"llama.expert_count": 4}, None, "expert_used_count is not given"),
    (tiny.llama, {"tokenizer.ggml.model": None}, None, "not found in model: tokenizer.ggml.model"),
    (tiny.llama, {"tokenizer.ggml.tokens": None}, None, "cannot find tokenizer vocab"),
    (tiny.llama, {"tokenizer.ggml.merges": None}, None, "cannot find tokenizer merges"),
    (tiny.llama, {"tokenizer.ggml.token_type": [1] * 5}, None, "for toktypes (5 < 511)"),
    (tiny.llama, {"tokenizer.ggml.tokens": ["a", "b"], "tokenizer.ggml.token_type": [1, 1]}, None,
     "expected 64, 2, got 64, 511"),
    (tiny.llama, {}, without("blk.1.attn_q."), "missing tensor 'blk.1.attn_q.weight'"),
    (tiny.llama, {}, without("ffn_down"), "missing tensor 'blk.0.ffn_down.weight'"),
    (tiny.llama, {}, without("output_norm"), "missing tensor 'output_norm.weight'"),
    (tiny.llama, {}, without("token_embd"), "missing tensor 'token_embd.weight'"),
    (tiny.llama, {}, reshaped("blk.1.attn_v.", (32, 64)), "expected 64, 64, got 64, 32"),
    (tiny.gemma2, {}, without("blk.3.post_ffw_norm"), "tensor 'blk.3.post_ffw_norm.weight'"),
    (tiny.gemma3, {}, without("attn_q_norm"), "missing tensor 'blk.0.attn_q_norm.weight'"),
    (tiny.qwen3moe, {"qwen3moe.expert_count": 8}, None, "expected 64, 8, got 64, 4"),
    (tiny.qwen3moe, {"qwen3moe.expert_feed_forward_length": 32}, None, "expected 64, 32, 4"),
    (tiny.qwen3moe, {}, without("blk.2.ffn_gate_inp"), "tensor 'blk.2.ffn_gate_inp.weight'"),
    (tiny.deepseek32, {}, without("blk.1.indexer.proj"), "tensor 'blk.1.indexer.proj.weight'"),
)  # fmt: skip
DOUBTED: Sequence[tuple[dict[str, Value | None], str]] = (
    ({"tokenizer.ggml.pre": "zorgtok"}, "unknown pre-tokenizer type: 'zorgtok'"),
    ({"tokenizer.ggml.model": "zorg"}, "unknown tokenizer: 'zorg'"),
    ({"llama.rope.scaling.type": "su"}, "'su', which is none of its rope scalings"),
)
TAKEN: Sequence[tuple[dict[str, Value | None], Tensors | None]] = (
    ({}, None),
    ({"tokenizer.ggml.pre": None}, None),
    ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "zorg"}, None),
    ({"tokenizer.ggml.pre": "kimi-k2", "tokenizer.ggml.merges": None}, None),
    ({"tokenizer.chat_template": "{% for a in messages %}{{ '}}' }}{% endfor %}"}, None),
    ({"llama.vocab_size": 99999}, None),
    ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, None),
    ({"llama.feed_forward_length": [128, 128, 128]}, None),
    ({}, lambda tensors: [one for one in tensors if not one.name.startswith("output.")]),
)


ENDED: Sequence[tuple[dict[str, Value | None], Level, str]] = (
    ({"llama.context_length": 0}, Level.FAIL, "llama.context_length is 0"),
    ({"llama.block_count": 0}, Level.FAIL, "llama.block_count is 0"),
    ({"tokenizer.ggml.model": "none"}, Level.UNKNOWN, "the first completion ends it"),
    ({"tokenizer.chat_template": "{% for x in %}{{"}, Level.UNKNOWN, "for names no list"),
    ({"tokenizer.chat_template": "{{ bos }}{% if a %}b"}, Level.UNKNOWN, "if does not end"),
)  # fmt: skip
"""What a build takes as far as it is asked, and its server ends with or answers nothing."""


def in_16_bits(part: str) -> Tensors:
    return lambda tensors: [
        Tensor(one.name, one.shape) if part in one.name else one for one in tensors
    ]


def biased(tensors: list[Tensor]) -> list[Tensor]:
    return [*tensors, *(Tensor(f"blk.{index}.attn_q.bias", (128,)) for index in range(3))]


ABORTS: Sequence[tuple[Callable[[], tiny.Model], Tensors, str]] = (
    (tiny.llama, in_16_bits("blk.1.attn_norm"), "blk.1.attn_norm.weight is F16"),
    (tiny.llama, in_16_bits("output_norm"), "output_norm.weight is F16"),
    (tiny.llama, biased, "blk.0.attn_q.bias is F16"),
    (tiny.gemma3, in_16_bits("attn_q_norm"), "attn_q_norm.weight is F16"),
    (tiny.mamba, in_16_bits("ssm_a"), "blk.0.ssm_a is F16"),
    (tiny.mamba, in_16_bits("ssm_conv1d.weight"), "ssm_conv1d.weight is F16"),
    (tiny.qwen3next, in_16_bits("ssm_dt.bias"), "ssm_dt.bias is F16"),
)
"""A loader takes these, and the server aborts at its first batch on the CPU, as b11669 did."""
FAULTS: Sequence[tuple[Callable[[], tiny.Model], dict[str, Value | None], Tensors | None, str]] = (
    (tiny.qwen3next, {"qwen3next.ssm.inner_size": 64}, None, "the keys say 64"),
    (tiny.qwen3next, {"qwen3next.ssm.conv_kernel": 3}, None, "has 4 in dimension 0"),
    (tiny.qwen3next, {}, without("blk.1.ssm_a"), "missing tensor 'blk.1.ssm_a'"),
    (tiny.mamba, {"mamba.ssm.inner_size": 64}, None, "the keys say 64"),
    (tiny.mamba, {"mamba.ssm.time_step_rank": 9}, None, "in dimension 0, and the keys say 9"),
    (tiny.mamba, {}, without("blk.2.ssm_dt.bias"), "missing tensor 'blk.2.ssm_dt.bias'"),
    (tiny.lfm2, {"lfm2.shortconv.l_cache": 4}, None, "has 3 in dimension 0"),
    (tiny.lfm2, {}, reshaped("blk.0.shortconv.in_proj", (192, 32)), "dimension 0"),
    (tiny.deepseek2_old, {"deepseek2.attention.kv_lora_rank": 48}, None, "and the keys say"),
    (tiny.deepseek2, {"deepseek2.attention.kv_lora_rank": 48}, None, "and the keys say"),
)
"""Of states and latent attention, which were GO without a build to ask."""


@pytest.mark.parametrize(("make", "change", "words"), ABORTS)
def test_norms_and_biases_that_are_not_in_32_bits_are_doubted(
    tmp_path: Path, make: Callable[[], tiny.Model], change: Tensors, words: str
) -> None:
    found = header.unasked(read_header(written(tmp_path, make, {}, change)).header)
    assert worst(found) is Level.UNKNOWN
    assert any(words in one.words for one in found)


@pytest.mark.parametrize(("make", "keys", "change", "words"), FAULTS)
def test_faults_of_states_and_latent_attention_are_no_go_or_doubted(
    tmp_path: Path, make: Callable[[], tiny.Model], keys: dict[str, Value | None],
    change: Tensors | None, words: str,
) -> None:  # fmt: skip
    head = read_header(written(tmp_path, make, keys, change)).header
    assert worst(header.unasked(head)) in (Level.UNKNOWN, Level.FAIL)
    assert any(words in one.words for one in likeness.complaints(head))


def test_a_block_of_an_unknown_architecture_is_held_against_its_like(tmp_path: Path) -> None:
    def told(change: Tensors | None, layers: int = 6) -> list[str]:
        def unheard() -> tiny.Model:
            model = tiny.llama(layers)
            keys = {key.replace("llama.", "zorg."): v for key, v in model.metadata.items()}
            return tiny.Model({**keys, "general.architecture": "zorg"}, model.tensors)

        head = read_header(written(tmp_path, unheard, {}, change)).header
        return [one.words for one in likeness.complaints(head)]

    assert told(None) == []
    assert "blk.3.ffn_up.weight" in told(without("blk.3.ffn_up."))[0]
    assert "blk.2.attn_v.weight" in told(reshaped("blk.2.attn_v.", (32, 64)))[0]


@pytest.fixture
def server() -> HostProgram:
    try:
        return HostProgram((ensure("llama-server"),))
    except Unavailable as error:
        lacking(error.reason)


@pytest.mark.parametrize(("make", "keys", "change", "words"), REFUSED)
def test_a_contradiction_is_told_in_the_loaders_words(
    tmp_path: Path, make: Callable[[], tiny.Model], keys: dict[str, Value | None],
    change: Tensors | None, words: str,
) -> None:  # fmt: skip
    (finding,) = header.unasked(read_header(written(tmp_path, make, keys, change)).header)
    assert finding.level is Level.FAIL
    assert words in finding.words


@pytest.mark.parametrize(("keys", "words"), DOUBTED)
def test_a_name_that_no_release_has_is_not_known(
    tmp_path: Path, keys: dict[str, Value | None], words: str
) -> None:
    path = written(tmp_path, tiny.llama, keys)
    (finding,) = header.unasked(read_header(path).header)
    assert (finding.level, words in finding.words) == (Level.UNKNOWN, True)
    answer = check(str(path), None).finding()
    assert answer is not None
    assert (answer.level, words in answer.words) == (Level.UNKNOWN, True)


@pytest.mark.parametrize(("keys", "change"), TAKEN)
def test_nothing_is_said_of_what_a_loader_takes(
    tmp_path: Path, keys: dict[str, Value | None], change: Tensors | None
) -> None:
    assert header.unasked(read_header(written(tmp_path, tiny.llama, keys, change)).header) == []


@pytest.mark.parametrize("name", tiny.MODELS)
def test_nothing_is_said_of_models_that_a_real_loader_serves(tmp_path: Path, name: str) -> None:
    assert header.unasked(read_header(written(tmp_path, tiny.MODELS[name], {})).header) == []


@pytest.mark.parametrize("name", KNOWN)
def test_nothing_is_said_of_well_known_models(name: str) -> None:
    head = KNOWN[name]()
    assert [*complaints(head), *likeness.complaints(head), *likeness.of_types(head)] == []


APART = "GLM-4-32B"
"""Its sketch has two matrices that its files have as one."""


@pytest.mark.parametrize("name", [one for one in log_models.SHAPES if APART not in one])
def test_nothing_is_said_of_models_of_public_logs(name: str) -> None:
    assert complaints(log_models.SHAPES[name]()) == []


def test_tables_are_known_of_many_architectures() -> None:
    assert len(architectures()) >= 77
    assert {"bert", "nomic-bert", "nomic-bert-moe", "qwen35"} <= set(architectures())


def embedder(arch: str, **keys: int) -> Header:
    """An embedding model as the converter writes it: bge-small, nomic-embed-text."""
    width, forward = 384, 1536
    sketch = Sketch(arch, 4, width, 30522, **{
        "context_length": 512, "feed_forward_length": forward, "attention__head_count": 12,
        "attention__causal": 0, "pooling_type": 1, **keys,
    })  # fmt: skip
    del sketch.tensors[1]
    sketch.add("token_types.weight", "F32", width, 2)
    if arch == "bert":
        sketch.add("position_embd.weight", "F32", width, 512)
    sketch.add("token_embd_norm.weight", "F32", width)
    sketch.add("token_embd_norm.bias", "F32", width)
    for index in range(4):
        parts: dict[str, Sequence[int] | int] = {"attn_qkv": (width, 3 * width)}
        if arch == "bert":
            parts = {f"attn_{one}": (width, width) for one in "qkv"}
            parts |= {f"attn_{one}__bias": width for one in "qkv"}
        else:
            parts["ffn_gate"] = (width, forward)
        sketch.block(
            index, attn_output=(width, width), attn_output_norm=width, attn_output_norm__bias=width,
            ffn_up=(width, forward), ffn_down=(forward, width), layer_output_norm=width,
            layer_output_norm__bias=width, **parts,
        )  # fmt: skip
    return sketch.header(tied=True)


@pytest.mark.parametrize(
    ("arch", "keys", "lacking", "words"),
    [
        ("bert", {}, "", ""),
        ("bert", {"context_length": 2048}, "", "'position_embd.weight' has wrong shape; expected "
         "384, 2048, got 384, 512"),
        ("bert", {"feed_forward_length": 1024}, "", "expected 384, 1024, got 384, 1536"),
        ("bert", {}, "position_embd", "missing tensor 'position_embd.weight'"),
        ("bert", {}, "blk.2.layer_output_norm.bias", "tensor 'blk.2.layer_output_norm.bias'"),
        ("nomic-bert", {"context_length": 2048}, "", ""),
        ("nomic-bert", {}, "blk.1.ffn_gate", "missing tensor 'blk.1.ffn_gate.weight'"),
    ],
)  # fmt: skip
def test_embedding_models_are_held_against_their_tables(
    arch: str, keys: dict[str, int], lacking: str, words: str
) -> None:
    head = embedder(arch, **keys)
    kept = [one for one in head.tensors or () if not lacking or not one.name.startswith(lacking)]
    told = complaints(replace(head, tensors=tuple(kept)))
    assert words in told[0].words if words else told == []


def named(tokenizer: str, pre: str) -> Header:
    kv = {"general.architecture": "llama", TOKENIZER: tokenizer, PRE: pre}
    return Header(3, "little", 32, 0, kv, (), 0)


@pytest.mark.parametrize(
    ("lines", "level"),
    [
        ("error loading model vocabulary: unknown pre-tokenizer type: 'new'", Level.FAIL),
        ("error loading model vocabulary: cannot find tokenizer vocab in model file", Level.OK),
        ("cannot open shared object file", Level.UNKNOWN),
    ],
)
def test_a_build_is_asked_for_the_names_of_a_vocabulary(lines: str, level: Level) -> None:
    class Loader(Build):
        def load(self, *words: object, **more: object) -> Sequence[str]:
            return [lines]

    (finding,) = vocabulary.findings(Loader(), named("gpt2", "new"), sure=True)
    assert finding.level is level
    assert vocabulary.findings(Loader(), named("gpt2", "qwen2"), sure=True) == []
    (doubt,) = vocabulary.findings(Loader(), named("gpt2", "new"), sure=False)
    assert doubt.level is (Level.OK if level is Level.OK else Level.UNKNOWN)


@pytest.mark.parametrize(
    ("lacking_too", "level"), [((), Level.FAIL), (("smaug-bpe",), Level.UNKNOWN)]
)
def test_an_absent_name_counts_only_where_others_like_it_are_held(
    lacking_too: tuple[str, ...], level: Level
) -> None:
    class Library(Build):
        def scan(self, name: str, mark: bytes = b"") -> Scan | None:
            absent = name in ("new", *lacking_too)
            return Scan("libllama.so", Presence.ABSENT if absent else Presence.WHOLE)

    verdict = vocabulary.verdict_on(named("gpt2", "new"), Library(trouble="exec format error"))
    assert verdict is not None
    assert verdict.finding().level is level


@pytest.mark.parametrize(("make", "keys", "change", "words"), REFUSED)
def test_a_real_build_refuses_the_same(
    tmp_path: Path, server: HostProgram, make: Callable[[], tiny.Model],
    keys: dict[str, Value | None], change: Tensors | None, words: str,
) -> None:  # fmt: skip
    head = read_header(written(tmp_path, make, keys, change)).header
    assert worst(whole_header.findings(server, head)) is Level.FAIL


@pytest.mark.parametrize(("keys", "words"), DOUBTED)
def test_a_real_build_settles_what_is_not_known(
    tmp_path: Path, server: HostProgram, keys: dict[str, Value | None], words: str
) -> None:
    head = read_header(written(tmp_path, tiny.llama, keys)).header
    assert worst(whole_header.findings(server, head)) is Level.FAIL


@pytest.mark.parametrize(("keys", "change"), TAKEN)
def test_a_real_build_takes_the_others(
    tmp_path: Path, server: HostProgram, keys: dict[str, Value | None], change: Tensors | None
) -> None:
    head = read_header(written(tmp_path, tiny.llama, keys, change)).header
    assert worst(whole_header.findings(server, head)) is Level.OK
    assert whole_header.ask_loader(head, server).accepted is True


def test_a_tensor_that_the_build_does_not_use_is_one_too_many(
    tmp_path: Path, server: HostProgram
) -> None:
    spare = Tensor("blk.0.zorg.weight", (64,), "norm")
    head = read_header(written(tmp_path, tiny.llama, {}, lambda tensors: [*tensors, spare])).header
    (doubt,) = header.unasked(head)
    assert (doubt.level, "blk.0.zorg.weight" in doubt.words) == (Level.UNKNOWN, True)
    (finding,) = whole_header.findings(server, head)
    assert "wrong number of tensors; expected 31, got 30" in finding.words


@pytest.mark.parametrize(("keys", "level", "words"), ENDED)
def test_what_ends_the_server_after_its_loader_is_told(
    tmp_path: Path, keys: dict[str, Value | None], level: Level, words: str
) -> None:
    head = read_header(written(tmp_path, tiny.llama, keys)).header
    found = header.unasked(head)
    assert (worst(found), words in found[0].words) == (level, True)


@pytest.mark.parametrize(("keys", "level", "words"), ENDED)
def test_a_real_build_that_is_asked_silences_none_of_it(
    tmp_path: Path, server: HostProgram, keys: dict[str, Value | None], level: Level, words: str
) -> None:
    head = read_header(written(tmp_path, tiny.llama, keys)).header
    found = whole_header.findings(server, head)
    assert worst(found) is level
    assert any(words in one.words for one in found)


MAPPED = pytest.mark.parametrize(
    ("alignment", "start", "name", "maps", "level"),
    [
        (8, 72, "token_embd.weight", None, Level.UNKNOWN),
        (8, 72, "token_embd.weight", True, Level.FAIL),
        (8, 72, "token_embd.weight", False, Level.OK),
        (8, 72, "blk.0.attn_norm.weight", True, Level.UNKNOWN),
        (8, 96, "token_embd.weight", True, Level.OK),
        (64, 72, "token_embd.weight", True, Level.OK),
    ],
)


@MAPPED
def test_tensors_where_none_can_be_mapped(
    alignment: int, start: int, name: str, maps: bool | None, level: Level
) -> None:
    tensors = (header_tensor(name, (64,), 0, "F32", 256),)
    head = Header(3, "little", alignment, 1, {}, tensors, start)
    found = header.of_mapping(head, maps=maps)
    assert worst(found) is level if found else level is Level.OK
    assert all("TENSOR_ALIGNMENT" in one.words and "--no-mmap" in one.hint for one in found)


def test_a_part_of_a_set_may_begin_elsewhere() -> None:
    tensors = (header_tensor("token_embd.weight", (64,), 0, "F32", 256),)
    head = Header(3, "little", 8, 1, {"split.count": 2}, tensors, 96)
    assert worst(header.of_mapping(head, maps=True)) is Level.UNKNOWN


def realigned(path: Path, alignment: int, shift: int) -> Path:
    """A file with another alignment, its tensors `shift` bytes past a multiple of 32."""
    head, raw = read_header(path).header, path.read_bytes()
    version, count, keys = struct.unpack("<IQQ", raw[4:24])
    tensors = head.tensors or ()
    table = sum(24 + 8 * len(one.dims) + len(one.name) for one in tensors)
    text = struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, alignment)
    text = raw[24 : head.header_bytes - table] + text
    rows, data, at, begin = b"", b"", 0, pad(head.header_bytes, head.alignment)
    for one in tensors:
        size = one.bytes or 0
        rows += struct.pack("<Q", len(one.name)) + one.name.encode()
        rows += struct.pack(f"<I{len(one.dims)}QIQ", len(one.dims), *one.dims, one.type, len(data))
        data += raw[begin + at : begin + at + size].ljust(pad(size, alignment), b"\0")
        at += pad(size, head.alignment)
    spare = (shift - 24 - len(text) - len(rows) - 31) % 32
    text += struct.pack("<Q", 11) + b"omni.spared" + struct.pack("<IQ", 8, spare) + b"x" * spare
    first = raw[:4] + struct.pack("<IQQ", version, count, keys + 2) + text + rows
    path.write_bytes(first.ljust(pad(len(first), alignment), b"\0") + data)
    return path


@pytest.mark.parametrize(("alignment", "shift"), [(8, 8), (16, 16), (1, 3), (8, 0)])
def test_a_real_loader_ends_where_tensors_cannot_be_mapped(
    tmp_path: Path, alignment: int, shift: int
) -> None:
    path = realigned(tiny.llama().write(tmp_path / "model.gguf"), alignment, shift)
    head = read_header(path).header
    assert pad(head.header_bytes, alignment) % 32 == shift
    mapped, read = logged(tmp_path, [(path, {"load_mode": 1}), (path, {"load_mode": 0})])
    refused = worst([*header.of_mapping(head, maps=True), UNASKED]) is Level.FAIL
    assert ("TENSOR_ALIGNMENT" in mapped) is refused is (shift != 0)
    assert "all slots are idle" in read
    assert header.of_mapping(head, maps=False) == []


@pytest.mark.parametrize("asked", [False, True])
def test_a_file_that_is_cut_is_named(tmp_path: Path, asked: bool) -> None:
    path = written(tmp_path, tiny.llama, {})
    build = Build() if asked else None
    assert check(str(path), build).problems == ()
    data = path.read_bytes()
    path.write_bytes(data[:-1000])
    answer = check(str(path), build)
    finding = answer.finding()
    assert finding is not None
    assert (finding.level, "model.gguf lacks 1000 bytes" in finding.words) == (Level.FAIL, True)
    path.write_bytes(data[:3000])
    with pytest.raises(GgufError):
        check(str(path), None)


def test_a_part_of_a_set_by_another_name_is_named(tmp_path: Path) -> None:
    parts: dict[str, Value | None] = {"split.no": 0, "split.count": 2, "split.tensors.count": 99}
    finding = check(str(written(tmp_path, tiny.llama, parts)), None).finding()
    assert finding is not None
    assert (finding.level, "one of 2 shards" in finding.words) == (Level.FAIL, True)


GATED = [name for name in log_models.SHAPES if name.startswith("Qwen3.5")]


@pytest.mark.parametrize("name", GATED)
@pytest.mark.parametrize("key", ["rope.dimension_sections", "ssm.group_count", "ssm.conv_kernel"])
def test_a_key_that_the_loader_missed_when_it_was_asked_is_no_go(name: str, key: str) -> None:
    """b11549 ends with "key not found in model: qwen35moe.rope.dimension_sections"."""
    header = log_models.SHAPES[name]()
    whole = f"{header.architecture}.{key}"
    del header.kv[whole]
    told = [complaint.words for complaint in complaints(header)]
    assert f"key not found in model: {whole}" in told


def test_every_key_that_was_learned_is_missed_unless_it_depends_on_others() -> None:
    """All architectures of the table: a header with none of their keys but COMMON."""
    for arch in architectures():
        keys = {ARCHITECTURE: arch, **{f"{arch}.{name}": 1 for name in COMMON}}
        header = Header(3, "little", 32, 0, keys, (), 0)
        required = _form(header)
        told = " ".join(complaint.words for complaint in _keys(header, required))
        for name in () if required is None else required.keys:
            given = name in DEPENDS or name in COMMON
            assert given is (f"{arch}.{name}" not in told), (arch, name)


def test_a_header_without_an_architecture_is_told_in_the_loaders_words() -> None:
    """llama.cpp#28050: "key not found in model: None.context_length" was said of it."""
    (told,) = complaints(Header(3, "little", 32, 0, {}, (), 0))
    assert told.sure
    assert told.words.startswith("unknown model architecture: ''")
