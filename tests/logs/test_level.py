"""What a line states of itself; no shipped pattern ends a server for a line of one that is well."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.logs.level import (
    GOES_ON,
    Level,
    is_low,
    names_level,
    read,
    why_harmless,
)
from console.common.logs.line import kind_of
from console.config.playbook.measuring_steps import SoakStep
from console.recovery.guard.observe.log_patterns import Logs
from console.runner.executors.soak_monitor import CriticalLog

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "reference" / "guards.md"
_MATCHES = re.compile(r'log: .*matches: "([^"]+)"')


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


HEALTHY, FATAL = ([row["line"] for row in rows(name)] for name in ("healthy", "fatal"))
SHIPPED = sorted(
    {
        match[1]
        for path in (GUIDE, *(ROOT / "playbooks").glob("*.yaml"))
        for match in _MATCHES.finditer(path.read_text())
    }
)
SOAK = str(SoakStep.model_fields["critical"].default)


@pytest.fixture
def logs() -> Iterator[Logs]:
    logs = Logs()
    yield logs
    logs.close()


def counted(logs: Logs, path: Path, pattern: str, lines: list[str]) -> tuple[int, str]:
    """How many of these lines the guard counts, and what it says of the last."""
    path.write_text("")
    logs.set({"candidate": str(path)}, [(0, "candidate", pattern)])
    logs.arm({"candidate": 1})
    path.write_text("".join(f"{line}\n" for line in lines))
    logs.read()
    return logs.limits[0].count, logs.hits()[0]["line"]


def test_the_shipped_patterns_are_found() -> None:
    assert len(SHIPPED) >= 3
    assert (len(HEALTHY) >= 150, len(FATAL) >= 60) == (True, True)


@pytest.mark.parametrize("pattern", SHIPPED)
def test_the_guard_ends_no_healthy_server_and_misses_no_fatal_line(
    pattern: str, logs: Logs, tmp_path: Path
) -> None:
    assert counted(logs, tmp_path / "a", pattern, HEALTHY) == (0, "")
    fatal = [line for line in FATAL if re.search(pattern, line)]
    assert len(fatal) > 30
    assert counted(logs, tmp_path / "b", pattern, fatal)[0] == len(fatal)


def test_a_soak_counts_no_healthy_line_and_every_fatal_one(tmp_path: Path) -> None:
    for name, lines in (("healthy", HEALTHY), ("fatal", FATAL)):
        path = tmp_path / name
        path.write_text("")
        log = CriticalLog(path, SOAK)
        path.write_text("".join(f"{line}\n" for line in lines))
        wanted = {line for line in lines if re.search(SOAK, line)} if name == "fatal" else set()
        found = [*(log.read() or ()), *log.close()]
        assert len(found) == len(wanted)


def test_a_kill_names_the_line_and_what_it_states(logs: Logs, tmp_path: Path) -> None:
    lines = ["2.1 E CUDA error: x", "0.31.000.001 E ggml: CUDA error: out of memory"]
    count, words = counted(logs, tmp_path / "log", "CUDA error", lines)
    assert (count, words) == (2, f"{lines[1]} (stated as an error)")
    _, words = counted(logs, tmp_path / "log2", "CUDA error", ["CUDA error: x"])
    assert words == "CUDA error: x (it states no level)"


def test_a_pattern_that_names_a_level_means_lines_of_that_level(logs: Logs, tmp_path: Path) -> None:
    lines = ["WARNING 10-10 10:00:00 [x.py:1] out of memory soon", "INFO: no"]
    assert counted(logs, tmp_path / "a", "WARNING.*memory", lines)[0] == 1
    assert names_level("(?i)warn")
    assert not names_level("CUDA error|Traceback|out of memory")


def test_the_log_view_paints_what_a_fatal_line_is() -> None:
    assert [line for line in FATAL if kind_of(line) != "error" and "is dead" not in line] == []
    painted = [line for line in HEALTHY if is_low(line) and kind_of(line) == "error"]
    assert painted == []


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("(EngineCore_DP0 pid=9) ERROR 11-20 10:01:02 [core.py:708] boom", "ERROR", "boom"),
        ("[rank0]:[E1012 04:01:33.300 P.cpp:629] boom", "ERROR", "boom"),
        ("[rank0]: boom", "UNSAID", "boom"),
        ("[56285] 0.54.801.941 E boom: x", "ERROR", "boom: x"),
        ("llama-1  | 0.54.801.941 W boom: x", "WARNING", "boom: x"),
        ("Jun 27 22:57:42 host llama[44353]: boom", "UNSAID", "boom"),
        ("2026-11-20T10:01:02+0000 host llama[44353]: boom", "UNSAID", "boom"),
        ("(raylet) [2025-04-02 15:02:00,117 E 13 13] (raylet) boom", "ERROR", "boom"),
        ("(RayWorkerWrapper pid=3, ip=10.0.0.1) INFO 06-05 16:30:08 w.py:148] boom", "LOW", "boom"),
        ("2024-03-06T17:53:31.052367Z ERROR boom", "ERROR", "boom"),
        ("2026-05-05T12:34:56.123456789Z boom", "UNSAID", "boom"),
        ("INFO:     boom", "LOW", "boom"),
        ("[2025-07-29 15:06:51 TP0] boom", "UNSAID", "boom"),
        ("[2024-12-11 21:39:23.552] [error] boom", "ERROR", "boom"),
        ("2026-01-01 10:00:00.1 | WARNING  | a:b:1 - boom", "WARNING", "a:b:1 - boom"),
        ('time=2025-03-12T12:14:22Z level=ERROR source=s.go:4 msg="boom"', "ERROR", '"boom"'),
        ('{"level":"WARN","fields":{"message":"boom"}}', "WARNING", "boom"),
        ('{"level":50,"msg":"time=1 level=INFO msg=boom"}', "LOW", "boom"),
        ("2023-10-27 13:32:55 | ERROR | stderr | INFO:     boom", "LOW", "boom"),
        ("a.py:3: UserWarning: boom", "WARNING", "UserWarning: boom"),
        ("NCCL WARN Cuda failure 'out of memory'", "UNSAID", ""),
        ("ERROR=0", "UNSAID", "ERROR=0"),
        ("RuntimeError: NCCL error (run with NCCL_DEBUG=INFO for details)", "UNSAID", ""),
    ],
)  # fmt: skip
def test_what_a_line_states_and_what_stands_behind_its_prefixes(
    line: str, level: str, text: str
) -> None:
    assert read(line) == (text or line, Level[level])


@pytest.mark.parametrize(
    ("line", "words", "why"),
    [
        ("GPU 0 out of memory", "out of memory", ""),
        ("could not be loaded: CUDA error: x", "CUDA error", ""),
        ("torch.OutOfMemoryError: CUDA out of memory. Set it to avoid it", "CUDA out", ""),
        ("unhandled cuda error: CUDA error", "CUDA error", ""),
        ("lower it if you see OOM", "OOM", "it is a hint"),
        ("loading /models/OOM-test/m.gguf", "OOM", "it is a name, or says that there was none"),
        ("finished: 0 CUDA errors", "CUDA error", "it is a name, or says that there was none"),
        ('{"role": "user", "content": "CUDA error"}', "CUDA error", "it repeats a request"),
        ("CUDA error in peer access, falling back", "CUDA error", "the program goes on"),
        ("I srv: CUDA error", "CUDA error", "it states a level below error"),
    ],
)  # fmt: skip
def test_why_a_line_is_none_to_act_on(line: str, words: str, why: str) -> None:
    at = line.index(words)
    assert why_harmless(line, (at, at + len(words))) == why


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ggml: allocating 5 MiB: cudaMalloc failed: out of memory; trying host buffer", "goes on"),
        ("params_fit: device memory: out of memory, continuing with smaller context", "goes on"),
        ("E cudaMalloc: out of memory, and so we are reducing the batch to 256", "goes on"),
        ("pool: out of memory (flushing 12 blocks)", "goes on"),
        ("Autotuning: config num_warps=8 failed: out of resource, out of memory", "goes on"),
        ("tactic 0x3 of gemm failed: CUDA out of memory", "goes on"),
        ('  warnings.warn("CUDA out of memory here")', "hint"),
        ('  logger.warning_once("CUDA error: unlikely")', "hint"),
        ("On small cards CUDA out of memory may occur", "hint"),
        ("Possible solutions: 1. lower x 2. lower y (CUDA out of memory)", "hint"),
        ("Suggested fixes for CUDA error 700: update the driver", "hint"),
        ("Guard rails: abort on out of memory = false", "setting"),
        ("exit on CUDA error: yes", "setting"),
        ("  -e, --on-error MODE   act on CUDA error (default: abort)", "setting"),
        ("oom_kill_allocating_task: 0 # kernel default out of memory", "setting"),
    ],
)
def test_advice_settings_and_what_a_program_does_next_end_no_server(line: str, why: str) -> None:
    match = re.search("CUDA error|out of memory", line)
    assert match is not None
    assert why in why_harmless(line, match.span())


@pytest.mark.parametrize(
    "line",
    [
        "W CUDA error: device-side assert triggered, aborting",
        "WARNING 11-20 10:01:02 [core.py:7] CUDA error: unknown; shutting down the engine",
        "W GGML_ASSERT failed after CUDA error",
        "CUDA error: out of memory, trying to allocate 2 GiB",
        "CUDA out of memory. Try reducing the batch",
        "CUDA error: 2",
        "autotuner: CUDA error: an illegal memory access was encountered",
        "cudaMalloc failed: out of memory; trying host buffer, aborting",
        "-- CUDA error: no device",
        "-ggml: CUDA error: no device",
        "cudaMalloc failed: out of memory (using device 0)",
    ],
)
def test_a_last_word_counts_whatever_stands_beside_it(line: str) -> None:
    match = re.search("CUDA error|out of memory", line)
    assert match is not None
    assert (is_low(line), why_harmless(line, match.span())) == (False, "")


@given(st.text(max_size=300))
def test_any_line_can_be_read(line: str) -> None:
    entry = read(line)
    assert isinstance(entry.text, str)
    why_harmless(line, (0, min(3, len(line))))


@pytest.mark.parametrize(
    "word", ["[", "INFO ", "a: ", "(x ", "| ", "2026-01-01 ", '{"a":', "if it ", "0 "]
)
def test_no_line_is_slow_to_read(word: str) -> None:
    from console.common.logs.buffer import at_most

    line = word * (4096 // len(word))
    with at_most(30.0):  # what takes a power of the line's length would take hours
        why_harmless(line, (len(line) - 1, len(line)))


LOW = "it states a level below error"
REPEATED = "it repeats a request"
NAMED = "it is a name, or says that there was none"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("last CUDA error: cudaSuccess (0)", NAMED),
        ("CUDA error count: 0", NAMED),
        ("OOMs so far: 0, last CUDA error: none", NAMED),
        ("CUDA errors = 0, warnings = 3", NAMED),
        ("prompt = <|im_start|>user CUDA error: out of memory<|im_end|>", REPEATED),
        ("<|start_header_id|>user<|end_header_id|> CUDA error: x", REPEATED),
        ("[INST] what is a CUDA error [/INST]", REPEATED),
        ('response: "You see CUDA error: out of memory since"', REPEATED),
        ("assistant: CUDA error: out of memory means", REPEATED),
        ('1.2.3.4 - - [x] "POST /v1/chat HTTP/1.1" 200 - "curl CUDA error"', REPEATED),
        ('1.2.3.4 - "GET /metrics?q=CUDA error HTTP/1.1" 404 Not Found', REPEATED),
        ("[ERROR] request 17 rejected: too long, would run out of memory", "it is a hint"),
        ("[ERROR] request 17 rejected: out of memory", GOES_ON),
        ("capture: CUDA out of memory of batch 512, capturing up to 256 only", GOES_ON),
        ("cache hit out of memory on GPU 0, moved 3 layers to GPU 1", GOES_ON),
        ("Warmup: batch 512 -> out of memory, batch 256 -> ok", GOES_ON),
        ("cudaMalloc failed: out of memory (expected: probing)", GOES_ON),
        ("Note: cudaMallocAsync may return out of memory", "it is a hint"),
        ("Please report CUDA error lines with your driver", "it is a hint"),
        ('Known issue: on driver 570 "CUDA error: x" was fixed in 575', "it is a hint"),
        ("TensorRT out of memory watermark 90 %", "it is a setting"),
        (' "oom_policy": "stop on out of memory",', "it is a setting"),
        ("prompt inputs: 'CUDA error' is not a valid tool name", "it is a setting"),
        ("[TRT] [W] GPU memory could not be allocated. out of memory", LOW),
        ("[TRT-LLM] [RANK 0] [W] out of memory", LOW),
        ("[TensorRT-LLM][WARNING] CUDA error", LOW),
    ],
)
def test_no_server_ends_for_what_is_none_was_asked_or_was_not_done(line: str, why: str) -> None:
    match = re.search("CUDA error|(?:CUDA )?out of memory", line)
    assert match is not None
    assert why_harmless(line, match.span()) == why


@pytest.mark.parametrize(
    "line",
    [
        "INFO: worker died: CUDA error: device lost",
        "WARNING: CUDA error: an illegal instruction was encountered; the engine is dead",
        "[W] rank 3 has died: CUDA error: x",
        "W srv: GPU is lost (CUDA error: unknown)",
        "[TRT] [E] CUDA error: out of memory",
        "CUDA error: 0x2",
        "request 17 failed: CUDA error: an illegal memory access was encountered",
        "cudaMalloc rejected: out of memory",
        'worker response: "CUDA error: device lost"',
        '  "message": "CUDA error: out of memory",',
        'time=2025-06-11T03:12:44Z level=ERROR msg="CUDA error" error="out of memory"',
        'DriverError(CUDA_ERROR_OUT_OF_MEMORY, "out of memory")',
        "CUDA error handler called: out of memory",
        "no memory could be mapped: CUDA error: out of memory",
    ],
)
def test_a_fatal_line_counts_in_whatever_form(line: str) -> None:
    match = re.search("CUDA error(?! handler)|out of memory", line)
    assert match is not None
    assert why_harmless(line, match.span()) == ""
