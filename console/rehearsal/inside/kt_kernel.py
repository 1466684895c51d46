"""Stands in for `kt_kernel`: its names, and a conversion that refuses what the real one refuses."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from console.rehearsal.inside.settings import announce

__version__ = "0.5.1.stand.in"

announce("kt_kernel")


class CPUInfer:
    """The names a check looks for."""

    def submit_with_cuda_stream(self) -> None:
        """As in a build with CUDA."""

    def sync_with_cuda_stream(self) -> None:
        """As in a build with CUDA."""


kt_kernel_ext = SimpleNamespace(CPUInfer=CPUInfer)


class KTMoEWrapper:
    """The name a check looks for."""


def convert(arguments: Sequence[str] | None = None) -> int:
    """`kt_kernel.tools.convert_cpu_weights`: a small file where weights would be."""
    parser = argparse.ArgumentParser(prog="kt_kernel.tools.convert_cpu_weights")
    parser.add_argument("--input-path", required=True)
    parser.add_argument("--input-type", choices=["bf16", "fp16", "fp8"], required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--quant-method", default="int8")
    options, _ = parser.parse_known_args(arguments)
    source = Path(options.input_path)
    if source.suffix == ".gguf" or any(source.glob("*.gguf")):
        print(
            "ValueError: GGUF is not accepted: BF16, FP16 or FP8 safetensors are", file=sys.stderr
        )
        return 1
    out = Path(options.output)
    out.mkdir(parents=True, exist_ok=True)
    (out / "stand-in.txt").write_text(f"stand-in of {options.quant_method} weights\n")
    print(f"stand-in: nothing converted; {out} holds one small file")
    return 0
