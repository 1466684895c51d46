"""What each of kt-kernel's methods finds where --kt-weight-path leads (kt-kernel 95009ea6)."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from console.checks.preflight import Level
from console.checks.preflight.checkpoint import not_known
from console.checks.preflight.load_format import kt_weights
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.model_facts import Kind, ModelFacts, Weight

WIDE, INNER, COUNT = 64, 32, 3
LAYERS = (1, 2)
ELEMENTS = 3 * WIDE * INNER * COUNT
FACTS = ModelFacts(
    "glm4-moe", "config.json", layers=3,
    weights=tuple(Weight("experts", Kind.EXPERTS, ELEMENTS, ELEMENTS, one) for one in LAYERS),
)  # fmt: skip
BITS = {"F8_E4M3": 8, "U8": 8, "BF16": 16, "I32": 32, "F32": 32, "I8": 8, "F8_E8M0": 8}


def write(path: Path, tensors: Mapping[str, tuple[str, int]]) -> None:
    """A sparse safetensors file of tensors with so many elements."""
    at, header = 0, {}
    for name, (dtype, elements) in tensors.items():
        size = elements * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": [elements], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)


def published(folder: Path, style: str) -> Path:
    """A checkpoint as it is published, with a layer ahead that kt-kernel does not read."""
    place, gate, rest, parts = STYLES[style]
    tensors = {"model.layers.0.mlp.gate_proj.weight": ("BF16", 8)}
    for layer in (*LAYERS, 3):
        for expert in range(COUNT):
            for proj in (gate, *rest):
                for part, (dtype, elements) in parts.items():
                    name = f"{place.format(layer)}.{expert}.{proj}.{part}"
                    tensors[name] = (dtype, elements)
    write(folder / "model.safetensors", tensors)
    return folder


MATRIX = WIDE * INNER
PROJ = ("gate_proj", ("up_proj", "down_proj"))
W = ("w1", ("w2", "w3"))
MLP, BLOCK = "model.layers.{}.mlp.experts", "model.layers.{}.block_sparse_moe.experts"
STYLES = {
    "fp8": (MLP, *PROJ, {"weight": ("F8_E4M3", MATRIX), "weight_scale_inv": ("F32", 1)}),
    "fp8 minimax": (BLOCK, *W, {"weight": ("F8_E4M3", MATRIX), "weight_scale_inv": ("F32", 1)}),
    "per channel": (MLP, *PROJ, {"weight": ("F8_E4M3", MATRIX), "weight_scale": ("F32", INNER)}),
    "int8": (MLP, *PROJ, {"weight": ("I8", MATRIX), "weight_scale": ("F32", INNER)}),
    "bf16": (MLP, *PROJ, {"weight": ("BF16", MATRIX)}),
    "gptq": (MLP, *PROJ, {"qweight": ("I32", MATRIX // 8), "scales": ("BF16", 16)}),
    "kimi": (MLP, *PROJ, {"weight_packed": ("I32", MATRIX // 8), "weight_scale": ("BF16", 64)}),
    "v4": ("layers.{}.ffn.experts", *W,
           {"weight": ("I8", MATRIX // 2), "scale": ("F8_E8M0", MATRIX // 32)}),
}  # fmt: skip


def converted(folder: Path, kind: str, layers: tuple[int, ...] = LAYERS, nodes: int = 2) -> Path:
    """What convert_cpu_weights.py writes by default."""
    size = MATRIX // nodes // (2 if kind == "INT4" else 1)
    for layer in layers:
        tensors = {
            f"blk.{layer}.ffn_{proj}_exps.{expert}.numa.{node}.{part}": (dtype, elements)
            for proj in ("up", "gate", "down") for expert in range(COUNT)
            for node in range(nodes) for part, dtype, elements in
            (("weight", "I8", size), ("scale", "F32", INNER))
        }  # fmt: skip
        write(folder / f"model-{layer}.safetensors", tensors)
    return folder


def loose(folder: Path, kind: str, layers: tuple[int, ...] = LAYERS) -> Path:
    """The same with --no-merge-safetensor."""
    for layer in layers:
        for node in range(2):
            inner = folder / f"_layer_{layer}" / f"_numa_{node}"
            inner.mkdir(parents=True)
            for proj in ("up", "gate", "down"):
                for expert in range(COUNT):
                    (inner / f"{kind}_{proj}_{expert}_1024Byte_quant_.kt").touch()
                    (inner / f"{kind}_{proj}_{expert}_128Byte_scale_.kt").touch()
    return folder


def asked(
    path: Path | str, method: str, *, here: bool = False, inside: bool = False, model: str = "",
    checkpoint: str = "zai-org/GLM-4.6-FP8",
) -> tuple[int | None, Level | None, str]:  # fmt: skip
    words = [*(["--model-path", model] if model else []), "--kt-weight-path", str(path)]
    plan = sglang_plan([*words, "--kt-method", method])
    size, found = kt_weights(plan, FACTS, Path(checkpoint), here=here, inside=inside)
    assert all(one.level is not Level.UNKNOWN or not_known([one]) for one in found)
    level, text = (found[0].level, found[0].words) if found else (None, "")
    return size, level, text


@pytest.mark.parametrize("method", ["AMXINT8", "AMXINT4", "MOE_INT8", "FP8", "BF16", "LLAMAFILE"])
def test_an_empty_directory_holds_no_weights(tmp_path: Path, method: str) -> None:
    assert asked(tmp_path, method)[:2] == (None, Level.FAIL)


@pytest.mark.parametrize("style", ["int8", "fp8", "bf16", "gptq"])
@pytest.mark.parametrize("method", ["AMXINT8", "AMXINT4", "MOE_INT8"])
def test_a_published_checkpoint_is_not_what_the_converter_writes(
    tmp_path: Path, style: str, method: str
) -> None:
    """kvcache-ai/ktransformers#1649: AMXINT8 with GLM-4.6-Channel-INT8: "no weight source"."""
    _, level, words = asked(published(tmp_path, style), method)
    assert level is Level.FAIL
    assert "model.layers.#.mlp.experts.#" in words


@pytest.mark.parametrize(
    ("style", "methods"),
    [
        ("fp8", ("FP8",)), ("fp8 minimax", ("FP8", "MXFP8")),
        ("per channel", ("FP8", "FP8_PERCHANNEL")), ("bf16", ("BF16",)), ("gptq", ("GPTQ_INT4",)),
        ("kimi", ("RAWINT4",)), ("v4", ("MXFP4",)),
    ],
)  # fmt: skip
def test_methods_that_convert_nothing_take_their_own_format_alone(
    tmp_path: Path, style: str, methods: tuple[str, ...]
) -> None:
    published(tmp_path, style)
    for method in ("FP8", "FP8_PERCHANNEL", "BF16", "GPTQ_INT4", "RAWINT4", "MXFP4", "MXFP8"):
        size, level, words = asked(tmp_path, method)
        expected = None if method in methods else Level.FAIL
        assert level is expected, (method, words)
        assert (size is None) is (level is Level.FAIL)


def test_the_bytes_of_the_experts_are_those_that_lie_there(tmp_path: Path) -> None:
    """Without the layer ahead, and the dense ones."""
    assert asked(published(tmp_path / "f", "fp8"), "FP8")[0] == 2 * COUNT * 3 * (MATRIX + 4)
    size = 2 * COUNT * 3 * (MATRIX + 2 * 4 * INNER)
    assert asked(converted(tmp_path / "i", "INT8"), "AMXINT8")[0] == size
    assert asked(loose(tmp_path / "l", "INT4"), "AMXINT4")[0] == 2 * 2 * 3 * COUNT * 1152


@pytest.mark.parametrize("make", [converted, loose])
def test_what_was_converted_for_another_method_is_refused(tmp_path: Path, make: object) -> None:
    assert callable(make)
    for kind, method in (("INT8", "AMXINT8"), ("INT4", "AMXINT4")):
        path = make(tmp_path / kind, kind)
        other = "AMXINT4" if kind == "INT8" else "AMXINT8"
        assert asked(path, method)[1] is None
        assert asked(path, other)[1] is Level.FAIL
        assert asked(path, "FP8")[1] is Level.FAIL
    assert asked(make(tmp_path / "half", "INT8", (1,)), "AMXINT8")[2].endswith("(the first is 2)")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    converted(tmp_path, "INT8")
    path = tmp_path / "model-1.safetensors"
    path.write_bytes(path.read_bytes()[:-9])
    assert asked(tmp_path, "AMXINT8")[1] is Level.FAIL


def test_a_path_that_is_not_here_is_not_known(tmp_path: Path) -> None:
    """kvcache-ai/ktransformers#1681: it served, and was a NO-GO about a conversion."""
    away = tmp_path / "away"
    assert asked(away, "AMXINT8")[1] is Level.UNKNOWN
    assert asked(away, "AMXINT8", here=True)[1] is Level.FAIL
    assert asked(away, "AMXINT8", here=True, inside=True)[1] is Level.UNKNOWN
    assert asked("kt/int8", "AMXINT8", here=True)[1] is Level.UNKNOWN
    assert asked(away, "LLAMAFILE")[1] is Level.UNKNOWN


def test_the_model_itself_is_no_other_path(tmp_path: Path) -> None:
    """It is asked about before it is downloaded."""
    for model in ("", "/m/x"):
        assert asked("/m/x", "FP8", model=model)[1] is Level.WARN
        assert asked("/m/x", "FP8", model=model, here=True)[1] is Level.WARN
    assert asked("/m/x", "AMXINT8", model="/m/x")[1] is Level.FAIL
    assert asked("/m/x", "FP8", model="/m/y")[1] is Level.UNKNOWN
    assert asked("/m/x", "FP8", checkpoint=str(tmp_path), here=True)[1] is Level.FAIL
