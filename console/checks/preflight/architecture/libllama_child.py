"""Loads a libllama and gives it files, each named on a line before the library's own words.

    python -m console.checks.preflight.architecture.libllama_child LIBRARY FILE…

A process of its own: what it loads may crash. Exit code 3 with a line on stderr where the library
cannot be used.
"""

from __future__ import annotations

import ctypes
import sys

ROOM = 4096
UNUSABLE = 3


class _Params(ctypes.Structure):
    """llama_model_params of any build: the library fills in and reads as many bytes as its own has.

    Handed over by value, a structure of this size lies in memory whole (System V x86-64) or is
    passed by its address (AArch64); the bytes beyond the build's own are never looked at.
    """

    _fields_ = [("room", ctypes.c_char * ROOM)]


def main(argv: list[str]) -> int:
    """Give each file to the library; its log goes to stderr."""
    try:
        library = ctypes.CDLL(argv[0], mode=ctypes.RTLD_GLOBAL)
        defaults = library.llama_model_default_params
        load = getattr(library, "llama_model_load_from_file", None)
        load = load or library.llama_load_model_from_file
    except (OSError, AttributeError) as error:
        print(f"the library cannot be used: {error}", file=sys.stderr)
        return UNUSABLE
    backends = getattr(library, "ggml_backend_load_all", None)
    if backends is not None:
        backends()
    defaults.restype, defaults.argtypes = _Params, []
    load.restype, load.argtypes = ctypes.c_void_p, [ctypes.c_char_p, _Params]
    for path in argv[1:]:
        print(f"@@ {path}", file=sys.stderr, flush=True)
        load(path.encode(), defaults())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
