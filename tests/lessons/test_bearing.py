"""Which lessons bear on a step: by what it does, in whole words."""

from __future__ import annotations

from console.config.lessons.use import bearing

BEARS = [
    ("run", "$ git clone --depth 1 https://x", "F-013"),
    ("run", "$ llama-server --split-mode graph -m x", "F-024"),
    ("script", "  | cmake -DGGML_CUDA_NO_VMM=ON", "F-003"),
    ("service", "$ docker compose up -d ktransformers-sglang", "F-022"),
    ("service", "$ docker compose up -d deepseek-r1-ik", "F-002"),
    ("service", "creates and starts a container of x: python -m sglang.launch_server", "F-022"),
    ("run", "$ docker exec -d foo bash", "S-012"),
    ("run", "$ pkill -f sglang", "D-003"),
    ("build", "$ docker build -t omni/x:nightly .", "F-011"),
    ("checkpoint", "works out whether it fits, loaded by: sglang, resident", "F-022"),
    ("checkpoint", "works out whether it fits, loaded by: kt-kernel, convert", "F-019"),
    ("gguf", "looks up a/b", "F-008"),
    ("run", "$ huggingface-cli download a/b", "S-010"),
    ("service", "$ ktransformers --model_path /m --gguf_path /m/UD-Q4_K_XL", "F-009"),
    ("run", "$ python convert_cpu_weights.py --input-path /m/x-Q4_K_M", "D-002"),
    ("imports", "imports a", "F-018"),
    ("service", "starts X --kv-cache-dtype   fp8_e4m3", "F-009"),
    ("run", "$ python convert_cpu_weights.py --input-type fp8", "F-019"),
]
BEARS_NOT = [
    ("run", "$ echo --depth 10"), ("run", "$ git clone --recursive https://x"),
    ("run", "$ llama-server --split-mode layer"), ("run", "$ nproc"),
    ("service", "creates and starts a container of llama:cpu: llama-server -m x.gguf"),
    ("benchmark", "9 runs of 256 tokens"), ("note", "hello"), ("run", "$ latest-news"),
    ("note", "no --split-mode graph here, and no sglang"), ("report", "to sglang.md"),
    ("check", "checks that the output of `swapon --show` matches nvme"),
    ("checkpoint", "works out whether it fits, loaded by: llama.cpp, mmap"),
    ("download", "downloads a/b, 16 workers"), ("build", "$ docker build -t omni/x:phase2 ."),
    ("service", "starts python3 -m http.server --directory /nvme/ik_llama.cpp/package"),
    ("service", "starts llama-server -m UD-Q4_K_XL.gguf"),
    ("run", "$ cmake -DGGML_CUDA_NO_VMM=OFF"),
    ("build", "$ docker build -t omni/ik-llama:sm120 ."),
]  # fmt: skip


def found(kind: str, *effects: str) -> list[str]:
    return [one.lesson for one in bearing(kind, list(effects))]


def test_it_bears() -> None:
    assert [row for row in BEARS if row[2] not in found(*row[:2])] == []


def test_it_does_not() -> None:
    assert [row for row in BEARS_NOT if found(*row)] == []


def test_words_may_be_on_two_lines_of_a_script() -> None:
    lines = ["$ sh -eu, a script of its own:", "  | git clone \\", "  |   --depth", "  |   1 x"]
    assert found("script", *lines) == ["F-013"]


def test_each_lesson_once() -> None:
    assert found("run", "$ git clone --depth 1 --shallow-submodules x") == ["F-013"]
