"""Checkpoints with true names, sizes, config.json and GGUF headers, as files full of holes."""

from pathlib import Path

from tests.testbed.hub import File, files
from tests.testbed.hub_shapes import (
    DEEPSEEK,
    deepseek_checkpoint,
    distill_gguf,
    fp8,
    r1_gguf,
    sharded,
)


def bf16() -> dict[str, File]:
    """DeepSeek-R1 converted to BF16: two bytes a weight, no scales, 1.3 TB."""
    weights = list(deepseek_checkpoint(scales=False))
    doubled = [(name, size * (2 if "proj" in name else 1)) for name, size in weights]
    return files({"config.json": DEEPSEEK, **sharded(doubled, 163, digits=6)})


def q4_k_m() -> dict[str, File]:
    return {path.rpartition("/")[2]: file for path, file in r1_gguf().items() if "Q4_K_M" in path}


SHAPES = {"bf16": bf16, "fp8": fp8, "q4_k_m": q4_k_m, "distill": distill_gguf}


def put(name: str, where: Path) -> Path:
    """The directory of one of SHAPES, made where it is not there: holes take no disk."""
    made = where / name
    for path, file in SHAPES[name]().items() if not made.exists() else ():
        to = made / path
        to.parent.mkdir(parents=True, exist_ok=True)
        with to.open("wb") as out:
            out.write(file.head)
            out.truncate(file.size)
    return made
