"""The line of a log that says why a program ended: the one place with the patterns for it.

A program's last words are seldom its reason: llama.cpp prints a stack after `CUDA error: out of
memory`, Python its traceback before the exception. Of several kinds of trouble the one that leads
to the others comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from console.common.text import clean, one_line

MEMORY, PORT, LIBRARY, ARGUMENT, MODEL, RIGHTS, BROKEN, RAISED = (
    "memory", "port", "library", "argument", "model", "rights", "broken", "raised",
)  # fmt: skip
ON_CARD = (
    r"CUDA error: out of memory|cudaMalloc failed: out of memory|CUDA out of memory"
    r"|OutOfDeviceMemory|failed to allocate (?:CUDA|ROCm|Vulkan|SYCL)\d* ?(?:_\w+)? ?buffer"
)
ON_HOST = (
    r"bad_alloc|cannot allocate memory|failed to allocate (?:CPU|CUDA_Host)\w* ?buffer"
    r"|\bMemoryError\b|\bout of memory\b|(?-i:\bOOM\b)"
)
HARMLESS = re.compile("mlock", re.IGNORECASE)
"""A line on memory that is only a warning."""
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (MEMORY, f"{ON_CARD}|{ON_HOST}|unable to allocate (?:CUDA|CPU)"),
        (PORT, r"address already in use|EADDRINUSE|address in use"
               r"|(?:could ?n[o']t|cannot|failed to|unable to) bind"
               r"|bind\(\) (?:failed|to .* failed)|error while attempting to bind"),
        (LIBRARY, r"error while loading shared libraries|cannot open shared object|undefined symbol"
                  r"|ModuleNotFoundError|\bImportError\b|no kernel image|version `\w+' not found"
                  r"|CUDA driver version is insufficient|no CUDA-capable device"),
        (ARGUMENT, r"(?:unknown|invalid|unrecognized|unrecognised) (?:argument|option)s?\b"
                   r"|error while handling argument|expected value for argument"),
        (MODEL, r"(?:unknown|unsupported) (?:model )?architecture|cannot open (?:model|file)"
                r"|failed to open|invalid magic|tensor .* (?:not found|missing)"
                r"|no such file or directory|error loading model|failed to load model"),
        (RIGHTS, r"permission denied|operation not permitted"),
        (BROKEN, r"CUDA error|GGML_ASSERT|ggml_abort|assert(?:ion)? .*failed|segmentation fault"
                 r"|terminate called after|core dumped|illegal instruction|panicked at"),
        (RAISED, r"^\s*(?:\w+\.)*\w*(?:Error|Exception): "),
    )
)  # fmt: skip
_CLOCK = re.compile(
    r"^(?:\d{4}-\d\d-\d\d[T ]\S+ +)?(?:\d+\.\d\d\.\d{3}\.\d{3} )?(?:[IWEF] +)?", re.ASCII
)
"""A time stamp, or llama.cpp's own clock and level, in front of a line."""
MOST = 200
"""Characters of a cause that are shown."""


def cause_of(lines: Sequence[str]) -> tuple[str, str]:
    """(kind, clean line) of the line that explains; two empty texts if none does.

    Of one kind the first line counts, since what follows it is its consequence; of exceptions the
    last, because a chain of them ends with the one that was raised.
    """
    for kind, pattern in _KINDS:
        found = [line for line in lines if pattern.search(line) and not HARMLESS.search(line)]
        if found:
            line = found[-1] if kind == RAISED else found[0]
            return kind, one_line(_CLOCK.sub("", clean(line.strip())), MOST)
    return "", ""
