"""The weights of experts in a directory, where each of kt-kernel's methods looks for them.

Sources: kt-kernel 95009ea6 (python/utils/amx.py, moe_kernel.py and loader.py; operators/amx/moe.hpp
and moe_kernel for the files that its converter writes).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from console.common.errors import Exit
from console.common.units import plural
from console.models.gguf.byte_source import GgufError
from console.models.safetensors.names import Role, role
from console.models.safetensors.read import File, StoredBytes, read

CONVERTED = {"AMXINT8": "INT8", "AMXINT4": "INT4", "MOE_INT8": "MOE_INT8", "MOE_INT4": "MOE_INT4"}
"""Methods that take what the converter wrote, with the kind in the names of its loose files."""
_MERGED = re.compile(r"blk\.#\.ffn_(?:up|gate|down)_exps\.#\.numa\.#\.(?:weight|scale)")
_LOOSE = re.compile(r"([A-Z0-9_]+?)_(?:up|gate|down)_\d{1,6}_(\d{1,15})Byte_(?:quant|scale)_\.kt")
_GATE = r"experts\.#\.(?:gate_proj|w1)\."
NATIVE: Mapping[str, tuple[str, ...]] = {
    "FP8": (rf"{_GATE}weight", rf"{_GATE}weight_scale(?:_inv)?"),
    "FP8_PERCHANNEL": (rf"{_GATE}weight", rf"{_GATE}weight_scale"),
    "BF16": (rf"(?:{_GATE}weight|experts\.gate_up_proj)",),
    "RAWINT4": (
        r"mlp\.experts\.#\.up_proj\.weight_packed", r"mlp\.experts\.#\.up_proj\.weight_scale",
    ),
    "GPTQ_INT4": (rf"{_GATE}qweight", rf"{_GATE}scales"),
    "SYCL_GPTQ_INT4": (rf"{_GATE}qweight", rf"{_GATE}scales"),
    "MXFP4": (r"ffn\.experts\.#\.w1\.weight", r"ffn\.experts\.#\.w1\.scale"),
    "MXFP8": (
        r"block_sparse_moe\.experts\.#\.w1\.weight",
        r"block_sparse_moe\.experts\.#\.w1\.weight_scale_inv",
    ),
}  # fmt: skip
"""Methods that take the weights as they are published: how names of the gate's tensors end."""
BITS: Mapping[str, tuple[int, ...]] = {
    "FP8": (8,), "FP8_PERCHANNEL": (8,), "BF16": (16,), "RAWINT4": (8, 32), "GPTQ_INT4": (32,),
    "SYCL_GPTQ_INT4": (32,), "MXFP4": (8,), "MXFP8": (8,),
}  # fmt: skip
"""Bits of an element of these weights, as they are stored."""
SIZES = {"INT8": 1.0, "INT4": 0.5}
"""Bytes of a converted weight, without its scales."""
ALIKE = 0.1
MAX_FILES = 400_000
"""Files of a directory that are looked at: 61 layers of 384 experts in loose files for two nodes
are 280,000."""


@dataclass(frozen=True, slots=True)
class ExpertFiles:
    """What a directory holds for a method: the experts' bytes in the layers that have some. None
    with `wrong`, why the method does not load them, or `unknown`, why nobody can tell."""

    bytes: int | None = None
    wrong: str = ""
    unknown: str = ""


def look(folder: Path, method: str, layers: Collection[int], elements: int) -> ExpertFiles:
    """What kt-kernel finds there. `layers` are those with experts, which have so many `elements` in
    all; 0 and none: not known."""
    if method not in CONVERTED and method not in NATIVE:
        return ExpertFiles(unknown=f"what {method} reads is not known here")
    try:
        tensors, loose = _files(folder, method)
        if method in CONVERTED and (loose or not tensors):
            return _of_loose(loose, method, layers)
        if not tensors:
            return ExpertFiles(wrong="it holds no safetensors")
        stored = read([File(str(path), path.name, None) for path in tensors])
    except OSError as error:
        return ExpertFiles(unknown=f"it cannot be read: {error.strerror}")
    except GgufError as error:
        if error.exit_code is Exit.NO_GO:
            return ExpertFiles(wrong="; ".join(filter(None, (str(error), error.detail))))
        return ExpertFiles(unknown=str(error))
    except _TooManyError:
        return ExpertFiles(unknown=f"it holds more than {MAX_FILES} files")
    if method in CONVERTED:
        return _of_merged(stored, method, layers, elements)
    return _as_published(stored, method, layers)


class _TooManyError(Exception):
    pass


def _files(folder: Path, method: str) -> tuple[list[Path], list[tuple[int, str]]]:
    """The safetensors that the method would open, and the converter's loose files with their
    layers, which count only where no safetensors lie in the directory itself."""
    merged = any(entry.suffix == ".safetensors" for entry in folder.iterdir())
    tensors, loose, seen = list[Path](), list[tuple[int, str]](), 0
    for root, _, names in os.walk(folder):
        seen += len(names)
        if seen > MAX_FILES:
            raise _TooManyError
        layer = re.search(r"/_layer_(\d{1,4})/_numa_\d{1,3}$", root)
        for name in sorted(names):
            if name.endswith(".safetensors") and (merged or method in NATIVE):
                tensors.append(Path(root, name))
            elif name.endswith(".kt") and layer and not merged and method in CONVERTED:
                loose.append((int(layer[1]), name))
    return tensors, loose


def _of_loose(
    files: list[tuple[int, str]], method: str, layers: Collection[int]
) -> ExpertFiles:  # fmt: skip
    """`_layer_3/_numa_0/INT8_up_17_1234Byte_quant_.kt`."""
    kinds: Counter[str] = Counter()
    present_layers: set[int] = set()
    for layer, name in files:
        match = _LOOSE.fullmatch(name)
        if match is not None and (not layers or layer in layers):
            kinds[match[1]] += int(match[2])
            present_layers.add(layer)
    kind = CONVERTED[method]
    if not kinds:
        return ExpertFiles(wrong="it holds nothing that kt-kernel's converter wrote")
    if kind not in kinds:
        return ExpertFiles(wrong=f"it was converted for {min(kinds)}, not for {kind}")
    if missing := _missing(layers, present_layers):
        return ExpertFiles(wrong=missing)
    return ExpertFiles(kinds[kind])


def _of_merged(
    stored: StoredBytes, method: str, layers: Collection[int], elements: int
) -> ExpertFiles:  # fmt: skip
    """The converter's safetensors: one tensor for each expert and NUMA node."""
    groups = {key: size for key, size in stored.groups.items() if _MERGED.fullmatch(key[0])}
    if not groups:
        return ExpertFiles(
            wrong=f"{_like(stored)}; this method takes what kt-kernel's converter writes"
        )
    if missing := _missing(layers, {layer for _, layer in groups}):
        return ExpertFiles(wrong=missing)
    counted = {key: size for key, size in groups.items() if not layers or key[1] in layers}
    weights = sum(size for (name, _), size in counted.items() if name.endswith(".weight"))
    share = weights / elements if elements else 0
    kinds = [kind for kind, size in SIZES.items() if abs(share / size - 1) < ALIKE]
    if share and not kinds:
        return ExpertFiles(unknown=f"its weights have {share:.2f} bytes each")
    if kinds and not method.endswith(kinds[0]):
        return ExpertFiles(wrong=f"it was converted to {kinds[0]}, and {method} was asked for")
    return ExpertFiles(sum(counted.values()))


def _as_published(stored: StoredBytes, method: str, layers: Collection[int]) -> ExpertFiles:
    present_layers: set[int] = set()
    for ending in NATIVE[method]:
        pattern = re.compile(rf"(?:.*\.)?{ending}")
        groups = [key for key in stored.groups if pattern.fullmatch(key[0])]
        if not groups:
            return ExpertFiles(wrong=f"{_like(stored)}, which is not what {method} reads")
        bits = {stored.elements[name][1] for name, _ in groups if name in stored.elements}
        if not present_layers and bits - set(BITS[method]):
            problem = f"the experts' weights are stored with {max(bits)} bits"
            return ExpertFiles(wrong=f"{problem}, which is not what {method} reads")
        here = {layer for _, layer in groups}
        present_layers = present_layers & here if present_layers else here
    if missing := _missing(layers, present_layers):
        return ExpertFiles(wrong=missing)
    return ExpertFiles(
        sum(
            size for (name, layer), size in stored.groups.items()
            if role(name) is Role.EXPERTS and (not layers or layer in layers)
        )
    )  # fmt: skip


def _like(stored: StoredBytes) -> str:
    """What the directory holds instead, by the name of one tensor."""
    name = next(_of_experts(stored), "")
    return f"its experts are named {name}" if name else "it holds no experts"


def _of_experts(stored: StoredBytes) -> Iterator[str]:
    for name, _ in stored.groups:
        if role(name) is Role.EXPERTS or ".ffn_" in name:
            yield name


def _missing(layers: Collection[int], present_layers: Collection[int]) -> str:
    left = sorted(set(layers) - set(present_layers))
    if not left:
        return ""
    return f"it lacks the experts of {plural(len(left), 'layer')} (the first is {left[0]})"
