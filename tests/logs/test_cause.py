"""The line of a log that says why a program ended leads; what only follows from it does not."""

import pytest

from console.common.logs.cause import cause_of

LOADING = ["llama_model_loader: loaded meta data", "load_tensors: offloading 61 layers to GPU"]
STACK = [f"/usr/lib/libggml-base.so({n:#x})" for n in range(0x1000, 0x100D)]
LOGS = {
    "a card's memory, above the stack": (
        [*LOADING, "0.00.035.060 E ggml_cuda: CUDA error: out of memory", "current device: 0",
         *STACK, "Aborted (core dumped)"],
        ("memory", "ggml_cuda: CUDA error: out of memory"),
    ),
    "memory before what follows from it": (
        ["ggml_backend_cuda_buffer_type_alloc_buffer: allocating 90 GiB: cudaMalloc failed: out of "
         "memory", "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
         "srv load_model: failed to load model, '/m.gguf'"],
        ("memory", "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 90 GiB: cudaMalloc "
                   "failed: out of memory"),
    ),
    "a port": (
        ["main: starting", "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: "
         "28000", "srv  exiting due to HTTP server error"],
        ("port", "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 28000"),
    ),
    "a port, by Python": (
        ["Traceback (most recent call last):", "OSError: [Errno 98] Address already in use"],
        ("port", "OSError: [Errno 98] Address already in use"),
    ),
    "a model that is not there": (
        ["2026-11-25T10:00:00.000Z gguf_init_from_file: failed to open GGUF file '/x.gguf'",
         "llama_model_load: error loading model: failed to load model from /x.gguf"],
        ("model", "gguf_init_from_file: failed to open GGUF file '/x.gguf'"),
    ),
    "a flag": (["error: invalid argument: --no-such-flag"],
               ("argument", "error: invalid argument: --no-such-flag")),
    "a library": (
        ["llama-server: error while loading shared libraries: libcudart.so.12: cannot open shared "
         "object file: No such file or directory"],
        ("library", "llama-server: error while loading shared libraries: libcudart.so.12: cannot "
                    "open shared object file: No such file or directory"),
    ),
    "the last of a chain of exceptions": (
        ["ValueError: a", "During handling of the above exception:", "RuntimeError: b"],
        ("raised", "RuntimeError: b"),
    ),
    "a warning on memory is none": (
        ["warning: failed to mlock 4096-byte buffer: Cannot allocate memory"], ("", ""),
    ),
    "nothing": (["all is well", "bye"], ("", "")),
}  # fmt: skip


@pytest.mark.parametrize("name", LOGS)
def test_the_line_that_explains_is_found(name: str) -> None:
    lines, found = LOGS[name]
    assert cause_of(lines) == found


def test_foreign_bytes_are_clean_and_a_long_line_is_cut() -> None:
    kind, words = cause_of(["\x1b[31mCUDA error: out of memory\x1b[0m" + "x" * 1000])
    assert kind == "memory"
    assert "\x1b" not in words
    assert len(words) <= 201
