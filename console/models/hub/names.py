"""What file names say: quantization, place in a split set, what stands beside. Never a proof."""

from __future__ import annotations

import re
from collections.abc import Iterable

GGUF_SHARD = re.compile(r"-([0-9]{5})-of-([0-9]{5})\.gguf$", re.IGNORECASE)
_SHARD = re.compile(r"-([0-9]{5,6})-of-([0-9]{5,6})(?=\.[a-z]+$)", re.IGNORECASE)
_QUANTIZATION = re.compile(
    r"(?<![A-Za-z0-9])((?:UD-)?(?:"
    r"IQ[1-4]_(?:XXS|XS|NL|S|M)|Q[2-8]_K(?:_(?:S|M|L|XL|XXL))?|Q[4-8]_[01](?:_[48]_[48])?"
    r"|TQ[12]_0|MXFP4(?:_MOE)?|NVFP4|BF16|F(?:P)?16|F(?:P)?32))(?![A-Za-z0-9]|_[A-Za-z0-9])",
    re.IGNORECASE,
)
_WORDED = re.compile(
    r"(?<![A-Za-z0-9])(FP8|NVFP4|MXFP4|FP4|INT8|INT4|W[48]A(?:8|16)|AWQ|GPTQ|EXL[23]|BNB|NF4|[2-8]BIT"
    r"|BF16|FP16)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SIDECAR = re.compile(
    r"(?:^|[-_.])(?P<kind>mmproj|imatrix)(?:[-_.]|$)|^(?P<head>mtp)[-_.]", re.IGNORECASE
)


def shard(name: str) -> tuple[str, int, int] | None:
    """(`name` without its number, number, of how many), from 1; None for an unsplit file."""
    match = GGUF_SHARD.search(name) if name.lower().endswith(".gguf") else _SHARD.search(name)
    if match is None:
        return None
    return name[: match.start()], int(match[1]), int(match[2])


def gguf_quantization(path: str) -> str:
    """`Q4_K_M` from a GGUF's name or, failing that, from the nearest directory that names one."""
    for part in reversed(path.split("/")):
        part = part.removesuffix(".gguf").removesuffix(".GGUF")
        found = _QUANTIZATION.findall(part)
        if found:
            upper = str(found[-1]).upper()
            return {"FP16": "F16", "FP32": "F32"}.get(upper, upper)
    return ""


def worded_quantization(name: str) -> str:
    """`INT8` from a repository's or a directory's name; "" where it names none."""
    found = _WORDED.findall(name)
    return str(found[-1]).upper() if found else ""


def sidecar(name: str) -> str:
    """`mmproj`, `mtp` or `imatrix` for files that stand beside a model; "" for weights."""
    match = _SIDECAR.search(re.sub(r"\.gguf(?:_file)?$", "", name, flags=re.IGNORECASE))
    return (match["kind"] or match["head"]).lower() if match else ""


def runs(numbers: Iterable[int]) -> tuple[range, ...]:
    """Sorted numbers as runs: 2, 5, 6 → range(2, 3), range(5, 7)."""
    found: list[range] = []
    for number in numbers:
        if found and number == found[-1].stop:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return tuple(found)


def gaps(numbers: Iterable[int], total: int) -> tuple[range, ...]:
    """The runs of 1…`total` that the sorted `numbers` lack; takes no room for a large total."""
    found, at = [], 1
    for number in numbers:
        if at < number <= total:
            found.append(range(at, number))
        at = max(at, number + 1)
    if at <= total:
        found.append(range(at, total + 1))
    return tuple(found)


def told(found: tuple[range, ...], most: int = 6) -> str:
    """`2, 5-9`"""
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in found[:most]]
    return ", ".join(shown) + (f" and {len(found) - most} more runs" if len(found) > most else "")
