"""The line of a log that says why a program ended leads; what only follows from it does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from console.common.logs.cause import cause_of, ended_words, may_be_taken

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
        ("bind", "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 28000"),
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
    "the first of a chain of exceptions": (
        ["ValueError: a", "During handling of the above exception:", "RuntimeError: b"],
        ("raised", "ValueError: a"),
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


def tails(name: str) -> list[dict[str, Any]]:
    text = (Path(__file__).parent / "data" / f"{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "name", ["tails_seen", "tails_unseen", "tails_blind", "tails_fresh", "tails_later"]
)
def test_the_cause_in_ends_of_logs_of_public_reports(name: str) -> None:
    wrong = {}
    for tail in tails(name):
        kind, words = cause_of(tail["lines"])
        right = tail["kind"] == "*" or kind in tail["kind"].split("|")
        if not right or not words or not any(part in words for part in tail["contains"].split("|")):
            wrong[tail["id"]] = (kind, words)
    assert wrong == {}


PREFIXES = [
    "", "(EngineCore_DP0 pid=912) ERROR 11-20 10:01:02 [core.py:708] ", "[rank0]: ", "llama-1  | ",
    "[56285] ", "Jun 27 22:57:42 host llama[44353]: ", "(RayWorker pid=7) ",
    "2026-05-05T12:34:56.123456789Z ", "\x1b[31m", "loading: 10%\rloading: 20%\r",
    "[2025-07-29 15:06:51 TP0] ", "2024-03-06T17:53:31.052367Z ERROR ",
]  # fmt: skip
CAUSES = {
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB": "memory",
    "ValueError: Total number of attention heads (14) must be divisible by 4": "raised",
    "vllm: error: unrecognized arguments: --max-ctx 4096": "argument",
    "error: unexpected argument '--foo' found": "argument",
    "OSError: [Errno 28] No space left on device": "disk",
    "panic: runtime error: index out of range [5] with length 3": "broken",
    "GGML_ASSERT(n_expert <= 512) failed": "broken",
    "PermissionError: [Errno 13] Permission denied: '/models'": "rights",
    "Error: listen tcp :8080: bind: address already in use": "port",
    "OSError: libfoo.so.1: cannot open shared object file: No such file or directory": "library",
    "FileNotFoundError: [Errno 2] No such file or directory: '/models/x'": "raised",
    "RuntimeError: Worker died (exit code: -9)": "killed",
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_no_prefix_hides_a_cause(prefix: str) -> None:
    found = {
        line: cause_of(["Traceback (most recent call last):", prefix + line]) for line in CAUSES
    }
    assert {line: kind for line, (kind, _) in found.items()} == CAUSES
    assert [words for line, (_, words) in found.items() if words != line] == []


def test_trouble_before_a_server_served_did_not_end_it() -> None:
    lines = ["CUDA error: out of memory", "main: server is listening on http://127.0.0.1:1",
             "GGML_ASSERT(x) failed"]  # fmt: skip
    assert cause_of(lines) == ("broken", "GGML_ASSERT(x) failed")
    assert cause_of(lines[:2])[0] == "memory"


def test_the_first_of_exceptions_that_led_to_each_other() -> None:
    lines = ["KeyError: 'a'", "", "The above exception was the direct cause of the following "
             "exception:", "", "ValueError: b", "During handling of the above exception, another "
             "exception occurred:", "RuntimeError: c"]  # fmt: skip
    assert cause_of(lines) == ("raised", "KeyError: 'a'")


@pytest.mark.parametrize(
    ("code", "kills", "words"),
    [
        (None, None, ""), (0, None, ""), (1, None, ""), (127, None, ""),
        (-9, None, "ended by signal 9 (SIGKILL): out of memory, or somebody killed it"),
        (137, 0, "ended by signal 9 (SIGKILL); the kernel counted no OOM kill meanwhile, so "
                 "somebody killed it"),
        (-9, 2, "ended by signal 9 (SIGKILL); the kernel counted 2 OOM kills meanwhile"),
        (139, None, "ended by signal 11 (SIGSEGV)"), (-6, None, "ended by signal 6 (SIGABRT)"),
    ],
)  # fmt: skip
def test_what_a_code_says(code: int | None, kills: int | None, words: str) -> None:
    assert ended_words(code, kills) == words


def test_an_end_by_a_signal_is_said_where_no_line_explains_it() -> None:
    kind, words = cause_of(["all is well"], -9)
    assert (kind, words[:17]) == ("killed", "ended by signal 9")
    assert cause_of(["GGML_ASSERT(x) failed"], -6)[0] == "broken"


def test_what_an_exception_says_in_the_next_line() -> None:
    lines = ["terminate called after throwing an instance of 'std::runtime_error'",
             "  what():  Unexpected empty grammar stack", "Aborted (core dumped)"]  # fmt: skip
    assert cause_of(lines)[1].endswith("'std::runtime_error': Unexpected empty grammar stack")


def test_what_was_stated_just_before_a_bare_end_is_its_reason() -> None:
    reason = "0.10.692.115 E llama_init_from_model: V cache quantization requires flash_attn"
    assert cause_of([reason, "Segmentation fault (core dumped)"])[0] == "raised"
    assert cause_of([reason, *LOADING, *LOADING, "Segmentation fault"])[0] == "broken"
    request = "0.10.692.115 E srv send_error: task id = 5, error: the prompt is too long"
    assert cause_of([request, "Segmentation fault"]) == ("broken", "Segmentation fault")


def test_the_reason_that_stands_below_the_name_of_a_field() -> None:
    lines = [
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for EngineArgs",
        "tensor_parallel_size",
        "  Input should be greater than or equal to 1 [type=x]",
    ]
    assert "EngineArgs: tensor_parallel_size: Input should be" in cause_of(lines)[1]


def test_a_watchdog_that_only_reports_ends_nothing() -> None:
    soft = "[2026-08-03 04:05:12 TP1] Scheduler watchdog timeout (self.watchdog_timeout=9, "
    assert cause_of([f"{soft}self.soft=True)"]) == ("", "")
    assert cause_of([f"{soft}self.soft=False)", "Killed"])[0] == "broken"


@pytest.mark.parametrize(
    ("line", "kind", "taken"),
    [
        ("OSError: [Errno 98] Address already in use", "port", True),
        ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already "
         "in use", "port", True),
        ("start: couldn't bind HTTP server socket, hostname: 10.9.9.9, port: 8080", "bind", True),
        ("OSError: [Errno 99] Cannot assign requested address", "bind", False),
        ("[Errno 99] error while attempting to bind on address ('10.9.9.9', 8000): cannot assign "
         "requested address", "bind", False),
        ("[Errno 13] error while attempting to bind on address ('0.0.0.0', 80): permission denied",
         "bind", False),
        ("listen tcp 10.9.9.9:80: bind: cannot assign requested address", "bind", False),
        ("nginx: bind() to 0.0.0.0:80 failed (13: Permission denied)", "bind", False),
        ("listen tcp :80: bind: permission denied", "rights", False),
    ],
)  # fmt: skip
def test_an_address_is_in_use_only_where_that_is_said_or_may_be(
    line: str, kind: str, taken: bool
) -> None:
    assert cause_of([line])[0] == kind
    assert may_be_taken([line]) is taken
